"""Cheating about who took part, what the reference is and what came out.

No number is wrong here: what is told differs from one party to another. Signatures, receipts and the commitment to the
reference must find it. `tampering` collects the cells of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.signatures import root_of, signed
from croupier.place.two_servers import messages
from croupier.place.two_servers.messages import SERVERS
from croupier_lab.bench.tamper.rain.cheating_server import Bodies, Deviation
from croupier_lab.bench.tamper.rain.messages import RainTamperCell, another, late_comer
from croupier_lab.bench.tamper.rain.round import (
    COLLUDERS,
    ROSTER,
    Change,
    TamperedRound,
    TwoServerRound,
    mask_bits,
    opened,
    signed_up,
)
from croupier_lab.bench.tamper.rain.trial import RainTrial
from croupier_lab.bench.tamper.verdicts import body_of, filled


def by_rosters() -> Iterator[RainTamperCell]:
    """Every cheat with uploads, receipts, references, and what is published."""
    for party in SERVERS:
        yield from _uploads(party)
        yield RainTamperCell("roster", party, "receipt", _named)
    yield RainTamperCell("reference", "server", "late", _shown(told=False))
    yield RainTamperCell("reference", "server", "late", _shown(told=True))
    for whose in ("second", "server", "earlier"):
        yield RainTamperCell("published", "server", "published", _published(whose), before="round")


def _uploads(party: str) -> Iterator[RainTamperCell]:
    yield RainTamperCell("hide upload", party, "here", _hidden(ROSTER[0]))
    yield RainTamperCell("hide upload", party, "here", _hidden(ROSTER[-1], alone=True), colluding=True)
    yield RainTamperCell("forward another", party, "forward", _other_row, colluding=True)
    for kind in ("old", "forged"):
        yield RainTamperCell("forward another", party, "forward", _wrong_row(kind), before="round")
    yield RainTamperCell("equivocate", party, "up", _two_rows, colluding=True)
    yield RainTamperCell("equivocate", party, "up", _two_models, colluding=True)
    for both in (False, True):
        yield RainTamperCell("flip", party, "up", _unsigned(both), colluding=True)
        yield RainTamperCell("drop", party, "up", _silent(both), colluding=True)


def _hidden(victim: str, alone: bool = False) -> Callable[[RainTrial], TamperedRound]:
    """A server that says a client's upload never came; where it came to no other, that client is missing."""

    def tamper(trial: RainTrial) -> TamperedRound:
        def got(bodies: Bodies) -> Bodies:
            trial.acted = True
            return {who: body for who, body in bodies.items() if who != victim}

        free = {victim: (mask_bits(trial.round, victim),)} if alone else {}
        return TamperedRound(tamper=Deviation(got=got), clients=late_comer(trial) if alone else {}, free=free)

    return tamper


def _other_row(trial: RainTrial) -> TamperedRound:
    """A colluder's other row, duly signed, is forwarded beside the one that the honest server has."""
    who = COLLUDERS[0]
    other = signed_up(trial.round, who, 1 - trial.round.rows[who])

    def got(bodies: Bodies) -> Bodies:
        trial.acted = True
        return {name: other if name == who else body for name, body in bodies.items()}

    return TamperedRound(tamper=Deviation(got=got), free={who: (mask_bits(trial.round, who),)})


def _wrong_row(kind: str) -> Callable[[RainTrial], TamperedRound]:
    """An honest client's row of an earlier round, or one that nobody signed."""

    def tamper(trial: RainTrial) -> TamperedRound:
        victim = ROSTER[trial.pick(3)]
        if trial.earlier is None:
            raise AssertionError("nothing was sent earlier")
        body = dict(body_of(next(one for one in trial.earlier.sent[victim] if one.kind == "up")))
        if kind == "forged":
            body["row"] = torch.from_numpy(kernel.packed(trial.round.rows[victim]))

        def got(bodies: Bodies) -> Bodies:
            trial.acted = True
            return {name: body if name == victim else own for name, own in bodies.items()}

        return TamperedRound(tamper=Deviation(got=got))

    return tamper


def _two_rows(trial: RainTrial) -> TamperedRound:
    """A colluder sends the servers different rows."""
    who = COLLUDERS[0]
    bits = 1 - trial.round.rows[who]

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        other = signed_up(trial.round, who, bits)
        return tuple(replace(one, body=other) if one.target == trial.peer else one for one in letters)

    return TamperedRound(clients={who: change}, free={who: (mask_bits(trial.round, who),)})


def _two_models(trial: RainTrial) -> TamperedRound:
    """A colluder signs one row for the servers, and says to one of them that it was handed another model."""
    who = COLLUDERS[0]

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        handed = trial.round.late["handed"] ^ 1
        other = signed_up(trial.round, who, trial.round.rows[who], handed)
        return tuple(replace(one, body=other) if one.target == trial.peer else one for one in letters)

    return TamperedRound(clients={who: change}, free={who: (mask_bits(trial.round, who),)})


def _unsigned(both: bool) -> Callable[[RainTrial], TamperedRound]:
    """A colluder alters its row after it has signed it, to the honest server or to both."""

    def tamper(trial: RainTrial) -> TamperedRound:
        who, bit = COLLUDERS[0], trial.pick(trial.round.setting.params)

        def flipped(letter: Letter) -> Letter:
            row = body_of(letter)["row"].clone()
            row[bit // 8] ^= 1 << (bit % 8)
            return filled(letter, row=row) if both or letter.target == trial.peer else letter

        return TamperedRound(
            clients={who: lambda letters, view: tuple(map(flipped, letters))}, free=_row_or_mask(trial, who)
        )

    return tamper


def _silent(both: bool) -> Callable[[RainTrial], TamperedRound]:
    """A colluder sends nothing to the honest server, or nothing at all."""

    def tamper(trial: RainTrial) -> TamperedRound:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return () if both else tuple(one for one in letters if one.target != trial.peer)

        return TamperedRound(clients={COLLUDERS[0]: change}, free=_row_or_mask(trial, COLLUDERS[0]))

    return tamper


def _row_or_mask(trial: RainTrial, who: str) -> dict[str, tuple[Bytes, ...]]:
    return {who: (trial.round.rows[who], mask_bits(trial.round, who))}


def _named(trial: RainTrial) -> TamperedRound:
    """One client's receipt names another row for another client, and is signed accordingly."""
    round_ = trial.round

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        one, two = trial.two(3)
        return tuple(_renamed(letter, ROSTER[two]) if letter.target == ROSTER[one] else letter for letter in letters)

    def _renamed(letter: Letter, other: str) -> Letter:
        if letter.kind != "receipt":
            return letter
        body = body_of(letter)
        digests = body["digests"].clone()
        digests[ROSTER.index(other)] ^= 1
        root = root_of(round_.given, bytes_of(body["identity"]), _bound(round_), digests)
        mine = signed(round_.keys[trial.party]["identity"], root)
        return filled(letter, digests=digests, signature=byte_tensor(mine))

    return TamperedRound(letters=change)


def _shown(told: bool) -> Callable[[RainTrial], TamperedRound]:
    """Another reference than the clients were bound to: `told` to the second server from the start, or shown late."""

    def tamper(trial: RainTrial) -> TamperedRound:
        trial.acted = True
        late: Mapping[str, Tensor] = opened(1 - trial.round.late["reference"].numpy(), trial.chance)
        if not told:
            late = {**late, **{name: trial.round.late[name] for name in ("commitment", "handed")}}
        return TamperedRound(late=late)

    return tamper


def _published(whose: str) -> Callable[[RainTrial], TamperedRound]:
    """Another sum is published, signed anew by the first server, with some signature in the second one's place."""

    def tamper(trial: RainTrial) -> TamperedRound:
        return TamperedRound(letters=_publishing(trial, whose))

    return tamper


def _publishing(trial: RainTrial, whose: str) -> Change:
    round_ = trial.round

    def altered(letter: Letter, receipt: Mapping[str, Tensor]) -> Letter:
        body = body_of(letter)
        (spec,) = (field for field in round_.schemas["published"].fields if field.name == "sums")
        sums = another(trial, spec, body["sums"])
        bound = _bound(round_)
        root = root_of(round_.given, bytes_of(receipt["identity"]), bound, receipt["digests"])
        mine = byte_tensor(signed(round_.keys["server"]["identity"], messages.outcome(root, sums, body["total"])))
        theirs = {"second": body["signatures"][1], "server": mine}.get(whose)
        if theirs is None and trial.earlier is not None:
            old = next(one for one in trial.earlier.sent["second"] if one.kind == "outcome")
            theirs = body_of(old)["signature"]
        if theirs is None:
            raise AssertionError("nothing was signed earlier")
        return filled(letter, sums=sums, signatures=torch.stack([mine, theirs]))

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if not any(letter.kind == "published" for letter in letters):
            return letters
        receipt = next(body_of(one) for one in round_.sent["server"] if one.kind == "receipt")
        first = altered(letters[0], receipt)
        return tuple(replace(letter, body=first.body) for letter in letters)

    return change


def _bound(round_: TwoServerRound) -> bytes:
    return bytes_of(round_.late["commitment"]) + bytes_of(round_.late["handed"])
