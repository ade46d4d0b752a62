"""Flower's arrays and metrics as the one vector that a protocol carries, and back.

Every float array of a model is part of the vector; whole numbers, which only count, stay what they are in the model. A
metric that the roster names travels as one more coordinate behind the arrays, divided by the bound that everybody
agreed on: it is summed like the rest, and nobody reads a single node's. `flower.mod` uses it for what nodes send,
`flower.strategy` for what comes back, and `flower.rehearse` for the layout of a rehearsal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from croupier.core.update import Layout
from croupier.errors import RangeError, SpecError
from croupier.flower.layouts import laid_out, metric_slots

# Said where the app's model is another than the roster's.
_REMEDY = "make the roster for this model: croupier enrol --like MODEL.safetensors"


def layout_of(arrays: ArrayRecord, metrics: Mapping[str, float] | None = None) -> Layout:
    """The layout of a model as Flower has it. Raises: SpecError for floats that are not float32."""
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
    """One vector of a model's floats, with 0 for every metric. Raises: SpecError when it is another model."""
    check_arrays(arrays, layout)
    slots = metric_slots(layout)
    tensors = {
        part.name: torch.zeros(()) if part.name in slots else torch.from_numpy(np.array(arrays[part.name].numpy()))
        for part in layout.carried
    }
    return layout.flatten(tensors)


def with_metrics(vector: Tensor, layout: Layout, metrics: Mapping[str, float]) -> tuple[Tensor, list[str]]:
    """The vector with a node's metrics in their coordinates, and which of them were clamped to their bounds.

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
    """What a strategy computed, in the types of the model; arrays of whole numbers are the model's own."""
    floats = {name for name, array in like.items() if array.dtype == "float32"}
    return ArrayRecord(
        {name: Array(arrays[name].numpy().astype(np.float32)) if name in floats else one for name, one in like.items()}
    )
