"""Makes all parties of a federation on one machine: fresh keys for everybody, one roster, and each party ready to run.

`service.up` runs these parties as processes for `croupier up`; `flower.rehearse` and the laboratory's `bench/services`
make their parties with `make_members`, and `bench/flower` takes free ports from here. One machine holds every key, so
nobody is protected: it is for trying out, and for comparing services with a simulation.
"""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from croupier.core.coins import Coins
from croupier.core.flow import roster_digest
from croupier.core.view import Kept
from croupier.engine.federation import least
from croupier.engine.state import run_id
from croupier.engine.task import Task
from croupier.learn.assemble import Assembled
from croupier.service.card import host_role
from croupier.service.identity import make_keys
from croupier.service.lead import Lead
from croupier.service.member import Member
from croupier.service.notice import Notice
from croupier.service.options import CoinSource, Options, fresh_coins
from croupier.service.party import PartyProcess
from croupier.service.roster import Roster, Timetable
from croupier.service.seated import Hook, nothing
from croupier.service.start import Workplace, make_party
from croupier.spec import Machine, Spec

# Steps on one machine are short.
HERE = Timetable(phase=20.0, round=60.0, hold=5.0)


@dataclass(frozen=True)
class Rehearsal:
    """What is played: a description, its task, the folder, and who does not come.

    Where it is `seeded`, every party draws from `coins` as the simulation does; otherwise its coins are its own and
    fresh. `hooks` makes, for parties by name, a function that is called after each of their steps (`seated.Hook`):
    `croupier bench faults` kills parties there.
    """

    spec: Spec
    folder: Path
    made: Assembled = field(repr=False)
    coins: Coins
    seeded: bool = False
    times: Timetable = HERE
    absent: frozenset[str] = frozenset()
    hooks: Mapping[str, Callable[[], Hook]] = field(default_factory=dict)

    def members(self) -> dict[str, Member]:
        """Everybody, with fresh keys and one roster."""
        return make_members(self.spec, self.made.task, self.coins, self.times, self.seeded)

    def party(self, member: Member, tell: Callable[..., None]) -> PartyProcess:
        """One party, in the process that is to be its own."""
        hook = self.hooks.get(member.name, lambda: nothing)()
        # Views are compared with a simulation's, which has the same coins only where there is a seed.
        keep: Kept = "digest" if self.seeded else "nothing"
        options = Options(coins=self._coins(member.name), hook=hook, tell=tell, keep=keep, on_view=_viewed(tell))
        # Writes are not flushed to the disk. They outlive a party that is killed; should the machine itself fail, they
        # may be lost, but this folder is not used again then.
        place = Workplace(self.folder / member.name, task=self.made, flush=False)
        made = make_party(member, place, options, lambda line: tell("round", **line))
        # The server draws each round's cohort from these coins: here as the simulation does.
        if self.seeded and isinstance(made, Lead):
            made.measures = replace(made.measures, cohorts=self.coins)
        return made

    def _coins(self, name: str) -> CoinSource:
        return seeded_coins(self.coins, name, name in self.made.task.enrolled) if self.seeded else fresh_coins


def make_members(spec: Spec, task: Task, coins: Coins, times: Timetable, seeded: bool) -> dict[str, Member]:
    """Every party of a description on this machine, with fresh keys and one roster.

    `seeded` deals them the secrets of the simulation from the same coins, in place of keys made from the roster.
    """
    now, clients = dt.datetime.now(dt.UTC), task.enrolled
    hosts = tuple(spec.protocol.parties(()))
    rings = {name: make_keys(name, Coins.from_os(), now) for name in (*clients, *hosts)}
    ports = dict(zip(hosts, free_ports(len(hosts)), strict=True))
    today = now.date()
    cards = [
        ring.card(f"127.0.0.1:{ports[name]}", today, host_role(name)) if name in ports else ring.card("", today)
        for name, ring in rings.items()
    ]
    plan = spec.federation
    quorum = max(least(plan, plan.cohort or len(clients)), spec.protocol.release.least)
    roster = Roster(
        tuple(sorted(cards, key=lambda card: card.name)), spec.model_copy(update={"run": Machine()}), run_id(coins),
        quorum, times, layout=task.layout, inputs=task.inputs,
    )  # fmt: skip
    group = Coins.from_os().export()
    members = {name: Member(name, roster, ring, group if name in clients else b"") for name, ring in rings.items()}
    if seeded:
        dealt = spec.protocol.place.enrol(clients, coins.child("enrol", roster_digest(clients)))
        for name, member in members.items():
            # `Member.keys` is computed once and then kept here: what is put here is never computed.
            member.__dict__["keys"] = dealt.get(name, {})
    return members


def seeded_coins(coins: Coins, name: str, client: bool) -> CoinSource:
    """A party's coins, as the simulation derives them: a client's belong to the round, a host's to the attempt."""

    def drawn(notice: Notice) -> bytes:
        node = coins.child("party", name).child("run", notice.run, "round", notice.round)
        return (node if client else node.child("attempt", notice.attempt)).export()

    return drawn


def _viewed(tell: Callable[..., None]) -> Callable[[Notice, Any], None]:
    return lambda notice, view: tell("view", round=notice.round + 1, digest=view.digest().hex())


def free_ports(count: int) -> list[int]:
    """Ports of this machine at which nobody listens now; another process may take one before it is used."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
