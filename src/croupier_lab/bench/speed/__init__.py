"""Measurements of seconds and bytes, each beside a rival in the same run."""
