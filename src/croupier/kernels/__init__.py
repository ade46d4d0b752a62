"""Loops that must be fast, compiled by numba, each beside a plain reference that says what it does.

Most files are kernels, in pairs: `x.py` holds the function that others call and a slow form in plain Python or NumPy,
mostly named `..._plain`, and `_x_jit.py` the compiled loop. Tests hold the two against each other on random and extreme
inputs; readers need only the plain one, which mostly also does what is too short to be worth a compiled call
(`kernels.few`). `threads`, `rows` and `memory` compile nothing: they share work among cores and manage memory.

The ground floor of the library: nothing here imports another room, and nothing here knows clients, coins or protocols.
Numbers are exact integers or bits, or floats that are added in one fixed order, so that threads and machines cannot
change a result. Above it `core.coins` and `core.wire` use it most, then encoders, releases and `mpc`.
"""
