"""Agreements as tests call them: clients c0, c1, ..., a relay, and a few ways to misbehave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from croupier.agree.agreement import AgreementCall, AgreementForm
from croupier.agree.board import SERVER, enrol
from croupier.core.attempt import Attempt
from croupier.core.coins import Coins
from croupier.core.flow import Change, Letter, corrupt
from croupier.core.view import View
from croupier.engine.local import Local
from croupier_lab.bench.agreement.table import AgreementAttempt, AgreementTable, tries
from croupier_lab.bench.agreement.two_faced_clients import Bundle

RUN = bytes(range(16))
Bend = Callable[[Attempt], Attempt]


def names(count: int) -> tuple[str, ...]:
    """So many clients."""
    return tuple(f"c{number}" for number in range(count))


def call(count: int = 4, **more: Any) -> AgreementCall:
    """An agreement among so many, for an epoch."""
    return AgreementCall(RUN, more.pop("number", 0), more.pop("start", 0), names(count), **more)


def single(count: int = 4, number: int = 0) -> AgreementCall:
    """An agreement among so many, for a round."""
    return AgreementCall.single(RUN, number, names(count))


def table(count: int = 4, *, seed: int = 1, **more: Any) -> AgreementTable:
    """Keys, coins and a driver; all views are kept."""
    coins = Coins.from_seed(seed)
    keys = enrol(names(count + 2), Coins.from_seed(77))
    return AgreementTable(keys, coins, more.pop("drive", Local()), keep="keep", **more)


def once(form: AgreementForm, of: AgreementCall, at: AgreementTable) -> AgreementAttempt:
    """One attempt."""
    (tried,) = tries(form, of, at, 1)
    return tried


def bent(who: str, change: Change) -> Bend:
    """A party whose letters are changed."""
    return lambda attempt: replace(attempt, parties={**attempt.parties, who: corrupt(attempt.parties[who], change)})


def all_of(*bends: Bend) -> Bend:
    """Several that misbehave."""

    def tamper(attempt: Attempt) -> Attempt:
        for one in bends:
            attempt = one(attempt)
        return attempt

    return tamper


def silent(who: str, since: str) -> Bend:
    """A client that says nothing any more from a turn on."""
    gone = False

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        nonlocal gone
        gone = gone or letters[0].kind == since
        return () if gone else letters

    return bent(who, change)


def saying(who: str, kind: str, make: Callable[[Mapping[str, Tensor], View], Mapping[str, Tensor]]) -> Bend:
    """A client that says something else in one turn."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(_said(one, make, view) if one.kind == kind else one for one in letters)

    return bent(who, change)


def _said(letter: Letter, make: Callable[[Mapping[str, Tensor], View], Mapping[str, Tensor]], view: View) -> Letter:
    assert not isinstance(letter.body, bytes)
    return replace(letter, body=make(letter.body, view))


def handing(kind: str, spoil: Callable[[Bundle], Bundle | None]) -> Bend:
    """A relay that hands out something else in one turn; None withholds it."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if letters[0].kind != f"{kind} all":
            return letters
        roster = view.given.roster
        spoiled = [spoil(Bundle.of(roster, letter)) for letter in letters]
        return tuple(bundle.letter(roster) for bundle in spoiled if bundle is not None)

    return bent(SERVER, change)
