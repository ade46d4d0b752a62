"""What travels between training and the next model: one flat vector, with the layout that says what each coordinate is.

`Update` is what a client learned, `Model` what the server hands out, `Gathered` what the server got of a round. They
are vectors so that no mechanism depends on the network: noise needs a vector's length, encoders its coordinates,
shuffles its layers. Whoever makes a layout lists weights before statistics (`learn.flat`, `flower.layouts`), so that a
distance over weights is over a prefix; counters stay with the client. What is not finite is refused here, where it can
still be said whose it is. Training (`learn.train`) makes updates and aggregators (`aggregate`) make models; encoders,
releases, placements, the round loop, services, Flower and audits hand them on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, prod
from types import MappingProxyType
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor

from croupier.errors import RangeError

# Whether a tensor is learned, measured in training (a running mean), or a mere count of batches.
Role = Literal["weight", "statistic", "counter"]
# Whether a vector is the trained weights, or their difference to the model that was handed out.
Form = Literal["weights", "delta"]
# What coordinates are sums modulo: nothing for floats, one number, or the moduli of residues in unary.
Modulus = int | tuple[int, ...] | None
NO_LUGGAGE: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True)
class Slice:
    """One tensor of a network: its name, its shape and whether it is learned, measured or only counted."""

    name: str
    shape: tuple[int, ...]
    role: Role = "weight"

    @property
    def size(self) -> int:
        """How many coordinates it takes."""
        return prod(self.shape)

    @property
    def layer(self) -> str:
        """The module it belongs to: a layer's weight and bias travel together."""
        return self.name.rpartition(".")[0] or self.name


@dataclass(frozen=True)
class Layout:
    """Which tensor lies where in the vector. Counters stay at home: they are listed, but take no coordinates."""

    slices: tuple[Slice, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.slices]
        if len(set(names)) != len(names):
            raise RangeError("a layout names each tensor once")

    @cached_property
    def carried(self) -> tuple[Slice, ...]:
        """The slices that travel: weights and statistics."""
        return tuple(part for part in self.slices if part.role != "counter")

    @cached_property
    def size(self) -> int:
        """Length of the vector."""
        return sum(part.size for part in self.carried)

    def spans(self) -> Iterator[tuple[Slice, int, int]]:
        """Each carried slice with its first coordinate and the one after its last."""
        start = 0
        for part in self.carried:
            yield part, start, start + part.size
            start += part.size

    def layers(self) -> dict[str, list[tuple[int, int]]]:
        """The coordinate ranges of each layer, in order of appearance."""
        found: dict[str, list[tuple[int, int]]] = {}
        for part, start, stop in self.spans():
            found.setdefault(part.layer, []).append((start, stop))
        return found

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors, as views of the vector."""
        check_vector(vector, self.size)
        return {part.name: vector[start:stop].view(part.shape) for part, start, stop in self.spans()}

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """One float32 vector on the CPU from named tensors."""
        parts = [tensors[part.name].detach().reshape(-1) for part in self.carried]
        return torch.cat(parts).to("cpu", torch.float32)


def check_vector(vector: Tensor, size: int, what: str = "update") -> None:
    """Refuse a vector that no protocol could carry. Raises: RangeError that says which rule it breaks."""
    if vector.dtype != torch.float32:
        raise RangeError(f"{what} has dtype {str(vector.dtype).removeprefix('torch.')}, not float32")
    if vector.shape != (size,):
        raise RangeError(f"{what} has shape {tuple(vector.shape)}, not ({size},)")
    check_finite(vector, what)


def check_finite(values: Tensor, what: str) -> None:
    """Raises: RangeError that counts the values that are not finite."""
    # A finite sum proves finite terms, in a third of the time; one that overflows proves nothing and is looked into.
    if not values.is_floating_point() or isfinite(values if values.numel() == 1 else values.sum()):
        return
    if not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values)).sum())
        raise RangeError(f"{what} has {bad} of {values.numel()} values that are NaN or infinite")


@dataclass(frozen=True)
class Update:
    """What a client learned.

    `luggage` is what travels beside the vector (a number of records, say); `frame` says which permutation the
    coordinates are in, and is empty where they are in plain order; `form` says what the vector is.
    """

    vector: Tensor
    layout: Layout
    luggage: Mapping[str, Tensor] = field(default_factory=lambda: NO_LUGGAGE)
    frame: bytes = b""
    form: Form = "weights"

    def __post_init__(self) -> None:
        check_vector(self.vector, self.layout.size)
        for name, values in self.luggage.items():
            check_finite(values, f"luggage {name!r}")


@dataclass(frozen=True)
class Model:
    """A model that the server hands out. `frame` says which permutation its coordinates are in.

    `recipients` are the clients that it is meant for, where a rule makes several models; None where it is for all.
    """

    vector: Tensor
    frame: bytes = b""
    recipients: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_vector(self.vector, self.vector.numel(), "model")

    def serves(self, who: str) -> bool:
        """Whether it names this client as a recipient: of nobody where it is for all, since it then names none."""
        return who in self._recipients

    @cached_property
    def _recipients(self) -> frozenset[str]:
        return frozenset(self.recipients or ())

    def plain(self) -> dict[str, Any]:
        """As plain values: what a memory and a checkpoint hold."""
        return {"vector": self.vector, "frame": self.frame, "recipients": self.recipients}


def handed_out(vector: Tensor) -> Model:
    """The `Model` of a vector that a client was handed.

    All clients of one process are handed one tensor; whether it is finite is looked through once, and not by each.
    """
    global _last_handed
    model = _last_handed()
    if model is None or model.vector is not vector:
        model = Model(vector)
        _last_handed = ref(model)
    return model


def _none() -> Model | None:
    return None


# The model that was handed out last, for as long as a client holds it.
_last_handed: Callable[[], Model | None] = _none


def meant_for(who: str, models: tuple[Model, ...]) -> Model:
    """The model meant for this client: its own cluster's, or the one with most recipients."""
    own = next((model for model in models if model.serves(who)), None)
    return own or max(models, key=lambda model: len(model.recipients or ()))


@dataclass(frozen=True)
class Gathered:
    """What a release gave the server, decoded: rows or sums, and who was present.

    `weights` holds one number per row, or the total for sums. `scaled` rows were multiplied by their weight at the
    client. `ids` is None where the release hides which row is whose. Where updates were noised, `noise` is the
    published variance of a coordinate's noise in one client's update, and `epsilons` the published budget, one a row.
    `samples` are records that came beside the rows, one a row, in the rows' coordinates.
    """

    present: tuple[str, ...]
    rows: Tensor | None = None
    sums: Tensor | None = None
    weights: Tensor | None = None
    scaled: bool = False
    ids: tuple[str, ...] | None = None
    frame: bytes = b""
    form: Form = "weights"
    noise: Tensor | None = None
    epsilons: Tensor | None = None
    samples: Tensor | None = None
