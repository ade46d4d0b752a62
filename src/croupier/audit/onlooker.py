"""What a server makes of its own views where coordinates are hidden: orders it can bring together, and records in them.

Nothing here is given a rule, a secret or a record: only what was handed out and what came back, and the public network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from croupier.audit.invert import Attack, gradient_from
from croupier.audit.knowledge import read
from croupier.audit.match import after, match
from croupier.audit.permuted import Glance, holding, inverted
from croupier.core.coins import Coins
from croupier.core.update import Model
from croupier.core.view import View, facts, replay
from croupier.encode.shuffled import Shuffled
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import ProtocolError
from croupier.pipeline import Pipeline


@dataclass(frozen=True)
class Sight:
    """One round as the server saw it: to each client present what it was handed, and what came back, in one frame."""

    round: int
    frame: bytes
    handed: Mapping[str, Model] = field(repr=False)
    uploads: Mapping[str, Tensor] = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """As plain values, in their order, which maps of such values would lose."""
        handed = tuple((name, model.plain()) for name, model in self.handed.items())
        return {"round": self.round, "frame": self.frame, "handed": handed, "uploads": tuple(self.uploads.items())}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Sight:
        """From plain values."""
        handed = {name: Model(**one) for name, one in plain["handed"]}
        return cls(plain["round"], plain["frame"], handed, dict(plain["uploads"]))


def sight(view: View, pipeline: Pipeline) -> Sight:
    """What a kept view of the server amounts to. Raises: ProtocolError where it holds no rows with names."""
    sent, _ = replay(pipeline.server, view)
    handed = {
        letter.target: Model(letter.body["model"], _frame(letter.body.get("frame")))
        for letter in sent
        if letter.kind == "model" and not isinstance(letter.body, bytes)
    }
    seen = read(facts(view), pipeline.plain(), view.given.layout)
    if seen.rows is None or seen.ids is None:
        raise ProtocolError("this server sees no single updates: there is nothing to bring into order")
    rows = dict(zip(seen.ids, seen.rows, strict=True))
    if pipeline.encode.form == "delta":
        # In one order with the model: what comes back is what changed in it.
        rows = {name: handed[name].vector + row for name, row in rows.items()}
    return Sight(view.given.round, seen.frame, handed, rows)


def _frame(told: Tensor | None) -> bytes:
    data = b"" if told is None else bytes(told.tolist())
    return data if any(data) else b""


@dataclass(frozen=True)
class Guess:
    """The order of one upload as the server takes it, from the order of the first model it ever handed out.

    `matched`: whether weights had to be matched; two frames that are the same say it by themselves.
    """

    round: int
    client: str
    frame: bytes
    rule: Rule
    matched: bool


@dataclass(frozen=True)
class Followed:
    """Every guess, and for each frame the one that fitted best: with it models of that frame come into one order."""

    guesses: tuple[Guess, ...]
    known: Mapping[bytes, Rule]

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        known = tuple({"frame": frame, "rule": rule_plain(rule)} for frame, rule in self.known.items())
        return {"guesses": tuple({**vars(one), "rule": rule_plain(one.rule)} for one in self.guesses), "known": known}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Followed:
        """From plain values."""
        guesses = tuple(Guess(**{**one, "rule": rule_of(one["rule"])}) for one in plain["guesses"])
        return cls(guesses, {one["frame"]: rule_of(one["rule"]) for one in plain["known"]})


def rule_plain(rule: Rule) -> dict[str, Tensor]:
    """A rule as plain values."""
    return {group: torch.from_numpy(order) for group, order in rule.of.items()}


def rule_of(plain: Mapping[str, Tensor]) -> Rule:
    """A rule from plain values."""
    return Rule({group: order.numpy() for group, order in plain.items()})


def followed(
    sights: Sequence[Sight], symmetry: Symmetry, coins: Coins, most: int = 10, known: Mapping[bytes, Rule] | None = None
) -> Followed:
    """Bring round after round into the order of the first model, by at most so many uploads a round.

    As `match_rounds`, with a model for each cluster, and frames that say which orders are the same; `known` are those
    of earlier rounds.
    """
    first = next(iter(sights[0].handed.values())).frame
    known, guesses = dict(known or {first: unmoved(symmetry)}), list[Guess]()
    for one in sights:
        best: tuple[float, Rule] | None = None
        # Whose model is in an order that was never brought together with the first tells nothing.
        names = [name for name in one.uploads if one.handed[name].frame in known][:most]
        for name in names:
            model = one.handed[name]
            if one.frame == model.frame:
                apart, rule = 0.0, known[model.frame]
            else:
                found = match(model.vector, one.uploads[name], symmetry, coins.child(one.round, name))
                apart, rule = found.apart, after(known[model.frame], found.rule)
            guesses.append(Guess(one.round, name, one.frame, rule, one.frame != model.frame))
            best = min(best or (apart, rule), (apart, rule), key=lambda pair: pair[0])
        if best is not None:
            known.setdefault(one.frame, best[1])
    return Followed(tuple(guesses), known)


def unmoved(symmetry: Symmetry) -> Rule:
    """The rule that moves nothing."""
    return Rule({group: np.arange(size) for group, size in symmetry.groups.items()})


@dataclass(frozen=True)
class Reader:
    """Inverts uploads of one step of SGD, with rules that it takes for those of the model and of the upload.

    Records come out in the order that both rules lead back to. Without rules both are read as they lie.
    """

    module: nn.Module
    symmetry: Symmetry
    model: Tensor = field(repr=False)
    of_model: Rule | None
    of_upload: Rule | None
    lr: float
    shape: tuple[int, ...]
    classes: int
    attack: Attack | None = None

    @cached_property
    def _model(self) -> Tensor:
        return self.model if self.of_model is None else self.symmetry.invert(self.model, self.of_model)

    @cached_property
    def _network(self) -> nn.Module:
        return holding(self.module, self._model, self.symmetry.layout).eval()

    @cached_property
    def _under(self) -> Shuffled | None:
        return None if self.of_upload is None else self.symmetry.under(self.of_upload)

    def record(self, upload: Tensor, coins: Coins) -> Tensor:
        """The one record behind an upload."""
        back = upload if self._under is None else self._under.invert(upload)
        size = sum(part.numel() for part in self.module.parameters() if part.requires_grad)
        seen = Glance(gradient_from(back[:size], self._model[:size], self.lr), self._network, self.of_upload)
        return inverted(seen, self.shape, self.classes, coins, self.attack).detach().nan_to_num(0.5)

    def records(self, uploads: Sequence[Tensor], coins: Coins) -> Tensor:
        """One record for each upload."""
        return torch.cat([self.record(one, coins.child(at)) for at, one in enumerate(uploads)])
