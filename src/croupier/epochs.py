"""What a run's clients agree on before a round, where their encoder hides coordinates by a secret.

Once for an epoch, among all enrolled; or every round, among those invited, who must then learn the rule of the last
model from somebody who took part in making it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.epoch import Epoch, Frame
from croupier.core.flow import Memory
from croupier.core.sitting import Drive, Sat, Traffic
from croupier.core.update import Model
from croupier.core.view import View
from croupier.encode.hidden import HiddenUnits
from croupier.encode.shuffled import Shuffled
from croupier.encode.symmetry import Symmetry
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.pipeline import meant_for
from croupier.place.agree import JOINT
from croupier.place.board import SERVER, enrol
from croupier.place.call import LEAST, Call, Table, Tried, removable, tries, why
from croupier.place.frames import seed_of
from croupier.place.moves import Transfer, move, movers_of
from croupier.place.pbft import pbft
from croupier.place.standing import Standing
from croupier.place.views import NONE
from croupier.place.welcome import invitation, welcome

# How often an epoch's agreement is tried.
TRIES = 3


@dataclass
class Permuting:
    """Moves vectors along a network's symmetries; what a rule moves where is worked out once a round."""

    symmetry: Callable[[], Symmetry]
    known: dict[tuple[bytes, int], Shuffled] = field(default_factory=dict, repr=False)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Vectors under the rule of a seed and a round, or back."""
        return [self.moved(*job) for job in jobs]

    def inputs(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Records as networks under the rule of a seed and a round take them."""
        return [self._under(seed, number).permute(record.unsqueeze(0))[0] for record, seed, number in jobs]

    def moved(self, vector: Tensor, seed: bytes, number: int, back: bool) -> Tensor:
        """One vector."""
        under = self._under(seed, number)
        return under.invert(vector) if back else under.apply(vector)

    def _under(self, seed: bytes, number: int) -> Shuffled:
        key = (seed, number)
        if key not in self.known:
            symmetry = self.symmetry()
            self.known[key] = symmetry.under(symmetry.rule(seed, number))
        return self.known[key]


@dataclass(frozen=True)
class Meeting:
    """A round that is about to begin: who is enrolled and invited, who does not come, how few are enough."""

    number: int
    enrolled: tuple[str, ...]
    cohort: tuple[str, ...]
    absent: frozenset[str]
    least: int
    attempts: int

    @property
    def here(self) -> tuple[str, ...]:
        """Those invited who come."""
        return tuple(who for who in self.cohort if who not in self.absent)


@dataclass(frozen=True)
class Ready:
    """What a round begins with, what it took, and what the server saw of it.

    `strangers` are the clients that came and cannot open the model meant for them. `lost` says why the round cannot be
    held; with `unknown`, because nobody who came knows the rule that the last model lies under.
    """

    memories: Mapping[str, Memory] = field(repr=False)
    traffic: tuple[Traffic, ...] = ()
    views: tuple[View, ...] = ()
    strangers: tuple[str, ...] = ()
    lost: str = ""
    unknown: bool = False


@dataclass
class _Talk:
    """What is said before a round, and what everybody remembers of it."""

    memories: dict[str, Memory] = field(repr=False)
    traffic: list[Traffic] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    @property
    def models(self) -> tuple[Model, ...]:
        """The server's."""
        return tuple(Model(**plain) for plain in self.memories["server"]["models"])

    def standing(self, who: str) -> Standing:
        """What a client holds."""
        return Standing.of(self.memories.get(who, {}))

    def keep(self, who: str, standing: Standing) -> None:
        """A client remembers."""
        self.memories[who] = {**self.memories.get(who, {}), "standing": standing.plain()}

    def heard(self, sat: Sat) -> None:
        """Take down what was sent, and what the server saw."""
        self.traffic.append(sat.traffic)
        self.views += [sat.views[SERVER]] if SERVER in sat.views else []

    def took(self, tried: Tried, *, held: bool = True) -> None:
        """Take down an attempt; what clients hold after it, they keep."""
        self.heard(tried.sat)
        for who, standing in tried.standings.items() if held else ():
            self.keep(who, standing)

    def opens(self, who: str, models: tuple[Model, ...]) -> bool:
        """Whether a client can open the model meant for it."""
        frame = meant_for(who, models).frame
        return not frame or self.standing(who).behind(Frame.unpack(frame)) is not None

    def ready(self, **more: Any) -> Ready:
        """The end of it."""
        return Ready(self.memories, tuple(self.traffic), tuple(self.views), **more)


@dataclass(frozen=True)
class Epochs:
    """Who agrees on what before a round, as the encoder says."""

    encode: HiddenUnits
    run: bytes
    table: Table
    permuting: Permuting
    fresh: Callable[[Coins], Tensor] | None = field(repr=False)

    @classmethod
    def of(
        cls, encode: HiddenUnits, enrolled: tuple[str, ...], run: bytes, coins: Coins, drive: Drive,
        permuting: Permuting, fresh: Callable[[Coins], Tensor] | None,
    ) -> Epochs:  # fmt: skip
        """Pin everybody's key."""
        node = coins.child("epoch")
        table = Table(enrol(enrolled, node.child("identities")), node.child("agree"), drive)
        return cls(encode, run, table, permuting, fresh)

    def ready(self, meeting: Meeting, memories: Mapping[str, Memory]) -> Ready:
        """Let clients agree on what the round needs, and draw the first model if there is none yet.

        Raises: ProtocolError when there is no agreement on an epoch.
        """
        talk = _Talk(dict(memories))
        return self._each_round(meeting, talk) if self.encode.agree == "round" else self._epoch(meeting, talk)

    def plain(self, model: Model, memories: Mapping[str, Memory]) -> Model:
        """A model in plain coordinates, as a client that holds its secret can read it. Raises: ProtocolError."""
        return plain_of(model, memories, self.run, self.permuting)

    def _epoch(self, meeting: Meeting, talk: _Talk) -> Ready:
        """All enrolled clients agree once, and again or otherwise when there are more of them.

        Nobody's absence from a round is one from this.
        """
        held = {who: epoch for who in meeting.enrolled if (epoch := talk.standing(who).epoch) is not None}
        new = tuple(who for who in meeting.enrolled if who not in held)
        if not held:
            self._settle(Call(self.run, 0, meeting.number, meeting.enrolled), talk)
        elif new and self.encode.newcomers == "welcome":
            self._welcome(meeting, talk, next(iter(held.values())), new)
        elif new:
            self._renew(meeting, talk, tuple(held))
        self._first(meeting, talk, meeting.enrolled)
        return talk.ready()

    def _welcome(self, meeting: Meeting, talk: _Talk, epoch: Epoch, new: tuple[str, ...]) -> None:
        """Those who agreed on the epoch tell newcomers its secret; who does not get it is asked for again next round."""
        form = replace(welcome(epoch, new), name=f"welcome, round {meeting.number}")
        (tried,) = tries(form, invitation(self.run, epoch, new), self._table(talk, (*epoch.roster, *new)), 1)
        talk.took(tried)

    def _renew(self, meeting: Meeting, talk: _Talk, holders: tuple[str, ...]) -> None:
        """A new epoch among everybody, and the models in its coordinates. Raises: ProtocolError."""
        last = max(talk.standing(who).signed for who in holders)
        call = Call(self.run, last + 1, meeting.number, meeting.enrolled)
        for epoch in {talk.standing(who).epoch for who in holders}:
            if epoch is not None:
                epoch.follows(meeting.enrolled, call.faulty)
        self._settle(call, talk)
        moved = [self._moved(meeting, talk, model, holders) for model in talk.models]
        talk.memories[SERVER] = {**talk.memories[SERVER], "models": tuple(model.plain() for model in moved)}
        for who in holders:
            talk.keep(who, talk.standing(who).forgets(()))

    def _moved(self, meeting: Meeting, talk: _Talk, model: Model, holders: tuple[str, ...]) -> Model:
        if not model.frame:
            return model
        frame = Frame.unpack(model.frame)
        transfer = Transfer(
            self.run, meeting.number, model, movers_of(holders, meeting.number, frame), self.encode.kept
        )
        standings = {who: talk.standing(who) for who in transfer.movers}
        table = self.table
        coins = table.coins.child("move", model.frame)
        done, sat = move(transfer, standings, coins, table.drive, self.permuting, bend=table.bend, keep=table.keep)
        talk.heard(sat)
        return done

    def _settle(self, call: Call, talk: _Talk) -> None:
        """An epoch's agreement, which needs everybody. Raises: ProtocolError."""
        table = self._table(talk, call.roster)
        for tried in tries(JOINT, call, table, TRIES):
            talk.took(tried)
            if len(tried.held) == len(call.roster):
                return
        raise ProtocolError(why(tried, table, TRIES))

    def _each_round(self, meeting: Meeting, talk: _Talk) -> Ready:
        """Those who came hand on the last rule, and agree on the next."""
        models, able = talk.models, meeting.here
        if models:
            self._hand_on(meeting, talk, models)
            able = tuple(who for who in meeting.here if talk.opens(who, models))
            if meeting.here and not able:
                frame = Frame.unpack(meant_for(meeting.here[0], models).frame)
                came = f"{len(meeting.here)} clients that came"
                lost = f"none of the {came} knows the rule of {frame}, which the model lies under"
                return talk.ready(strangers=meeting.here, unknown=True, lost=lost)
        lost = self._settle_round(meeting, talk, able)
        holders = tuple(who for who in able if _holds(talk.standing(who), meeting.number))
        if not lost:
            self._first(meeting, talk, holders)
        live = [Frame.unpack(model.frame) for model in talk.models if model.frame]
        for who in able:
            talk.keep(who, talk.standing(who).forgets(live))
        return talk.ready(strangers=tuple(who for who in meeting.here if who not in able), lost=lost)

    def _hand_on(self, meeting: Meeting, talk: _Talk, models: tuple[Model, ...]) -> None:
        """Whoever knows the rule of a model tells those whom it is meant for.

        One who tells is enough: what it tells is held against the digest of the model's frame, and who could forge both
        could as well hand out another model.
        """
        wanted: dict[bytes, list[str]] = {}
        for who in meeting.here:
            if not talk.opens(who, models):
                wanted.setdefault(meant_for(who, models).frame, []).append(who)
        for packed, askers in sorted(wanted.items()):
            self._tell(meeting, talk, Frame.unpack(packed), tuple(askers))

    def _tell(self, meeting: Meeting, talk: _Talk, frame: Frame, askers: tuple[str, ...]) -> None:
        held = {who: found for who in meeting.enrolled if (found := talk.standing(who).behind(frame)) is not None}
        near = {who: held[who] for who in meeting.here if who in held}
        far = {who: held[who] for who in held if who not in meeting.absent and self.encode.fetch == "anyone"}
        if not (holders := near or far):
            return
        epoch = replace(next(iter(holders.values()))[0], roster=tuple(sorted(holders)))
        known = {who: Standing(epoch.number, epoch=epoch, secret=secret) for who, (_, secret) in holders.items()}
        # A frame may be asked for in several rounds: each has coins of its own.
        form = replace(welcome(epoch, askers, faulty=0), name=f"hand on, round {meeting.number}")
        call = invitation(self.run, epoch, askers)
        (tried,) = tries(form, call, replace(self._table(talk, (), meeting), standings=known), 1)
        talk.took(tried, held=False)
        for who in askers:
            if who in tried.held:
                talk.keep(who, talk.standing(who).told(epoch, tried.held[who].secret))

    def _settle_round(self, meeting: Meeting, talk: _Talk, able: tuple[str, ...]) -> str:
        """Agree on the rule of a round, without those who are missing if need be; why not, where it cannot be done.

        Who did not get the rule is missing from the round; those who did are enough when the round's quorum is.
        """
        most, last = max(meeting.least, LEAST), [model.frame for model in talk.models]
        previous = Frame.unpack(last[0]).digest if last and last[0] else NONE
        form = JOINT if self.encode.by == "joint" else pbft(previous=previous)
        said, roster = f"{len(able)} clients can agree on the rule, and {most} are needed", able
        for attempt in range(meeting.attempts if len(able) >= most else 0):
            call = replace(Call.single(self.run, meeting.number, roster), attempt=attempt)
            table = self._table(talk, roster, meeting)
            (tried,) = tries(form, call, table, 1)
            talk.took(tried)
            if len(tried.held) >= meeting.least:
                return ""
            said = why(tried, table, attempt + 1)
            out = removable(call.terms, tried.complaints, next(iter(table.keys.values()))["public"], call.faulty)
            roster = tuple(who for who in roster if who not in out)
            # Once somebody signed an outcome, somebody may hold it: there is to be no second one for the round.
            if len(roster) < most or any(standing.signed >= call.number for standing in tried.standings.values()):
                break
        return said

    def _first(self, meeting: Meeting, talk: _Talk, holders: tuple[str, ...]) -> None:
        """The first model, drawn by the clients from their secret, as the server is handed it."""
        if talk.models:
            return
        if self.fresh is None:
            raise SpecError("protocol.encode.first = 'clients': this task draws no models; use first = 'open'")
        standing = talk.standing(holders[0])
        seed, frame, _ = standing.rule(self.run, meeting.number, kept=self.encode.kept)
        vector = self.fresh(Coins(standing.secret).child("first model"))
        model = Model(self.permuting.moved(vector, seed, frame.round, False), frame.pack())
        talk.memories["server"] = {**talk.memories["server"], "models": (model.plain(),)}

    def _table(self, talk: _Talk, roster: tuple[str, ...], meeting: Meeting | None = None) -> Table:
        """The table, with what clients kept; those who are absent from a round are so from what precedes it."""
        standings = {who: talk.standing(who) for who in roster}
        absent = meeting.absent if meeting else frozenset()
        bend = self.table.bend
        return replace(self.table, standings=standings, bend=lambda sitting: replace(bend(sitting), absent=absent))


def _holds(standing: Standing, number: int) -> bool:
    return standing.epoch is not None and standing.epoch.number == number == standing.signed


def plain_of(model: Model, memories: Mapping[str, Memory], run: bytes, permuting: Permuting) -> Model:
    """A model in plain coordinates, as a client that holds its secret can read it. Raises: ProtocolError."""
    if not model.frame:
        return model
    frame = Frame.unpack(model.frame)
    standings = (Standing.of(memories[who]) for who in sorted(memories) if "standing" in memories[who])
    holder = next((standing for standing in standings if standing.behind(frame)), Standing())
    vector = permuting.moved(model.vector, seed_of(holder, run, frame), frame.round, True)
    return replace(model, vector=vector, frame=b"")
