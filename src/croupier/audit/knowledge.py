"""What an adversary knows besides its views, and what it reads in a server's view.

`Knowledge` is all that an attack may use beside what it saw: records, shadow sets and the public recipe of training. It
crosses to the attacks' own process as plain values. `audit.stage` fills it in; `audit.context` puts it before a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from croupier.core.flow import Received
from croupier.core.update import Gathered, Layout
from croupier.encode.encoder import Released
from croupier.encode.residues import Residues
from croupier.errors import SpecError
from croupier.kernels import residues
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.models import Network
from croupier.learn.own_names import carried, revived
from croupier.pipeline import Pipeline

Sample = tuple[Tensor, Tensor]
# Releases whose counts are integers, and not residues.
COUNTING = ("bits", "counts")


@dataclass(frozen=True)
class Knowledge:
    """Records known to be in the training data, and a shadow set of each client: its distribution, not its records.

    `suspects` are records of which it is asked whether they were trained on. The architecture and the recipe of local
    training are public.
    """

    clients: tuple[str, ...]
    model: Mapping[str, Any]
    fit: Mapping[str, Any]
    classes: int
    records: Sample
    shadows: tuple[Sample, ...]
    suspects: Sample
    # What of the network is neither trained nor sent; as public as the rest of it.
    frozen: Mapping[str, Tensor] = field(default_factory=dict)
    # The loss that clients train by: a goal's usual one, or the one that the description names.
    by: Mapping[str, str] = field(default_factory=lambda: {"loss": "classify"})

    def __post_init__(self) -> None:
        # Another process wrote down where a function of the user's own lies.
        object.__setattr__(self, "model", revived(self.model))
        object.__setattr__(self, "by", revived(self.by))

    @property
    def trained(self) -> str:
        """What clients make small."""
        return self.by["loss"]

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "model": carried(self.model), "by": carried(self.by),
        }  # fmt: skip

    @property
    def pool(self) -> Sample:
        """All shadow sets together."""
        return torch.cat([x for x, _ in self.shadows]), torch.cat([y for _, y in self.shadows])

    @cached_property
    def module(self) -> nn.Module:
        """A network of the public architecture, to load weights into."""
        return self.build()

    def build(self) -> nn.Module:
        """A fresh network, its weights drawn from torch's global generator."""
        inputs, targets = self.records
        stand_in = TensorRecords(torch.zeros_like(inputs[:1]), torch.zeros_like(targets[:1]))
        goal: Literal["classify", "forecast"] = "classify" if self.classes else "forecast"
        dataset = Dataset("audit", goal, self.classes, stand_in, stand_in, "", "")
        module = Network.parse(self.model).build(dataset)
        module.load_state_dict(dict(self.frozen), strict=False)
        return module


@dataclass(frozen=True)
class Counted:
    """The ones that a server counted for every parameter (rows) and modulus (columns), and what one unit is worth.

    A sum does not need them as integers, but `bits` and `counts` show them so. `found` keeps what was made of them, as
    that takes a while and several attacks want it.
    """

    ones: Tensor
    moduli: tuple[int, ...]
    units: Tensor
    clients: int
    top: int
    found: dict[str, Any] = field(default_factory=dict)


def counted(view: Mapping[str, Any], protocol: Mapping[str, Any], layout: Layout) -> Counted | None:
    """The counts in a server's view; None where it holds none, or not one value a parameter that all count alike."""
    pipeline = Pipeline.parse(protocol)
    encode = pipeline.encode
    if not isinstance(encode, Residues) or pipeline.release.use not in COUNTING or encode.slots(layout) != layout.size:
        return None
    if encode.scaled:
        return None
    released = _opened(view, pipeline, layout)
    ones = _ones(released.rows, layout.size, encode.modulus) if released.sums is None else released.sums.long()
    scales = _brief(view).get("scale", torch.tensor([encode.scale])).double()
    each = torch.tensor([part.size for part in layout.carried])
    units = scales.expand(layout.size) if len(scales) == 1 else scales.repeat_interleave(each)
    return Counted(ones, encode.modulus, units / encode.unit, len(released.present), encode.top)


def _ones(rows: Tensor | None, slots: int, moduli: tuple[int, ...]) -> Tensor:
    if rows is None:
        raise SpecError("nothing was released that could be counted")
    return torch.from_numpy(residues.counts([row.numpy() for row in rows], slots, moduli))


def _opened(view: Mapping[str, Any], pipeline: Pipeline, layout: Layout) -> Released:
    """What the letters in a server's view amount to."""
    boxes = [box for box in view["inputs"] if isinstance(box, tuple) and box and "kind" in box[0]]
    inbox = tuple(Received(**letter) for letter in boxes[-1])
    return pipeline.place.opened(pipeline, view["given"]["roster"], layout, inbox)


def _brief(view: Mapping[str, Any]) -> Mapping[str, Tensor]:
    return next((box for box in view["inputs"] if isinstance(box, Mapping)), {})


def read(view: Mapping[str, Any], protocol: Mapping[str, Any], layout: Layout) -> Gathered:
    """What the server's view of a round holds, decoded as the public protocol says."""
    pipeline = Pipeline.parse(protocol)
    return pipeline.encode.decode(_opened(view, pipeline, layout), _brief(view))


def made(view: Mapping[str, Any]) -> Tensor:
    """The model that the server made of a round: the result of its work, in its view. Raises: SpecError without it."""
    for box in reversed(view["inputs"]):
        if isinstance(box, tuple) and box and isinstance(box[0], tuple) and box[0] and "vector" in box[0][0]:
            model: Tensor = box[0][0]["vector"]
            return model
    raise SpecError("a view without the server's aggregation tells no next model")


def log_odds(said: Tensor, labels: Tensor) -> Tensor:
    """Log-odds of each record's label, from logits whose last two sides are records and classes."""
    own = nn.functional.one_hot(labels, said.shape[-1]).bool().expand_as(said)
    rest = torch.logsumexp(said.double().masked_fill(own, -torch.inf), -1)
    return said[own].double().reshape(rest.shape) - rest


def fits(said: Tensor, targets: Tensor) -> Tensor:
    """How well outputs fit each record's target: the log-odds of its class, or minus the squared error."""
    if not targets.is_floating_point():
        return log_odds(said, targets)
    return -(said.double() - targets.double()).square().mean(-1)
