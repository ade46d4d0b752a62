"""Buckets: every multiset of tiers, the merging order, labels, and what leaves."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from math import comb

import pytest
import torch
from tests.tape import Tape, outcomes
from tests.tiers import repeats
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.tier import Tier
from croupier.core.update import Layout, Slice
from croupier.errors import IntegrityError, ProtocolError, RangeError, SpecError
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.buckets import Gap, form, label, rounded
from croupier.release.shuffle import Grain

TIERS = (0.5, 1.0, 2.0, 4.0, 8.0)
LAYOUT = Layout((Slice("a.weight", (2,)), Slice("b.weight", (1,))))


def tiers(*epsilons: float) -> list[Tier]:
    return [Tier(epsilon, 8 / epsilon) for epsilon in epsilons]


@pytest.mark.parametrize("gap", ["ratio", "difference"])
def test_every_multiset_ends_with_no_bucket_too_small(gap: Gap) -> None:
    seen, most = 0, repeats(12, 9)
    for count in range(1, most + 1):
        for epsilons in combinations_with_replacement(TIERS, count):
            for least in range(1, most + 1):
                found = form(epsilons, least, gap)
                seen += 1
                members = sorted(place for bucket in found for place in bucket.members)
                assert members == list(range(count)), "everybody is in one bucket"
                assert all(bucket.size >= least for bucket in found) or len(found) == 1
                assert len(found) == 1 or count >= least
                for bucket in found:
                    own = [epsilons[place] for place in bucket.members]
                    assert (bucket.low, bucket.high) == (min(own), max(own))
                assert all(one.high < other.low for one, other in pairwise(found))
                if count < least:
                    with pytest.raises(ProtocolError, match=r"nothing is released\. Remedy: invite more"):
                        Buckets(smallest=max(2, least), gap=gap).buckets(tiers(*epsilons))
    assert seen == most * (comb(most + len(TIERS), most) - 1)


@pytest.mark.parametrize(
    ("epsilons", "least", "gap", "want"),
    [
        # Both neighbours are as near: the smaller one, then the one of less epsilon.
        ((1, 1, 1, 2, 4, 4), 2, "ratio", [(1, 1), (2, 4)]),
        ((1, 1, 2, 4, 4), 2, "ratio", [(1, 2), (4, 4)]),
        # By difference the lower neighbour is nearer.
        ((1, 1, 1, 2, 4, 4), 2, "difference", [(1, 2), (4, 4)]),
        # Of two small ones the smallest goes first, of two as small the one of least epsilon.
        ((1, 1, 2, 8, 8, 8), 3, "ratio", [(1, 2), (8, 8)]),
        ((0.5, 8, 8), 2, "ratio", [(0.5, 8)]),
        ((0.5, 1, 2, 4, 8), 2, "ratio", [(0.5, 1), (2, 8)]),
        ((0.5, 1, 2, 4, 8), 6, "ratio", [(0.5, 8)]),
    ],
)
def test_the_order_of_merging(
    epsilons: tuple[float, ...], least: int, gap: Gap, want: list[tuple[float, float]]
) -> None:
    assert [(bucket.low, bucket.high) for bucket in form(epsilons, least, gap)] == want


def test_the_order_of_the_clients_does_not_matter() -> None:
    one, other = form((8, 1, 2, 1, 4, 8), 2), form((1, 1, 2, 4, 8, 8), 2)
    assert [(b.low, b.high, b.size) for b in one] == [(b.low, b.high, b.size) for b in other]
    assert one[0].members == (1, 3)


def test_an_epsilon_that_is_none_is_refused() -> None:
    for odd in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(RangeError, match="above 0 and finite"):
            form((1.0, odd), 2)


def test_labels_are_rounded_up_to_a_grid() -> None:
    (bucket,) = form((1.0, 2.0), 2)
    found = label(bucket, tiers(1.0, 2.0))
    assert 40 <= found.noise <= 40 * 2 ** (1 / 8)
    assert found.epsilon == 1.0
    for power in range(-24, 25):
        exact = 2 ** (power / 8)
        assert rounded(exact) == exact
        assert rounded(exact * (1 + 1e-12)) > exact


def test_a_bucket_keeps_two_honest_members() -> None:
    for smallest, colluders in ((2, 1), (4, 3)):
        with pytest.raises(SpecError, match=f"set smallest to {colluders + 2} or more"):
            Buckets(smallest=smallest, colluders=colluders)
    assert Buckets(smallest=9, colluders=3).effective == 6
    assert "effective size of 6" in Buckets(smallest=9, colluders=3).anonymity()
    assert Buckets().least == 8


MIXED = tiers(4, 1, 4, 1, 1)


def sent(count: int = 5, size: int = 3) -> list[Tensor]:
    return [torch.from_numpy(Coins.from_seed(i).secure().normal(size)).float() for i in range(count)]


@pytest.mark.parametrize("grain", ["model", "layer", "parameter"])
def test_every_bucket_keeps_its_values_and_so_its_sums(grain: Grain) -> None:
    layout = Layout((Slice("a.weight", (70_000,)), Slice("b.weight", (1_000,))))
    rows = sent(size=layout.size)
    out = Buckets(smallest=2, grain=grain).within(rows, layout, None, Coins.from_seed(3), MIXED)
    assert out["bucket"].tolist() == [0, 0, 0, 1, 1]
    assert out["epsilon"].tolist() == [1, 1, 1, 4, 4]
    for mark, members in ((0, (1, 3, 4)), (1, (0, 2))):
        before, after = torch.stack([rows[i] for i in members]), out["rows"][out["bucket"] == mark]
        assert torch.equal(before.sort(0)[0], after.sort(0)[0])
        assert torch.allclose(before.double().sum(0), after.double().sum(0), rtol=0, atol=1e-12)


def distribution(release: Buckets, rows: list[list[float]]) -> dict[tuple[float, ...], float]:
    """Exactly, by walking all permutations."""
    layout = Layout((Slice("a.weight", (1,)), Slice("b.weight", (1,))))
    four = tiers(1, 1, 4, 4)
    many = [torch.tensor(row) for row in rows]
    found = outcomes(lambda tape: tuple(release.within(many, layout, None, tape, four)["rows"].flatten().tolist()))
    return {key: round(chance, 12) for key, chance in found.items()}


BASE = [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]


def test_what_is_hidden_is_hidden_inside_a_bucket_only() -> None:
    inside = [[1.0, 20.0], [2.0, 10.0], [4.0, 30.0], [3.0, 40.0]]
    across = [[3.0, 10.0], [2.0, 20.0], [1.0, 30.0], [4.0, 40.0]]
    for grain in ("parameter", "layer"):
        release = Buckets.parse({"use": "buckets", "smallest": 2, "grain": grain})
        assert isinstance(release, Buckets)
        assert distribution(release, BASE) == distribution(release, inside)
        assert distribution(release, BASE) != distribution(release, across)
    model = Buckets(smallest=2, grain="model")
    assert distribution(model, BASE) != distribution(model, inside)
    assert distribution(model, BASE) == distribution(model, [BASE[1], BASE[0], BASE[3], BASE[2]])
    # Each of two coordinates of each of two buckets is permuted by itself.
    assert len(distribution(Buckets(smallest=2), BASE)) == 16


def test_sums_of_buckets() -> None:
    rows = [torch.tensor([1 << i, 30, i], dtype=torch.int32) for i in range(5)]
    out = BucketSums(smallest=2).within(rows, LAYOUT, 32, Tape(), MIXED)
    assert out["rows"].tolist() == [[2 + 8 + 16, 90 % 32, 8], [1 + 4, 60 % 32, 2]]
    assert out["sizes"].tolist() == [3, 2]
    assert out["grouped"].tolist() == [1, 1, 0, 0, 0]
    with pytest.raises(ProtocolError, match="only integers"):
        BucketSums(smallest=2).within(sent(), LAYOUT, None, Tape(), MIXED)


@pytest.mark.parametrize("release", [Buckets(smallest=2), BucketSums(smallest=2)])
def test_facts_that_are_not_the_public_ones_are_refused(release: Buckets | BucketSums) -> None:
    whole = release.facts(MIXED)
    release.verify(whole, MIXED)
    for name, values in whole.items():
        changed = values.clone()
        changed[0] = changed[0] + 1
        with pytest.raises(IntegrityError, match=f"{name} of the release is not what the public tiers"):
            release.verify({**whole, name: changed}, MIXED)
    with pytest.raises(IntegrityError):
        release.verify(whole, MIXED[1:])
    with pytest.raises(ProtocolError, match="by their tiers"):
        release(sent(), LAYOUT, None, Tape())


def test_what_they_say() -> None:
    said = Buckets().reveals()
    for word in ("extremes", "sum", "public tiers", "nobody's guarantee", "No amplification is claimed"):
        assert word in said
    assert "no measure of security" in Buckets().anonymity()
    assert "joins or leaves" in Buckets().over_rounds()
    assert "no single value" in BucketSums().reveals()
