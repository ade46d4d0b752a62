"""Loops that must be fast, compiled by numba, each beside a plain reference that says what it does.

A kernel is a pair: `x.py` holds the function that others call and a slow form in plain Python or NumPy (`..._plain`),
and `_x_jit.py` the compiled loop. Tests hold the two against each other on random and extreme inputs; readers need only
the plain one.

The ground floor of the house: nothing here imports another room, and nothing here knows clients, coins or protocols.
Numbers are exact integers or bits, or floats that are added in one fixed order, so that threads and machines cannot
change a result.
"""
