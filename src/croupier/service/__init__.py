"""Parties as programs of their own: their keys, who they are to each other, and how letters travel between them.

In a simulation one process plays everybody. In a deployment each organisation holds its own keys, and a roster that
all of them have compared says who takes part in what.
"""
