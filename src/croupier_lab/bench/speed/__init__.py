"""Measurements of seconds and bytes, each beside a rival in the same run.

Sides take turns in one process, the best of several counts, and work that needs a memory mark of its own runs in a
fresh process. Numbers in docs/benchmarks.md name the command that prints them.
"""
