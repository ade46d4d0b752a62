"""What a run's clients agree on before a round, where their encoder hides coordinates by a secret.

Once for an epoch, among all enrolled; or every round, among those invited, who must then learn the rule of the last
model from somebody who took part in making it.

The round loop calls `Epochs` through the encoder's hooks; what clients hold afterwards is in their own memories, so
that a resumed run agrees on nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from croupier.agree.agreement import AgreementCall, AgreementTable, tries, why
from croupier.agree.before_round import (
    AgreementRules,
    AgreementSetting,
    Preparation,
    PreparedRound,
    UnitPermuter,
    UpcomingRound,
)
from croupier.agree.board import SERVER, enrol
from croupier.agree.commit_reveal import JOINT
from croupier.agree.coordinates import seed_of
from croupier.agree.each_round import EachRound, needed
from croupier.agree.move_model import Transfer, move, movers_of
from croupier.agree.standing import Standing
from croupier.agree.welcome import invitation, welcome
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch, Frame
from croupier.core.flow import Memory
from croupier.core.update import Model, meant_for
from croupier.errors import ProtocolError, SpecError

# How often an epoch's agreement is tried.
TRIES = 3


@dataclass(frozen=True)
class Epochs:
    """Who agrees on what before a round, as the rules of an encoder say."""

    rules: AgreementRules
    run: bytes
    table: AgreementTable
    permutation: UnitPermuter
    fresh: Callable[[Coins], Tensor] | None = field(repr=False)

    @classmethod
    def of(cls, rules: AgreementRules, setting: AgreementSetting) -> Epochs:
        """Pin everybody's key."""
        node = setting.coins.child("epoch")
        keys = enrol(setting.enrolled, node.child("identities"))
        table = AgreementTable(keys, node.child("agree"), setting.drive, tamper=setting.tamper, keep=setting.keep)
        return cls(rules, setting.run, table, setting.permutation, setting.fresh)

    def ready(self, meeting: UpcomingRound, memories: Mapping[str, Memory]) -> PreparedRound:
        """Let clients agree on what the round needs, and draw the first model if there is none yet.

        Raises: ProtocolError when there is no agreement on an epoch.
        """
        talk = Preparation(dict(memories))
        return self._each_round(meeting, talk) if self.rules.agree == "round" else self._epoch(meeting, talk)

    def _epoch(self, meeting: UpcomingRound, talk: Preparation) -> PreparedRound:
        """All enrolled clients agree once, and again or otherwise when there are more of them.

        Nobody's absence from a round is one from this.
        """
        held = {who: epoch for who in meeting.enrolled if (epoch := talk.standing(who).epoch) is not None}
        new = tuple(who for who in meeting.enrolled if who not in held)
        if not held:
            self._settle(AgreementCall(self.run, 0, meeting.number, meeting.enrolled), talk)
        elif new and self.rules.newcomers == "welcome":
            self._welcome(meeting, talk, next(iter(held.values())), new)
        elif new:
            self._renew(meeting, talk, tuple(held))
        self._first(meeting, talk, meeting.enrolled)
        return talk.ready()

    def _welcome(self, meeting: UpcomingRound, talk: Preparation, epoch: Epoch, new: tuple[str, ...]) -> None:
        """Those who agreed on the epoch tell newcomers its secret; who does not get it asks before the next round."""
        form = replace(welcome(epoch, new), name=f"welcome, round {meeting.number}")
        (tried,) = tries(form, invitation(self.run, epoch, new), talk.table(self.table, (*epoch.roster, *new)), 1)
        talk.note_attempt(tried)

    def _renew(self, meeting: UpcomingRound, talk: Preparation, holders: tuple[str, ...]) -> None:
        """A new epoch among everybody, and the models in its coordinates. Raises: ProtocolError."""
        last = max(talk.standing(who).signed for who in holders)
        call = AgreementCall(self.run, last + 1, meeting.number, meeting.enrolled)
        for epoch in {talk.standing(who).epoch for who in holders}:
            if epoch is not None:
                epoch.follows(meeting.enrolled, call.faulty)
        self._settle(call, talk)
        moved = [self._moved(meeting, talk, model, holders) for model in talk.models]
        talk.memories[SERVER] = {**talk.memories[SERVER], "models": tuple(model.plain() for model in moved)}
        for who in holders:
            talk.keep(who, talk.standing(who).forgets(()))

    def _moved(self, meeting: UpcomingRound, talk: Preparation, model: Model, holders: tuple[str, ...]) -> Model:
        if not model.frame:
            return model
        frame = Frame.unpack(model.frame)
        transfer = Transfer(self.run, meeting.number, model, movers_of(holders, meeting.number, frame), self.rules.kept)
        standings = {who: talk.standing(who) for who in transfer.movers}
        table = self.table
        coins = table.coins.child("move", model.frame)
        done, result = move(
            transfer, standings, coins, table.drive, self.permutation, tamper=table.tamper, keep=table.keep
        )
        talk.note_result(result)
        return done

    def _settle(self, call: AgreementCall, talk: Preparation) -> None:
        """An epoch's agreement, which needs everybody. Raises: ProtocolError."""
        table = talk.table(self.table, call.roster)
        for tried in tries(JOINT, call, table, TRIES):
            talk.note_attempt(tried)
            if len(tried.held) == len(call.roster):
                return
        raise ProtocolError(why(tried, table, TRIES))

    def _each_round(self, meeting: UpcomingRound, talk: Preparation) -> PreparedRound:
        """Those who came hand on the last rule, and agree on the next."""
        each, models, able = EachRound(self.rules, self.run, self.table), talk.models, meeting.here
        if models:
            each.hand_on(meeting, talk, models)
            able = tuple(who for who in meeting.here if talk.opens(who, models))
            if meeting.here and not able:
                frame = Frame.unpack(meant_for(meeting.here[0], models).frame)
                came = f"{len(meeting.here)} clients that came"
                rule = f"the rule of round {frame.round + 1} (digest {frame.digest.hex()[:8]})"
                lost = f"none of the {came} knows {rule}, which the model lies under"
                return talk.ready(without_rule=meeting.here, unknown=True, lost=lost)
        lost = each.settle(meeting, talk, able)
        holders = tuple(who for who in able if _holds(talk.standing(who), meeting.number))
        if not lost:
            self._first(meeting, talk, holders)
        live = [Frame.unpack(model.frame) for model in talk.models if model.frame]
        for who in able:
            talk.keep(who, talk.standing(who).forgets(live))
        without_rule = tuple(who for who in meeting.here if who not in able)
        # Enough came, and too few of them know the rules that their models lie under.
        unknown = bool(lost) and len(able) < needed(meeting) <= len(meeting.here)
        return talk.ready(without_rule=without_rule, lost=lost, unknown=unknown)

    def _first(self, meeting: UpcomingRound, talk: Preparation, holders: tuple[str, ...]) -> None:
        """The first model, drawn by the clients from their secret, as the server is handed it."""
        if talk.models:
            return
        if self.fresh is None:
            raise SpecError("protocol.encode.first = 'clients': this task draws no models; use first = 'open'")
        standing = talk.standing(holders[0])
        seed, frame, _ = standing.rule(self.run, meeting.number, kept=self.rules.kept)
        vector = self.fresh(Coins(standing.secret).child("first model"))
        model = Model(self.permutation.moved(vector, seed, frame.round, False), frame.pack())
        talk.memories[SERVER] = {**talk.memories[SERVER], "models": (model.plain(),)}


def _holds(standing: Standing, number: int) -> bool:
    return standing.epoch is not None and standing.epoch.number == number == standing.signed


def plain_of(model: Model, memories: Mapping[str, Memory], run: bytes, permutation: UnitPermuter) -> Model:
    """A model in plain coordinates, as a client that holds its secret can read it. Raises: ProtocolError."""
    if not model.frame:
        return model
    frame = Frame.unpack(model.frame)
    standings = (Standing.of(memories[who]) for who in sorted(memories) if "standing" in memories[who])
    holder = next((standing for standing in standings if standing.behind(frame)), Standing())
    vector = permutation.moved(model.vector, seed_of(holder, run, frame), frame.round, True)
    return replace(model, vector=vector, frame=b"")
