"""Hidden coordinates: orders brought together by matching weights, and records read in them.

The attacks are a server's: it knows the public network, what it handed out and what came back, and nothing of the rule.
A rule that is given to a reading was found by matching, or told by a client. Mounted blindly (`audit.blind`) for the
question of permutations, which alone scores the answers (`audit.questions.permutation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from croupier.audit.invert import SearchRecipe, record_behind
from croupier.audit.knowledge import Knowledge
from croupier.core.coins import Coins
from croupier.core.revive import plain, revived
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError
from croupier.learn.axes.matching import after, match
from croupier.learn.gradients import gradient_from, holding

# A rule as plain values: where each place of a group goes.
Places = Mapping[str, Tensor]


@dataclass(frozen=True)
class Public:
    """The network, its symmetries and the shape of a record; `search` is None where records are read off a layer."""

    module: nn.Module
    symmetry: Symmetry
    shape: tuple[int, ...]
    classes: int
    rate: float
    search: SearchRecipe | None


@dataclass(frozen=True)
class Upload:
    """What a client was handed, the frame of that model, and what came back."""

    client: str
    model: Tensor = field(repr=False)
    model_frame: bytes
    vector: Tensor = field(repr=False)


@dataclass(frozen=True)
class ServerRound:
    """One round as the server saw it: everybody present, whose uploads are all in one frame."""

    number: int
    frame: bytes
    uploads: tuple[Upload, ...]


@dataclass(frozen=True)
class Guess:
    """The order of one upload as the server takes it, from the order of the first model it ever handed out.

    `matched`: whether weights had to be matched; two frames that are the same say it by themselves.
    """

    frame: bytes
    places: Places
    matched: bool


@dataclass(frozen=True)
class Followed:
    """Every guess, and for each frame the one that fitted best: with it models of that frame come into one order."""

    guesses: tuple[Guess, ...]
    frames: tuple[tuple[bytes, Places], ...]

    @cached_property
    def known(self) -> dict[bytes, Rule]:
        """The rule of each frame, that of the first model first."""
        return {frame: rule_of(places) for frame, places in self.frames}


def rule_plain(rule: Rule) -> dict[str, Tensor]:
    """A rule as plain values."""
    return {group: torch.from_numpy(order) for group, order in rule.of.items()}


def rule_of(places: Places) -> Rule:
    """A rule from plain values."""
    return Rule({group: order.numpy() for group, order in places.items()})


def unmoved(symmetry: Symmetry) -> Rule:
    """The rule that moves nothing."""
    return Rule({group: np.arange(size) for group, size in symmetry.groups.items()})


def study(known: Mapping[str, Any], device: str = "cpu") -> Public:
    """What everybody knows."""
    knowledge = Knowledge(**known["knowledge"])
    search = None if known["search"] is None else SearchRecipe(**known["search"])
    shape = tuple(knowledge.records[0].shape[1:])
    return Public(
        knowledge.module, revived(Symmetry, known["symmetry"]), shape, knowledge.classes, known["rate"], search
    )


def mount(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What one of the attacks comes to; `does` names it."""
    found: dict[str, Any] = {"match": _match, "read": _read}[asked["does"]](public, asked)
    return found


def _match(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The orders of rounds: each guess, and for each frame the one that fitted best.

    `asked` has `rounds`, the orders of earlier `frames`, how many uploads to match a round at `most`, and `coins`.
    """
    rounds = revived(tuple[ServerRound, ...], asked["rounds"])
    known = {frame: rule_of(places) for frame, places in asked["frames"]}
    found: dict[str, Any] = plain(follow(rounds, public.symmetry, Coins(asked["coins"]), asked["most"], known))
    return found


def follow(
    rounds: Sequence[ServerRound], symmetry: Symmetry, coins: Coins, most: int = 10,
    known: Mapping[bytes, Rule] | None = None,
) -> Followed:  # fmt: skip
    """Bring round after round into the order of the first model, by at most so many uploads a round.

    Each match is relative to the model that was handed out, of which every cluster has its own; frames say which orders
    are the same. Together they bring every round into one order, which itself stays unknown where the first model's is.
    `known` are the orders of earlier rounds.
    """
    known, guesses = dict(known or {rounds[0].uploads[0].model_frame: unmoved(symmetry)}), list[Guess]()
    for one in rounds:
        fits = list[tuple[float, Rule]]()
        # Whose model is in an order that was never brought together with the first tells nothing.
        for each in [each for each in one.uploads if each.model_frame in known][:most]:
            rule, is_same = known[each.model_frame], each.model_frame == one.frame
            if is_same:
                fits.append((0.0, rule))
            else:
                found = match(each.model, each.vector, symmetry, coins.child(one.number, each.client))
                fits.append((found.apart, after(rule, found.rule)))
            guesses.append(Guess(one.frame, rule_plain(fits[-1][1]), not is_same))
        if fits:
            known.setdefault(one.frame, min(fits, key=lambda fit: fit[0])[1])
    return Followed(tuple(guesses), tuple((frame, rule_plain(rule)) for frame, rule in known.items()))


def _read(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The record behind each of `steps`: the model, its upload of one step, what their rules are taken for, coins."""
    try:
        return {"records": tuple(_record(public, **step) for step in asked["steps"]), "unread": ""}
    except SpecError as error:
        # Not every network's gradients can be read.
        return {"records": (), "unread": str(error)}


def _record(
    public: Public, model: Tensor, upload: Tensor, of_model: Places | None, of_upload: Places | None, coins: bytes
) -> Tensor:
    """In the order that both rules lead back to; without rules model and upload are read as they lie."""
    symmetry = public.symmetry
    start = model if of_model is None else symmetry.invert(model, rule_of(of_model))
    end = upload if of_upload is None else symmetry.invert(upload, rule_of(of_upload))
    size = sum(part.numel() for part in public.module.parameters() if part.requires_grad)
    gradient = gradient_from(end[:size], start[:size], public.rate)
    network = holding(public.module, start, symmetry.layout).eval()
    found = record_behind(gradient, network, public.shape, public.classes, Coins(coins).child(0), public.search)
    return found.detach().nan_to_num(0.5)
