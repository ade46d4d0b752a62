"""Measurements of what outputs give away, and of how far the audit's own numbers can be trusted."""
