"""Measurements of seconds and bytes, beside a rival in the same run where there is one.

Sides that can share a process take turns in it, and mostly the best of several counts. Work that needs a memory mark of
its own runs in a fresh process. Numbers in docs/benchmarks.md name the command that prints them.
"""
