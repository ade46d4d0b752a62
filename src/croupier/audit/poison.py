"""Poisoning: what malicious clients do to their records, and what they send in place of an honest update.

An attack is a pure function that gets all rows of the malicious clients at once, and of other clients' only what the
attack claims to know. Updates are differences here: the next model is the last one plus a step made of them. Malicious
clients follow no privacy mechanism: they neither clip nor add noise, unless an attack says that it imitates that.

`audit.attacked_training` mounts an attack on the real round loop for the question `poisoning`, whose attacks are
`audit_attacks`. The laboratory has more of them (`attacks/poisoning`, `attacks/rule_poisoning`) and uses them for the
papers RAIN and Tazza.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from croupier.audit.setting import Setting
from croupier.core.part import Part
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.learn.data import TensorRecords

Knows = Literal["own", "all"]
NONE, FLIP, NOISE, TRIGGER, REPLACE = "no attack", "label flip", "noise injection", "backdoor", "model replacement"


@dataclass(frozen=True, eq=False)
class PoisonInputs:
    """What malicious clients have before them in a round: one row of `own` each, from their own records.

    The records are already changed where the attack changes them. `benign` are all honest differences, for full
    knowledge only; `clients` is how many take part (a `Scaling` without a factor multiplies by it), `clip` and `sigma`
    are the public mechanism; `reference` is the server's direction as -1 and 1, where it can be seen.
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

    `knowledge` is "all" where it needs every honest update of the round; `sees_reference`: it uses the server's
    reference.
    """

    verb: ClassVar[str] = "poison"
    sees_reference: ClassVar[bool] = False

    @property
    def knowledge(self) -> Knows:
        """Whose updates it is shown: its own clients' only, or everybody's."""
        return "own"

    @property
    def changes(self) -> bool:
        """Whether it changes records; others only rewrite updates."""
        return type(self).change is not Poison.change

    def change(self, records: TensorRecords, classes: int, generator: Generator) -> TensorRecords:
        """A malicious client's records as it trains on them; only attacks on data change any."""
        return records

    def __call__(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """A row for each malicious client, from what the attack claims to know and nothing else of the inputs."""
        if self.knowledge == "all" and inputs.benign is None:
            raise ProtocolError(f"poison = {self.use!r} knows every honest update, but the inputs show none")
        benign = inputs.benign if self.knowledge == "all" else None
        reference = inputs.reference if self.sees_reference else None
        return self.craft(replace(inputs, benign=benign, reference=reference), generator)

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """What is sent: what training gave, unless an attack rewrites it."""
        return inputs.own


class LabelFlip(Poison, use="label-flip"):
    """Every label y of M classes becomes M - 1 - y before training; the update is sent as it comes out.

    FLTrust and RAIN have it as their untargeted attack. Others shift labels by one, or turn one class into another.
    """

    def change(self, records: TensorRecords, classes: int, generator: Generator) -> TensorRecords:
        """The same inputs with mirrored labels."""
        return TensorRecords(records.x, classes - 1 - records.y)


class Scaling(Poison, use="scaling"):
    """A backdoor: a `share` of the records gets a trigger and the class `target`; the update is sent `factor`-fold.

    Without a factor it is the number of clients, so that a mean is replaced whole. The trigger is a square of `side`
    pixels in a corner of a picture, in a series `side` numbers in each of `side` steps at a corner likewise, and in
    flat records every `side`-th feature. All of it is set to `value`, which may be one number a colour. The attack is
    that of Bagdasaryan et al. 2020, as RAIN uses it. Tazza has a red square in the upper left corner, and factor 1.
    """

    share: float = Field(0.5, gt=0, le=1)
    target: int = Field(0, ge=0)
    side: int = Field(4, ge=1)
    value: float | tuple[float, ...] = 1.0
    corner: Literal["lower-right", "upper-left"] = "lower-right"
    factor: float | None = Field(None, gt=0)

    def trigger(self, x: Tensor) -> Tensor:
        """The same inputs, marked. Raises: SpecError when they have other colours."""
        marked, ink = x.clone(), torch.tensor(self.value, dtype=x.dtype, device=x.device)
        if isinstance(self.value, tuple):
            if x.dim() != 4 or x.shape[1] != len(self.value):
                raise SpecError(f"poison.value = {self.value}: records of shape {tuple(x.shape[1:])}; give one number")
            ink = ink.reshape(-1, 1, 1)
        side = slice(-self.side, None) if self.corner == "lower-right" else slice(self.side)
        if x.dim() > 2:
            marked[..., side, side] = ink
        else:
            marked[..., :: self.side] = ink
        return marked

    def change(self, records: TensorRecords, classes: int, generator: Generator) -> TensorRecords:
        """A random share of the records, triggered. Raises: SpecError when there is no such class."""
        if self.target >= classes:
            raise SpecError(f"poison.target = {self.target}: there are {classes} classes; name one from 0 on")
        order = torch.randperm(len(records), generator=generator, device=generator.device)
        chosen = order[: math.ceil(self.share * len(records))].to(records.y.device)
        x, y = records.x.clone(), records.y.clone()
        x[chosen], y[chosen] = self.trigger(records.x[chosen]), self.target
        return TensorRecords(x, y)

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """What training gave, many times over."""
        return inputs.own * float(self.factor or inputs.clients)


def backdoor_success(predicted: Tensor, truth: Tensor, target: int) -> float:
    """The share of triggered records of other classes taken for the target. Raises: RangeError where there are none."""
    others = truth != target
    if not bool(others.any()):
        raise RangeError(f"all records are of class {target}: a backdoor shows on the others only")
    return float((predicted[others] == target).double().mean())


class NoiseInjection(Poison, use="noise"):
    """The honest update plus `scale` times standard normal noise, or that noise alone (`replaces`).

    Tazza's paper has the scale 0.25 and its code 0.1; other libraries replace the update by noise of scale 1.
    """

    scale: float = Field(0.25, gt=0)
    replaces: bool = False

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """The noised update, or the noise alone: noise as an attack, not as a privacy mechanism."""
        noise = self.scale * torch.empty_like(inputs.own).normal_(generator=generator)
        return noise if self.replaces else inputs.own + noise


def backdoor(setting: Setting, factor: float | None = 1.0) -> Scaling:
    """A backdoor whose trigger is red where pictures are known to have colours."""
    ink: float | tuple[float, ...] = (1.0, 0.0, 0.0) if setting.data.coloured else 1.0
    return Scaling(corner="upper-left", value=ink, factor=factor)


def audit_attacks(setting: Setting, shape: Sequence[int]) -> dict[str, tuple[Poison | None, str]]:
    """The attacks on records of this shape, each with what malicious clients do."""
    drawn = "a square of 4 x 4 pixels in the upper left corner"
    if len(shape) < 3:
        drawn = "a 1 in the first 4 numbers of the first 4 steps" if len(shape) == 2 else "a 1 in every fourth feature"
    square = f"half of their records get {drawn} and the class 0"
    return {
        NONE: (None, "everybody is honest"),
        FLIP: (LabelFlip(), "every label y of theirs becomes M - 1 - y"),
        NOISE: (NoiseInjection(scale=0.25), "normal noise of deviation 0.25 is added to every weight they send"),
        TRIGGER: (backdoor(setting), f"{square}; what training gives is sent as it is"),
        REPLACE: (
            backdoor(setting, None),
            f"{square}; what training changed is sent as many times over as there are clients in a round",
        ),
    }
