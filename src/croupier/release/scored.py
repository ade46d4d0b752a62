"""The release of RAIN: how far each row of signs lies from a reference, and a sum of the rows that lie near enough.

The rule that turns distances into weights is part of the release, because whoever computes the sum must follow it. It
is a function of the distances as a set: the order of the rows does not matter, and does not show. `aggregate.signs`
makes the reference and takes the step.

`place.two_servers` computes it on shares; behind a relay it is computed in the clear, which is the oracle that the law
*realise* compares with. Presets `rain` and `rain-honest`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.update import Layout, Modulus
from croupier.errors import ProtocolError, SpecError
from croupier.release.printed import Printed
from croupier.release.release import Release, ReleaseContext, Shape
from croupier.release.scoring import Ints, Verdict

# Scales a median of absolute deviations to the standard deviation of a normal.
NORMAL = 1.4826
# Real weights are kept as whole numbers of sixteenths of a coordinate.
_UNIT = 16
# The fewest clients of which weights in levels are taken.
_CROWD = 50


class ScoredSum(Release, use="scored"):
    """Distances of the shuffled rows to the reference, and the weighted sum of the rows.

    A row counts when it is nearer than median + 1.4826 `spread` MAD, and, with `gate`, nearer than chance: than half of
    the coordinates less three standard deviations. `weights`: `equal` counts such rows alike; `levels` in so many
    steps, merged until each holds `among` rows besides `colluders`; `relu` by how much nearer they are, which opens
    most rows to whoever sees the sum. `side` "two" also turns away rows nearer than median - 1.4826 `spread` MAD. With
    `expected`, the distance of an honest row as a share, both limits are taken from it instead of the sample.

    `opens` "signs" lets out only the sign of every coordinate of the sum, -1, 0 or 1, with a total of 1 (0 where all of
    them are 0). `scores` "secret" lets out no distance either: RAIN's rule as printed, which takes weights = "relu",
    opens = "signs" and no gate; its least deviation is that of rows that differ in half of the coordinates. Two servers
    then multiply every coordinate of every row by a secret weight: for models of few parameters.

    RAIN's Algorithm 1; with secret scores Algorithm 2. Not as printed: the gate, the weights, and the least
    deviation (`floor`), without which identical rows give a threshold that none of them meets.
    """

    shape: ClassVar[Shape] = "scored"
    hides: ClassVar[frozenset[str]] = frozenset({"ids", "rows"})

    spread: float = Field(2.2, gt=0, description="a row counts below median + 1.4826 `spread` MAD of the distances")
    gate: bool = Field(True, description="and only below half of the coordinates less three deviations of chance")
    weights: Literal["equal", "levels", "relu"] = Field(
        "equal",
        description="accepted rows count `equal`, in `levels` steps (50 clients at least), or by nearness (`relu`, "
        "which opens most rows)",
    )
    levels: int = Field(7, ge=2, le=64, description="how many steps of weight")
    side: Literal["one", "two"] = Field(
        "one", description="`two` also turns away rows as far below the median; `relu` needs `one`"
    )
    expected: float | None = Field(
        None,
        gt=0,
        lt=0.5,
        description="the distance of an honest row as a share, from which both limits are then taken instead of the "
        "sample",
    )
    floor: bool = Field(
        True,
        description="the MAD counts as no less than chance makes it; without it, as printed, rows at one distance are "
        "all turned away",
    )
    among: int = Field(3, ge=1, description="fewest rows that are added up, and that share a level; fewer are withheld")
    colluders: int = Field(0, ge=0, description="so many of them are assumed to know their own rows, and come on top")
    opens: Literal["sums", "signs"] = Field(
        "sums",
        description="the sum itself (`sums`), or only each coordinate's sign (`signs`; `output = 'sign'`, in a `pair` "
        "`malicious = false`)",
    )
    scores: Literal["open", "secret"] = Field(
        "open",
        description="distances are opened (`open`), or neither distance nor weight is (`secret`: RAIN's printed rule, "
        "for small models)",
    )

    @property
    def signs_only(self) -> bool:
        """With opens = 'signs'."""
        return self.opens == "signs"

    @property
    def weighs(self) -> bool:
        """Where weights are not equal, and what they weigh is opened."""
        return self.weights != "equal" and not self.signs_only

    @model_validator(mode="after")
    def _two_sided(self) -> Self:
        if self.side == "two" and self.weights == "relu":
            raise SpecError("protocol.release.side = 'two' with weights = 'relu': use weights = 'equal' or 'levels'")
        return self

    @model_validator(mode="after")
    def _as_printed(self) -> Self:
        if self.scores == "open":
            return self
        wanted = {"opens": "signs", "weights": "relu", "gate": False, "expected": None}
        for name, value in wanted.items():
            if (given := getattr(self, name)) != value:
                word = "false" if value is False else repr(value)
                remedy = "set none" if value is None else f"use {name} = {word}"
                raise SpecError(
                    f"protocol.release.{name} = {given!r} with scores = 'secret': secret scores follow RAIN's rule as "
                    f"printed, where nothing but signs is opened; {remedy}"
                )
        return self

    @property
    def least(self) -> int:  # type: ignore[override]
        """As many as must be accepted; a sum in levels needs a crowd to be divided."""
        needed = self.among + self.colluders
        return max(2, needed, _CROWD if self.weights == "levels" else 0)

    @property
    def heaviest(self) -> int:
        """The largest weight where it does not depend on the number of coordinates, else 0."""
        return {"equal": 1, "levels": self.levels, "relu": 0}[self.weights]

    def most(self, rows: int, size: int) -> int:
        """No less than what weights of so many rows can add up to."""
        # The gate is below `size`. Without it a threshold is at most `size` and so many deviations of at most as much.
        top = size if self.gate else math.ceil(size * (1 + NORMAL * max(1, self.spread)))
        return rows * (self.heaviest or _UNIT * top)

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[wire.Field, ...]:
        """A distance a row, in shuffled order (unless secret), the sum of the weights, and the weighted sum."""
        distances = wire.Field("distances", "<i4", ("present",), slots)
        sums = (wire.Field("total", "<i8", (1,)), wire.Field("sums", "<i8", (slots,)))
        return (distances, *sums) if self.scores == "open" else sums

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Raises: ProtocolError, because rows cannot be scored without a reference."""
        raise ProtocolError("release = 'scored' measures distances to a reference: use `against`")

    def compute(
        self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node, context: ReleaseContext
    ) -> Mapping[str, Tensor]:
        """Against the reference that the server showed."""
        return self.against(rows, context.late["reference"], coins)

    @property
    def scoring(self) -> Self:
        """Its own rule."""
        return self

    def against(self, rows: Sequence[Tensor], reference: Tensor, coins: Node) -> Mapping[str, Tensor]:
        """What leaves of rows of bits, one a coordinate, and a reference of the same kind."""
        order = coins.child("rows").secure().permutation(len(rows))
        bits, wanted = [rows[i].numpy() for i in order], reference.numpy()
        distances = np.array([np.count_nonzero(row != wanted) for row in bits], np.int64)
        if self.scores == "secret":
            return self.let_out(_votes(bits, self.printed(len(wanted)).weights(distances)))
        verdict = self.judge(distances, len(wanted))
        return self.let_out(_votes(bits, verdict.weights), verdict.total, distances)

    def printed(self, size: int) -> Printed:
        """The rule of secret scores."""
        return Printed.of(self.spread, size, self.floor)

    def let_out(self, votes: Ints, total: int = 0, distances: Ints | None = None) -> dict[str, Tensor]:
        """What leaves of a weighted sum, or of its signs, with what the weights add up to, and of open distances."""
        if self.opens == "signs":
            votes = np.sign(votes)
            total = int(votes.any())
        found = {"total": torch.tensor([total]), "sums": torch.from_numpy(votes)}
        if distances is not None:
            found["distances"] = torch.from_numpy(distances.astype(np.int32))
        return found

    def judge(self, distances: Ints, size: int) -> Verdict:
        """Weights for rows at these distances, of so many coordinates."""
        upper, lower = self._limits(distances, size)
        if self.gate:
            upper = min(upper, size / 2 - 1.5 * math.sqrt(size))
        near = distances < upper
        if lower is not None:
            near &= distances > lower
        if self.weights == "relu":
            weights = np.where(near, np.floor(_UNIT * (upper - distances)), 0).astype(np.int64)
            return Verdict(weights, upper, lower)
        if near.sum() < self.among + self.colluders:
            return Verdict(np.zeros(len(distances), np.int64), upper, lower, bool(near.any()))
        weights = near.astype(np.int64) if self.weights == "equal" else self._levelled(distances, near, upper)
        return Verdict(weights, upper, lower)

    def _limits(self, distances: Ints, size: int) -> tuple[float, float | None]:
        if self.expected is not None:
            middle = self.expected * size
            width = 3 * math.sqrt(size * self.expected * (1 - self.expected))
        else:
            middle = float(np.median(distances))
            deviation = float(np.median(np.abs(distances - middle)))
            if self.floor:
                deviation = max(deviation, _sampling(middle, size) / NORMAL)
            width = NORMAL * self.spread * deviation
        return middle + width, middle - width if self.side == "two" else None

    def _levelled(self, distances: Ints, near: npt.NDArray[np.bool_], upper: float) -> Ints:
        """Steps between the threshold and the nearest row; steps with too few rows join the one below them."""
        nearest = float(distances[near].min())
        steps = np.ceil(self.levels * (upper - distances) / (upper - nearest)).clip(1, self.levels).astype(np.int64)
        weights, group, closed = np.zeros(len(distances), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        for step in sorted(set(steps[near].tolist()), reverse=True):
            group = np.concatenate([group, np.flatnonzero(near & (steps == step))])
            if len(group) >= self.among + self.colluders:
                weights[group], closed, group = step, group, group[:0]
        if len(group):
            # The farthest are too few to stand alone: the level above comes down to them.
            weights[closed] = weights[group] = steps[group].min()
        return weights

    def over_rounds(self) -> str:
        """Distances link rows, and who counts changes."""
        if self.scores == "secret":
            return "the signs of every round's weighted sum; nothing is claimed for what many rounds of them add up to"
        return (
            "nothing is claimed: a row that lies far or near in every round can be linked by its distance, and the "
            "rows that count change from round to round, so that their sums can be taken apart"
        )

    def anonymity(self) -> str:
        """Among those present, and among those of one weight."""
        if self.scores == "secret":
            return "a sign is of a weighted sum over (clients present minus clients that collude with a server)"
        return (
            "a distance is one of (clients present minus clients that collude with a server); a sum is of the accepted "
            "rows of one weight, of which colluders know their own and may aim at others"
        )

    def reveals(self) -> str:
        """Distances, and the sum; or less."""
        if self.scores == "secret":
            return (
                "of every coordinate which way the weighted sum of the rows of signs points, or that it is 0; no "
                "distance, no weight and no sum"
            )
        distances = "the distance of every row of signs to the reference, in random order, and"
        if self.opens == "signs":
            return (
                f"{distances} of every coordinate which way the sum of the rows near enough points, or that it is 0; "
                "how large the sum is is not opened"
            )
        how = {
            "equal": "with weights 0 and 1",
            "levels": f"with whole weights up to {self.levels}, each of {self.among + self.colluders} rows or more",
            "relu": "with a weight of its own for every row, from which most rows can be computed",
        }
        return (
            f"{distances} the sum of the rows near enough, {how[self.weights]}; where all of these agree, their common "
            "sign"
        )


def _votes(bits: Sequence[npt.NDArray[np.uint8]], weights: Ints) -> Ints:
    """The weighted sum of rows, their bits taken for -1 and 1."""
    sums = np.full(len(bits[0]), -int(weights.sum()), np.int64)
    for weight, row in zip(weights, bits, strict=True):
        if weight:
            # A sign is twice its bit less one.
            sums += (2 * weight) * row
    return sums


def _sampling(middle: float, size: int) -> float:
    """The standard deviation of a distance that is a sum of independent coordinates."""
    share = min(max(middle / size, 0.0), 1.0)
    return math.sqrt(size * share * (1 - share))
