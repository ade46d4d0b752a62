"""Can single updates be taken out of sums over rounds? Asked of what one adversary sees of all rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from croupier.audit.disaggregate import Sighting, named, own_update, recover, sightings, without
from croupier.core.update import Layout, Slice
from croupier.errors import SpecError

Rounds = Sequence[Mapping[str, Any]]


def study(known: Mapping[str, Any], device: str = "cpu") -> Layout:
    """What is known, before any view: which tensor lies where."""
    return Layout(tuple(Slice(one["name"], tuple(one["shape"]), one["role"]) for one in known["layout"]))


def mount(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """An update for every client but those whose own views these are, by attack.

    `asked` has `rounds`, each with its number (`round`), `views` by party and the model `start` that was handed out in
    it; the public `protocol`; and names of `attacks`. Of each client `when` says of which round its update is, and
    `means` what all did together in that round: with `less_own`, all but those whose views these are.
    """
    attacks = {"named": _named, "sums": _sums}
    if strange := [name for name in asked["attacks"] if name not in attacks]:
        raise SpecError(f"no attack is called {strange[0]!r}; known: {', '.join(attacks)}")
    own = asked.get("less_own", False)
    return {name: attacks[name](asked["rounds"], asked["protocol"], layout, own) for name in asked["attacks"]}


def _named(rounds: Rounds, protocol: Mapping[str, Any], layout: Layout, less_own: bool) -> dict[str, Any]:
    """The last update of each client, as it was seen."""
    own = {who for known in _own(rounds).values() for who in known}
    found = {who: one for who, one in named(rounds, protocol, layout).items() if who not in own}
    if not found:
        raise SpecError("no client is left beside those who collude")
    return {
        "clients": tuple(found), "when": tuple(one.round for one in found.values()),
        "updates": torch.stack([one.update for one in found.values()]),
        "means": torch.stack([one.mean for one in found.values()]),
    }  # fmt: skip


def _sums(rounds: Rounds, protocol: Mapping[str, Any], layout: Layout, less_own: bool) -> dict[str, Any]:
    """Sums over changing clients, less what colluders sent, solved for the others."""
    seen, own = sightings(rounds, protocol, layout), _own(rounds)
    known = {who for each in own.values() for who in each}
    clients = tuple(dict.fromkeys(who for one in seen for who in one.present if who not in known))
    got = recover(seen, clients, own)
    left = [without(one, own[one.round]) for one in seen] if less_own else seen
    means = {number: _mean([one for one in left if one.round == number]) for number in set(got.when)}
    return {
        "clients": clients, "when": got.when, "updates": got.updates, "models": got.models,
        "means": torch.stack([means[number] for number in got.when]), "sums": len(seen), "rank": got.rank,
        "alone": got.alone, "exact": got.exact, "stays": got.how.stays,
    }  # fmt: skip


def _mean(sums: Sequence[Sighting]) -> Tensor:
    whole = torch.stack([one.total for one in sums]).sum(0)
    return whole / sum(one.weight for one in sums)


def _own(rounds: Rounds) -> dict[int, dict[str, Tensor]]:
    """By round, what each client sent that brought its own view."""
    return {
        one["round"]: {
            who: own_update(views[0])
            for who, views in one["views"].items()
            if views and who in views[0]["given"]["roster"]
        }
        for one in rounds
    }
