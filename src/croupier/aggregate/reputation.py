"""Rules with a memory of what each client sent: FoolsGold and CONTRA; and ShieldFL, which remembers the last step.

The first two need names, because a history is somebody's: behind a shuffle they are refused, unless whole rows are
shuffled and `slots` takes places of rows for clients. What is remembered is part of the server's state, and is resumed
with it. Descriptions name them, `romoa` derives from `RemembersClients`, and RAIN's comparisons in the laboratory call
the plain functions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Angular, Move, drawn_order
from croupier.aggregate.rows import best, combine, cosines, cosines_to, middle, norms, share
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Layout
from croupier.errors import ProtocolError


def foolsgold(history: Tensor, kappa: float = 1.0) -> Tensor:
    """A weight between 0 and 1 for each row of summed updates: the less, the more like some other's it is."""
    alike = cosines(history).fill_diagonal_(0)
    most = alike.max(1).values
    # The less suspicious of a pair is pardoned: its likeness to one that is more like somebody else counts for less.
    pardon = torch.where(most > most[:, None], share(most[:, None], most), 1.0)
    return _logit(1 - (alike * pardon).max(1).values, kappa)


def contra(history: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """A weight between 0 and 1 for each row of summed updates, and its alignment: the mean of its k best cosines."""
    alike = cosines(history)
    aligned = _top(alike, k)
    positive = aligned.clamp(min=0)
    pardon = torch.where(positive > positive[:, None], share(positive[:, None], positive), 1.0)
    return _logit(1 - _top(alike * pardon, k), 1.0), aligned


def shieldfl(rows: Tensor, reference: Tensor | None = None, order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the rows at length 1, weighted by how unlike each is to the one that is least like the reference.

    The reference is the last direction, or the mean of the rows' directions. Where all point the same way, all count
    alike. A row of no length counts for nothing.
    """
    lengths = norms(rows)
    units = share(torch.ones_like(lengths), lengths)
    toward = combine(rows, units) if reference is None else reference
    worst = rows[best(torch.where(lengths > 0, cosines_to(rows, toward), torch.inf), 1, order)[0]]
    confidence = torch.where(lengths > 0, (1 - cosines_to(rows, worst)).clamp(min=0), 0.0)
    # Rounding alone is no difference.
    confidence = torch.where(confidence < 1e-12, 0.0, confidence)
    if not bool(confidence.any()):
        confidence = (lengths > 0).double()
    weights = share(confidence, confidence.sum())
    return combine(rows, weights * units), weights


def _logit(kept: Tensor, kappa: float) -> Tensor:
    """A weight from 1 less the likeness: in units of the largest, then spread apart by a logit."""
    # Rounding alone is no difference.
    kept = torch.where(kept < 1e-12, 0.0, kept.clamp(max=1))
    kept = share(kept, kept.max())
    kept = torch.where(kept == 1, 0.99, kept)
    return (kappa * (torch.log(kept / (1 - kept)) + 0.5)).clamp(0, 1)


def _top(alike: Tensor, k: int) -> Tensor:
    """The mean of each row's k greatest values, its own left out."""
    if len(alike) == 1:
        return torch.zeros(1, dtype=torch.float64, device=alike.device)
    others = alike.clone().fill_diagonal_(-torch.inf)
    return others.sort(dim=1, descending=True).values[:, : min(k, len(alike) - 1)].mean(1)


class RemembersClients(Angular):
    """A rule that remembers something of each client.

    With `slots` a client is the place of its row: what is remembered behind a shuffle is then a history of places, in
    which clients are mixed anew every round, and where a client is missing all places after its own move up.
    """

    needs: ClassVar[frozenset[str]] = Angular.needs | {"ids"}

    slots: bool = Field(
        False,
        description="remember places of rows and not clients' names; behind a shuffle that is no client's history",
    )

    @property
    def asks(self) -> frozenset[str]:
        """Names too, unless places stand for them."""
        return self.needs - {"ids"} if self.slots else self.needs

    def names(self, gathered: Gathered, count: int) -> tuple[str, ...]:
        """Whose rows they are. Raises: ProtocolError where that is hidden and needed."""
        if self.slots:
            return tuple(str(place) for place in range(count))
        if gathered.ids is None:
            raise ProtocolError(
                f"aggregate = {self.use!r} needs to know whose row is whose; use release = 'rows', or slots = true"
            )
        return gathered.ids


class Adding(RemembersClients):
    """A rule that adds up what each client sent; with `last` only the last layer's weights, which it compares then."""

    last: bool = Field(True, description="compare the last layer only")

    def added(self, rows: Tensor, names: tuple[str, ...], desk: Desk, memory: Memory) -> dict[str, Tensor]:
        """The sums of what everybody sent until now."""
        known: dict[str, Tensor] = dict(memory.get("sent", {}))
        compared = rows[:, last_layer(desk.layout) :] if self.last else rows
        for name, row in zip(names, compared, strict=True):
            known[name] = known[name] + row.float() if name in known else row.float().clone()
        return known


def last_layer(layout: Layout) -> int:
    """The coordinate where the last layer's weights begin; they run to the end of the weights."""
    weights = [(part, start) for part, start, _ in layout.spans() if part.role == "weight"]
    return next(start for part, start in weights if part.layer == weights[-1][0].layer)


class FoolsGold(Adding, use="foolsgold"):
    """Updates weighted by how unlike each client's sum of updates is to every other's; divided by their number.

    From: Fung et al. 2020, without a mask of indicative features; the last layer as in its networks. The authors add
    weighted gradients up; here differences are averaged, so that the weights 1 give a mean. Where all are alike the
    model stays.
    """

    kappa: float = Field(1.0, gt=0, description="how sharply likeness is punished")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted sum over the number of rows. Raises: ProtocolError without names."""
        names = self.names(gathered, len(rows))
        sent = self.added(rows, names, desk, memory)
        weights = foolsgold(torch.stack([sent[name] for name in names]), self.kappa)
        return Move(combine(rows, weights / len(rows)), weights, {**memory, "sent": sent})

    def tolerates(self) -> str:
        """What it is made for, and what not."""
        return (
            "clients that send like updates round after round lose their weight, however many they are; a liar who is "
            "unlike all others does not, its length is not bounded, and honest clients with like data lose theirs too"
        )


class Contra(Adding, use="contra"):
    """Updates weighted by how little each client's sum of updates is aligned with those of its k nearest.

    Every round a client's reputation, 1 at first, falls by `delta` where its alignment is above `threshold` and rises
    by it elsewhere. Of the updates of a round `fraction` are used, drawn by chances in proportion to fraction +
    fraction (1 - fraction) reputation; with 1 all are, and reputations decide nothing. They do not fall below 0.
    From: Awan et al. 2021 (CONTRA), whose server chooses whom to invite: here it chooses among those who came. Weights
    are spread as in FoolsGold, and the sum is divided by the number of updates that are used.
    """

    k: PositiveInt = Field(5, description="how many of the best cosines are averaged")
    delta: float = Field(0.1, ge=0, description="how far a reputation moves in a round")
    threshold: float = Field(0.5, ge=-1, le=1, description="the alignment above which a reputation falls")
    fraction: float = Field(1.0, gt=0, le=1, description="the share of the updates that is used, by reputation")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted sum over the number of updates used. Raises: ProtocolError without names."""
        names = self.names(gathered, len(rows))
        standing = dict(memory.get("standing", {}))
        used = self._used([standing.get(name, 1.0) for name in names], desk)
        sent = self.added(rows, names, desk, memory)
        weights, aligned = contra(torch.stack([sent[name] for name in names]), self.k)
        weights = torch.where(used, weights, 0.0)
        for name, value in zip(names, aligned.tolist(), strict=True):
            change = -self.delta if value > self.threshold else self.delta
            standing[name] = max(0.0, standing.get(name, 1.0) + change)
        kept = {**memory, "sent": sent, "standing": standing}
        return Move(combine(rows, weights / int(used.sum())), weights, kept)

    def tolerates(self) -> str:
        """What it is made for, and what not."""
        return (
            "clients whose updates are aligned with several others' round after round lose their weight; a liar who is "
            "unlike all others does not, its length is not bounded, and honest clients with like data lose theirs too"
        )

    def _used(self, standing: list[float], desk: Desk) -> Tensor:
        count = len(standing)
        if self.fraction == 1:
            return torch.ones(count, dtype=torch.bool)
        chances = np.array([1 + (1 - self.fraction) * one for one in standing])
        many = math.ceil(self.fraction * count - 1e-9)
        drawn = desk.coins.child("used").sampler().choice(count, many, replace=False, p=chances / chances.sum())
        used = torch.zeros(count, dtype=torch.bool)
        used[torch.from_numpy(drawn)] = True
        return used


class ShieldFL(Angular, use="shieldfl"):
    """Directions weighted by how unlike each is to the one that is least like the last step; at the median length.

    From: Ma et al. 2022, in the clear. There clients send updates of length 1; here the server brings them to it and
    the sum to the median of their lengths, so that local training keeps its pace. In the first round the mean of all
    directions stands for the last step. It remembers that step only, so it needs no names.
    """

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted directions at the median length."""
        last = memory.get("last")
        reference = None if last is None or not bool(last.any()) else last
        direction, weights = shieldfl(rows, reference, drawn_order(desk, len(rows)))
        return Move(direction * middle(norms(rows)), weights, {**memory, "last": direction.float()})

    def tolerates(self) -> str:
        """What lengths of 1 give."""
        return (
            "fewer than half of the rows, in this sense only: the weights' step is no longer than the longest honest "
            "update; what is like the one least like the last step counts for less, and a liar can be that one"
        )
