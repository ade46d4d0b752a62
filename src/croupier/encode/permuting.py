"""Moves vectors and records along a network's symmetries, for whoever has the network.

A *rule* is one permutation for each group of hidden units or inputs, drawn from a secret and a round's number. A
client's flow knows the secret but no network, so that it asks for the work `permute`, which `engine.work` gives it from
here; whoever plays rounds (`engine.loop`, audits, services) puts models back into plain order by the same. Many clients
of one process need the same rule, for updates and for the samples beside them, so that what it moves where is worked
out once and kept for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from croupier.errors import CroupierError

if TYPE_CHECKING:
    from croupier.encode.shuffled import Shuffled
    from croupier.encode.symmetry import Symmetry

# Rules that are kept, the latest, each as long as the model. A round takes two: its model lies under an earlier round's
# rule, and its updates are moved under its own.
MOST = 8


@dataclass
class Permuting:
    """Moves vectors along a network's symmetries; what a rule moves where is worked out once for a secret and round."""

    symmetry: Callable[[], Symmetry]
    known: dict[tuple[bytes, int], Shuffled] = field(default_factory=dict, repr=False)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Vectors under the rule of a seed and a round, or back from it: the work `permute`.

        Each job is a vector, the seed, the round, and whether it goes back. The type is that of all work, which may
        return an error in a result's place; here none is returned.
        """
        return [self.moved(*job) for job in jobs]

    def inputs(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Records as networks under the rule of a seed and a round take them: the work `permute input`."""
        return [self._under(seed, number).permute(record.unsqueeze(0))[0] for record, seed, number in jobs]

    def moved(self, vector: Tensor, seed: bytes, number: int, back: bool) -> Tensor:
        """One vector under the rule of a seed and a round, or back from it."""
        under = self._under(seed, number)
        return under.invert(vector) if back else under.apply(vector)

    def _under(self, seed: bytes, number: int) -> Shuffled:
        key = (seed, number)
        if key not in self.known:
            symmetry = self.symmetry()
            self.known[key] = symmetry.under(symmetry.rule(seed, number))
            if len(self.known) > MOST:
                del self.known[next(iter(self.known))]
        return self.known[key]
