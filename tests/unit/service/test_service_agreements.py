"""What a client refuses before it agrees, whatever the server says; and what it lets the server know."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.laws.services import Deployment
from tests.laws.toy import SEED, task

from croupier.agree.called import FIRST, HAND_ON, JOINT, MOVE, PBFT, WELCOME, Called
from croupier.agree.seats import form_of
from croupier.agree.standing import PublicStanding, Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.encode.hidden import HiddenUnits
from croupier.engine.federation import Federation
from croupier.errors import CroupierError, ProtocolError, Replayed, WireError
from croupier.pipeline import Pipeline
from croupier.service.attendance import ClientFacts
from croupier.service.guard import Past, check_called, check_notice
from croupier.service.notice import ROUND, Notice
from croupier.service.roster import Roster

FIVE = ("c0", "c1", "c2", "c3", "c4")
NEVER = Past()
EPOCH = Epoch(0, 2, FIVE, bytes(32))
HOLDS = Standing(0, 1, EPOCH, b"secret of the epoch")


@cache
def roster(cohort: int | None = None, **encode: Any) -> Roster:
    """Five clients, of whom c4 joins in the second round."""
    plan = Federation(rounds=4, cohort=cohort, joins={"c4": 2})
    made = Deployment(Pipeline(encode=HiddenUnits(**encode)), task(FIVE), plan, Coins.from_seed(SEED))
    return made.members()["c0"].roster


def numbered(what: str = JOINT, who: tuple[str, ...] = FIVE, before: int = 2, **terms: Any) -> Called:
    """An agreement; for an epoch unless it is told otherwise."""
    more = {"previous": bytes(32)} if what == PBFT else {}
    return Called(what, before, who, {"number": 1, "start": before, "last": None, "attempt": 0, **more, **terms})


def single(what: str = JOINT, who: tuple[str, ...] = FIVE, **terms: Any) -> Called:
    """An agreement for the third round."""
    return numbered(what, who, **{"number": 2, "last": 2, **terms})


def handing(what: str, new: tuple[str, ...] = ("c4",)) -> Called:
    return Called.handing(what, 2, replace(EPOCH, roster=FIVE[:4]), new)


def test_what_a_protocol_asks_for_is_played() -> None:
    check_called(numbered(), roster(), HOLDS, Past(agreed=(0, 2)))
    check_called(numbered(who=FIVE[:4], before=0), roster(), Standing(), NEVER)
    check_called(handing(WELCOME), roster(newcomers="welcome"), HOLDS, NEVER)
    check_called(handing(HAND_ON), roster(agree="round"), HOLDS, NEVER)
    check_called(single(who=FIVE[:4]), roster(agree="round"), HOLDS, NEVER)
    check_called(single(PBFT), roster(agree="round", by="pbft"), HOLDS, NEVER)
    for what, terms in ((MOVE, {"at": 0, "frame": bytes(40)}), (FIRST, {})):
        check_called(Called(what, 2, FIVE[:3], terms), roster(), HOLDS, NEVER)


@pytest.mark.parametrize(
    ("called", "encode", "why"),
    [
        (numbered(who=FIVE[:4]), {}, "all enrolled clients"),
        (numbered(who=FIVE, before=0), {}, "not enrolled by round 1"),
        (numbered(start=1), {}, "from the next round on"),
        (numbered(number=2, last=2), {}, "all enrolled clients"),
        (numbered(PBFT), {}, "none of what this protocol's clients do"),
        (single(), {"agree": "round", "by": "pbft"}, "none of what this protocol's clients do"),
        (single(PBFT, FIVE[:4]), {"agree": "round", "by": "pbft"}, "among all who are invited"),
        (single(who=FIVE[:3]), {"agree": "round"}, "3 clients are to agree"),
        (single(number=1), {"agree": "round"}, "under the round's number"),
        (numbered(), {"agree": "round"}, "under the round's number"),
        (handing(WELCOME), {}, "none of what this protocol's clients do"),
        (handing(HAND_ON), {}, "none of what this protocol's clients do"),
        (handing(WELCOME, ("mallory",)), {"newcomers": "welcome"}, "not enrolled"),
        (Called(MOVE, 2, FIVE[:3], {"at": 0, "frame": bytes(40)}), {"newcomers": "welcome"}, "none of what"),
        (Called(MOVE, 3, FIVE[:3], {"at": 0, "frame": bytes(40)}), {}, "no epoch that is held begins with it"),
        (Called(FIRST, 2, FIVE[:3], {}), {"first": "open"}, "none of what"),
        (Called(FIRST, 1, FIVE[:3], {}), {}, "no epoch that is held begins with it"),
    ],
)
def test_what_a_server_may_not_call_for_is_refused(called: Called, encode: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        check_called(called, roster(**encode), HOLDS, NEVER)


def test_more_than_a_round_invites_do_not_agree_on_its_rule() -> None:
    check_called(single(who=FIVE[:4]), roster(4, agree="round"), HOLDS, NEVER)
    with pytest.raises(ProtocolError, match="5 clients are to agree on a rule, of 4"):
        check_called(single(), roster(4, agree="round"), HOLDS, NEVER)


def test_numbers_and_attempts_rise() -> None:
    for past in ((1, 0), (1, 3), (2, 0)):
        with pytest.raises(Replayed, match="was called before"):
            check_called(numbered(), roster(), HOLDS, Past(agreed=past))
    again = numbered(attempt=1)
    check_called(again, roster(), HOLDS, Past(agreed=(1, 0)))
    # A model that was handed out once under the epoch is not drawn again.
    with pytest.raises(ProtocolError, match="no epoch that is held"):
        check_called(Called(FIRST, 2, FIVE[:3], {}), roster(), replace(HOLDS, used=2), NEVER)


def test_where_nothing_is_agreed_on_nobody_agrees() -> None:
    made = Deployment(Pipeline(), task(FIVE), Federation(rounds=4), Coins.from_seed(SEED))
    with pytest.raises(ProtocolError, match="agree on nothing"):
        check_called(numbered(), made.members()["c0"].roster, HOLDS, NEVER)


def notice(called: Called, attempt: int = 0) -> Notice:
    known = roster()
    return Notice(7, called.what, known.digest, known.run, called.before, attempt, called.roster, called.terms)


def test_an_attempt_is_played_once_and_only_by_clients() -> None:
    one = notice(numbered())
    check_notice(one, roster(), Past(1, 0), me="c0")
    with pytest.raises(Replayed, match="was called before"):
        check_notice(one, roster(), Past(2, 0), me="c0")
    with pytest.raises(ProtocolError, match="is for clients"):
        check_notice(one, roster(), NEVER, me="relay")
    with pytest.raises(ProtocolError, match="beyond the 4"):
        check_notice(notice(numbered(before=4)), roster(), NEVER, me="c0")


@pytest.mark.parametrize(
    ("what", "terms"),
    [
        ("nothing known", {}),
        (JOINT, {}),
        (JOINT, {"number": True, "start": 0, "last": None, "attempt": 0}),
        (JOINT, {"number": "0", "start": 0, "last": None, "attempt": 0}),
        (FIRST, {"more": 1}),
        (MOVE, {"at": 0, "frame": "frame"}),
        (HAND_ON, {"epoch": EPOCH.plain(), "new": (1,)}),
    ],
)
def test_terms_of_another_kind_are_no_agreement(what: str, terms: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        _ = replace(notice(numbered()), what=what, terms=terms).called


def test_those_who_hold_and_those_who_ask_are_those_who_are_called() -> None:
    called = handing(HAND_ON)
    form_of(called, bytes(16))
    with pytest.raises(ProtocolError, match="are not those who hold the epoch and those who ask"):
        form_of(replace(called, roster=FIVE[1:]), bytes(16))
    with pytest.raises(WireError, match="no epoch"):
        form_of(replace(called, terms={**called.terms, "epoch": {"number": 0}}), bytes(16))


def test_a_rounds_terms_are_checked_too() -> None:
    plain = replace(notice(numbered()), what=ROUND, terms={"forget": ("c0",), "live": (b"frame",)})
    assert plain.forgotten() == (("c0",), (b"frame",))
    assert replace(plain, terms={}).forgotten() == ((), ())
    for terms in ({"forget": "c0"}, {"live": b"frame"}, {"live": ("frame",)}):
        with pytest.raises(WireError):
            replace(plain, terms=terms).forgotten()


def test_what_a_client_tells_holds_no_secret() -> None:
    standing = HOLDS.with_older(replace(EPOCH, number=9), b"an older secret")
    said = canon.dump(standing.public.plain())
    assert b"secret" not in said
    told = canon.load(said)
    assert PublicStanding.read(told) == standing.public
    assert ClientFacts.read({"standing": told, "ended": b"", "complaints": {}}).standing == standing.public


@pytest.mark.parametrize(
    "change",
    [
        {"standing": None},
        {"standing": {"signed": "0", "epoch": None, "older": ()}},
        {"standing": {"signed": 0, "epoch": {"number": 0}, "older": ()}},
        {"standing": {"signed": 0, "epoch": None, "older": ({**EPOCH.plain(), "digest": "no bytes"},)}},
        {"standing": {"signed": 0, "epoch": None, "older": (), "secret": b"s"}},
        {"ended": "key"},
        {"complaints": {"c1": "no signature"}},
        {"more": 1},
    ],
)
def test_facts_that_are_none_are_refused(change: dict[str, Any]) -> None:
    good = {"standing": HOLDS.public.plain(), "ended": b"", "complaints": {}}
    with pytest.raises(CroupierError):
        ClientFacts.read({**good, **change})
