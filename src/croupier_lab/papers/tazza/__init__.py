"""Tazza, models whose units are permuted by a secret order, run again."""
