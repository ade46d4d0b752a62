"""What an adversary knows besides its views, what it reads in a view, and a network to try weights in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Received
from croupier.core.update import Gathered, Layout
from croupier.encode.encoder import Released
from croupier.encode.residues import Residues
from croupier.errors import SpecError, Unsuited
from croupier.kernels import residues
from croupier.learn.data import Dataset, Rows
from croupier.learn.ends import Head, find_head
from croupier.learn.flat import FlatNet
from croupier.learn.models import Network
from croupier.learn.own import carried, revived
from croupier.pipeline import Pipeline

Sample = tuple[Tensor, Tensor]
# What enters a network's last layer, where it was listened to; its logits; the inputs.
Said = tuple[Tensor | None, Tensor, Tensor]
_BATCH = 1024
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
        stand_in = Rows(torch.zeros_like(inputs[:1]), torch.zeros_like(targets[:1]))
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


@dataclass(frozen=True)
class Scene:
    """What an attack stands before: knowledge, and what it read in the view, or nothing.

    What weights say of inputs is computed once for all attacks on a scene. `study` holds what follows from knowledge
    alone and outlives the view, drawn from `quiet`, so that it is the same whichever view comes first. `counts` are
    there where the view holds them: they tell more than `seen`, which was decoded from them.
    """

    knowledge: Knowledge
    seen: Gathered | None
    net: FlatNet
    quiet: Coins
    study: dict[str, Any] = field(default_factory=dict)
    said: dict[tuple[bytes, int], Said] = field(default_factory=dict)
    names: dict[tuple[int, int], tuple[bytes, Tensor]] = field(default_factory=dict)
    counts: Counted | None = None

    def facing(self, seen: Gathered | None, counts: Counted | None = None) -> Scene:
        """The same knowledge before another view."""
        return Scene(self.knowledge, seen, self.net, self.quiet, self.study, counts=counts)

    def knowing(self, shadows: tuple[Sample, ...]) -> Scene:
        """The same scene with other shadow sets."""
        return replace(self, knowledge=replace(self.knowledge, shadows=shadows))

    @cached_property
    def joint(self) -> Tensor:
        """The mean of all updates, which every release gives away. Raises: SpecError without a view."""
        if self.seen is None:
            raise SpecError("this attack needs a view")
        if self.seen.rows is not None:
            return self.seen.rows.double().mean(0).float()
        if self.seen.sums is None or self.seen.weights is None:
            raise SpecError("this attack needs rows or sums")
        return (self.seen.sums.double() / float(self.seen.weights.sum())).float()

    @cached_property
    def ending(self) -> Head | Unsuited:
        """The linear layer that gives the logits, found by running the network; or why there is none."""
        try:
            return find_head(self.net.module, self.knowledge.records[0])
        except Unsuited as error:
            return error

    @property
    def head(self) -> Head:
        """The linear layer that gives the logits. Raises: Unsuited where the network ends otherwise."""
        if not self.knowledge.classes:
            raise Unsuited("it tells clients' last layers apart by classes, and here quantities are learnt")
        if isinstance(self.ending, Unsuited):
            raise Unsuited(f"this attack works on a linear last layer, and the network has none: {self.ending}")
        return self.ending

    @cached_property
    def places(self) -> Tensor:
        """Where the last layer lies in the vector: its weights, class by class, then its biases. Raises: Unsuited."""
        weights, biases = self.head.places(self.net.layout)
        return torch.cat([weights.flatten(), biases])

    @cached_property
    def biases(self) -> Tensor | None:
        """Where the last layer's biases lie in the vector; None where it has none, or is not linear."""
        if isinstance(self.ending, Unsuited) or self.ending.bias is None:
            return None
        return self.ending.places(self.net.layout)[1]

    def outputs(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """Logits under these weights."""
        return self._run(vector, inputs)[1]

    def hidden(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """What enters the last layer under these weights. Raises: Unsuited where that is not linear."""
        head = self.head
        found = self._run(vector, inputs)[0]
        if found is None:
            found = self._read(head, vector, inputs)
            self.said[self._name(vector), id(inputs)] = (found, *self._run(vector, inputs)[1:])
        return found

    def _run(self, vector: Tensor, inputs: Tensor) -> Said:
        key = (self._name(vector), id(inputs))
        if key not in self.said:
            # The inputs are kept beside what was said of them, so that their id stays theirs.
            self.said[key] = (*self._forward(vector, inputs), inputs)
        return self.said[key]

    def _name(self, vector: Tensor) -> bytes:
        """What the vector holds, as a digest: rows that were copied about are still the same rows."""
        place = (vector.data_ptr(), len(vector))
        if place not in self.names:
            # Kept beside its name, so that its place stays its own.
            self.names[place] = hashlib.blake2b(canon.tensor_bytes(vector)).digest(), vector
        return self.names[place][0]

    def _forward(self, vector: Tensor, inputs: Tensor) -> tuple[Tensor | None, Tensor]:
        """What enters the last layer, where it can be listened to, and the logits."""
        self.net.load(vector)
        self.net.module.eval()
        caught: list[Tensor] = []
        layer = None if isinstance(self.ending, Unsuited) else self.ending.layer
        hooks = []
        if layer is not None:
            last = self.net.module.get_submodule(layer)
            hooks.append(last.register_forward_pre_hook(lambda _, args: caught.append(args[0].cpu())))
        device = self.net.weights.device
        with torch.no_grad():
            outputs = [self.net.module(part.to(device)).cpu() for part in torch.split(inputs, _BATCH)]
        for hook in hooks:
            hook.remove()
        return torch.cat(caught) if caught else None, torch.cat(outputs)

    def _read(self, head: Head, vector: Tensor, inputs: Tensor) -> Tensor:
        """What enters a last layer that is no module of its own: read at the outputs."""
        self.net.load(vector)
        self.net.module.eval()
        device = self.net.weights.device
        parts = [head.features(self.net.module, part.to(device)).cpu() for part in torch.split(inputs, _BATCH)]
        return torch.cat(parts)
