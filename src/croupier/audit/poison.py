"""Poisoning: what malicious clients do to their records, and what they send in place of an honest update.

Updates are differences: the next model is the last one plus a step made of them. An attack is a pure function of the
scene that its knowledge allows, all rows of the malicious clients at once. Malicious clients follow no mechanism: they
neither clip nor add noise, unless an attack says that it imitates that.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from croupier.core.part import Part
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.learn.data import Rows

Knows = Literal["own", "all"]


@dataclass(frozen=True, eq=False)
class Scene:
    """What malicious clients have before them in a round: one row of `own` each, from their own records.

    The records are already changed where the attack changes them. `benign` are all honest differences, for full
    knowledge only; `clients` is how many take part, `clip` and `sigma` are the public mechanism; `reference` is the
    server's direction as -1 and 1, where it can be seen.
    """

    own: Tensor
    benign: Tensor | None = None
    clients: int = 0
    clip: float = math.inf
    sigma: float = 0.0
    reference: Tensor | None = None

    def __post_init__(self) -> None:
        if self.own.dim() != 2 or not len(self.own):
            raise RangeError(f"own has shape {tuple(self.own.shape)}: give one row for each malicious client")
        for name, rows in (("benign", self.benign), ("reference", self.reference)):
            if rows is not None and rows.shape[-1] != self.own.shape[1]:
                raise RangeError(f"{name} has {rows.shape[-1]} coordinates, but own has {self.own.shape[1]}")


class Poison(Part):
    """An attack, with what it knows beyond its own clients.

    `knowledge` is "all" where it needs every honest update of the round; `looks` says that it uses the reference.
    """

    verb: ClassVar[str] = "poison"
    looks: ClassVar[bool] = False

    @property
    def knowledge(self) -> Knows:
        """Whose updates it is shown: its own clients' only, or everybody's."""
        return "own"

    @property
    def changes(self) -> bool:
        """Whether it is an attack on data."""
        return type(self).change is not Poison.change

    def change(self, records: Rows, classes: int, generator: Generator) -> Rows:
        """A malicious client's records as it trains on them; only attacks on data change any."""
        return records

    def __call__(self, scene: Scene, generator: Generator) -> Tensor:
        """A row for each malicious client, from what the attack may know and nothing else of the scene."""
        return self.craft(self.shown(scene), generator)

    def shown(self, scene: Scene) -> Scene:
        """The scene without what this attack does not claim to know."""
        if self.knowledge == "all" and scene.benign is None:
            raise ProtocolError(f"poison = {self.use!r} knows every honest update, but the scene shows none")
        benign = scene.benign if self.knowledge == "all" else None
        return replace(scene, benign=benign, reference=scene.reference if self.looks else None)

    @abstractmethod
    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """What is sent."""


class LabelFlip(Poison, use="label-flip"):
    """Every label y becomes M - 1 - y before training; the update is sent as it comes out.

    From: FLTrust's and RAIN's untargeted form; others shift labels by one, or turn one class into another.
    """

    def change(self, records: Rows, classes: int, generator: Generator) -> Rows:
        """The same inputs with mirrored labels."""
        return Rows(records.x, classes - 1 - records.y)

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """What training gave."""
        return scene.own


class Scaling(Poison, use="scaling"):
    """A backdoor: a `share` of the records gets a trigger and the class `target`; the update is sent `factor`-fold.

    Without a factor it is the number of clients, so that a mean is replaced whole. The trigger is a square of `side`
    pixels in a corner, and in records that are no pictures every `side`-th feature, all set to `value`, which may be
    one number a colour.
    From: Bagdasaryan et al. 2020, as RAIN uses it; Tazza's square is red and in the upper left corner, factor 1.
    """

    share: float = Field(0.5, gt=0, le=1)
    target: int = Field(0, ge=0)
    side: int = Field(4, ge=1)
    value: float | tuple[float, ...] = 1.0
    corner: Literal["lower-right", "upper-left"] = "lower-right"
    factor: float | None = Field(None, gt=0)

    def trigger(self, x: Tensor) -> Tensor:
        """The same inputs, marked. Raises: SpecError when they have other colours."""
        marked = x.clone()
        if isinstance(self.value, tuple):
            if x.dim() != 4 or x.shape[1] != len(self.value):
                raise SpecError(f"poison.value = {self.value}: records of shape {tuple(x.shape[1:])}; give one number")
            ink: Tensor | float = torch.tensor(self.value, dtype=x.dtype, device=x.device).reshape(-1, 1, 1)
        else:
            ink = self.value
        side = slice(-self.side, None) if self.corner == "lower-right" else slice(self.side)
        if x.dim() > 2:
            marked[..., side, side] = ink
        else:
            marked[..., :: self.side] = ink
        return marked

    def change(self, records: Rows, classes: int, generator: Generator) -> Rows:
        """A random share of the records, triggered. Raises: SpecError when there is no such class."""
        if self.target >= classes:
            raise SpecError(f"poison.target = {self.target}: there are {classes} classes; name one from 0 on")
        order = torch.randperm(len(records), generator=generator, device=generator.device)
        chosen = order[: math.ceil(self.share * len(records))].to(records.y.device)
        x, y = records.x.clone(), records.y.clone()
        x[chosen], y[chosen] = self.trigger(records.x[chosen]), self.target
        return Rows(x, y)

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """What training gave, many times over."""
        return scene.own * float(self.factor or scene.clients)


def fooled(predicted: Tensor, truth: Tensor, target: int) -> float:
    """The share of triggered records of other classes that are taken for the target. Raises: RangeError if none."""
    others = truth != target
    if not bool(others.any()):
        raise RangeError(f"all records are of class {target}: a backdoor shows on the others only")
    return float((predicted[others] == target).double().mean())


class SignFlip(Poison, use="sign-flip"):
    """The honest update, turned round, `factor`-fold."""

    factor: float = Field(1.0, gt=0)

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """The opposite."""
        return -self.factor * scene.own


class RandomSigns(Poison, use="random-signs"):
    """Coins for signs, as long as the honest update."""

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """Every coordinate alike in size."""
        return lengthened(coins(scene.own.shape, scene.own, generator), scene.own)


class NoiseInjection(Poison, use="noise"):
    """The honest update plus `scale` times standard normal noise, or that noise alone (`replaces`).

    From: Tazza's 0.25; its code has 0.1, and other libraries replace the update by noise of scale 1.
    """

    scale: float = Field(0.25, gt=0)
    replaces: bool = False

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """Noise that hides nothing and protects nobody."""
        noise = self.scale * normal(scene.own.shape, scene.own, generator)
        return noise if self.replaces else scene.own + noise


class Copy(Poison, use="copy-reference"):
    """The reference's own signs, wrong on a `wrong` share of coordinates, as long as the honest update.

    `choice`: wrong where the honest update is `largest`, or at `random`; `alike` sends the same row from all. Where no
    reference is shown, the signs of the attackers' mean honest update stand for it; a stale one is used as it is.
    From: the adaptive attack that RAIN's threat model allows and its evaluation leaves out.
    """

    looks: ClassVar[bool] = True

    wrong: float = Field(0.1, ge=0, le=1)
    choice: Literal["largest", "random"] = "largest"
    alike: bool = False

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """Near enough to be trusted, and wrong where it hurts."""
        guess = scene.own.mean(0) if scene.reference is None else scene.reference
        signs = torch.where(guess >= 0, 1.0, -1.0).to(scene.own.dtype)
        leading = scene.own.mean(0, keepdim=True) if self.alike else scene.own
        rank = leading.abs() if self.choice == "largest" else torch.rand(
            leading.shape, generator=generator, device=scene.own.device
        )  # fmt: skip
        count = round(self.wrong * leading.shape[1])
        rows = signs.repeat(len(leading), 1)
        rows.scatter_(1, rank.topk(count, dim=1).indices, -1.0, reduce="multiply")
        return lengthened(rows.expand_as(scene.own), scene.own)


def lengthened(rows: Tensor, like: Tensor) -> Tensor:
    """Rows, each as long as the row of `like` beside it."""
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    out: Tensor = rows * (like.norm(dim=1, keepdim=True) / lengths)
    return out


def coins(shape: tuple[int, ...], like: Tensor, generator: Generator) -> Tensor:
    """Fair signs."""
    return torch.randint(0, 2, shape, generator=generator, device=like.device).to(like.dtype) * 2 - 1


def normal(shape: tuple[int, ...], like: Tensor, generator: Generator) -> Tensor:
    """Standard normal values of an attack, which have nothing to hide."""
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)
