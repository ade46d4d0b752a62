"""What whoever computes a scored sum needs to know of it: its rule, as a protocol that a release may offer.

`release.scored` is the one release that offers it. The two servers (`place.two_servers`) follow it on shares and need
not know which release it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from croupier.release.printed import Printed

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Verdict:
    """A weight for each row, and why: the threshold, and the lower one where there is one.

    `withheld`: so few rows were accepted that their sum would show single ones; all weights are then 0.
    """

    weights: Ints
    threshold: float
    lower: float | None = None
    withheld: bool = False

    @property
    def total(self) -> int:
        """What the weights add up to."""
        return int(self.weights.sum())


class ScoreRule(Protocol):
    """How distances to a reference become weights, and what is let out of the weighted sum."""

    @property
    def weights(self) -> str:
        """How accepted rows count."""

    @property
    def opens(self) -> Literal["sums", "signs"]:
        """Whether the sum leaves, or only its signs."""

    @property
    def scores(self) -> Literal["open", "secret"]:
        """Whether distances are opened."""

    def most(self, rows: int, size: int) -> int:
        """The most that weights can add up to, for so many rows of so many coordinates: a sum must fit its words."""

    def printed(self, size: int) -> Printed:
        """The rule of secret scores."""

    def judge(self, distances: Ints, size: int) -> Verdict:
        """Weights for rows at these distances, of so many coordinates."""

    def let_out(self, votes: Ints, total: int = 0, distances: Ints | None = None) -> dict[str, Tensor]:
        """What leaves of a weighted sum."""
