"""Hidden coordinates: orders brought together by matching weights, records read in them, and pictures laid out.

The attacks are a server's: it knows the public network, what it handed out and what came back, and nothing of the rule.
A rule that is given to a reading was found by matching, or told by a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from croupier.audit.invert import Attack, Inverting, inverting
from croupier.audit.knowledge import Knowledge
from croupier.audit.onlooker import Reader, Sight, followed, rule_of
from croupier.audit.reorder import by_example
from croupier.core.coins import Coins
from croupier.core.revive import revived
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError


@dataclass(frozen=True)
class Public:
    """The network, its symmetries and the shape of a record; `search` is None where records are read off a layer."""

    module: nn.Module
    symmetry: Symmetry
    shape: tuple[int, ...]
    classes: int
    rate: float
    search: Attack | None


def study(known: Mapping[str, Any], device: str = "cpu") -> Public:
    """What everybody knows."""
    knowledge = Knowledge(**known["knowledge"])
    search = None if known["search"] is None else inverting(Inverting(**known["search"]))
    shape = tuple(knowledge.records[0].shape[1:])
    return Public(
        knowledge.module, revived(Symmetry, known["symmetry"]), shape, knowledge.classes, known["rate"], search
    )


def mount(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What one of the attacks comes to; `does` names it."""
    found: dict[str, Any] = {"match": _match, "read": _read, "lay out": _lay_out}[asked["does"]](public, asked)
    return found


def _match(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The orders of rounds: each guess, and for each frame the one that fitted best.

    `asked` has `sights` of rounds, the orders of earlier frames (`known`), how many uploads to match a round at `most`,
    and `coins`.
    """
    known = {one["frame"]: rule_of(one["rule"]) for one in asked["known"]}
    sights = [Sight.of(one) for one in asked["sights"]]
    track = followed(sights, public.symmetry, Coins(asked["coins"]), asked["most"], known or None)
    return track.plain()


def _read(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The record behind each of `steps`: the model, its upload of one step, what their rules are taken for, coins."""
    records = []
    try:
        for one in asked["steps"]:
            reader = Reader(
                public.module, public.symmetry, one["model"], _rule(one["of_model"]), _rule(one["of_upload"]),
                public.rate, public.shape, public.classes, public.search,
            )  # fmt: skip
            records.append(reader.records([one["upload"]], Coins(one["coins"])))
    except SpecError as error:
        # Not every network's gradients can be read.
        return {"records": (), "unread": str(error)}
    return {"records": tuple(records), "unread": ""}


def _rule(plain: Mapping[str, Tensor] | None) -> Rule | None:
    return None if plain is None else rule_of(plain)


def _lay_out(public: Public, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Where each place of `samples`, all in one unknown order, lies by the look of `public` ones."""
    places = by_example(asked["samples"], asked["public"], Coins(asked["coins"]))
    return {"places": torch.from_numpy(places)}
