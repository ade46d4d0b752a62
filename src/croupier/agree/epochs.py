"""What a simulated run's clients agree on before a round, where their encoder hides coordinates by a secret.

Once for an epoch, among all enrolled; or every round, among those invited, who must then learn the rule of the last
model from somebody who knows it. `conduct` decides what is done from public facts; here it is done, with
everybody at one table. A deployed server does the same over the network (`service.chair`).

`encode.hidden` makes an `Epochs` for the round loop (`engine.loop`), which calls `ready` before each round. `plain_of`
turns a model back into plain coordinates for whoever has the clients' memories and wants to measure it: `engine.loop`,
`audit.attacked_training` and `service.up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.agree.before_round import (
    DRAW,
    PERMUTE,
    AgreementRules,
    AgreementSetting,
    PreparedRound,
    UnitPermuter,
    UpcomingRound,
)
from croupier.agree.board import SERVER, enrol
from croupier.agree.called import FIRST, MOVE, AttemptReport, Called, Reports
from croupier.agree.conduct import Conduct, PublicFacts
from croupier.agree.coordinates import seed_of
from croupier.agree.each_round import agree_each_round
from croupier.agree.first_model import draw_first
from croupier.agree.one_epoch import agree_for_epoch
from croupier.agree.seats import Insider, SeatPlan, forget, seat_for, simulated_coins
from croupier.agree.standing import PublicStanding, Standing
from croupier.core.attempt import Attempt, AttemptId, AttemptResult, Traffic
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.flow import Memory, Work
from croupier.core.update import Model
from croupier.core.view import View
from croupier.errors import SpecError


def conduct(facts: PublicFacts) -> Conduct:
    """What is done before a round, as the rules of an encoder say. Raises: ProtocolError."""
    return agree_each_round(facts) if facts.rules.agree == "round" else agree_for_epoch(facts)


@dataclass
class _Talk:
    """What is said before a round, and what everybody remembers of it."""

    memories: dict[str, Memory] = field(repr=False)
    traffic: list[Traffic] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    def models(self) -> tuple[Model, ...]:
        """The server's."""
        return tuple(Model(**plain) for plain in self.memories[SERVER]["models"])

    def known(self, who: str) -> PublicStanding:
        """What a client would tell the server."""
        return Standing.of(self.memories.get(who, {})).public

    def note(self, result: AttemptResult) -> None:
        """Take down what was sent, and what the server saw."""
        self.traffic.append(result.traffic)
        self.views += [result.views[SERVER]] if SERVER in result.views else []


@dataclass(frozen=True)
class Epochs:
    """Plays what a run's clients do before a round, with everybody's keys and coins."""

    rules: AgreementRules
    setting: AgreementSetting
    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    coins: Coins

    @classmethod
    def of(cls, rules: AgreementRules, setting: AgreementSetting) -> Epochs:
        """With fresh keys for everybody, pinned for the whole run."""
        node = setting.coins.child("epoch")
        return cls(rules, setting, enrol(setting.enrolled, node.child("identities")), node.child("agree"))

    def ready(self, meeting: UpcomingRound, memories: Mapping[str, Memory]) -> PreparedRound:
        """Let clients agree on what the round needs, and draw the first model if there is none yet.

        Raises: ProtocolError when there is no agreement on an epoch, or a model cannot be moved. Why a single round
        cannot be held is said in the `PreparedRound` instead.
        """
        talk, public = _Talk(dict(memories)), next(iter(self.keys.values()))["public"]
        steps = conduct(PublicFacts(self.rules, self.setting.run, public, meeting, talk.known, talk.models))
        reports: Reports | None = None
        while True:
            try:
                called = next(steps) if reports is None else steps.send(reports)
            except StopIteration as stop:
                decision = stop.value
                break
            reports = self._first(called, talk) if called.what == FIRST else self._hold(called, meeting, talk)
        live = tuple(model.frame for model in talk.models() if model.frame)
        for who in decision.forget:
            talk.memories[who] = forget(talk.memories.get(who, {}), live)
        return PreparedRound(
            talk.memories, tuple(talk.traffic), tuple(talk.views), decision.strangers, decision.lost, decision.unknown
        )

    def _insider(self, name: str, talk: _Talk) -> Insider:
        size = max((model.vector.numel() for model in talk.models()), default=0)
        keys = self.keys.get(name, {})
        return Insider(name, self.setting.run, self.rules, size, talk.memories.get(name, {}), keys)

    def _hold(self, called: Called, meeting: UpcomingRound, talk: _Talk) -> Reports:
        """One attempt, and what everybody remembers of it.

        Who is absent from a round is absent from its own agreement too; an epoch's needs everybody (`one_epoch`).
        """
        names = (*called.roster, SERVER)
        plans = {name: seat_for(called, self._insider(name, talk)) for name in names}
        attempt = self.setting.tamper(self._attempt(called, plans))
        if called.what != MOVE:
            every_round = self.rules.agree == "round"
            attempt = replace(attempt, absent=meeting.absent if every_round else frozenset[str]())
        result = self.setting.drive(attempt)
        talk.note(result)
        return _remembered(result, plans, talk)

    def _attempt(self, called: Called, plans: Mapping[str, SeatPlan]) -> Attempt:
        run, root, server = self.setting.run, self.coins, plans[SERVER]
        return Attempt(
            AttemptId(server.spec, run, server.given.round, server.given.attempt),
            {name: plan.party for name, plan in plans.items()},
            {name: plan.given for name, plan in plans.items()},
            {name: plan.memory for name, plan in plans.items()},
            {name: simulated_coins(called, run, root, name) for name in plans},
            server.schemas,
            # Only who moves a model asks for work.
            {PERMUTE: self.setting.permutation} if called.what == MOVE else {},
            keep=dict.fromkeys(plans, self.setting.keep),
        )

    def _first(self, called: Called, talk: _Talk) -> Reports:
        """The first model, drawn once for all who would draw it alike."""
        fresh, permute = self.setting.fresh, self.setting.permutation
        if fresh is None:
            raise SpecError("protocol.encode.first = 'clients': this task draws no models; use first = 'open'")
        standing = Standing.of(talk.memories[called.roster[0]])
        steps = draw_first(self.setting.run, called.before, standing, self.rules.kept)
        work: Work = next(steps)  # type: ignore[assignment]
        while True:
            answer = fresh(*work.args) if work.name == DRAW else permute.moved(*work.args)
            try:
                work = steps.send(answer)  # type: ignore[assignment]
            except StopIteration as stop:
                talk.memories[SERVER] = {**talk.memories[SERVER], "models": (stop.value.plain(),)}
                return {}


def _remembered(result: AttemptResult, plans: Mapping[str, SeatPlan], talk: _Talk) -> Reports:
    """Keep what everybody remembers of an attempt, and return their reports: those who broke off come first."""
    broken, reports = dict[str, AttemptReport](), dict[str, AttemptReport]()
    for name, plan in plans.items():
        outcome = result.outcomes.get(name)
        if outcome is None:
            continue
        if outcome.memory is None:
            broken[name] = AttemptReport(reason=str(outcome.error))
            continue
        own, said = talk.memories.get(name, {}), outcome.memory
        if (after := plan.after(own, said)) is not own:
            talk.memories[name] = after
        reports[name] = AttemptReport(said.get("complaints", {}), str(said.get("abort", "")))
    return {**broken, **reports}


def plain_of(model: Model, memories: Mapping[str, Memory], run: bytes, permutation: UnitPermuter) -> Model:
    """A model in plain coordinates, as a client that holds its secret can read it. Raises: ProtocolError."""
    if not model.frame:
        return model
    frame = Frame.unpack(model.frame)
    standings = (Standing.of(memories[who]) for who in sorted(memories) if "standing" in memories[who])
    holder = next((standing for standing in standings if standing.behind(frame)), Standing())
    vector = permutation.moved(model.vector, seed_of(holder, run, frame), frame.round, True)
    return replace(model, vector=vector, frame=b"")
