"""Here compiled loops are held against plain ones: with the compiler loaded, all but the fewest numbers go to it."""

import numba  # noqa: F401
