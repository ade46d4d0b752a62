"""Benches of the services: faults that they must survive, bytes that they must refuse, and how fast they carry letters."""
