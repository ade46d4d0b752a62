"""FLARE and Romoa: by hand, against slow renderings, and where a model is not even a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.toy import play
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.latent import Flare, discrepancies, flare, vote_weights
from croupier.aggregate.romoa import Romoa, factors, large, romoa, scores, two_means
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle


def slow_mmd(one: Any, other: Any, width: float) -> float:
    def kernel(x: Any, y: Any) -> float:
        return math.exp(-(math.dist(x, y) ** 2) / (2 * width))

    m = len(one)
    own = sum(kernel(p[a], p[b]) for p in (one, other) for a in range(m) for b in range(m) if a != b) / (m * (m - 1))
    return max(0.0, own - 2 * sum(kernel(a, b) for a in one for b in other) / m**2)


@examples(25)
@given(st.integers(2, 5), st.integers(0, 500))
def test_discrepancies_against_a_slow_rendering(count: int, seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(count, 4, 3)) + np.arange(count)[:, None, None]
    spans = [sum(math.dist(p[a], p[b]) ** 2 for a in range(4) for b in range(4)) / 12 for p in features]
    width = float(np.median(spans))
    found = discrepancies(torch.from_numpy(features))
    for i in range(count):
        for j in range(count):
            if i != j:
                assert float(found[i, j]) == pytest.approx(slow_mmd(features[i], features[j], width), abs=1e-12)


def test_votes_by_hand() -> None:
    """On a line 0, 1, 2, 9 each votes for the two nearest others: 2, 3, 3 and 0 votes, with mean 2."""
    line = torch.tensor([0.0, 1.0, 2.0, 9.0])
    apart = (line[:, None] - line).abs()
    # 0 votes 1 2; 1 votes 0 2; 2 votes 1 0; 9 votes 2 1.
    votes = [2, 3, 3, 0]
    want = [math.exp(v / 2) for v in votes]
    assert vote_weights(apart).tolist() == pytest.approx([w / sum(want) for w in want])
    want = [math.exp(v / 20) for v in votes]
    assert vote_weights(apart, 10.0).tolist() == pytest.approx([w / sum(want) for w in want])
    assert vote_weights(torch.zeros(1, 1)).tolist() == [1]


def test_flare_counts_a_strange_model_for_less_and_never_for_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(6, 30, 4, generator=draw) * 0.1
    features[5] += 3
    rows = torch.eye(6)
    direction, weights = flare(rows, features)
    assert float(weights[5]) == float(weights.min()) > 0
    assert direction.tolist() == pytest.approx(weights.tolist())
    # Nor can it widen the kernel until all look alike, or take part with what is no number.
    features[5] = 1e30
    assert float(flare(rows, features)[1][5]) == float(weights.min())
    features[5] = math.nan
    assert float(flare(rows, features)[1][5]) == float(flare(rows, features)[1].min())
    assert torch.isfinite(flare(rows, features)[1]).all()


def test_features_that_are_all_the_same_are_no_ground_to_choose() -> None:
    assert discrepancies(torch.ones(4, 5, 2)).tolist() == torch.zeros(4, 4).tolist()
    row = torch.tensor([0.3, -0.7])
    assert flare(row.repeat(4, 1), torch.ones(4, 5, 2))[0].tolist() == pytest.approx(row.tolist())


@pytest.mark.parametrize("form", ["weights", "delta"])
def test_the_part_shows_each_model_whole(form: Any) -> None:
    seen: list[Tensor] = []

    def features(vector: Tensor) -> Tensor:
        seen.append(vector)
        return vector[:2].repeat(3, 1) + torch.arange(3)[:, None]

    start = torch.tensor([1.0, 2.0, 3.0])
    desk = Desk(
        (Model(start),), Layout((Slice("w", (2,)), Slice("s", (1,), "statistic"))), Coins.from_seed(0), None, features
    )
    moves = torch.tensor([[0.0, 1, 5], [1, 0, 5], [0, 1, 5], [1, 1, 5]])
    rows = moves if form == "delta" else start + moves
    (model,), _ = Flare()(Gathered(tuple("abcd"), rows, weights=torch.ones(4), form=form), desk, {})
    assert torch.equal(torch.stack(seen), start + moves)
    assert float(model.vector[2]) == pytest.approx(8)


def test_flare_is_refused_without_records() -> None:
    with pytest.raises(SpecError, match=r"looks at models through records .* set task\.root\.records=100"):
        play(Pipeline(aggregate=Flare()))
    desk = Desk((Model(torch.zeros(2)),), Layout((Slice("w", (2,)),)), Coins.from_seed(0))
    with pytest.raises(ProtocolError, match=r"set task\.root\.records=100"):
        Flare()(Gathered(("a",), torch.ones(1, 2), weights=torch.ones(1)), desk, {})


# Romoa


@examples(30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 500))
def test_two_means_finds_what_is_apart(one: int, two: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    points = torch.from_numpy(np.concatenate([draw.normal(size=(one, 3)), 40 + draw.normal(size=(two, 3))]))
    labels = two_means(points)
    assert len(set(labels[:one].tolist())) == 1
    assert len(set(labels[one:].tolist())) == 1
    assert labels[0] != labels[-1]


def test_two_means_of_what_is_equal_is_one() -> None:
    assert two_means(torch.full((4, 3), 0.1)).tolist() == [False] * 4
    assert two_means(torch.zeros(3, 2)).tolist() == [False] * 3


def test_scores_by_hand() -> None:
    """Three at 2 and one at 6: the larger cluster's centre is 2, so that scores are 1 and 1 - 4 / 2, but for 1e-5."""
    found = scores(torch.tensor([[2.0], [2.0], [6.0], [2.0]]))
    assert found.flatten().tolist() == pytest.approx([1, 1, -1, 1], abs=1e-4)
    # Two and two: nothing is larger, and the centre is the mean.
    assert scores(torch.tensor([[1.0], [1.0], [3.0], [3.0]])).flatten().tolist() == pytest.approx([0.5] * 4, abs=1e-4)


def test_the_largest_of_each_row_are_picked() -> None:
    rows = torch.tensor([[9.0, 0, 0, 1, 0, 0], [0, -9, 0, 1, 0, 0], [9, 8, 0, 0, 0, 0]])
    assert large(rows).tolist() == [True, True, False, True, False, False]


def slow_factors(rows: Any, spans: Any, last: Any) -> Any:
    n, d = rows.shape
    centre = np.median(rows, axis=0)

    def top(block: Any) -> Any:
        k = max(1, block.shape[1] // n)
        return sorted({int(i) for row in block for i in np.argsort(-abs(row))[:k]})

    def cosine(x: Any, y: Any) -> float:
        return float(np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)))

    picked = top(rows)
    single = np.array([[-cosine((last[k], centre[k]), (last[k], row[k])) for k in picked] for row in rows])
    by_cosine, by_correlation = np.zeros((n, len(spans))), np.zeros((n, len(spans)))
    for at, (start, stop) in enumerate(spans):
        cols = [start + i for i in top(rows[:, start:stop])]
        for i, row in enumerate(rows):
            by_cosine[i, at] = -cosine(row[cols], centre[cols])
            by_correlation[i, at] = np.corrcoef(row[cols], centre[cols])[0, 1]
    value = np.full((3, n, d), np.inf)
    for at, measure in enumerate((single, by_cosine, by_correlation)):
        labels = two_means(torch.from_numpy(measure)).numpy()
        sizes = np.array([(labels == label).sum() for label in labels], float)
        weight = (sizes - sizes.min()) / (sizes.max() - sizes.min()) if np.ptp(sizes) else np.ones(n)
        middle = (weight / weight.sum()) @ measure
        score = 1 - abs((measure - middle) / (middle + 1e-5))
        steep = np.sign(score) * np.exp(np.minimum(n * abs(score), 700))
        if at == 0:
            value[at][:, picked] = steep
        else:
            for number, (start, stop) in enumerate(spans):
                value[at][:, start:stop] = steep[:, [number]]
    least = value.min(0)
    out = np.exp(least - least.max(0))
    return out / out.sum(0)


@examples(20)
@given(st.integers(3, 6), st.integers(0, 300))
def test_factors_against_a_slow_rendering(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, last = draw.normal(size=(count, 24)) + 1, draw.normal(size=24)
    spans = [(0, 10), (10, 24)]
    found = factors(torch.from_numpy(rows), spans, torch.from_numpy(last))
    assert torch.allclose(found.sum(0), torch.ones(24), atol=1e-5)
    assert found.numpy() == pytest.approx(slow_factors(rows, spans, last), abs=2e-3)


def test_romoa_mixes_clips_and_ignores_the_odd_one() -> None:
    rows = torch.ones(5, 12) + 0.01 * torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    rows[4] = -1e30
    before = torch.full((5, 12), 0.2)
    direction, weights, found = romoa(rows, [(0, 6), (6, 12)], torch.zeros(12), before, 0.0)
    assert float(weights[4]) == pytest.approx(0, abs=1e-6)
    assert torch.allclose(direction, torch.ones(12).double(), atol=0.05)
    # By half the factors of the round before, but clipped to what the middle client sent.
    mixed, weights, _ = romoa(rows, [(0, 6), (6, 12)], torch.zeros(12), before, 0.5)
    assert float(weights[4]) == pytest.approx(0.1, abs=1e-6)
    assert bool((mixed >= rows[:4].min() - 1e-6).all())
    assert bool((mixed <= rows[:4].max() + 1e-6).all())
    assert torch.allclose(found.sum(0), torch.ones(12))


def test_identical_rows_give_that_row() -> None:
    row = torch.tensor([0.5, -0.25, 2.0, 1.0])
    direction, weights, _ = romoa(row.repeat(4, 1), [(0, 4)], torch.zeros(4), torch.full((4, 4), 0.25))
    assert direction.tolist() == pytest.approx(row.tolist())
    assert weights.tolist() == pytest.approx([0.25] * 4)


def test_romoa_remembers_factors_by_name_or_by_place() -> None:
    encode = Floats(form="delta")
    named = play(Pipeline(encode=encode, aggregate=Romoa()))
    rule = named[-1].state.memories["server"]["rule"]
    assert set(rule["factors"]) == {"c0", "c1", "c2", "c3"}
    assert rule["step"].any()
    with pytest.raises(SpecError, match="needs to know whose row is whose"):
        Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=Romoa(), place=Relay())
    places = Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=Romoa(slots=True), place=Relay())
    assert set(play(places)[-1].state.memories["server"]["rule"]["factors"]) == {"0", "1", "2", "3"}
