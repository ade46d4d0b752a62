"""Whose record is it, and was it trained on at all? Asked of what one adversary sees of one round, or of no view.

A topic of the attacks' own process (`audit.blind`): it is sent views and knowledge, never the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier.audit import membership, source
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge
from croupier.audit.seen import counted, seen
from croupier.audit.unshuffle import pick
from croupier.core.coins import Coins
from croupier.errors import SpecError, Unsuited, nearest
from croupier.learn.flat import FlatNet


def study(known: Mapping[str, Any], device: str = "cpu") -> AttackContext:
    """What is known, before any view."""
    knowledge = Knowledge(**known["knowledge"])
    return AttackContext(knowledge, None, FlatNet(knowledge.module, device), Coins(known["quiet"]))


def mount(context: AttackContext, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A client's place for each record, by attack, and a score for each suspect.

    `asked` has `views`, by party, of the round, or none at all, and the model `start` that was handed out in it; the
    public `protocol`; names of attacks (`source`, `membership`); and `coins`.
    """
    views, protocol, layout = asked["views"], asked["protocol"], context.net.layout
    viewed = context.with_view(None)
    if views:
        start = asked["start"]
        viewed = context.with_view(seen(views, protocol, layout, start), counted(views, protocol, layout), start)
    coins = Coins(asked["coins"])
    guesses, unsuited = {}, dict[str, str]()
    for name in asked["source"]:
        node, attack = coins.child("source", name), _named(name, source.ATTACKS)
        try:
            guesses[name] = pick(attack(viewed, node.child("attack")), node.child("ties").fast())
        except Unsuited as error:
            unsuited[name] = str(error)
    scores = {name: _named(name, membership.ATTACKS)(viewed, coins.child(name)) for name in asked["membership"]}
    carried = source.prior_of(viewed).carried if "prior" in asked["source"] else ""
    return {"guesses": guesses, "scores": scores, "unsuited": unsuited, "carried": carried}


def _named(name: str, attacks: Mapping[str, source.Attack]) -> source.Attack:
    if name not in attacks:
        raise SpecError(f"no attack is called {name!r}; {nearest(name, attacks)}")
    return attacks[name]
