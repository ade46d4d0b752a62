"""Benches of the services: faults to survive, bytes to refuse, and how fast letters are carried."""
