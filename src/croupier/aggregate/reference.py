"""Rules that compare updates with the server's own, trained on its root records: FLTrust and FLOD.

What the server learns from its few clean records (`task.root`) is the direction that clients are measured by. RAIN's
scored sum (`release.scored`) is FLOD's idea with the comparison hidden. A description names either rule, and the
laboratory compares both with RAIN, FLTrust also with clusters.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Angular, Move, root_direction
from croupier.aggregate.rows import combine, cosines_to, norms, share
from croupier.core.flow import Memory
from croupier.core.update import Gathered

_BLOCK = 1 << 16


def fltrust(rows: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the rows, each at the root's length and weighted by its positive cosine with the root.

    Where nobody is trusted the direction is zero, and so are the weights.
    """
    trust = cosines_to(rows, root).clamp(min=0)
    weights = share(trust, trust.sum())
    return combine(rows, weights * share(root.double().norm(), norms(rows))), weights


def flod(rows: Tensor, root: Tensor, threshold: float = 0.5) -> tuple[Tensor, Tensor]:
    """The mean of the rows' signs, each weighted by how far its Hamming distance to the root's is below the threshold.

    Distances are shares of the coordinates; 0 has the sign +1. Where nobody is trusted all is zero.
    """
    trust = (threshold - hamming(rows, root)).clamp(min=0)
    weights = share(trust, trust.sum())
    return torch.cat([weights @ _signs(block) for block in _split(rows)]), weights


def hamming(rows: Tensor, root: Tensor) -> Tensor:
    """The share of the coordinates in which each row's sign is not the root's; 0 has the sign +1."""
    pairs = zip(_split(rows), _split(root.reshape(1, -1)), strict=True)
    apart = sum(((block < 0) != (own < 0)).sum(1) for block, own in pairs)
    return torch.as_tensor(apart, device=rows.device).double() / rows.shape[1]


def _signs(rows: Tensor) -> Tensor:
    return 1.0 - 2.0 * (rows < 0).double()


def _split(rows: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = rows.split(_BLOCK, 1)  # type: ignore[no-untyped-call]
    return parts


class FLTrust(Angular, use="fltrust"):
    """Updates scaled to the length of the server's own and weighted by their positive cosine with it.

    From: Cao et al. 2021. The server trains as clients do, from the same model, on its root records. Where every trust
    is 0 the model stays; a length of 0 gives no trust, so that no small number is added to divisions.
    """

    needs = Angular.needs | {"root"}

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The trusted direction."""
        return Move(*fltrust(rows, root_direction(desk, self.use)), memory)

    def tolerates(self) -> str:
        """What a bound on lengths gives."""
        return (
            "any number of liars, in this sense only: the weights' step is no longer than the server's own on its root "
            "records, and updates that point away from it count for nothing; nothing is claimed where those records "
            "are few or unlike the clients', or where lies point roughly the same way"
        )


class FLOD(Angular, use="flod"):
    """A step of `lr` along the mean of the updates' signs, weighted by their nearness to the server's own signs.

    An update counts for what its Hamming distance is below `threshold`, as a share of the coordinates.
    From: Dong et al. 2021, in the clear; tau is half of the coordinates there. Zero has the sign +1. The sign is of
    what training changed, so that steps go along it; where every weight is 0 the model stays.
    """

    needs = Angular.needs | {"root"}

    threshold: float = Field(
        0.5,
        gt=0,
        le=1,
        description="the share of signs that may differ from the server's own before an update counts for nothing",
    )
    lr: float = Field(0.01, gt=0, description="how far a step goes")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted signs, as a step."""
        direction, weights = flod(rows, root_direction(desk, self.use), self.threshold)
        return Move(self.lr * direction, weights, memory)

    def tolerates(self) -> str:
        """What signs and a threshold give."""
        return (
            f"any number of liars, in this sense only: no weight moves by more than {self.lr:g} a round, and updates "
            f"whose signs differ from the server's own in {self.threshold:.0%} of the coordinates or more count for "
            "nothing; nothing is claimed where its root records are few or unlike the clients'"
        )
