"""Every way to tamper with a sum that is tried: who alters which message, and how.

The alterations themselves are in `bench/tamper/sum_alterations`. `bench/tamper/sums` (`croupier bench tamper`) plays
each cell and says whether a wrong sum was taken for right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from croupier.core.flow import Letter
from croupier.encode.encoder import Released
from croupier.engine.post import Packet
from croupier_lab.bench.tamper.sum_alterations import (
    CLIENTS,
    FIELDS,
    SERVERS,
    SumTrial,
    TamperedSum,
    alter_all,
    alter_one,
    alter_together,
    carry_altered,
    count_again,
    edit_one,
    flip,
    mark,
    repeat_altered,
    scale,
    send_again,
    silence,
    swap_values,
)
from croupier_lab.bench.tamper.verdicts import exchanged

System = Literal["sum-servers", "masks"]
# Who sends each kind of letter.
SENDERS: dict[System, dict[str, tuple[str, ...]]] = {
    "sum-servers": {"share": CLIENTS, "seed": CLIENTS, "here": SERVERS, "sum": SERVERS, "published": ("server",)},
    "masks": {"up": CLIENTS},
}
Before = Literal["nothing", "round", "attempt"]


@dataclass(frozen=True)
class SumTamperCell:
    """A kind of tampering at one place, and the earlier honest round or attempt, if any, that it needs."""

    kind: str
    tamper: Callable[[SumTrial], TamperedSum]
    before: Before = "nothing"


def cells(system: System) -> list[SumTamperCell]:
    """Every tampering that is tried."""
    found = [*_single(SENDERS[system]), *_network()]
    return [*found, *(_by_servers() if system == "sum-servers" else _by_masked())]


def _single(senders: Mapping[str, tuple[str, ...]]) -> Iterator[SumTamperCell]:
    """One party tampers with one of its messages."""
    for kind, parties in senders.items():
        for party in parties:
            for name in FIELDS[kind]:
                yield SumTamperCell("flip", alter_one(party, kind, flip(name)))
                if kind == "published":
                    yield SumTamperCell("flip", alter_all(party, kind, flip(name)))
                if name == "vector":
                    yield SumTamperCell("swap", alter_one(party, kind, swap_values))
            yield SumTamperCell("drop", edit_one(party, kind, lambda letters, at: letters[:at] + letters[at + 1 :]))
            yield SumTamperCell("repeat", edit_one(party, kind, lambda letters, at: (*letters, letters[at])))
            last = FIELDS[kind][-1]
            yield SumTamperCell("repeat", repeat_altered(party, kind, flip(last)))
            if kind in ("seed", "here", "published"):
                yield SumTamperCell("swap", edit_one(party, kind, exchanged))


def _network() -> Iterator[SumTamperCell]:
    """The network tampers with sealed packets."""

    def flipped(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
        data = bytearray(mail[at].data)
        data[trial.pick(len(data))] ^= 1 << trial.pick(8)
        return [*mail[:at], replace(mail[at], data=bytes(data)), *mail[at + 1 :]]

    def swapped(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
        other = trial.pick(len(mail))
        mail = list(mail)
        one, two = mail[at], mail[other]
        mail[at], mail[other] = replace(one, data=two.data), replace(two, data=one.data)
        return mail

    yield SumTamperCell("flip", carry_altered(flipped))
    yield SumTamperCell("drop", carry_altered(lambda trial, mail, at: mail[:at] + mail[at + 1 :]))
    yield SumTamperCell("repeat", carry_altered(lambda trial, mail, at: [*mail, mail[at]]))
    yield SumTamperCell("swap", carry_altered(swapped))

    def old(add: bool) -> Callable[[SumTrial, list[Packet], int], list[Packet]]:
        def change(trial: SumTrial, mail: list[Packet], at: int) -> list[Packet]:
            same = [p for p in trial.packets if (p.source, p.target) == (mail[at].source, mail[at].target)]
            return [*same, *mail] if add else [*mail[:at], *same[-1:], *mail[at + 1 :]]

        return change

    for add in (False, True):
        yield SumTamperCell("replay", carry_altered(old(add)), "round")
        yield SumTamperCell("reuse", carry_altered(old(add)), "attempt")


def _by_servers() -> Iterator[SumTamperCell]:
    """What sum servers and the server can do together or alone."""
    for factor in (0, -1, 2):
        for server in SERVERS:
            yield SumTamperCell("scale", alter_one(server, "sum", scale(factor)))
        yield SumTamperCell("scale", alter_together(SERVERS, "sum", scale(factor)))
        yield SumTamperCell("scale", alter_all("server", "published", scale(factor)))
        yield SumTamperCell("equivocate", alter_one("server", "published", scale(factor)))
    for place, victim in enumerate(CLIENTS):
        for how, times in (("leave out", -1), ("double", 1)):
            yield SumTamperCell(how, count_again(SERVERS, victim, times))
            yield SumTamperCell(how, count_again((SERVERS[place % len(SERVERS)],), victim, times))
        yield SumTamperCell("leave out, named", count_again(SERVERS, victim, -1, named=True))
        yield SumTamperCell("leave out, named", count_again(SERVERS, victim, -1, named=True, told=False))
        for server in SERVERS:
            yield SumTamperCell("equivocate", alter_one(server, "here", mark(place)))
        yield SumTamperCell("equivocate", alter_one("server", "published", mark(place)))
    for name in FIELDS["published"]:
        yield SumTamperCell("equivocate", alter_one("server", "published", flip(name)))
    for server in SERVERS:
        yield SumTamperCell("silence", silence(server))
    earlier: tuple[tuple[str, Before], ...] = (("replay", "round"), ("reuse", "attempt"))
    for kind, before in earlier:
        for server in SERVERS:
            yield SumTamperCell(kind, send_again((server,), ("sum",)), before)
        yield SumTamperCell(kind, send_again(SERVERS, ("sum",)), before)
        yield SumTamperCell(kind, send_again(("server",), ("published",)), before)
        yield SumTamperCell(kind, send_again(("server",), ("published",), one=True), before)
        yield SumTamperCell(kind, send_again(CLIENTS, ("share", "seed")), before)
        for client in CLIENTS:
            yield SumTamperCell(kind, send_again((client,), ("share", "seed")), before)


def _by_masked() -> Iterator[SumTamperCell]:
    """What clients and the server can do where nobody checks."""

    def altered(trial: SumTrial) -> TamperedSum:
        def result(got: Released) -> Released:
            if got.sums is None:
                raise AssertionError("masks give one sum")
            letter = trial.written(Letter("server", "up", {}), "vector", got.sums)
            return replace(got, sums=trial.read(flip("vector")(trial, letter)))

        return TamperedSum(result=result)

    yield SumTamperCell("flip", altered)
    for client in CLIENTS:
        for factor in (0, -1, 2):
            yield SumTamperCell("scale", alter_one(client, "up", scale(factor)))
        yield SumTamperCell("replay", send_again((client,), ("up",)), "round")
        yield SumTamperCell("reuse", send_again((client,), ("up",)), "attempt")
