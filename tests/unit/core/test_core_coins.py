"""The tree of seeds: known answers, distinct nodes for distinct labels, unbiased choices, and no secret that prints."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import math
import pickle
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.tape import Tape, outcomes
from tests.tiers import examples

from croupier.core.coins import Coins, Label, Stream
from croupier.core.envelope import Link
from croupier.errors import RangeError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "coins.json").read_text("utf-8"))
LIKELY = 1e-4

labels = st.one_of(st.text(max_size=4), st.binary(max_size=4), st.integers())


def typed(pair: Sequence[str]) -> Label:
    kind, text = pair
    if kind == "s":
        return text
    return int(text) if kind == "i" else bytes.fromhex(text)


def framed(pair: Sequence[str]) -> bytes:
    """The stated framing, written out again: kind, eight bytes of length, body."""
    kind, text = pair
    if kind == "i":
        value, size = int(text), 1
        while abs(value) >> (8 * size - 1):
            size += 1
        body = value.to_bytes(size, "big", signed=True)
    else:
        body = text.encode() if kind == "s" else bytes.fromhex(text)
    return kind.encode() + len(body).to_bytes(8, "big") + body


def expanded(seed: bytes, *pairs: Sequence[str]) -> bytes:
    """HKDF-Expand with SHA-256, one block."""
    info = b"".join(map(framed, (("b", b"croupier/1".hex()), *pairs)))
    return hmac.digest(seed, info + b"\x01", hashlib.sha256)


def chi(counts: Sequence[int]) -> float:
    return float(stats.chisquare(counts).pvalue)


class Scripted(Stream):
    """A stream whose words are given, to reach what a cipher gives once in 2^60 words."""

    __slots__ = ("left",)

    def __init__(self, words: Sequence[int]) -> None:
        super().__init__(bytes(32))
        self.left = list(words)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        taken, self.left = self.left[:count], self.left[count:]
        if len(taken) < count:
            raise AssertionError("more words drawn than were rejected")
        return np.array(taken, np.uint64)


@pytest.mark.parametrize("case", VECTORS["children"], ids=lambda case: str(case["labels"]))
def test_children_are_hkdf_of_framed_labels(case: dict[str, Any]) -> None:
    seed = bytes.fromhex(case["seed"])
    got = Coins(seed).child(*map(typed, case["labels"])).export()
    assert got == expanded(seed, ("b", b"child".hex()), *case["labels"])
    assert got.hex() == case["child"]


@pytest.mark.parametrize("case", VECTORS["streams"], ids=lambda case: str(case["number"]))
def test_number_seeds_and_streams_are_hkdf_and_counter_mode(case: dict[str, Any]) -> None:
    number = case["number"]
    body = number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
    root = hmac.digest(b"croupier/1", body, hashlib.sha256)
    root = hmac.digest(root, b"seed number\x01", hashlib.sha256)
    assert Coins.from_seed(number).export() == root
    key = expanded(root, ("b", b"stream".hex()))
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    want = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(3))
    assert bytes(Coins.from_seed(number).secure().bytes(48)) == want
    assert root.hex() == case["root"]
    assert want.hex() == case["bytes"]
    assert Coins.from_seed(number).secure().below(1000, 8).tolist() == case["below_1000"]
    assert Coins.from_seed(number).secure().permutation(8).tolist() == case["permutation_8"]


@pytest.mark.parametrize("case", VECTORS["seed_bad_length"])
def test_seed_bad_length(case: str) -> None:
    with pytest.raises(RangeError, match="32 bytes"):
        Coins(bytes.fromhex(case))


@examples()
@given(st.lists(labels, max_size=4), st.lists(labels, max_size=4))
def test_distinct_labels_name_distinct_nodes(one: list[Label], two: list[Label]) -> None:
    root = Coins(bytes(32))
    same = [(type(x), x) for x in one] == [(type(x), x) for x in two]
    assert (root.child(*one).export() == root.child(*two).export()) == same


@examples()
@given(st.text(max_size=6), st.integers(0, 6))
def test_moving_a_border_between_labels_changes_the_node(text: str, at: int) -> None:
    root = Coins(bytes(32))
    nodes = {root.child(text).export(), root.child(text[:at], text[at:]).export(), root.child(text.encode()).export()}
    assert len(nodes) == 3


def test_a_path_of_children_is_no_list_of_labels_and_purposes_differ() -> None:
    root = Coins(bytes(32))
    assert root.child("a").child("b").export() != root.child("a", "b").export()
    assert root.child("stream").export() != expanded(bytes(32), ("b", b"stream".hex()))
    assert root.child().export() != root.export()


def test_a_node_repeats_its_choices_and_a_stream_goes_on() -> None:
    node = Coins.from_seed(3)
    assert node.secure().below(1 << 40, 4).tolist() == node.secure().below(1 << 40, 4).tolist()
    stream = node.secure()
    first = bytes(stream.bytes(5)) + bytes(stream.bytes(1 << 20)) + bytes(stream.bytes(7))
    assert first == bytes(node.secure().bytes((1 << 20) + 12))
    assert len({first[i : i + 8] for i in range(0, 4096, 8)}) == 512


def test_secrets_do_not_print() -> None:
    coins = Coins(bytes(range(32)))
    shown = [repr(thing) + str(thing) + f"{thing}" for thing in (coins, coins.secure(), Link(coins, "a", "b"))]
    for secret in (coins.export(), coins.child("link", "a", "b").export(), expanded(coins.export(), ("b", "73"))):
        for text in shown:
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
    assert shown[0] == "Coins(...)" * 3
    assert shown[1] == "Stream(...)" * 3


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_coins_streams_and_links_are_not_pickled(protocol: int) -> None:
    coins = Coins.from_seed(1)
    for secret in (coins, coins.secure(), Link(coins, "a", "b")):
        with pytest.raises(TypeError):
            pickle.dumps(secret, protocol)
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy({"coins": coins})


def test_seed_numbers() -> None:
    with pytest.raises(RangeError, match="seed = -1"):
        Coins.from_seed(-1)
    roots = [Coins.from_seed(number).export() for number in (0, 1, 255, 256, 1 << 64, 1 << 300)]
    assert len(set(roots)) == len(roots)
    assert Coins.from_os().export() != Coins.from_os().export()


def test_training_generators_follow_the_node_and_leave_the_global_one() -> None:
    coins = Coins.from_seed(2)
    assert torch.equal(torch.rand(3, generator=coins.fast()), torch.rand(3, generator=coins.fast()))
    assert not torch.equal(torch.rand(3, generator=coins.fast()), torch.rand(3, generator=coins.child("x").fast()))
    assert coins.sampler().integers(1 << 60) == coins.sampler().integers(1 << 60)
    before = torch.random.get_rng_state()
    with coins.ambient():
        inside = torch.rand(3)
    with coins.ambient():
        assert torch.equal(inside, torch.rand(3))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("limit", [2, 3, 7, 10, 64, 100])
def test_below_is_uniform(limit: int) -> None:
    drawn = Coins.from_seed(limit).secure().below(limit, 20_000)
    assert drawn.min() >= 0
    assert drawn.max() < limit
    assert chi(np.bincount(drawn, minlength=limit).tolist()) > LIKELY


@pytest.mark.parametrize("limit", [(1 << 62) + 1, (1 << 63) - 25, 3 << 61])
def test_below_is_uniform_where_a_remainder_would_be_far_off(limit: int) -> None:
    # A bare remainder would put 2/3 or so of the draws into the lower part; thirds of the range tell.
    drawn = Coins.from_seed(11).secure().below(limit, 6_000)
    thirds = np.bincount([int(x) * 3 // limit for x in drawn], minlength=3)
    assert len(thirds) == 3
    assert chi(thirds.tolist()) > LIKELY


@examples()
@given(st.integers(1, 1 << 63), st.integers(0, 2**32))
def test_below_never_reaches_its_limit(limit: int, seed: int) -> None:
    drawn = Coins.from_seed(seed).secure().below(limit, 5)
    assert drawn.dtype == np.int64
    assert all(0 <= int(x) < limit for x in drawn)


@pytest.mark.parametrize(
    ("limit", "refused", "kept"),
    [
        (3, [(1 << 64) - 1], [(1 << 64) - 2, 0, 4]),
        (10, [(1 << 64) - 1, (1 << 64) - 6], [(1 << 64) - 7, 19]),
        ((1 << 62) + 1, [3 * ((1 << 62) + 1), (1 << 64) - 1], [3 * ((1 << 62) + 1) - 1, (1 << 62) + 1]),
        (1 << 63, [], [(1 << 64) - 1, 1 << 63, (1 << 63) - 1]),
        (1, [], [0, (1 << 64) - 1]),
    ],
)
def test_below_draws_again_exactly_past_the_last_whole_multiple(
    limit: int, refused: list[int], kept: list[int]
) -> None:
    stream = Scripted([*refused, *kept])
    assert stream.below(limit, len(kept)).tolist() == [word % limit for word in kept]
    assert stream.left == []


@pytest.mark.parametrize("limit", [0, -1, (1 << 63) + 1])
def test_below_refuses_limits_it_cannot_serve(limit: int) -> None:
    with pytest.raises(RangeError, match=f"limit = {limit}"):
        Coins.from_seed(0).secure().below(limit)


def test_masks_are_uniform_residues() -> None:
    drawn = Coins.from_seed(5).secure().mask(12, 24_000)
    assert chi(np.bincount(drawn, minlength=12).tolist()) > LIKELY
    assert Coins.from_seed(5).secure().mask(12, 0).tolist() == []


def test_permutations_of_four_are_uniform() -> None:
    stream = Coins.from_seed(9).secure()
    seen = Counter(tuple(stream.permutation(4).tolist()) for _ in range(4_800))
    every = list(permutations(range(4)))
    assert set(seen) == set(every)
    assert chi([seen[order] for order in every]) > LIKELY


def test_permutations_of_other_sizes_are_permutations() -> None:
    stream = Coins.from_seed(9).secure()
    for size in (0, 1, 2, 3, 100, 2_000):
        order = stream.permutation(size)
        assert sorted(order.tolist()) == list(range(size))
        assert order.dtype == np.int64
    assert Coins.from_seed(9).secure().permutation(100).tolist() != list(range(100))


def test_columns_are_permuted_uniformly_and_independently() -> None:
    rows = np.repeat(np.arange(3)[:, None], 80_000, axis=1)
    Coins.from_seed(4).secure().permute_columns(rows)
    assert (np.sort(rows, axis=0) == np.arange(3)[:, None]).all()
    codes = rows[0] * 3 + rows[1]
    every = [a * 3 + b for a, b, _ in permutations(range(3))]
    assert chi([int((codes == code).sum()) for code in every]) > LIKELY
    # Neighbours, and columns one strip of 2^16 apart: 36 pairs of orders, all equally likely.
    for gap in (1, 1 << 16):
        left, right = codes[:-gap:2], codes[gap::2]
        pairs = Counter(zip(left.tolist(), right.tolist(), strict=False))
        assert chi([pairs[a, b] for a in every for b in every]) > LIKELY


@examples()
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32))
def test_columns_keep_their_values(n: int, d: int, seed: int) -> None:
    rows = np.arange(n * d, dtype=np.float32).reshape(n, d)
    moved = rows.copy()
    Coins.from_seed(seed).secure().permute_columns(moved)
    assert np.array_equal(np.sort(moved, axis=0), rows)


def test_a_single_row_stays_and_costs_no_words() -> None:
    stream = Coins.from_seed(1).secure()
    rows = np.arange(5.0)[None].copy()
    stream.permute_columns(rows)
    assert rows.tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert bytes(stream.bytes(8)) == bytes(Coins.from_seed(1).secure().bytes(8))


def test_a_tape_walks_every_choice_once_with_its_probability() -> None:
    found = outcomes(lambda tape: tuple(tape.below(3, 2).tolist()))
    assert set(found) == {(a, b) for a in range(3) for b in range(3)}
    assert all(Fraction(p).limit_denominator(100) == Fraction(1, 9) for p in found.values())


def test_a_tape_walks_masks_and_permutations() -> None:
    assert outcomes(lambda tape: int(tape.mask(5, 1)[0])) == dict.fromkeys(range(5), 0.2)
    found = outcomes(lambda tape: tuple(tape.child("x", 3).secure().permutation(4).tolist()))
    assert set(found) == set(permutations(range(4)))
    assert {round(p * 24, 9) for p in found.values()} == {1.0}
    assert outcomes(lambda tape: tuple(tape.permutation(0).tolist())) == {(): 1.0}


def test_a_tape_walks_choices_that_depend_on_choices() -> None:
    def nested(tape: Tape) -> tuple[int, ...]:
        first = int(tape.below(3)[0])
        return (first, *tape.below(first + 1, first).tolist())

    found = outcomes(nested)
    want = {(0,): 1 / 3} | {(1, a): 1 / 6 for a in range(2)} | {(2, a, b): 1 / 27 for a in range(3) for b in range(3)}
    assert set(found) == set(want)
    assert all(math.isclose(found[key], want[key]) for key in want)
    assert math.isclose(sum(found.values()), 1)


def test_a_tape_adds_up_outcomes_that_fall_together() -> None:
    found = outcomes(lambda tape: int(tape.below(4, 2).sum()))
    assert {key: round(16 * p) for key, p in found.items()} == {0: 1, 1: 2, 2: 3, 3: 4, 4: 3, 5: 2, 6: 1}
    assert outcomes(lambda tape: "always") == {"always": 1.0}


def test_a_tape_permutes_columns_each_by_its_own_choice() -> None:
    def columns(tape: Tape) -> tuple[int, ...]:
        rows = np.array([[0, 0], [1, 1], [2, 2]])
        tape.permute_columns(rows)
        return tuple(rows.reshape(-1).tolist())

    found = outcomes(columns)
    assert len(found) == 36
    assert all(math.isclose(p, 1 / 36) for p in found.values())


def test_a_tape_has_no_normals() -> None:
    with pytest.raises(RangeError, match="3 normals"):
        Tape().normal(3)


def test_a_long_permutation_comes_to_an_end() -> None:
    size = 1_000_000
    order = Coins.from_seed(5).child("long").secure().permutation(size)
    assert np.array_equal(np.sort(order), np.arange(size))
    assert (order != np.arange(size)).mean() > 0.99
    assert abs(float(np.corrcoef(order, np.arange(size))[0, 1])) < 0.01
