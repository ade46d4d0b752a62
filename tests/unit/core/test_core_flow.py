"""Parties as generators: seats, mailboxes, quorums, corrupted parties, and replay from a view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Received, Seat, Wait, Work, corrupt
from croupier.core.update import Layout, Slice
from croupier.core.view import Kept, View, replay
from croupier.errors import CroupierError, IntegrityError, ProtocolError, RangeError, TooFew

GIVEN = Given("bob", bytes(16), 1, 0, ("a", "b", "c"), 2, Layout((Slice("w", (2,)),)))
COINS = Coins.from_seed(1)


def letter(source: str, value: float = 0.0, kind: str = "up") -> Received:
    return Received(source, kind, {"x": torch.tensor([value])})


def adder(given: Given, memory: Memory, coins: Coins) -> Flow:
    """Ask two for a number, double it by work, send the result with a mask, remember it."""
    inbox = yield Exchange((Letter("a", "hello", {"x": torch.zeros(1)}),), Wait("up", given.roster, given.quorum))
    total = sum(float(message.body["x"]) for message in inbox)
    twice = yield Work("double", (total,))
    mask = int(coins.child("mask").secure().below(1000)[0])
    empty = yield Exchange((Letter("a", "down", {"x": torch.tensor([twice + mask])}),))
    return {**memory, "total": twice, "who": tuple(m.source for m in inbox), "empty": empty}


def seated(keep: Kept = "keep", party: Callable[[Given, Memory, Coins], Flow] = adder) -> Seat:
    return Seat.take(party, GIVEN, {"old": 1}, COINS, keep)


def driven(seat: Seat, *sources: str) -> tuple[list[Letter], Seat]:
    """Drive the adder to its end by hand."""
    sent = list(seat.post())
    for number, source in enumerate(sources):
        seat.deliver(letter(source, number + 1.0))
    seat.go()
    assert isinstance(seat.ask, Work)
    seat.finish(2 * seat.ask.args[0])
    sent += seat.post()
    seat.go()
    return sent, seat


def test_a_seat_steps_through_its_party() -> None:
    seat = seated()
    assert seat.name == "bob"
    assert not seat.can_go()
    assert [sent.kind for sent in seat.post()] == ["hello"]
    assert seat.post() == ()
    assert not seat.can_go()
    assert not seat.can_go(short=True)
    assert seat.absent() == ("a", "b", "c")
    for number, name in enumerate(("c", "a", "b")):
        seat.deliver(letter(name, number))
    assert seat.can_go()
    seat.go()
    assert seat.ask == Work("double", (3.0,))
    assert seat.wait is None
    assert not seat.can_go()
    assert seat.post() == ()
    assert seat.absent() == ()
    seat.finish(6.0)
    assert [sent.kind for sent in seat.post()] == ["down"]
    assert seat.can_go()
    assert seat.outcome is None
    seat.go()
    assert seat.outcome is not None
    assert seat.outcome.memory == {"old": 1, "total": 6.0, "who": ("a", "b", "c"), "empty": ()}
    assert seat.outcome.error is None
    assert seat.ask is None
    assert not seat.can_go()


def test_an_inbox_has_the_order_of_the_sources_not_of_arrival() -> None:
    orders = []
    for order in (("a", "b", "c"), ("c", "b", "a")):
        _, seat = driven(seated(), *order)
        assert seat.outcome is not None
        assert seat.outcome.memory is not None
        orders.append(seat.outcome.memory["who"])
    assert orders == [("a", "b", "c")] * 2


def test_a_quorum_goes_short_and_never_below() -> None:
    seat = seated()
    seat.post()
    seat.deliver(letter("c", 5))
    assert not seat.can_go(short=True)
    seat.deliver(letter("a", 1))
    assert not seat.can_go()
    assert seat.can_go(short=True)
    assert seat.absent() == ("b",)
    seat.go()
    assert seat.ask == Work("double", (6.0,))


def test_without_a_quorum_all_must_come() -> None:
    assert Wait("up", ("a", "b")).least == 2
    assert Wait("up", ("a", "b"), 1).least == 1
    assert Wait("up", ("a", "b"), 0).least == 0


def test_messages_of_other_kinds_and_sources_do_not_count() -> None:
    seat = seated()
    seat.post()
    for message in (letter("a", kind="down"), letter("z"), letter("b", kind="other")):
        seat.deliver(message)
    assert seat.absent() == ("a", "b", "c")
    assert not seat.can_go(short=True)


def test_a_message_may_come_before_it_is_waited_for() -> None:
    def late(given: Given, memory: Memory, coins: Coins) -> Flow:
        yield Work("think", ())
        (message,) = yield Exchange(wait=Wait("up", ("a",)))
        return {"got": float(message.body["x"])}

    seat = seated(party=late)
    seat.deliver(letter("a", 4))
    seat.finish(None)
    assert seat.can_go()
    seat.go()
    assert seat.outcome is not None
    assert seat.outcome.memory == {"got": 4.0}


def test_a_repeat_is_refused_and_the_first_stays() -> None:
    seat = seated()
    seat.post()
    seat.deliver(letter("a", 1))
    with pytest.raises(ProtocolError, match="a sent a second 'up'"):
        seat.deliver(letter("a", 100))
    seat.deliver(letter("a", 7, kind="other"))
    seat.deliver(letter("b", 2))
    seat.go()
    assert seat.ask == Work("double", (3.0,))


def test_giving_up_names_who_is_missing() -> None:
    seat = seated()
    seat.post()
    seat.deliver(letter("b"))
    seat.give_up()
    assert seat.outcome is not None
    assert isinstance(seat.outcome.error, TooFew)
    assert seat.outcome.error.missing == {"a", "c"}
    assert str(seat.outcome.error) == "bob: 1 of the 2 needed sent 'up'; missing a, c"
    assert seat.outcome.memory is None


def test_a_long_list_of_missing_is_cut() -> None:
    def many(given: Given, memory: Memory, coins: Coins) -> Flow:
        yield Exchange(wait=Wait("up", tuple(f"n{i:02}" for i in range(11))))
        return memory

    seat = seated(party=many)
    seat.give_up()
    assert seat.outcome is not None
    assert "n07 and 3 more" in str(seat.outcome.error)
    assert isinstance(seat.outcome.error, TooFew)
    assert len(seat.outcome.error.missing) == 11


def test_a_party_may_answer_a_failure() -> None:
    def stubborn(given: Given, memory: Memory, coins: Coins) -> Flow:
        try:
            yield Work("double", (1,))
        except CroupierError as error:
            return {"why": str(error)}
        return memory

    seat = seated(party=stubborn)
    seat.fail(RangeError("no"))
    assert seat.outcome is not None
    assert seat.outcome.memory == {"why": "no"}
    other = seated()
    other.fail(RangeError("no"))
    assert other.outcome is not None
    assert isinstance(other.outcome.error, RangeError)


def test_an_error_of_the_party_is_its_outcome_and_a_fault_of_ours_is_not() -> None:
    def bad(given: Given, memory: Memory, coins: Coins) -> Flow:
        (message,) = yield Exchange(wait=Wait("up", ("a",)))
        if float(message.body["x"]) > 0:
            raise ProtocolError("too much")
        raise ZeroDivisionError

    seat = seated(party=bad)
    seat.deliver(letter("a", 1))
    seat.go()
    assert seat.outcome is not None
    assert isinstance(seat.outcome.error, ProtocolError)
    seat = seated(party=bad)
    seat.deliver(letter("a", 0))
    with pytest.raises(ZeroDivisionError):
        seat.go()


def test_replay_gives_what_was_sent_and_remembered() -> None:
    sent, seat = driven(seated(), "a", "c")
    assert seat.outcome is not None
    again, memory = replay(adder, seat.view)
    assert [(x.target, x.kind) for x in again] == [(x.target, x.kind) for x in sent]
    for one, two in zip(again, sent, strict=True):
        assert isinstance(one.body, dict)
        assert isinstance(two.body, dict)
        assert torch.equal(one.body["x"], two.body["x"])
    assert memory == seat.outcome.memory


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_replay_detects_an_input_that_is_missing(keep: int) -> None:
    _, seat = driven(seated(), "a", "c")
    assert len(seat.view.inputs) == 3
    with pytest.raises(IntegrityError, match="bob asked for more than its view holds"):
        replay(adder, replace(seat.view, inputs=seat.view.inputs[:keep]))


def test_replay_depends_on_inputs_coins_and_memory() -> None:
    _, seat = driven(seated(), "a", "c")
    sent, memory = replay(adder, seat.view)
    changed = replace(seat.view, inputs=[seat.view.inputs[0], 99.0, *seat.view.inputs[2:]])
    other, theirs = replay(adder, changed)
    assert theirs != memory
    assert not same_body(sent[1], other[1])
    assert not same_body(sent[1], replay(adder, replace(seat.view, coins=Coins.from_seed(2)))[0][1])
    assert replay(adder, replace(seat.view, memory={"old": 2}))[1]["old"] == 2


def same_body(one: Letter, two: Letter) -> bool:
    return not isinstance(one.body, bytes) and not isinstance(two.body, bytes) and bool(one.body["x"] == two.body["x"])


@pytest.mark.parametrize("kept", ["nothing", "digest"])
def test_a_view_without_inputs_is_not_replayed(kept: Kept) -> None:
    _, seat = driven(seated(kept), "a", "c")
    assert seat.view.inputs == []
    with pytest.raises(ProtocolError, match="holds no inputs"):
        replay(adder, seat.view)


def test_a_digest_is_the_same_whether_inputs_are_kept() -> None:
    digests = {driven(seated(kept), "a", "b")[1].view.digest() for kept in ("keep", "digest")}
    assert len(digests) == 1
    with pytest.raises(ProtocolError, match="no view of bob was taken down"):
        driven(seated("nothing"), "a", "b")[1].view.digest()


def test_a_digest_binds_party_given_memory_and_every_input() -> None:
    _, seat = driven(seated(), "a", "b")
    view = seat.view

    def redone(inputs: list[Any], **changes: Any) -> bytes:
        fresh = View(**{"party": "bob", "given": GIVEN, "memory": {"old": 1}, "coins": COINS, **changes})
        for value in inputs:
            fresh.record(value)
        return fresh.digest()

    assert redone(view.inputs) == view.digest()
    others = [
        redone(view.inputs[:-1]),
        redone([*view.inputs, ()]),
        redone([view.inputs[1], view.inputs[0], view.inputs[2]]),
        redone([view.inputs[0], 6.5, view.inputs[2]]),
        redone([(letter("a", 1.0), letter("b", 2.5)), *view.inputs[1:]]),
        redone([(letter("b", 1.0), letter("a", 2.0)), *view.inputs[1:]]),
        redone(view.inputs, party="eve"),
        redone(view.inputs, memory={"old": 2}),
        redone(view.inputs, given=replace(GIVEN, attempt=1)),
        redone(view.inputs, given=replace(GIVEN, roster=("a", "b"))),
    ]
    assert view.digest() not in others
    assert len(set(others)) == len(others)


def test_memory_that_changes_later_does_not_change_the_view() -> None:
    memory = {"old": 1}
    seat = Seat.take(adder, GIVEN, memory, COINS, "digest")
    before = seat.view.digest()
    memory["old"] = 2
    assert seat.view.digest() == before


def test_a_corrupted_party_sends_what_it_likes_and_lives_on() -> None:
    seen: list[tuple[str, int]] = []

    def lie(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        seen.append((letters[0].kind, len(view.inputs)))
        return (*(replace(one, body=b"garbage") for one in letters), Letter("c", "extra", b""))

    honest, _ = driven(seated(), "a", "b")
    sent, seat = driven(seated(party=corrupt(adder, lie)), "a", "b")
    assert [(one.target, one.kind, one.body) for one in sent] == [
        ("a", "hello", b"garbage"),
        ("c", "extra", b""),
        ("a", "down", b"garbage"),
        ("c", "extra", b""),
    ]
    assert seen == [("hello", 0), ("down", 2)]
    assert seat.outcome is not None
    assert seat.outcome.memory == replay(adder, seat.view)[1]
    assert [one.kind for one in honest] == ["hello", "down"]


def test_a_change_that_changes_nothing_is_honest() -> None:
    honest, one = driven(seated(), "a", "b")
    bent, two = driven(seated(party=corrupt(adder, lambda letters, view: letters)), "a", "b")
    assert one.outcome == two.outcome
    assert one.view.digest() == two.view.digest()
    assert all(map(same_body, honest, bent))


def test_a_corrupted_party_may_be_silent() -> None:
    seat = seated(party=corrupt(adder, lambda letters, view: ()))
    assert seat.post() == ()
    assert seat.wait == Wait("up", ("a", "b", "c"), 2)


def test_a_corrupted_party_is_told_what_cannot_be_had_and_may_go_on() -> None:
    def patient(given: Given, memory: Memory, coins: Coins) -> Flow:
        try:
            yield Exchange(wait=Wait("up", ("a", "b"), 2))
        except TooFew as error:
            yield Exchange((Letter("a", "sorry", b""),))
            return {"missing": error.missing}
        return {}

    for party in (patient, corrupt(patient, lambda letters, view: letters)):
        seat = seated(party=party)
        seat.give_up()
        assert [one.kind for one in seat.post()] == ["sorry"]
        seat.go()
        assert seat.outcome is not None
        assert seat.outcome.memory == {"missing": frozenset({"a", "b"})}
