"""Flower with and without protection: the same app on a grid in this process, and on a SuperLink with SuperNodes."""
