"""The other shuffles of two servers: the same outcome, an order that neither knows, and what is refused."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.pipelines import BY_SIGN, PIPELINES, signed
from tests.laws.toy import absent, play, tap

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Letter, Received
from croupier.core.view import View
from croupier.engine.state import Threat
from croupier.errors import ProtocolError, SpecError
from croupier.mpc import turns
from croupier.mpc.deal_shares import DealSpec
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.shuffle_flows import Whole
from croupier.place.two_servers.shuffles import Mix, Way
from croupier.statement import explain

WAYS: list[Way] = ["translate", "transfer", "onion"]


def by(way: Way, **more: Any) -> Pair:
    """Two servers that shuffle this way."""
    return Pair(malicious=False, shuffle=way, **more)


@pytest.mark.parametrize("way", WAYS)
def test_the_way_of_shuffling_changes_no_result(way: Way) -> None:
    done = play(signed(by(way)), count=2)[-1]
    assert torch.equal(done.state.model.vector, play(PIPELINES["two servers"], count=2)[-1].state.model.vector)


@pytest.mark.parametrize("way", WAYS)
def test_secret_scores_follow_any_shuffle(way: Way) -> None:
    secret = {"opens": "signs", "scores": "secret", "weights": "relu"}
    done = play(signed(by(way), BY_SIGN, **secret), count=1)[-1]
    clear = play(PIPELINES["two servers, secret scores"], count=1)[-1]
    assert torch.equal(done.state.model.vector, clear.state.model.vector)


@pytest.mark.parametrize("way", WAYS)
def test_every_kind_is_described(way: Way) -> None:
    pipeline = signed(by(way))
    threat, log = tap(pipeline)
    (done,) = play(pipeline, count=1, threat=threat)
    kinds = {letter.kind for letters in log.values() for letter in letters}
    assert kinds == set(pipeline.schemas(done.views["server"].given))


def opened_distances(way: Way, seed: int) -> tuple[int, ...]:
    """The distances in the order in which they were opened."""
    pipeline = signed(by(way))
    done = play(pipeline, count=1, coins=Coins.from_seed(seed))[0]
    shares = [
        letter.body["value"].numpy().view(np.uint32)
        for name in ("server", "second")
        for box in done.views[name].inputs
        if isinstance(box, tuple) and box and isinstance(box[0], Received)
        for letter in box
        if letter.kind == "hd"
    ]
    return tuple((shares[0] + shares[1]).astype(np.int32).tolist())


@pytest.mark.parametrize("way", WAYS)
def test_rows_come_out_in_many_orders(way: Way) -> None:
    first = [opened_distances(way, seed) for seed in range(12)]
    assert all(min(found) >= 0 and max(found) <= 30 for found in first)
    ranks = {tuple(np.argsort(found).tolist()) for found in first}
    assert len(ranks) > 4


@pytest.mark.parametrize("way", ["translate", "transfer"])
def test_a_uniform_row_stands_for_the_missing(way: Way) -> None:
    (done,) = play(signed(by(way, missing="vote")), count=1, threat=absent("c1"))
    assert done.present == ("c0", "c2", "c3")
    assert done.attempt == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_round_starts_again_without_the_missing(way: Way) -> None:
    (done,) = play(signed(by(way)), count=1, threat=absent("c1"))
    assert done.attempt == 1


def test_a_client_whose_box_does_not_open_is_left_out() -> None:
    def spoil(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def bent(letter: Letter) -> Letter:
            if letter.kind != "up0" or isinstance(letter.body, bytes):
                return letter
            return replace(letter, body={"box": letter.body["box"] ^ 1})

        return tuple(map(bent, letters))

    (done,) = play(signed(by("onion")), count=1, threat=Threat(corrupted={"c2": spoil}))
    assert done.attempt == 1
    assert done.present == ("c0", "c1", "c3")
    honest = play(signed(by("onion")), count=1, threat=absent("c2"))[0]
    assert torch.equal(done.state.model.vector, honest.state.model.vector)


@pytest.mark.parametrize("way", WAYS)
def test_with_malicious_servers_they_are_refused(way: Way) -> None:
    with pytest.raises(SpecError, match="use malicious = false, or shuffle = 'dealer'"):
        Pair(shuffle=way)


def test_nobody_can_close_a_box_for_the_missing() -> None:
    with pytest.raises(SpecError, match="use missing = 'restart'"):
        by("onion", missing="vote")


def test_the_statement_says_what_the_dealer_could_read() -> None:
    assert "whose it is, the dealer does not know" in str(explain(signed(by("onion"))))
    assert "whose it is, the dealer does not know" not in str(explain(signed(by("translate"))))


def test_blocks_of_whole_shares_are_those_that_went_in() -> None:
    numbers = np.arange(40, dtype=np.uint32).reshape(4, 10)
    ((start, stop, values, tags),) = Whole(DealSpec(4, 10, "none"), numbers).blocks()
    assert (start, stop, tags) == (0, 10, None)
    assert np.array_equal(values, numbers)


def test_transfers_are_counted() -> None:
    mix = Mix("transfer", DealSpec(5, 10, "none"))
    # Trees of five leaves have three levels: fifteen transfers a pass.
    assert mix.turns("first") == ((0, 32), (15 * 32, 0), (0, 15 * 32))
    assert mix.turns("second") == ((32, 0), (0, 15 * 32), (15 * 32, 0))


def says(*words: bytes) -> Generator[bytes, bytes, str]:
    """A talk of these words."""
    for word in words:
        assert (yield word) == b""
    return "done"


def walk(talk: Generator[bytes, bytes, str], sizes: turns.Turns) -> None:
    """Drive party 0 with a peer that stays silent."""
    flow = turns.flow(0, "peer", "x", talk, sizes)
    assert isinstance(next(flow), Exchange)
    while True:
        flow.send(())


@pytest.mark.parametrize(
    ("words", "sizes", "said"),
    [
        ((b"ab",), ((2, 0), (2, 0)), "ended after 1 of 2"),
        ((b"ab", b"cd"), ((2, 0),), "goes on after its 1"),
        ((b"ab", b"c"), ((2, 0), (2, 0)), "has 1 bytes, and 2"),
    ],
)
def test_a_talk_that_takes_other_turns_is_refused(words: tuple[bytes, ...], sizes: turns.Turns, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        walk(says(*words), sizes)
