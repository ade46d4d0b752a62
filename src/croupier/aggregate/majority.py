"""SignSGD with majority vote: every weight takes one step where most clients want it to go.

Each client has one vote on each weight, however large its values are. Weights are looked at one by one, so that a row
need not be one client's whole update: the rule works behind shuffles of whole rows, layers and single parameters. A
description names it (`protocol.aggregate = "majority"`).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Move, Robust
from croupier.aggregate.rows import middle
from croupier.core.flow import Memory
from croupier.core.update import Gathered

_BLOCK = 1 << 16

Tie = Literal["still", "previous", "up", "coin"]


def majority(rows: Tensor, tie: Tensor | float = 0.0) -> Tensor:
    """The sign of the sum of the signs; `tie`, one number or one for each coordinate, where that is 0.

    A value of 0 votes for neither side.
    """
    blocks = rows.split(_BLOCK, 1)  # type: ignore[no-untyped-call]
    vote = torch.cat([block.sign().double().sum(0).sign() for block in blocks])
    return torch.where(vote == 0, torch.as_tensor(tie, dtype=torch.float64, device=rows.device), vote)


class Majority(Robust, use="majority"):
    """A step of `lr` by the sign of the sum of the updates' signs.

    Where as many want up as down, a weight stays `still`, goes where it went the round before (`previous`; in the
    first round it stays), goes `up`, or by the toss of a coin. Statistics move by their median.
    From: Bernstein et al. 2019, signSGD with majority vote, on differences: the sign of what local training changed.
    """

    needs = frozenset({"rows"})

    lr: float = Field(0.01, gt=0, description="how far a weight moves in a round")
    tie: Tie = Field(
        "still",
        description="a weight without a majority stays `still`, goes as in the round before (`previous`), `up`, or by "
        "a `coin`",
    )

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The vote, as a step."""
        vote = majority(rows, self._tie(rows.shape[1], desk, memory))
        kept = {**memory, "last": vote.float()} if self.tie == "previous" else memory
        return Move(self.lr * vote, None, kept)

    def rest(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        """The medians of the statistics: their signs would say nothing."""
        return middle(rows)

    def tolerates(self) -> str:
        """What a vote gives."""
        return (
            f"fewer than half of the rows, where the honest agree: no weight moves by more than {self.lr:g} a round, "
            "and liars who are fewer than what a weight's honest majority leads by do not turn it; where the honest "
            "disagree a few liars decide"
        )

    def _tie(self, size: int, desk: Desk, memory: Memory) -> Tensor | float:
        if self.tie == "coin":
            return torch.from_numpy(2.0 * desk.coins.child("ties").secure().below(2, size) - 1)
        if self.tie == "previous" and "last" in memory:
            last: Tensor = memory["last"]
            return last.double()
        return 1.0 if self.tie == "up" else 0.0
