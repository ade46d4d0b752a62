"""Shares with tags: products and openings are right, and whoever changes one is caught before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, Received, SubFlow
from croupier.core.update import Layout, Slice
from croupier.errors import IntegrityError
from croupier.kernels.shares import P
from croupier.mpc import authentic
from croupier.mpc.authentic import TaggedShares, TagHolder, exchanged, toss
from croupier.mpc.field import BINARY, PRIME, ShareField

FIELDS = {"prime": PRIME, "binary": BINARY}
NAMES = ("server", "second")
GIVEN = Given("server", bytes(16), 0, 0, ("a", "b"), 2, Layout((Slice("w", (1,)),)))
Bend = Callable[[int, Letter, Mapping[str, Received]], Letter]


def as_it_is(me: int, letter: Letter, heard: Mapping[str, Received]) -> Letter:
    """Honest."""
    return letter


def talk(side: Callable[[int], SubFlow], bend: Bend = as_it_is) -> list[Any]:
    """Both flows to their end: results, or the errors that ended them. The second sends last."""
    flows = [side(0), side(1)]
    answers: list[Any] = [None, None]
    ended: list[Any] = [None, None]
    heard: list[dict[str, Received]] = [{}, {}]
    live = {0, 1}
    while live:
        box: dict[int, Received] = {}
        for me in (0, 1):
            if me not in live:
                continue
            try:
                ask = flows[me].send(answers[me])
            except StopIteration as stop:
                ended[me], live = stop.value, live - {me}
                continue
            except IntegrityError as error:
                ended[me], live = error, live - {me}
                continue
            assert isinstance(ask, Exchange)
            (letter,) = ask.send
            letter = bend(me, letter, {letter.kind: box[1]} if me == 1 and 1 in box else {})
            assert not isinstance(letter.body, bytes)
            box[1 - me] = Received(NAMES[me], letter.kind, letter.body)
            heard[1 - me][letter.kind] = box[1 - me]
        answers = [(box.get(0),), (box.get(1),)]
        if any(me not in box for me in live):
            break
    return ended


class Dealt:
    """Both parties' shares of some values, with tags."""

    def __init__(self, over: ShareField, seed: int = 1) -> None:
        self.over, self.coins = over, Coins.from_seed(seed)
        self.keys = [over.draw(self.coins.child("key", me).secure(), 1) for me in (0, 1)]
        self.key = over.add(*self.keys)
        self.count = 0

    def share(self, values: Any) -> tuple[TaggedShares, TaggedShares]:
        """Shares of values and of their tags."""
        self.count += 1
        stream = self.coins.child("share", self.count).secure()
        one = TaggedShares(self.over.draw(stream, len(values)), self.over.draw(stream, len(values)))
        tags = self.over.mul(self.key, values)
        return one, TaggedShares(self.over.sub(values, one.values), self.over.sub(tags, one.tags))

    def drawn(self, count: int) -> Any:
        """Uniform values."""
        self.count += 1
        return self.over.draw(self.coins.child("drawn", self.count).secure(), count)

    def side(self, me: int, checks: bool = True) -> TagHolder:
        """A party."""
        coins = Coins.from_seed(50 + me)
        return TagHolder(me, NAMES[1 - me], self.over, self.keys[me], GIVEN, coins, checks=checks)


@pytest.fixture(params=FIELDS)
def dealt(request: pytest.FixtureRequest) -> Dealt:
    """In both fields."""
    return Dealt(FIELDS[request.param])


def product(dealt: Dealt, checks: bool = True) -> tuple[Callable[[int], SubFlow], Any]:
    """A flow: open (a + b + public) times b times a public factor; and what it should give."""
    over = dealt.over
    a, b, p, q, factor = (dealt.drawn(3) for _ in range(5))
    shared = [dealt.share(v) for v in (a, b, p, q, over.mul(p, q))]

    def flow(me: int) -> SubFlow:
        side = dealt.side(me, checks)
        one, two, x, y, z = (both[me] for both in shared)
        left = side.plus(side.add(one, two), factor)
        found = yield from side.multiply("mul", left, two, (x, y, z))
        value = yield from side.open("out", side.scaled(found, factor))
        yield from side.check("v")
        return value

    return flow, over.mul(over.mul(over.add(over.add(a, b), factor), b), factor)


def test_products_are_right_and_pass_the_check(dealt: Dealt) -> None:
    flow, want = product(dealt)
    for got in talk(flow):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("me", [0, 1])
@pytest.mark.parametrize("kind", ["mul", "out"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_share_that_is_changed_is_caught_by_both(dealt: Dealt, me: int, kind: str, place: int) -> None:
    flow, _ = product(dealt)

    def bend(who: int, letter: Letter, heard: Any) -> Letter:
        if (who, letter.kind) != (me, kind):
            return letter
        assert not isinstance(letter.body, bytes)
        words = authentic.as_words(letter.body["value"]).copy()
        words[place] = dealt.over.add(words[place : place + 1 or None], np.ones((1, dealt.over.words), np.uint64))
        return Letter(letter.target, kind, {"value": authentic.as_tensor(words)})

    for got in talk(flow, bend):
        assert isinstance(got, IntegrityError)
        assert "what was opened is not what was shared" in str(got)
    unchecked, want = product(dealt, checks=False)
    got, _ = talk(unchecked, bend) if me == 1 else reversed(talk(unchecked, bend))
    assert not np.array_equal(got, want), "without the check it would be believed"


@pytest.mark.parametrize("wrong", ["tags", "key"])
def test_wrong_tags_and_a_wrong_key_are_caught(dealt: Dealt, wrong: str) -> None:
    values = dealt.drawn(2)
    one, two = dealt.share(values)
    bad = TaggedShares(two.values, dealt.over.add(two.tags, np.ones_like(two.tags)))

    def flow(me: int) -> SubFlow:
        side = dealt.side(me)
        if wrong == "key" and me:
            side.key = dealt.over.add(side.key, np.ones_like(side.key))
        found = yield from side.open("out", (one, bad if wrong == "tags" else two)[me])
        yield from side.check("v")
        return found

    assert all(isinstance(got, IntegrityError) for got in talk(flow))


def test_words_that_are_no_elements_are_refused() -> None:
    dealt = Dealt(PRIME)
    flow, _ = product(dealt)

    def bend(who: int, letter: Letter, heard: Any) -> Letter:
        if who == 0 or letter.kind != "mul":
            return letter
        assert not isinstance(letter.body, bytes)
        words = authentic.as_words(letter.body["value"]).copy()
        words[0] += np.uint64(P)  # the same number, in a form that is not its own
        return Letter(letter.target, "mul", {"value": authentic.as_tensor(words)})

    assert "second sent words that are no elements" in str(talk(flow, bend)[0])


def test_a_check_forgets_what_it_has_checked(dealt: Dealt) -> None:
    one, two = dealt.share(dealt.drawn(2))
    sides = [dealt.side(0), dealt.side(1)]

    def flow(me: int) -> SubFlow:
        yield from sides[me].open("a", (one, two)[me])
        yield from sides[me].check("v1")
        yield from sides[me].open("b", (one, two)[me])
        yield from sides[me].check("v2")

    assert talk(flow) == [None, None]
    assert [side.opened for side in sides] == [[], []]


def tossed(me: int) -> SubFlow:
    """A coin as bytes."""
    coin = yield from toss(GIVEN, me, NAMES[1 - me], "coin", Coins.from_seed(me))
    return coin.export()


def test_both_parties_get_one_coin_that_both_had_a_part_in() -> None:
    one, two = talk(tossed)
    assert one == two

    def other(me: int) -> SubFlow:
        coin = yield from toss(GIVEN, me, NAMES[1 - me], "coin", Coins.from_seed(me + (me == 1)))
        return coin.export()

    assert talk(other)[0] != one
    first, second = (talk(lambda me, s=step: toss(GIVEN, me, NAMES[1 - me], s, Coins.from_seed(me)))[0].export()  # type: ignore[misc]
                     for step in ("x", "y"))  # fmt: skip
    assert first != second


def test_an_echo_is_refused() -> None:
    def bend(who: int, letter: Letter, heard: Mapping[str, Received]) -> Letter:
        echo = heard.get(letter.kind)
        return letter if echo is None else Letter(letter.target, letter.kind, echo.body)

    assert "second echoed a commitment" in str(talk(tossed, bend)[0])


@pytest.mark.parametrize("name", ["value", "nonce"])
def test_a_value_that_was_not_fixed_is_refused(name: str) -> None:
    def bend(who: int, letter: Letter, heard: Any) -> Letter:
        assert not isinstance(letter.body, bytes)
        if who == 1 and letter.kind == "s-o":
            return Letter(letter.target, "s-o", {**letter.body, name: letter.body[name] ^ torch.tensor(1).byte()})
        return letter

    def flow(me: int) -> SubFlow:
        found = yield from exchanged(GIVEN, me, NAMES[1 - me], "s", bytes([me] * 5), Coins.from_seed(me))
        return found

    assert talk(flow) == [bytes([1] * 5), bytes(5)]
    assert "second opened another value than it had fixed" in str(talk(flow, bend)[0])


def test_a_commitment_made_for_another_attempt_is_refused() -> None:
    other = Given("second", bytes(16), 0, 1, GIVEN.roster, 2, GIVEN.layout)

    def flow(me: int) -> SubFlow:
        found = yield from exchanged((GIVEN, other)[me], me, NAMES[1 - me], "s", b"x", Coins.from_seed(me))
        return found

    assert all(isinstance(got, IntegrityError) for got in talk(flow))


def test_shares_and_keys_are_not_printed(dealt: Dealt) -> None:
    one, _ = dealt.share(dealt.drawn(1))
    assert repr(one) == "TaggedShares()"
    assert str(int(dealt.keys[0].reshape(-1)[0])) not in repr(dealt.side(0))
