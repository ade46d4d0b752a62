"""Integers out of floats: a public scale, so many digits or steps, a rounding rule, and a clamp that is counted.

`encode.fixed` and `encode.residues` derive from `OnGrid` and differ only in how the integers travel. A scale is public
and the same for all clients, or sums would mean nothing; it comes with the model from `aggregate.mean` (`scaled`), or
is set. Values beyond it are clamped, counted, and told to the client and to the experimenter, never to the server.
Rounding is to even, down, or up or down by a draw.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core.coins import Node
from croupier.core.update import Gathered, Layout, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released, row_weights
from croupier.errors import IntegrityError, ProtocolError, RangeError, SpecError
from croupier.kernels import residues
from croupier.kernels.residues import Rounding

# Beyond these a scale carries no model: a server that sends one wants a client's values to vanish or to be clamped.
LEAST, MOST = 2.0**-30, 2.0**30


class OnGrid(Encoder):
    """An encoder whose coordinates are integers that can be added exactly.

    Values beyond the scale are clamped, and counted for the client itself. The scale is public: it stands in the
    round's brief (one for the model, or one for each tensor), or it is `scale`. `excluded` layers are not sent: the
    model keeps them as they are.
    """

    digits: int = Field(
        4, ge=1, le=9, description="decimal digits that the scale is cut into; `steps` says it otherwise"
    )
    steps: int | None = Field(
        None, ge=1, le=10**9, description="into how many steps the scale is cut, instead of `digits`"
    )
    clients: int = Field(
        ge=1, description="most clients that are ever summed; follows from the cohort or the split where it is not said"
    )
    scale: float = Field(
        1.0, ge=LEAST, le=MOST, description="the largest value that can be sent; larger ones are clamped and counted"
    )
    rounding: Rounding = Field(
        "even",
        description="to the nearest step (`even`), up or down by chance (`stochastic`), or down (`floor`, as the "
        "paper prints it)",
    )
    excluded: tuple[str, ...] = Field((), description="layers that are not sent, with `form = 'delta'`")

    @model_validator(mode="after")
    def _sums_fit(self) -> Self:
        if 2 * self.clients * self.top + 1 > 1 << 62:
            raise SpecError(
                f"protocol.encode.digits = {self.digits} with clients = {self.clients}: sums need more than 62 bits; "
                "use fewer digits"
            )
        if self.excluded and self.form != "delta":
            raise SpecError(
                f"protocol.encode.excluded = {list(self.excluded)} with form = {self.form!r}: a layer that is not sent "
                "stays as it is only where differences are sent; set protocol.encode.form = 'delta'"
            )
        return self

    @property
    def top(self) -> int:
        """The largest integer one client sends."""
        return int(10**self.digits) - 1 if self.steps is None else self.steps

    @property
    def unit(self) -> int:
        """What a whole scale is as an integer; a weight of 1 too."""
        return int(10**self.digits) if self.steps is None else self.steps

    def slots(self, layout: Layout) -> int:
        """How many coordinates travel: those that are not excluded, and the weight where it is one more."""
        return sum(stop - start for start, stop in self._sent(layout)) + self.scaled

    @abstractmethod
    def summed(self, released: Released) -> Tensor:
        """The integers that were released, or whose sums were: within half the range on either side of 0."""

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """Integers, with what was clamped noted for the client."""
        factor, capped = self._factor(update)
        values = self._kept(update.vector, update.layout)
        grid = residues.Quantiser(
            self._scales(brief, update.layout).numpy(), self.unit, self.top, factor, self.rounding
        )  # fmt: skip
        share = round(factor * self.unit)
        # The weight is no value: it may reach the unit itself, and is never negative.
        last = [share] if self.scaled else []
        coded, clamped = self._rounded(values, grid, self._draws(len(values), coins), last)
        beside = {"weight": update.luggage["weight"]} if self.weights == "open" else {}
        lost = {"lost_weights": 1} if self.scaled and share == 0 else {}
        return Payload(coded, beside, {"clamped": clamped, "capped_weights": capped, **lost})

    @abstractmethod
    def _rounded(
        self, values: Tensor, grid: residues.Quantiser, draws: residues.Words, last: list[int]
    ) -> tuple[Tensor, int]:
        """Values as they travel, with what comes after them, and how many had to be clamped."""

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """Floats again. Raises: IntegrityError when a sum lies outside what the present clients could have sent."""
        numbers = self.summed(released)
        count = len(released.present)
        if released.sizes is not None:
            return self._groups(numbers, released, brief)
        reach = count if numbers.dim() == 1 else 1
        total = self._weight(numbers[..., -1], reach) if self.scaled else None
        values = numbers[..., :-1] if self.scaled else numbers
        self._within(values, reach * self.top)
        values = self.values(values, brief, released.layout)
        if numbers.dim() > 1:
            weights = row_weights(self, released) if total is None else total
            return Gathered(
                released.present, values.float(), weights=weights, scaled=self.scaled, ids=released.ids, form=self.form
            )
        weights = torch.tensor(float(count), dtype=torch.float64) if total is None else total
        return Gathered(released.present, sums=values, weights=weights, form=self.form)

    def decode_apart(self, released: Released, brief: Brief) -> Gathered:
        """Each row by itself, however large its numbers are: a share is no update, and its integers may be any."""
        if released.rows is None or released.sizes is not None:
            return self.decode(released, brief)
        alone = (Released((), row.unsqueeze(0), layout=released.layout) for row in released.rows)
        numbers = torch.stack([self.summed(one).reshape(-1) for one in alone])
        weights = torch.ones(len(numbers), dtype=torch.float64)
        if self.scaled:
            numbers, weights = numbers[:, :-1], numbers[:, -1].double() / self.unit
        elif "weight" in released.luggage:
            weights = released.luggage["weight"][:, 0]
        values = self.values(numbers, brief, released.layout).float()
        return Gathered(released.present, values, None, weights, self.scaled, released.ids, form=self.form)

    def values(self, numbers: Tensor, brief: Brief, layout: Layout | None) -> Tensor:
        """What integers stand for, whoever sent them and however large they are; what was not sent is 0."""
        scales = (self._scales(brief, layout) / self.unit).numpy()
        return self._whole(torch.from_numpy(np.multiply(numbers.numpy(), scales)), layout)

    def _groups(self, numbers: Tensor, released: Released, brief: Brief) -> Gathered:
        """Each row the mean of its group: groups count alike, or by their size where the release says so."""
        sizes = released.sizes.double() if released.sizes is not None else torch.zeros(0)
        for row, size in zip(numbers, sizes.tolist(), strict=True):
            self._within(row, int(size) * self.top)
        scale = self._scales(brief, released.layout) / self.unit
        rows = self._whole(numbers.double() * scale / sizes.unsqueeze(1), released.layout)
        weights = sizes if released.by_size else torch.ones(len(rows)).double()
        return Gathered(released.present, rows.float(), weights=weights, form=self.form)

    def says(self) -> tuple[str, ...]:
        """What the rounding costs."""
        fine = f"{self.digits} decimal digits" if self.steps is None else f"{self.steps} steps"
        how = {
            "even": "an unweighted mean is within half a unit, up to float32",
            "stochastic": "an unweighted mean is within one unit, and right on average",
            "floor": "values are rounded down, so that each round shifts the model by half a unit on average",
        }[self.rounding]
        left = (f"not sent, and so not learned: {', '.join(self.excluded)}",) if self.excluded else ()
        return (
            *super().says(),
            f"each value is rounded to {fine} of the public scale and clamped beyond it: with nothing clamped, {how}; "
            "a client alone sees how many values it clamped",
            *left,
        )

    def _draws(self, count: int, coins: Node) -> residues.Words:
        if self.rounding != "stochastic":
            return np.zeros(0, np.uint32)
        return coins.child("rounding").secure().below(1 << 32, count).astype(np.uint32)

    def _scales(self, brief: Brief, layout: Layout | None) -> Tensor:
        """One scale, or one for each coordinate that is sent.

        Raises: RangeError outside `LEAST` to `MOST`: a scale must not make a client's values vanish. ProtocolError when
        there are several, and not one for each tensor.
        """
        if "scale" not in brief and LEAST <= self.scale <= MOST:
            return torch.tensor([self.scale], dtype=torch.float64)
        scales = brief["scale"].double() if "scale" in brief else torch.tensor([self.scale], dtype=torch.float64)
        if not bool(((scales >= LEAST) & (scales <= MOST)).all()):
            raise RangeError(f"scale = {scales.tolist()}: a public scale lies between {LEAST:g} and {MOST:g}")
        if len(scales) == 1:
            return scales
        if layout is None or len(scales) != len(layout.carried):
            raise ProtocolError(f"{len(scales)} scales do not fit the model's tensors")
        each = torch.tensor([part.size for part in layout.carried])
        return self._kept(scales.repeat_interleave(each), layout)

    def _sent(self, layout: Layout) -> list[tuple[int, int]]:
        """The ranges of the vector that travel."""
        names = {part.name for part in layout.carried} | {part.layer for part in layout.carried}
        if unknown := [name for name in self.excluded if name not in names]:
            raise SpecError(
                f"protocol.encode.excluded = {list(self.excluded)}: the model has no {unknown[0]!r}; it has "
                f"{', '.join(sorted({part.layer for part in layout.carried}))}"
            )
        left = set(self.excluded)
        if all(part.name in left or part.layer in left for part in layout.carried):
            raise SpecError(f"protocol.encode.excluded = {list(self.excluded)}: no layer is left to send")
        return [(a, b) for part, a, b in layout.spans() if part.name not in left and part.layer not in left]

    def _kept(self, vector: Tensor, layout: Layout) -> Tensor:
        return torch.cat([vector[a:b] for a, b in self._sent(layout)]) if self.excluded else vector

    def _whole(self, values: Tensor, layout: Layout | None) -> Tensor:
        """The full vector again: what was not sent did not move."""
        if not self.excluded:
            return values
        if layout is None:
            raise ProtocolError("excluded layers cannot be put back without the model's layout")
        out = torch.zeros((*values.shape[:-1], layout.size), dtype=values.dtype)
        at = 0
        for start, stop in self._sent(layout):
            out[..., start:stop] = values[..., at : at + stop - start]
            at += stop - start
        return out

    def _weight(self, numbers: Tensor, reach: int) -> Tensor:
        self._within(numbers, reach * self.unit)
        if bool((numbers < 0).any()):
            raise IntegrityError("a released weight is negative, which no clients can reach")
        share: Tensor = numbers.double() / self.unit
        return share

    def _within(self, values: Tensor, most: int) -> None:
        if values.numel() and max(int(values.numpy().max()), -int(values.numpy().min())) > most:
            raise IntegrityError(f"a released value lies outside ±{most}, which the clients present cannot reach")
