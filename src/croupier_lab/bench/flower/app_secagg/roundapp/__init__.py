"""The round app under Flower's own SecAgg+: its other files are those of the plain app."""
