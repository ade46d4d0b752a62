"""Medians and RAIN's rule on shares give what the same whole numbers give in the clear, and open nothing but signs."""

from __future__ import annotations

import statistics
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.two import Played, play

from croupier.core.coins import Coins
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.mpc import compare, ranks, signs, trust
from croupier.mpc.dealt_shares import Dealer
from croupier.mpc.ring import Z32, Z64, Ring
from croupier.mpc.trust import SecretRule
from croupier.release.printed import Printed
from croupier_lab.bench.speed.two_server_gates import plain_rule, seated

SOME = Coins.from_seed(9)


@pytest.mark.parametrize("count", range(1, 13))
def test_the_network_sorts_and_its_kept_part_finds_the_middle(count: int) -> None:
    """By the 0-1 principle: what sorts all zeros and ones sorts everything."""
    for bits in product((0, 1), repeat=count):
        whole, part = list(bits), list(bits)
        for some, layers in ((whole, ranks.network(count)), (part, ranks.layers(count))):
            for layer in layers:
                assert len({place for pair in layer for place in pair}) == 2 * len(layer)
                for low, high in layer:
                    some[low], some[high] = min(some[low], some[high]), max(some[low], some[high])
        assert whole == sorted(bits)
        assert [part[place] for place in ranks.middle(count)] == [sorted(bits)[p] for p in ranks.middle(count)]


def test_what_is_left_out_is_not_little() -> None:
    kept, whole = (sum(len(layer) for layer in layers(20)) for layers in (ranks.layers, ranks.network))
    assert kept < whole
    assert len(ranks.layers(20)) <= 15


def fraction(spread: float | str, den: int) -> tuple[int, int]:
    """1.4826 times `spread` as num / den, to the nearest num."""
    return round(Fraction("1.4826") * Fraction(str(spread)) * den), den


@given(st.lists(st.integers(-(1 << 29), 1 << 29), min_size=1, max_size=24), st.sampled_from([Z32, Z64]))
@examples(25)
def test_medians(numbers: list[int], ring: Ring) -> None:
    shares, dealer = ring.split(np.array(numbers), SOME), Dealer(SOME.child("deal"))
    gates = list(ranks.gates("m", len(numbers)))
    for _, count in gates:
        compare.deal_negative(dealer, count, ring)
    dealt = dealer.halves()
    size = sum(compare.negative_fitted(count, ring) for _, count in gates)
    letters = [compare.negative_schemas(name, count, ring) for name, count in gates]
    played = play(
        lambda me, peer: ranks.median(me, peer, "m", shares[me], ring, dealt[me].open(me, size)),
        {kind: schema for each in letters for kind, schema in each.items()},
    )
    assert ring.signed(played.got[0] + played.got[1]).tolist() == [2 * statistics.median(map(Fraction, numbers))]
    assert played.rounds == len(ranks.layers(len(numbers))) * (ring.bits // 32 + 5)


def weighed(distances: np.ndarray, rule: SecretRule, seed: int = 1) -> list[int]:
    """The opened weights."""
    coins = Coins.from_seed(seed)
    shares, dealer = rule.ring.split(distances, coins.child("split")), Dealer(coins)
    trust.deal_weights(dealer, rule)
    dealt = dealer.halves()
    size = sum(compare.negative_fitted(count, rule.ring) for _, count in trust._gates("", rule))
    played = play(lambda me, peer: trust.weights(me, peer, "r", shares[me], rule, dealt[me].open(me, size)))
    opened: list[int] = rule.ring.signed(played.got[0] + played.got[1]).tolist()
    return opened


@given(st.data())
@examples(40)
def test_weights(data: st.DataObject) -> None:
    params = data.draw(st.sampled_from([1, 10, 1000, 10**7]))
    near = st.integers(0, min(params, 3))
    distances = data.draw(st.lists(st.integers(0, params) | near, min_size=1, max_size=14))
    num, den = fraction(data.draw(st.sampled_from(["0", "1", "2.5", "3"])), data.draw(st.sampled_from([1, 7, 256])))
    rule = SecretRule(len(distances), params, num, den, floor=data.draw(st.sampled_from([0, 1, 9])))
    assert weighed(np.array(distances), rule) == Printed(num, rule.floor, den).weights(np.array(distances)).tolist()


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 9, 10])
def test_the_plain_weights_are_rains(clients: int) -> None:
    """With an exact fraction the weights are 4 den max(0, median + 1.4826 lambda MAD - distance), to the last bit."""
    num, den = fraction(2, 5000)
    assert Fraction(num, den) == Fraction("2.9652")
    distances = SOME.child(clients).secure().below(100, clients)
    h = [Fraction(int(number)) for number in distances]
    middle = statistics.median(h)
    tau = middle + Fraction(num, den) * statistics.median([abs(number - middle) for number in h])
    assert Printed(num, 0, den).weights(distances).tolist() == [4 * den * max(Fraction(0), tau - n) for n in h]


def test_equal_distances_weigh_nothing_without_a_floor() -> None:
    """MAD 0 puts the threshold on the median: nobody is below it, so nobody votes and every sign is 0."""
    for clients in (2, 3, 8):
        same = np.full(clients, 17)
        assert weighed(same, SecretRule(clients, 40)) == [0] * clients
        assert weighed(same, SecretRule(clients, 40, 380, 256, floor=6)) == [380 * 6] * clients


def ruled(
    votes: np.ndarray, reference: np.ndarray, rule: SecretRule, before: signs.Signs | None = None, seed: int = 9
) -> Played:
    """Both parties' signs."""
    coins = Coins.from_seed(seed)
    shares, dealt = rule.ring.split(votes, coins.child("split")), trust.deal(rule, coins.child("deal"))
    return play(
        lambda me, peer: trust.secret_rule(me, peer, "rain", shares[me], dealt[me], rule, reference, before),
        trust.schemas("rain", rule),
    )


@given(st.integers(1, 11), st.integers(1, 70), st.integers(0, 10**6), st.booleans(), st.sampled_from([0, 8]))
@examples(25)
def test_the_secret_rule_is_the_plain_one(clients: int, params: int, seed: int, ties: bool, floor: int) -> None:
    draw = Coins.from_seed(seed).secure()
    votes, reference = draw.below(2, clients * params).reshape(clients, params), draw.below(2, params)
    # Half of the rows are near the reference, as honest rows are.
    votes[::2] = np.where(draw.below(4, params) > 0, reference, votes[::2])
    before = (2 * draw.below(2, params) - 1).astype(np.int8) if ties else None
    rule = SecretRule(clients, params, floor=floor, ties="previous" if ties else "zero")
    one, two = ruled(votes, reference, rule, before).got
    assert np.array_equal(one, two)
    assert np.array_equal(one, plain_rule(votes, reference, rule, before))


def test_the_rule_hears_those_near_the_reference() -> None:
    """Three honest rows against two that vote for the opposite: their weight is 0, the signs are the reference's."""
    reference = SOME.secure().below(2, 90)
    votes = np.stack([reference] * 3 + [1 - reference] * 2)
    votes[0, :10] ^= 1
    votes[1, 10:30] ^= 1
    found = ruled(votes, reference, SecretRule(5, 90)).got[0]
    assert np.array_equal(found, 2 * reference - 1)


def test_the_runtime_carries_the_rule_in_a_wider_ring_too() -> None:
    draw = SOME.child("wide").secure()
    votes, reference = draw.below(2, 8 * 30).reshape(8, 30), draw.below(2, 30)
    for den in (256, 1 << 30):
        rule = SecretRule(8, 30, *fraction(1, den))
        shares, dealt = rule.ring.split(votes, SOME), trust.deal(rule, SOME.child("deal", den))
        (one, two), result = seated(
            lambda me, peer, s=shares, h=dealt, r=rule: trust.secret_rule(me, peer, "r", s[me], h[me], r, reference),  # type: ignore[misc]
            trust.schemas("r", rule), SOME.child("links"),
        )  # fmt: skip
        assert rule.ring.bits == (32 if den == 256 else 64)
        assert np.array_equal(one, two)
        assert np.array_equal(one, plain_rule(votes, reference, rule))
        assert result.traffic.messages == 2 * len(trust.schemas("r", rule))


def test_nothing_but_signs_is_opened() -> None:
    """Over many deals for the same votes, every opened value but the signs is even: each is under a mask of its own."""
    votes, reference, rule = np.ones((3, 4), np.int64), np.ones(4, np.int64), SecretRule(3, 4)
    votes[2] = 0
    counts: dict[str, np.ndarray] = {}
    trials = 120
    for trial in range(trials):
        mine, yours = ruled(votes, reference, rule, seed=trial).sent
        for kind, body in mine.items():
            for name, one in body.items():
                whole = one + yours[kind][name] if one.dtype == np.int32 else one ^ yours[kind][name]
                # Of a residue the top four bits; of masked bits the lowest two, which hold something in every gate.
                part = whole.view(np.uint32) >> 28 if one.dtype == np.int32 else whole & 3
                cells = 16 if one.dtype == np.int32 else 4
                seen = counts.setdefault(f"{kind}/{name}", np.zeros(cells, np.int64))
                seen += np.bincount(part.reshape(-1), minlength=cells)
    last = counts.pop("rain.o.open/bits")
    assert sorted(last)[-2:] == [trials, trials]
    assert len(counts) > 30
    for kind, seen in counts.items():
        expected = seen.sum() / len(seen)
        assert ((seen - expected) ** 2 / expected).sum() < 50, kind


def test_a_hand_is_as_long_as_it_says() -> None:
    for rule in (SecretRule(5, 9), SecretRule(4, 70, 1 << 40, 1 << 40, 3, "previous")):
        material = trust.deal(rule, SOME)[1]
        assert len(material.body()["fitted"]) == trust.fitted(rule)
    votes, reference = np.zeros((5, 9), np.int64), np.zeros(9, np.int64)
    with pytest.raises(ProtocolError, match="deal for this very size"):
        next(trust.secret_rule(1, "s0", "r", votes, trust.deal(SecretRule(5, 8), SOME)[1], SecretRule(5, 9), reference))


def test_a_rule_that_no_ring_holds_is_refused_with_its_numbers() -> None:
    assert SecretRule(20, 1000).ring == Z32
    assert SecretRule(1, 1, 1 << 29, 1).ring == Z64
    rule = SecretRule(20, 10**5)
    assert (rule.ring, rule.largest) == (Z64, 20 * 4 * 10**5 * (256 + 380))
    with pytest.raises(
        RangeError, match=r"100 clients with weights up to \d+ reach \d{20,}, .* smaller den than 10{15}"
    ):
        SecretRule(100, 10**6, 10**15, 10**15)
    for field in ("clients", "params", "den"):
        with pytest.raises(SpecError, match=f"{field} = 0"):
            replace(SecretRule(3, 3), **{field: 0})  # type: ignore[arg-type]


def test_the_largest_sum_that_fits_is_right() -> None:
    """At the very edge of the ring: all votes alike, one far client, weights as large as they get."""
    rule = SecretRule(3, 7, 1, (((1 << 31) - 1) // 3 // 28) - 1)
    assert rule.ring == Z32
    assert SecretRule(3, 7, 1, rule.den + 2).ring == Z64
    votes = np.zeros((3, 7), np.int64)
    votes[0] = 1
    for reference in (np.zeros(7, np.int64), np.ones(7, np.int64)):
        found = ruled(votes, reference, rule).got[0]
        assert np.array_equal(found, plain_rule(votes, reference, rule))


def test_wrong_inputs_of_the_rule_are_named() -> None:
    votes, reference, rule = np.zeros((3, 4), np.int64), np.zeros(4, np.int64), SecretRule(3, 4)
    before = np.ones(4, np.int8)
    for wrong, said in (
        ((votes[:2], rule, reference, None), r"votes of shape \(2, 4\)"),
        ((votes, rule, reference - 1, None), "other numbers than 0 and 1"),
        ((votes, rule, reference, before), "they were given"),
        ((votes, SecretRule(3, 4, ties="previous"), reference, None), "none were given"),
    ):
        shares, bad, side, old = wrong
        with pytest.raises(SpecError, match=said):
            next(trust.secret_rule(0, "s1", "r", shares, trust.deal(bad, SOME)[0], bad, side, old))
