"""The weighted mean (FedAvg), and the same with a public scale for fixed point.

The default of `protocol.aggregate`, and the rule of most presets. Rows are added in float64 with what each addition
rounds away carried along (`kernels.weighted`), so that the result does not depend, to the last bit, on the order that a
shuffle left: protocols which differ only in what the server sees then train the same model. `Scaled` hands out each
round's scale with the model, for `encode.fixed` and `encode.residues`.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.budget import By, factors
from croupier.aggregate.robust import weight_count
from croupier.aggregate.step import Average, Step
from croupier.core import wire
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Layout, Model
from croupier.encode.encoder import Brief
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.kernels.weighted import weighted


class Mean(Aggregator, use="mean"):
    """The mean of the updates, weighted as the encoder says, and what the server's `step` makes of it.

    `by` weighs them by their published noise too: by 1 / (noise + `signal`) for `variance`, where `signal` is the
    variance of a coordinate of an honest update, or in proportion to the published `epsilon`. With an adaptive `step`
    the difference to the last model is a pseudo-gradient (FedAdam, FedYogi, FedAdagrad); statistics of normalising
    layers are no gradients, and still averaged.
    """

    linear: ClassVar[bool] = True

    step: Step = Field(
        Average(), description="what the server makes of the mean: `average`, `damped`, `adam`, `yogi` or `adagrad`"
    )
    by: By = Field(
        "records",
        description="what clients count for: `records` as the encoder's `weights` say, times 1 / (noise `variance` + "
        "`signal`), or times `epsilon`",
    )
    signal: float = Field(
        0.0,
        ge=0,
        description="with `by = 'variance'`: the variance of a coordinate of an honest update, a public guess; 0 "
        "trusts the least noisy most",
    )

    @model_validator(mode="after")
    def _signal_is_used(self) -> Self:
        if self.signal and self.by != "variance":
            raise SpecError(
                f"protocol.aggregate.signal = {self.signal:g}: only by = 'variance' reads it, and by = {self.by!r}; "
                "leave it out"
            )
        return self

    @property
    def asks(self) -> frozenset[str]:
        """The rows' labels, where it weighs by them."""
        return self.needs | ({"labels"} if self.by != "records" else set())

    @property
    def anew(self) -> bool:
        """Unless its step adapts: then it needs the last model, and moments."""
        return not self.step.adapts

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """One model: the mean, or the last model moved by it. Raises: ProtocolError where nothing can be averaged."""
        mean = self._mean(gathered)
        last = desk.models[0].vector.double()
        if self.step.adapts:
            change = mean if gathered.form == "delta" else mean - last
            learned = weight_count(desk.layout)
            moved, memory = self.step(change[:learned], gathered.frame, memory)
            mean = last + torch.cat([moved, change[learned:]])
        elif gathered.form == "delta":
            mean = last + mean
        return (Model(mean.float(), gathered.frame),), memory

    def _mean(self, gathered: Gathered) -> Tensor:
        factor = factors(gathered, self.by, self.signal, self.use)
        return _total(gathered, factor) / _weight(gathered, factor)

    def tolerates(self) -> str:
        """Nothing."""
        return "none: one client that lies can move the model anywhere its values may go"


class Scaled(Mean, use="scaled"):
    """The mean, with a public power-of-two scale taken from the last model, so that fixed point wastes no digits.

    With `each`, every tensor has its own.
    """

    rescales: ClassVar[bool] = True

    room: float = Field(1.25, ge=1, description="how far the public scale lies above the last model's largest weight")
    # The first model is small and its weights grow at once: a scale taken from it alone would clamp them.
    floor: float = Field(1.0, gt=0, description="the least scale; lower it for small weights or differences")
    each: bool = Field(False, description="one scale a tensor, which matters below the floor only")

    def public(self, layout: Layout) -> tuple[wire.Field, ...]:
        """One scale for the whole model, or one a tensor."""
        return (wire.Field("scale", "<f8", (len(layout.carried) if self.each else 1,)),)

    def brief(self, desk: Desk, memory: Memory) -> Brief:
        """The least power of two that is `room` times the last model's largest value, and `floor`, or more."""
        return {"scale": self._scales(desk.models[0], desk.layout)}

    def verify(self, model: Model, brief: Brief, layout: Layout) -> None:
        """The scale is a function of the model: a server cannot choose one that makes a client's values vanish."""
        given, wanted = brief["scale"], self._scales(model, layout)
        if not torch.equal(given, wanted):
            raise RangeError(f"scale = {given.tolist()}: the model handed out gives {wanted.tolist()}")

    def _scales(self, model: Model, layout: Layout) -> Tensor:
        parts = list(layout.split(model.vector).values()) if self.each else [model.vector]
        most = [float(part.abs().max()) if part.numel() else 0.0 for part in parts]
        needed = [max(self.room * value, self.floor) for value in most]
        return torch.tensor([2.0 ** math.ceil(math.log2(value)) for value in needed], dtype=torch.float64)


def _total(gathered: Gathered, factor: Tensor | None) -> Tensor:
    """The weighted sum in float64, the same whatever order a shuffle left the rows in."""
    if gathered.sums is not None:
        return gathered.sums.double()
    if gathered.rows is None or gathered.weights is None:
        raise ProtocolError("a mean needs rows or sums; nothing was released")
    if len(gathered.weights) != len(gathered.rows):
        raise ProtocolError(f"{len(gathered.weights)} weights for {len(gathered.rows)} rows")
    weights = torch.ones_like(gathered.weights) if gathered.scaled else gathered.weights
    weights = weights if factor is None else weights.double() * factor
    return torch.from_numpy(weighted(gathered.rows.cpu().numpy(), weights.cpu().double().reshape(-1).numpy()))


def _weight(gathered: Gathered, factor: Tensor | None) -> float:
    weights = gathered.weights
    if weights is not None and factor is not None:
        weights = weights.double() * factor
    total = math.fsum(weights.reshape(-1).tolist()) if weights is not None else 0.0
    if not total > 0:
        raise ProtocolError(f"the clients' weights sum to {total}: no client brought a record")
    return total
