"""One party's seat in an agreement, from what was announced and from what that party alone holds.

What a party remembers when an attempt is over is here too (`SeatPlan.after`): a client keeps its standing, or an older
epoch that was handed on to it, and the server keeps a model. A simulation seats everybody so (`epochs`), but for the
first model, which it draws without seats; a deployed party seats itself (`service.plans`). Both play the same flows,
and nobody else's secrets are needed to make a seat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.agree.agreement import AgreementCall, AgreementForm
from croupier.agree.before_round import AgreementRules
from croupier.agree.board import SERVER
from croupier.agree.called import FIRST, HAND_ON, JOINT, MOVE, PBFT, Called
from croupier.agree.commit_reveal import JOINT as JOINT_FORM
from croupier.agree.first_model import FirstDraw
from croupier.agree.move_model import Transfer
from croupier.agree.pbft.agreement import pbft
from croupier.agree.standing import Standing, read_epoch
from croupier.agree.welcome import invitation, welcome
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.flow import Given, Memory, Party
from croupier.core.update import Model
from croupier.core.wire import Schema
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class Insider:
    """What a party brings to an agreement: its name, the rules that it accepted, its memory and keys.

    `size` is how many coordinates a model has.
    """

    name: str
    run: bytes
    rules: AgreementRules
    size: int
    memory: Memory = field(repr=False)
    keys: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def standing(self) -> Standing:
        """What it keeps of agreements, where it is a client."""
        return Standing.of(self.memory)


@dataclass(frozen=True)
class SeatPlan:
    """All that a driver needs to seat one party; `after` makes its next memory of its own and of what its flow gave.

    `spec` is the digest by which headers name the protocol.
    """

    party: Party
    given: Given
    memory: Memory = field(repr=False)
    schemas: Mapping[str, Schema]
    spec: bytes
    after: Callable[[Memory, Memory], Memory]


def seat_for(called: Called, me: Insider) -> SeatPlan:
    """A party's seat. Raises: CroupierError when what was announced makes no sense, or the party cannot do its part."""
    if called.what in (MOVE, FIRST):
        return _model_seat(called, me)
    form, call = form_of(called, me.run)
    given, schemas, spec = call.given(me.name), form.schemas(call), form.spec(call)
    if me.name == SERVER:
        return SeatPlan(form.relay(call), given, {}, schemas, spec, unchanged)
    if called.what == HAND_ON:
        standing, after = _handing(called, me), _handed_on(called, me)
    else:
        standing, after = me.standing, _agreed
    memory = {"keys": me.keys, "standing": standing.plain()}
    return SeatPlan(form.client(call), given, memory, schemas, spec, after)


def form_of(called: Called, run: bytes) -> tuple[AgreementForm, AgreementCall]:
    """How clients agree, and the call that they answer. Raises: CroupierError when the terms make no sense."""
    terms = called.terms
    if called.what in (JOINT, PBFT):
        form = JOINT_FORM if called.what == JOINT else pbft(previous=terms["previous"])
        number, start, last = terms["number"], terms["start"], terms["last"]
        return form, AgreementCall(run, number, start, called.roster, terms["attempt"], last)
    epoch, new = read_epoch(terms["epoch"]), tuple(terms["new"])
    # One holder is enough where a rule is handed on: what it tells must fit the digest of the epoch that is announced,
    # and only opens models. A server and a holder that forge both gain no more than by handing out another model.
    form = welcome(epoch, new, faulty=0 if called.what == HAND_ON else None)
    holders = tuple(who for who in epoch.roster if who in called.roster)
    call = invitation(run, epoch, new, holders)
    # Who has left the federation since is not welcomed by; how many must tell the same follows from the whole epoch.
    if call.roster != called.roster or (called.what == HAND_ON and holders != epoch.roster):
        raise ProtocolError(f"{called.what!r}: those who are called are not those who hold the epoch and those who ask")
    # A frame may be asked for in several rounds: coins depend on this name, so that each round has its own.
    return replace(form, name=f"{called.what}, round {called.before}"), call


def simulated_coins(called: Called, run: bytes, root: Coins, name: str) -> Coins:
    """A party's coins in a simulation, which draws everybody's from one root.

    Those of a first model serve deployed parties that are given a simulation's coins, as in the laws.
    """
    if called.what == MOVE:
        return Transfer(run, called.before, called.terms["frame"], called.roster, 0).coins(root, name)
    if called.what == FIRST:
        return root.child("first model", name, called.before)
    form, call = form_of(called, run)
    return form.coins(root, name, call)


# ---- what is remembered


def unchanged(own: Memory, ended: Memory) -> Memory:
    """The next memory of a party that remembers nothing new."""
    return own


def keep(own: Memory, standing: Standing) -> Memory:
    """A client's memory with its standing."""
    return {**own, "standing": standing.plain()}


def forget(own: Memory, live: tuple[bytes, ...]) -> Memory:
    """A client's memory without the secrets that no model lies under any more; `live` are the models' frames."""
    return keep(own, Standing.of(own).forgets([Frame.unpack(frame) for frame in live]))


def _agreed(own: Memory, ended: Memory) -> Memory:
    """What was signed is kept, however the attempt ended; and the epoch, where it gave one."""
    return keep(own, Standing.of(ended))


def _handing(called: Called, me: Insider) -> Standing:
    """A holder's standing with only the epoch that is asked for, as it was announced; an empty one for who asks.

    The announced roster names all holders: by it the flow tells who gives and who asks.
    """
    epoch = read_epoch(called.terms["epoch"])
    if me.name not in epoch.roster:
        return Standing()
    held = me.standing.behind(epoch.frame(epoch.start))
    if held is None:
        raise ProtocolError(f"{me.name} is asked to hand on epoch {epoch.number}, and does not hold it")
    return Standing(epoch.number, epoch=epoch, secret=held[1])


def _handed_on(called: Called, me: Insider) -> Callable[[Memory, Memory], Memory]:
    """Who asked and was told keeps the epoch as an older one; holders keep what they have."""
    epoch = read_epoch(called.terms["epoch"])

    def after(own: Memory, ended: Memory) -> Memory:
        told = Standing.of(ended)
        if me.name in epoch.roster or ended["abort"] or told.epoch is None:
            return own
        return keep(own, Standing.of(own).with_older(epoch, told.secret))

    return after


# ---- models


def _model_seat(called: Called, me: Insider) -> SeatPlan:
    """A seat of those who compute a model, or of the server, which takes it."""
    models = tuple(Model(**plain) for plain in me.memory.get("models", ()))
    server, done = me.name == SERVER, _computed(called, me, models)
    after = _with_model(called, models) if server else unchanged
    party, memory = (done.server, {}) if server else (done.client, {"standing": me.standing.plain()})
    return SeatPlan(party, done.given(me.name), memory, done.schemas(), done.spec, after)


def _computed(called: Called, me: Insider, models: tuple[Model, ...]) -> Transfer | FirstDraw:
    if called.what == FIRST:
        return FirstDraw(me.run, called.before, called.roster, me.size, me.rules.kept)
    at, frame = called.terms["at"], called.terms["frame"]
    model = next((one for number, one in enumerate(models) if number == at and one.frame == frame), None)
    return Transfer(me.run, called.before, frame, called.roster, me.size, me.rules.kept, model)


def _with_model(called: Called, models: tuple[Model, ...]) -> Callable[[Memory, Memory], Memory]:
    """The server's next memory: with the first model, or with a moved one in the place of the old."""

    def after(own: Memory, ended: Memory) -> Memory:
        if called.what == FIRST:
            every: tuple[Model, ...] = (Model(ended["model"], ended["frame"]),)
        else:
            new = [
                replace(one, vector=ended["model"], frame=ended["frame"]) if at == called.terms["at"] else one
                for at, one in enumerate(models)
            ]
            every = tuple(new)
        return {**own, "models": tuple(one.plain() for one in every)}

    return after
