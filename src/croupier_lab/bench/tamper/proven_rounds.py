"""Whole rounds of a mix whose servers prove what they do, in which somebody cheats: how they end, and the control.

A server mixes, opens or proves something else; a server or client sends other bytes than it should, to all or to one;
the network alters a packet. No round may end with a wrong sum. The cheats are in `proven_chain`, and `chain`
(`croupier bench tamper --system chain`) calls `measure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from croupier.core.coins import Choices, Coins
from croupier.core.flow import Change, Letter, Party, corrupt
from croupier.core.update import Update
from croupier.core.view import View
from croupier.engine.local import Local
from croupier.engine.post import Network
from croupier.pipeline import Pipeline
from croupier.place.chain.mix_record import MixRecord
from croupier_lab.bench.size import Watch, ignore
from croupier_lab.bench.speed.secure_sum import seated
from croupier_lab.bench.tamper import proven_chain
from croupier_lab.bench.tamper.proven_chain import CHEATS, LETTERS, NAMES, BlindChain
from croupier_lab.bench.tamper.rounds import NETWORK, PacketNetwork, pick, verdict
from croupier_lab.bench.tamper.verdicts import Verdict, body_of, counted, filled, places

# The network alters one of the first so many packets, counted over the round.
_PACKETS = 70


@dataclass(frozen=True)
class ProvenCell:
    """One way to cheat.

    It is how a server watches and mixes (`record`), or what a party makes of one field of one kind of letter
    (`letter`), or what the network does (`carry`).
    """

    kind: str
    party: str = ""
    record: type[MixRecord] | None = None
    letter: tuple[str, str] = ("", "")
    to_all: bool = False
    carry: str = ""


def cells() -> list[ProvenCell]:
    """Every way to cheat that is tried."""
    found = [ProvenCell(kind, who, record) for kind, record in CHEATS.items() for who in NAMES]
    for who, kinds in LETTERS.items():
        for kind, names in kinds.items():
            for name in names:
                found += [
                    ProvenCell(f"alter {kind}" if all_ else f"alter {kind} to one", who, None, (kind, name), all_)
                    for all_ in (True, False)
                ]
    return [*found, *(ProvenCell(kind, carry=kind) for kind in NETWORK)]


def measure(trials: int, coins: Coins, watch: Watch = ignore) -> dict[str, Any]:
    """Rounds, a tenth as many of the control, and as many trials of hidden marks for each count of marked numbers."""
    whole, every = proven_chain.pipeline(), cells()

    def ended() -> Iterator[tuple[str, Verdict]]:
        for number in range(trials):
            cell = every[number % len(every)]
            yield cell.kind, attempted(whole, cell, coins.child("trial", number))
            if number and number % 100 == 0:
                watch(f"{number} rounds with proofs")

    found = counted(ended())
    watch("the control without proofs")
    control = counted(
        ("add one, nothing checked", unchecked(whole, coins.child("control", number)))
        for number in range(max(1, trials // 10))
    )
    watch("marks that only the proof of a shuffle finds")
    return {**found, "control": control, "marks": proven_chain.detection(trials, coins.child("marks"))}


def attempted(whole: Pipeline, cell: ProvenCell, coins: Coins) -> Verdict:
    """One round in which somebody cheats, and whether a wrong sum was taken for right."""
    chance = coins.child("tampering").secure()
    sent = proven_chain.updates(coins)
    parties: dict[str, Party] = {}
    if cell.record is not None:
        parties[cell.party] = proven_chain.party(whole, cell.party, cell.record)
    network: Network | None = None
    if cell.carry:
        network = PacketNetwork(NETWORK[cell.carry], pick(chance, _PACKETS), chance)
    change = _change(cell, chance) if cell.letter[0] else None
    return _played(whole, sent, coins, parties, change and (cell.party, change), network)


def unchecked(whole: Pipeline, coins: Coins) -> Verdict:
    """The control: a server adds one, and nobody checks a proof."""
    place = BlindChain(**{key: value for key, value in whole.place.plain().items() if key != "use"})
    careless = whole.model_copy(update={"place": place})
    adder = {NAMES[0]: proven_chain.party(careless, NAMES[0], proven_chain.BlindAdder)}
    return _played(careless, proven_chain.updates(coins), coins, adder, None, None)


def _played(whole: Pipeline, sent: Mapping[str, Update], coins: Coins, parties: Mapping[str, Party],
            change: tuple[str, Change] | None, network: Network | None) -> Verdict:  # fmt: skip
    attempt = seated(whole, sent, coins, quorum=3).attempt
    mine = {**attempt.parties, **parties}
    if change is not None:
        mine[change[0]] = corrupt(mine[change[0]], change[1])
    links = coins.child("links") if network else None
    return verdict(whole, sent, Local(links, network)(replace(attempt, parties=mine)))


def _change(cell: ProvenCell, chance: Choices) -> Change:
    """Flip a bit of one field, in one letter of a kind or alike in all of them."""
    kind, name = cell.letter
    where, bit = pick(chance, 1 << 20), 1 << pick(chance, 8)

    def altered(letter: Letter) -> Letter:
        values = body_of(letter)[name].clone()
        flat = values.reshape(-1)
        if len(flat):
            flat[where % len(flat)] ^= 1 if name == "present" else bit
        return filled(letter, **{name: values})

    def changed(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        at = places(letters, kind)
        chosen = at if cell.to_all else at[:1]
        return tuple(altered(one) if place in chosen else one for place, one in enumerate(letters))

    return changed


def show(found: Mapping[str, Any]) -> None:
    """Print the same numbers for people."""
    control = found["control"]
    print(f"with proofs: {found['trials']} rounds, {found['escapes']} escapes")
    print(f"control, nothing checked: {control['escapes']} escapes of {control['trials']}")
    for row in found["marks"]:
        print(
            f"marks in {row['changed']} of {row['numbers']} numbers, {row['proven']} proven: caught {row['rate']:.3f} "
            f"of {row['trials']}; computed {row['computed']:.3f}, between {row['low']:.3f} and {row['high']:.3f}"
        )
