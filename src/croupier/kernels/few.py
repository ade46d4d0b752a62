"""Whether numbers are so few that the plain form of a loop is quicker: to call a compiled one, or to load a compiler.

numba and its loops take as long to load as most of a million numbers take plainly. A process that is started for one
small update, as a Flower client is for every message, never pays for them; one that goes on soon does, and has lost
little. Both forms give the same, so that nothing depends on which was taken. `pack`, `packed`, `residues`, `shares`,
`lanes`, `weighted` and `core.normal` ask it.
"""

from __future__ import annotations

import sys

# Fewer than this are quicker plainly, whatever is loaded.
FEW = 1 << 10
# So many are done plainly in a process before the compiler is loaded.
AT_FIRST = 1 << 17
_done = 0


def few(count: int, light: int = 1) -> bool:
    """Whether the plain form is to be taken for the next `count` numbers.

    `light` says how many times quicker than usual each of them is done: the compiler is then loaded that much later.
    """
    global _done
    if count < FEW:
        return True
    if "numba" in sys.modules or _done + count // light > AT_FIRST:
        return False
    _done += count // light
    return True
