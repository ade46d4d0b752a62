"""Cheat in a chain of mix servers, and count what somebody honest notices, and what nobody can notice.

`croupier bench tamper --system chain` runs it (`systems`). Of the six forms of a chain two are tried: here the usual
one with a dealer (`place.chain.dealt`), and in `proven_rounds` the one whose servers prove what they do.

The form with a dealer is for servers that follow the protocol: nothing in it proves that rows were only moved. So two
kinds of escape are told apart. Escapes `BY_DESIGN`: a mix server altered rows or its part of the last mask, or the
dealer altered what it deals, which the statement says that nobody notices. Any other is an escape against the promise:
the network altered a packet on its way, a client was left out, a receipt was forged, parties mean different clients.
The form with proofs has no escapes by design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from croupier.core.coins import Choices, Coins
from croupier.core.flow import Change, Letter, corrupt
from croupier.core.view import View
from croupier.engine.local import Local
from croupier.engine.post import Packet
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier.systems import rns
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.secure_sum import drawn, seated
from croupier_lab.bench.tamper import proven_rounds
from croupier_lab.bench.tamper.rounds import NETWORK, Carry, PacketNetwork, pick, verdict
from croupier_lab.bench.tamper.verdicts import Verdict, body_of, counted, filled, places, table

NOTE = (
    "servers of a chain are trusted to follow the protocol: rows that they alter escape by design; packets on their "
    "way, who takes part and receipts are checked: no other escape is expected"
)
BY_DESIGN = ("alter rows", "exchange rows", "alter what is dealt", "alter an opening")
# The kinds of letters that each server sends after the clients' shares came in. "masked": its masked share, to the
# first server. "hop": the rows that it permuted, to the next server. "mixed": what reaches the server, rows from the
# last one and the opening of a part of the last mask from the others. Besides these, "here" says which clients reached
# a server, "receipt" is its signature for a client, and "dealt" is what the dealer hands each server.
SERVERS = {"mix1": ("hop", "mixed"), "mix2": ("masked", "hop", "mixed"), "mix3": ("masked", "mixed")}
Alter = Callable[[Letter, Choices], Letter]


class ChainTamperSize(BenchSize):
    """How much is tried: trials, clients, and numbers a vector."""

    trials: int = Field(10_000, ge=1)
    clients: int = Field(4, ge=4)
    params: int = Field(6, ge=2)


@dataclass(frozen=True)
class ChainTamperCell:
    """One way to cheat: what a party makes of its letters, or what the network makes of packets.

    `ignored` names a client whose letters never reach the party.
    """

    kind: str
    party: str = ""
    change: Callable[[tuple[Letter, ...], Choices], tuple[Letter, ...]] | None = None
    carry: Carry | None = None
    ignored: str = ""


def cells() -> list[ChainTamperCell]:
    """Every way to cheat that is tried."""
    return [*(ChainTamperCell(kind, carry=carry) for kind, carry in NETWORK.items()), *_servers(), *_dealer()]


def _one(kind: str, alter: Alter) -> Callable[[tuple[Letter, ...], Choices], tuple[Letter, ...]]:
    """Alter one of the letters of a kind."""

    def change(letters: tuple[Letter, ...], chance: Choices) -> tuple[Letter, ...]:
        if not (at := places(letters, kind)):
            return letters
        chosen = at[pick(chance, len(at))]
        return tuple(alter(one, chance) if place == chosen else one for place, one in enumerate(letters))

    return change


def _every(kind: str, alter: Alter) -> Callable[[tuple[Letter, ...], Choices], tuple[Letter, ...]]:
    """Alter every letter of a kind in the same way."""

    def change(letters: tuple[Letter, ...], chance: Choices) -> tuple[Letter, ...]:
        return tuple(alter(one, chance) if one.kind == kind else one for one in letters)

    return change


def _flip(name: str) -> Alter:
    def alter(letter: Letter, chance: Choices) -> Letter:
        values = body_of(letter)[name].clone()
        flat = values.reshape(-1)
        if len(flat):
            flat[pick(chance, len(flat))] ^= 1 << pick(chance, 6)
        return filled(letter, **{name: values})

    return alter


def _without(who: int) -> Alter:
    def alter(letter: Letter, chance: Choices) -> Letter:
        present = body_of(letter)["present"].clone()
        present[who] = 0
        return filled(letter, present=present)

    return alter


def _exchange(letter: Letter, chance: Choices) -> Letter:
    """The rows come in the opposite order, under masks that do not."""
    return filled(letter, rows=body_of(letter)["rows"].flip(0))


def _servers() -> Iterator[ChainTamperCell]:
    for server, kinds in SERVERS.items():
        for kind in kinds:
            if kind != "mixed" or server == "mix3":
                yield ChainTamperCell("alter rows", server, _one(kind, _flip("rows")))
                yield ChainTamperCell("exchange rows", server, _one(kind, _exchange))
            yield ChainTamperCell("drop", server, lambda letters, chance, k=kind: _dropped(letters, k))  # type: ignore[misc]
            yield ChainTamperCell("name others", server, _one(kind, _without(1)))
        if server != "mix3":
            yield ChainTamperCell("alter an opening", server, _one("mixed", _flip("seed")))
        yield ChainTamperCell("leave out", server, ignored="c01")
        yield ChainTamperCell("leave out, to others", server, _every("here", _without(1)))
        yield ChainTamperCell("leave out, to one", server, _one("here", _without(1)))
        yield ChainTamperCell("forge a receipt", server, _one("receipt", _flip("signature")))
        yield ChainTamperCell("forge a receipt", server, _every("receipt", _without(1)))


def _dropped(letters: tuple[Letter, ...], kind: str) -> tuple[Letter, ...]:
    return tuple(one for one in letters if one.kind != kind)


def _dealer() -> Iterator[ChainTamperCell]:
    yield ChainTamperCell("alter what is dealt", "dealer", _one("dealt", _flip("rows")))
    yield ChainTamperCell("alter what is dealt", "dealer", _one("dealt", _flip("seed")))
    yield ChainTamperCell("name others", "dealer", _one("dealt", _without(1)))
    yield ChainTamperCell("drop", "dealer", lambda letters, chance: _dropped(letters, "dealt"))


def measure(size: ChainTamperSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Trials spread evenly over the ways to cheat."""
    base = rns(size.clients, digits=2, release="bits")
    pipeline = Pipeline.parse({**base.plain(), "place": Chain(servers=len(SERVERS)).plain()})
    coins, every = Coins.from_seed(seed), cells()

    def ended() -> Iterator[tuple[str, Verdict]]:
        for number in range(size.trials):
            cell = every[number % len(every)]
            yield cell.kind, attempted(pipeline, cell, size, coins.child("trial", number))
            if number and number % 1000 == 0:
                watch(f"{number} trials")

    found = counted(ended())
    against = sum(kind["escapes"] for name, kind in found["kinds"].items() if name not in BY_DESIGN)
    # Rounds whose bits are encrypted one by one take long: a tenth as many of them.
    proven = proven_rounds.measure(max(1, size.trials // 10), coins.child("with proofs"), watch)
    against += proven["escapes"]
    return {
        "system": "chain", "params": size.params, "note": NOTE, **found, "against_promise": against, "proven": proven,
    }  # fmt: skip


def attempted(pipeline: Pipeline, cell: ChainTamperCell, size: ChainTamperSize, coins: Coins) -> Verdict:
    """One trial: a round in which somebody cheats, and whether a wrong sum was taken for right."""
    chance = coins.child("tampering").secure()
    updates = drawn(size.params, size.clients, coins)
    sitting = seated(pipeline, updates, coins, quorum=3)
    parties, network = dict(sitting.attempt.parties), None
    if cell.change is not None:
        parties[cell.party] = corrupt(parties[cell.party], _change(cell.change, chance))
    if cell.carry is not None:
        network = PacketNetwork(cell.carry, pick(chance, 40), chance)
    carry = _ignoring(cell) if cell.ignored else network
    links = coins.child("links") if carry else None
    result = Local(links, carry)(replace(sitting.attempt, parties=parties))
    return verdict(pipeline, updates, result)


def _change(change: Callable[[tuple[Letter, ...], Choices], tuple[Letter, ...]], chance: Choices) -> Change:
    def changed(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return change(letters, chance)

    return changed


def _ignoring(cell: ChainTamperCell) -> Callable[[list[Packet]], list[Packet]]:
    def carry(mail: list[Packet]) -> list[Packet]:
        return [one for one in mail if (one.source, one.target) != (cell.ignored, cell.party)]

    return carry


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(
        f"chain: {found['trials']} trials, {found['escapes']} escapes, {found['against_promise']} of them against the "
        f"promise; {found['note']}"
    )
    print(table(found))
    proven_rounds.show(found["proven"])
