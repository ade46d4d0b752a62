"""Flower's arrays and metrics as the one vector that a protocol carries, and back.

Every float array of a model is part of the vector; whole numbers, which only count, stay what they are in the model. A
metric that the roster names travels in a slot of its own behind the arrays, divided by the bound that everybody agreed
on: it is summed like the rest, and nobody reads a single node's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from croupier.core.update import Layout, Role, Slice
from croupier.errors import RangeError, SpecError

# A slot of the layout that is a metric: this, its name, and the largest value that it can carry.
_METRIC = "metric"
_ORDER: tuple[Role, ...] = ("weight", "statistic", "counter")
_REMEDY = "make the roster for this model: croupier enrol --like MODEL.safetensors"


@dataclass(frozen=True)
class MetricSlot:
    """A metric that travels with the update: its name, and the largest size that it may have."""

    name: str
    bound: float

    def __post_init__(self) -> None:
        if not self.name or ":" in self.name or not self.name.isprintable() or " " in self.name:
            raise SpecError(f"metric {self.name!r:.60}: its name must have letters and no spaces or colons")
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise SpecError(f"metric {self.name} = {self.bound}: give the largest value it can have, above 0")

    @property
    def part(self) -> Slice:
        """Its place in a layout: averaged, and no weight of the network."""
        return Slice(f"{_METRIC}:{self.name}:{self.bound!r}", (), "statistic")

    @classmethod
    def of(cls, part: Slice) -> MetricSlot | None:
        """The metric of a slot; None where it is a tensor of the model."""
        head, _, rest = part.name.partition(":")
        name, _, bound = rest.rpartition(":")
        return cls(name, float(bound)) if head == _METRIC and name and part.shape == () else None


def metric_slots(layout: Layout) -> dict[str, MetricSlot]:
    """The metrics that a layout carries, by the names of their slots."""
    return {part.name: slot for part in layout.carried if (slot := MetricSlot.of(part)) is not None}


def role_of(name: str, floating: bool) -> Role:
    """What an array is: learned, measured by a normalising layer, or only counted."""
    if not floating:
        return "counter"
    return "statistic" if name.rpartition(".")[2] in ("running_mean", "running_var") else "weight"


def laid_out(shapes: Mapping[str, tuple[tuple[int, ...], bool]], metrics: Mapping[str, float] | None = None) -> Layout:
    """The layout of named arrays, each with its sides and whether it holds floats, and of metrics with their bounds."""
    parts = [Slice(name, shape, role_of(name, floating)) for name, (shape, floating) in shapes.items()]
    parts += [MetricSlot(name, float(bound)).part for name, bound in (metrics or {}).items()]
    return Layout(tuple(sorted(parts, key=lambda part: _ORDER.index(part.role))))


def layout_of(arrays: ArrayRecord, metrics: Mapping[str, float] | None = None) -> Layout:
    """The layout of a model as Flower has it. Raises: SpecError for floats that would lose digits."""
    for name, array in arrays.items():
        if np.dtype(array.dtype).kind not in "iub" and array.dtype != "float32":
            raise SpecError(f"array {name!r} holds {array.dtype}; updates travel as float32: cast it in the app")
    shapes = {name: (tuple(array.shape), array.dtype == "float32") for name, array in arrays.items()}
    return laid_out(shapes, metrics)


def check_arrays(arrays: ArrayRecord, layout: Layout) -> None:
    """Raises: SpecError when a model is not the one that the roster was made for."""
    slots = metric_slots(layout)
    wanted = {part for part in layout.slices if part.name not in slots}
    found = set(layout_of(arrays).slices)
    for part in sorted(found ^ wanted, key=lambda part: part.name):
        whose = "the model has" if part in found else "the roster has"
        raise SpecError(f"{whose} {part.name} of shape {part.shape} ({part.role}), the other has not; {_REMEDY}")


def to_vector(arrays: ArrayRecord, layout: Layout) -> Tensor:
    """One vector of a model's floats; slots of metrics are 0. Raises: SpecError when it is another model."""
    check_arrays(arrays, layout)
    slots = metric_slots(layout)
    tensors = {
        part.name: torch.zeros(()) if part.name in slots else torch.from_numpy(np.array(arrays[part.name].numpy()))
        for part in layout.carried
    }
    return layout.flatten(tensors)


def with_metrics(vector: Tensor, layout: Layout, metrics: Mapping[str, float]) -> tuple[Tensor, list[str]]:
    """The vector with a node's metrics in their slots, and which of them were beyond their bounds.

    Raises: RangeError when one is missing or not finite.
    """
    slots, out, beyond = metric_slots(layout), vector.clone(), []
    for part, start, _ in layout.spans():
        if part.name not in slots:
            continue
        slot = slots[part.name]
        value = metrics.get(slot.name)
        if value is None or not math.isfinite(value):
            raise RangeError(
                f"metric {slot.name} = {value}: the roster carries it; give a finite number in every round"
            )
        if abs(value) > slot.bound:
            beyond.append(slot.name)
        out[start] = max(-1.0, min(1.0, value / slot.bound))
    return out, beyond


def from_vector(vector: Tensor, layout: Layout, like: ArrayRecord) -> tuple[ArrayRecord, dict[str, float]]:
    """A model with the vector's floats and `like`'s counters, and the metrics that came with it."""
    parts, slots = layout.split(vector), metric_slots(layout)
    arrays = ArrayRecord(
        {name: Array(parts[name].numpy().copy()) if name in parts else array for name, array in like.items()}
    )
    return arrays, {slot.name: float(parts[name]) * slot.bound for name, slot in slots.items()}


def typed_as(arrays: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """What a strategy computed, in the types of the model; what only counts is not averaged and stays as it was."""
    floats = {name for name, array in like.items() if array.dtype == "float32"}
    return ArrayRecord(
        {name: Array(arrays[name].numpy().astype(np.float32)) if name in floats else one for name, one in like.items()}
    )
