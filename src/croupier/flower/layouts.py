"""The layout of an app's model: its arrays, and the metrics that travel behind them. Needs no Flower.

`croupier enrol --like MODEL.safetensors` puts it into a roster, so that hosts, who have no model, know how long every
message is, and so that no server can add a metric that nobody agreed to. `flower.arrays`, `flower.mod` and
`flower.strategy` read the metrics off such a layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.core.update import Layout, Role, Slice
from croupier.errors import DataError, SpecError

# How the entry of a metric in a layout is called: this, its name, and the largest value that it can carry.
_METRIC = "metric"
_ORDER: tuple[Role, ...] = ("weight", "statistic", "counter")
_WHOLE = ("I", "U", "BOOL")
# What clients count by, unless the roster names another number.
EXAMPLES = "num-examples"


@dataclass(frozen=True)
class MetricSlot:
    """A metric that travels with the update: its name, and the largest absolute value that it may have."""

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
        """The metric behind an entry of a layout; None where it is a tensor of the model."""
        head, _, rest = part.name.partition(":")
        name, _, bound = rest.rpartition(":")
        return cls(name, float(bound)) if head == _METRIC and name and part.shape == () else None


def metric_slots(layout: Layout) -> dict[str, MetricSlot]:
    """The metrics that a layout carries, by the names of their entries."""
    return {part.name: slot for part in layout.carried if (slot := MetricSlot.of(part)) is not None}


def check_weight(key: str, layout: Layout) -> None:
    """Raises: SpecError for a weight of clients that nobody agreed to.

    The sum of weights is let out, so the server alone may not choose what they are.
    """
    named = {slot.name for slot in metric_slots(layout).values()}
    if key not in {EXAMPLES} | named:
        raise SpecError(
            f"weighted_by_key = {key!r:.60}: the roster names no such metric; weigh by {EXAMPLES!r}, or enrol with "
            "--metric NAME=BOUND"
        )


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


def read_layout(path: Path, metrics: Sequence[str] = ()) -> Layout:
    """The layout of a model in a safetensors file, and of metrics NAME=BOUND. Raises: DataError, SpecError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
            kinds = {name: (tuple(one.get_shape()), str(one.get_dtype())) for name, one in found.items()}
    except (OSError, SafetensorError) as error:
        raise DataError(f"--like = {path}: is no safetensors file ({error}); save the app's model as one") from None
    for name, (_, kind) in kinds.items():
        if kind != "F32" and not kind.startswith(_WHOLE):
            raise SpecError(f"--like = {path}: {name} holds {kind}; updates travel as float32: cast it in the app")
    return laid_out({name: (shape, kind == "F32") for name, (shape, kind) in kinds.items()}, _read_metrics(metrics))


def _read_metrics(metrics: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in metrics:
        name, _, bound = one.partition("=")
        try:
            found[name] = float(bound)
        except ValueError:
            raise SpecError(f"--metric {one!r:.60}: write NAME=BOUND, as train_loss=16") from None
    return found
