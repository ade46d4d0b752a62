"""The coordinate-wise median: every parameter by itself takes the middle of what the clients sent.

It looks at each parameter alone, so that it works even behind a shuffle of single parameters. While fewer than half of
a parameter's rows are lies, they cannot move it past honest values; a row may be the mean of a group
(`release.groups`), which one liar spoils. A description names it (`protocol.aggregate = "median"`).
"""

from __future__ import annotations

from typing import ClassVar

import torch

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.rows import alike, middle
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Model

# Coordinates that are sorted at once.
_BLOCK = 1 << 16


class Median(Aggregator, use="median"):
    """The middle of each coordinate's values, or the mean of the two middle ones; every client counts alike.

    It needs rows but not their order, so that it works on what a shuffle of single parameters lets out. A weighted
    median is not offered: clients state their own weights, and one that states a large one would be the median.
    From: Yin et al. 2018, Byzantine-robust distributed learning.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"rows"})

    @property
    def anew(self) -> bool:
        """True: nothing is remembered, which `encode.hidden` asks where each round has coordinates of its own."""
        return True

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """One model: the median, or the last model moved by it. Raises: ProtocolError without rows that count alike."""
        blocks = alike(gathered, self.use).split(_BLOCK, 1)  # type: ignore[no-untyped-call]
        found = torch.cat([middle(block) for block in blocks])
        if gathered.form == "delta":
            found = desk.models[0].vector.double() + found
        return (Model(found.float(), gathered.frame),), memory

    def tolerates(self) -> str:
        """For the statement, what it stands: only what follows from its being a median."""
        return (
            "fewer than half of the rows: while fewer than half of the values sent for a parameter are lies, their "
            "median lies between the least and the greatest honest one; nothing is claimed on whether training succeeds"
        )
