"""Hidden coordinates: orders of uploads, brought together by matching weights.

The attack is a server's: it knows the network's symmetries, what it handed out and what came back, and nothing of the
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.revive import revived
from croupier.encode.symmetry import Rule, Symmetry
from croupier.learn.axes.matching import after, match


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
    rule: Rule
    matched: bool


def unmoved(symmetry: Symmetry) -> Rule:
    """The rule that moves nothing."""
    return Rule({group: np.arange(size) for group, size in symmetry.groups.items()})


def study(known: Mapping[str, Any], device: str = "cpu") -> Symmetry:
    """What everybody knows."""
    found: Symmetry = revived(Symmetry, known["symmetry"])
    return found


def mount(symmetry: Symmetry, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The frame of the first model (`base`), and every guess at the order of an upload.

    `asked` has `rounds`, how many uploads to match a round at `most`, and `coins`.
    """
    rounds = revived(tuple[ServerRound, ...], asked["rounds"])
    guesses, known = follow(rounds, symmetry, Coins(asked["coins"]), asked["most"])
    told = [
        {"frame": one.frame, "places": {group: torch.from_numpy(order) for group, order in one.rule.of.items()},
         "matched": one.matched}
        for one in guesses
    ]  # fmt: skip
    return {"base": next(iter(known)), "guesses": told}


def follow(
    rounds: Sequence[ServerRound], symmetry: Symmetry, coins: Coins, most: int = 10,
    known: Mapping[bytes, Rule] | None = None,
) -> tuple[list[Guess], dict[bytes, Rule]]:  # fmt: skip
    """Bring round after round into the order of the first model, by at most so many uploads a round.

    Each match is relative to the model that was handed out, of which every cluster has its own; frames say which orders
    are the same. Together they bring every round into one order, which stays unknown where the first model's is.
    `known` are the orders of earlier rounds. Every guess, and for each frame the rule that fitted best.
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
            guesses.append(Guess(one.frame, fits[-1][1], not is_same))
        if fits:
            known.setdefault(one.frame, min(fits, key=lambda fit: fit[0])[1])
    return guesses, known
