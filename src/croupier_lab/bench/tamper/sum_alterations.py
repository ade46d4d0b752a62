"""What a cheating party or network can do to the messages of a sum: one function for each alteration.

Each makes a `TamperedSum` for a `SumTrial`. `bench/tamper/sum_tampering` applies each of them at every place, and
`bench/tamper/sums` plays the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from croupier.core.coins import Stream
from croupier.core.flow import Change, Inbox, Letter
from croupier.core.view import View
from croupier.encode.encoder import Released
from croupier.engine.post import Network, Packet
from croupier.kernels.shares import P
from croupier.mpc.shares import joined, unpacked
from croupier.pipeline import Pipeline
from croupier.place.placement import residue_bits
from croupier.place.servers import SumServers
from croupier_lab.bench.tamper.verdicts import body_of, filled, places

SERVERS = ("sum1", "sum2", "sum3")
# Clients that misbehave are among these four; a fifth client may take part, honest, or be absent.
CLIENTS = ("c00", "c01", "c02", "c03")
# The fields that are tampered with, by kind of letter.
FIELDS = {
    "share": ("vector", "tag"), "seed": ("seed",), "here": ("present",), "sum": ("present", "vector", "tag"),
    "published": ("present", "vector", "tag"), "up": ("vector",),
}  # fmt: skip


@dataclass(frozen=True)
class SumTrial:
    """What whoever tampers can use: the protocol, chance, and all that was sent in an earlier round or attempt."""

    pipeline: Pipeline
    slots: int
    clients: tuple[str, ...]
    chance: Stream
    letters: Mapping[str, tuple[Letter, ...]]
    packets: tuple[Packet, ...]

    def pick(self, limit: int) -> int:
        """A choice below a limit."""
        return int(self.chance.below(limit)[0])

    def read(self, letter: Letter, name: str = "vector") -> Tensor:
        """A field's values; of a vector they are its unpacked residues."""
        values = body_of(letter)[name]
        return values.clone() if name != "vector" else unpacked(values, self.slots, residue_bits(self.pipeline))

    def written(self, letter: Letter, name: str, values: Tensor) -> Letter:
        """The same letter with other values in a field."""
        return filled(letter, **{name: values if name != "vector" else joined(values, residue_bits(self.pipeline))})


@dataclass(frozen=True)
class TamperedSum:
    """A tampering: parties that rewrite what they send, a network that alters packets, a server that alters its sum."""

    changes: Mapping[str, Change] = field(default_factory=dict)
    network: Network | None = None
    result: Callable[[Released], Released] | None = None


Alter = Callable[[SumTrial, Letter], Letter]
Edit = Callable[[tuple[Letter, ...], int], tuple[Letter, ...]]


def flip(name: str) -> Alter:
    """One value becomes another that the field can hold."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        values = trial.read(letter, name)
        limit = {"present": 2, "seed": 256, "tag": P, "vector": 1 << residue_bits(trial.pipeline)}[name]
        at = trial.pick(len(values))
        values[at] = (int(values[at]) + 1 + trial.pick(limit - 1)) % limit
        return trial.written(letter, name, values)

    return alter


def swap_values(trial: SumTrial, letter: Letter) -> Letter:
    """Two values change places."""
    values = trial.read(letter)
    one = trial.pick(len(values))
    two = (one + 1 + trial.pick(len(values) - 1)) % len(values)
    values[[one, two]] = values[[two, one]]
    return trial.written(letter, "vector", values)


def scale(factor: int) -> Alter:
    """The vector, and its tag where there is one, are multiplied by a number."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        vector = trial.read(letter)
        multiple = (vector.long() * factor % (1 << residue_bits(trial.pipeline))).to(vector.dtype)
        scaled = trial.written(letter, "vector", multiple)
        if "tag" in FIELDS[letter.kind]:
            scaled = filled(scaled, tag=torch.tensor([int(body_of(letter)["tag"][0]) * factor % P]))
        return scaled

    return alter


def mark(place: int) -> Alter:
    """One client more or less is named."""

    def alter(trial: SumTrial, letter: Letter) -> Letter:
        present = body_of(letter)["present"].clone()
        present[place] ^= 1
        return filled(letter, present=present)

    return alter


def edit_one(party: str, kind: str, edit: Edit) -> Callable[[SumTrial], TamperedSum]:
    """A party does something with one of its letters of a kind."""

    def tamper(trial: SumTrial) -> TamperedSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            found = places(letters, kind)
            return edit(letters, found[trial.pick(len(found))]) if found else letters

        return TamperedSum({party: change})

    return tamper


def alter_one(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], TamperedSum]:
    """A party alters one of its letters of a kind."""
    return lambda trial: edit_one(
        party, kind, lambda letters, at: (*letters[:at], alter(trial, letters[at]), *letters[at + 1 :])
    )(trial)


def repeat_altered(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], TamperedSum]:
    """A party sends a letter, and then another version of it."""
    return lambda trial: edit_one(party, kind, lambda letters, at: (*letters, alter(trial, letters[at])))(trial)


def alter_together(parties: tuple[str, ...], kind: str, alter: Alter) -> Callable[[SumTrial], TamperedSum]:
    """Several parties alter all of their letters of a kind alike."""

    def tamper(trial: SumTrial) -> TamperedSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(alter(trial, letter) if letter.kind == kind else letter for letter in letters)

        return TamperedSum(dict.fromkeys(parties, change))

    return tamper


def alter_all(party: str, kind: str, alter: Alter) -> Callable[[SumTrial], TamperedSum]:
    """A party sends everybody the same altered letter."""

    def tamper(trial: SumTrial) -> TamperedSum:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            found = places(letters, kind)
            if not found:
                return letters
            body = alter(trial, letters[found[0]]).body
            return tuple(replace(letter, body=body) if letter.kind == kind else letter for letter in letters)

        return TamperedSum({party: change})

    return tamper


def count_again(
    servers: tuple[str, ...], victim: str, times: int, named: bool = False, told: bool = True
) -> Callable[[SumTrial], TamperedSum]:
    """Servers add a client once more, or take it out again.

    `named`: they no longer name it. Not `told`: the server sends it no sum.
    """

    def tamper(trial: SumTrial) -> TamperedSum:
        place, modulus = trial.pipeline.place, 1 << residue_bits(trial.pipeline)
        if not isinstance(place, SumServers):
            raise AssertionError("only sum servers add shares")

        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            inboxes: list[Inbox] = view.inputs
            its = tuple(letter for inbox in inboxes[:2] for letter in inbox if letter.source == victim)
            share, tag = place._added(trial.pipeline, view.given.layout, its)
            sums = unpacked(share, trial.slots, residue_bits(trial.pipeline))

            def altered(letter: Letter) -> Letter:
                vector, present = trial.read(letter), body_of(letter)["present"].clone()
                if named:
                    present[view.given.roster.index(victim)] = 0
                total = ((vector.long() + times * sums.long()) % modulus).to(vector.dtype)
                tags = torch.tensor([(int(body_of(letter)["tag"][0]) + times * tag) % P])
                return trial.written(filled(letter, present=present, tag=tags), "vector", total)

            return tuple(altered(letter) if letter.kind == "sum" else letter for letter in letters)

        def quiet(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(letter for letter in letters if letter.target != victim)

        return TamperedSum({**dict.fromkeys(servers, change), **({} if told else {"server": quiet})})

    return tamper


def silence(server: str) -> Callable[[SumTrial], TamperedSum]:
    """A sum server alters its sum, and the network keeps the published sum from every client."""

    def tamper(trial: SumTrial) -> TamperedSum:
        tampered = alter_one(server, "sum", flip("vector"))(trial)
        return replace(tampered, network=lambda mail: [p for p in mail if p.source != "server"])

    return tamper


def send_again(
    parties: tuple[str, ...], kinds: tuple[str, ...], one: bool = False
) -> Callable[[SumTrial], TamperedSum]:
    """Parties send again what they sent before, to one or to all."""

    def tamper(trial: SumTrial) -> TamperedSum:
        lucky = trial.clients[trial.pick(len(CLIENTS))]

        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            old = {(letter.target, letter.kind): letter for letter in trial.letters[view.party]}
            again = {to for to, _ in old if not one or to == lucky}
            return tuple(
                old[letter.target, letter.kind] if letter.kind in kinds and letter.target in again else letter
                for letter in letters
            )

        return TamperedSum(dict.fromkeys(parties, change))

    return tamper


def carry_altered(change: Callable[[SumTrial, list[Packet], int], list[Packet]]) -> Callable[[SumTrial], TamperedSum]:
    """The network does something with one of its packets: any one, counted over the whole round."""

    def tamper(trial: SumTrial) -> TamperedSum:
        at, seen = trial.pick(len(trial.clients) * _posts(trial.pipeline)), 0

        def carry(mail: list[Packet]) -> list[Packet]:
            nonlocal seen
            place, seen = at - seen, seen + len(mail)
            return change(trial, mail, place) if 0 <= place < len(mail) else mail

        return TamperedSum(network=carry)

    return tamper


def _posts(pipeline: Pipeline) -> int:
    """Packets that a client sends and gets in a round: one to each party between, and one from or to the server."""
    return len(pipeline.place.middle(pipeline)) + 1
