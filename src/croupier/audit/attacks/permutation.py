"""The server's attack on encodings such as Tazza's (`hidden-units`): in which order are a client's hidden units?

The server matches the weights of each upload with those of the model that it handed out. A *frame* is the public name
of a secret order; a *rule* is that order itself: one permutation for each group of units. `audit.questions.permutation`
asks it in the blind process, with rounds from `audit.permuted_run`; the laboratory's `attacks/permuted_records` uses
`follow`.
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
    """The server's guess: the permutation from the first handed-out model's order to this upload's.

    `matched`: False where the upload's frame equals its model's frame, so that no weights had to be matched.
    """

    frame: bytes
    rule: Rule
    matched: bool


def unmoved(symmetry: Symmetry) -> Rule:
    """The rule that moves nothing."""
    return Rule({group: np.arange(size) for group, size in symmetry.groups.items()})


def study(known: Mapping[str, Any], device: str = "cpu") -> Symmetry:
    """The network's public symmetry, read back from plain values."""
    found: Symmetry = revived(Symmetry, known["symmetry"])
    return found


def mount(symmetry: Symmetry, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The frame of the first model (`base`), and every guess at the order of an upload.

    `asked` has `rounds`, `coins`, and `most`: how many uploads are looked at in each round.
    """
    rounds = revived(tuple[ServerRound, ...], asked["rounds"])
    guesses, orders = follow(rounds, symmetry, Coins(asked["coins"]), asked["most"])
    told = [
        {"frame": one.frame, "places": {group: torch.from_numpy(order) for group, order in one.rule.of.items()},
         "matched": one.matched}
        for one in guesses
    ]  # fmt: skip
    return {"base": next(iter(orders)), "guesses": told}


def follow(
    rounds: Sequence[ServerRound], symmetry: Symmetry, coins: Coins, most: int = 10,
    earlier: Mapping[bytes, Rule] | None = None,
) -> tuple[list[Guess], dict[bytes, Rule]]:  # fmt: skip
    """Bring round after round into the order of the first model, by at most `most` uploads of each round.

    Each match is relative to the model that was handed out (with clusters, clients get different ones); frames say
    which orders are the same. So all rounds end in one common order, secret if the first model's is. `earlier`: the
    orders of earlier rounds. Returns every guess, and for each frame the best fit of the first round with that frame.
    """
    orders, guesses = dict(earlier or {rounds[0].uploads[0].model_frame: unmoved(symmetry)}), list[Guess]()
    for one in rounds:
        fits = list[tuple[float, Rule]]()
        # An upload whose model lies in an order that is not linked to the first tells nothing.
        for each in [each for each in one.uploads if each.model_frame in orders][:most]:
            rule, is_same = orders[each.model_frame], each.model_frame == one.frame
            if is_same:
                fits.append((0.0, rule))
            else:
                found = match(each.model, each.vector, symmetry, coins.child(one.number, each.client))
                fits.append((found.apart, after(rule, found.rule)))
            guesses.append(Guess(one.frame, fits[-1][1], not is_same))
        if fits:
            orders.setdefault(one.frame, min(fits, key=lambda fit: fit[0])[1])
    return guesses, orders
