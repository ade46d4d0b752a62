"""An agreement that one program plays for all, with everybody's keys, coins and standings: for benches and tests.

`croupier bench agree` and tests hold single agreements with it, without a run around them. Rounds do not use it: there
each party brings its own (`agree.seats`), and what comes next is decided from public facts (`agree.conduct`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.agree.agreement import AgreementCall, AgreementForm, why
from croupier.agree.board import SERVER
from croupier.agree.standing import Standing
from croupier.core.attempt import Attempt, AttemptId, AttemptResult, Drive, Traffic
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Party
from croupier.core.view import Kept
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class AgreementTable:
    """What agreements are held with: keys, coins, a driver, what clients kept, and `tamper`, which puts faults in."""

    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    coins: Coins
    drive: Drive
    standings: Mapping[str, Standing] = field(default_factory=dict)
    tamper: Callable[[Attempt], Attempt] = lambda attempt: attempt
    keep: Kept = "nothing"

    def attempt(self, form: AgreementForm, call: AgreementCall) -> Attempt:
        """One attempt."""
        client, kinds = form.client(call), form.schemas(call)
        parties: dict[str, Party] = {**dict.fromkeys(call.roster, client), SERVER: form.relay(call)}
        memories = {
            name: {"keys": self.keys[name], "standing": self.standings.get(name, Standing()).plain()}
            for name in call.roster
        }
        attempt_id = AttemptId(form.spec(call), call.run, call.number, call.attempt)
        return Attempt(
            attempt_id, parties, {name: call.given(name) for name in parties}, memories,
            {name: form.coins(self.coins, name, call) for name in parties}, kinds, {},
            keep=dict.fromkeys(parties, self.keep),
        )  # fmt: skip


@dataclass(frozen=True)
class AgreementAttempt:
    """How one attempt ended for each client: with a standing that holds the epoch, or with a named abort."""

    call: AgreementCall
    result: AttemptResult
    standings: Mapping[str, Standing]
    aborts: Mapping[str, str]
    complaints: Mapping[str, Mapping[str, bytes]] = field(repr=False)

    @classmethod
    def of(cls, call: AgreementCall, result: AttemptResult) -> AgreementAttempt:
        """Read the clients' memories; one that broke off for a reason of its own counts as an abort too."""
        done = {name: result.outcomes[name] for name in call.roster if name in result.outcomes}
        memories = {name: outcome.memory for name, outcome in done.items() if outcome.memory is not None}
        broken = {name: str(outcome.error) for name, outcome in done.items() if outcome.memory is None}
        aborts = {name: str(memory["abort"]) for name, memory in memories.items() if memory["abort"]}
        return cls(
            call, result, {name: Standing.of(memory) for name, memory in memories.items()}, {**broken, **aborts},
            {name: memory["complaints"] for name, memory in memories.items()},
        )  # fmt: skip

    @property
    def held(self) -> dict[str, Standing]:
        """Those whom this attempt gave the epoch."""
        return {
            name: standing
            for name, standing in self.standings.items()
            if name not in self.aborts and standing.epoch is not None and standing.epoch.number == self.call.number
        }


@dataclass(frozen=True)
class Agreed:
    """An epoch, each client's secret and standing, and the traffic of every attempt that it took."""

    epoch: Epoch
    secrets: Mapping[str, bytes] = field(repr=False)
    standings: Mapping[str, Standing] = field(repr=False)
    traffic: tuple[Traffic, ...]


def tries(form: AgreementForm, call: AgreementCall, table: AgreementTable, attempts: int) -> Iterator[AgreementAttempt]:
    """Attempt after attempt, each with what clients kept of those before."""
    standings = dict(table.standings)
    for left in reversed(range(attempts)):
        now = replace(table, standings=standings)
        tried = AgreementAttempt.of(call, table.drive(table.tamper(now.attempt(form, call))))
        yield tried
        standings |= tried.standings
        call = call.again(standings) if left else call


def settle(form: AgreementForm, call: AgreementCall, table: AgreementTable, *, attempts: int = 3) -> Agreed:
    """What everybody of the roster agrees on. Raises: ProtocolError when no attempt ended in an agreement of all."""
    traffic: list[Traffic] = []
    for tried in tries(form, call, table, attempts):
        traffic.append(tried.result.traffic)
        held = tried.held
        if len(held) == len(call.roster):
            (epoch,) = {standing.epoch for standing in held.values() if standing.epoch is not None}
            secrets = {name: standing.secret for name, standing in held.items()}
            return Agreed(epoch, secrets, held, tuple(traffic))
    public, first = next(iter(table.keys.values()))["public"], next(iter(tried.aborts.values()), "")
    raise ProtocolError(why(tried.call, tried.complaints, first, public, attempts))
