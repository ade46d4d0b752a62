"""Normal numbers: the same bits on every machine, checked against an independent routine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.core.normal import _CENTRE, _FAR, _TAIL, from_words, from_words_plain, quantile
from croupier.kernels import _normal_jit as jit

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "normal.json").read_text("utf-8"))


def test_the_bits_of_quantiles_are_the_same_everywhere() -> None:
    p = np.array([float.fromhex(text) for text in VECTORS["quantile"]])
    assert [value.hex() for value in quantile(p).tolist()] == list(VECTORS["quantile"].values())


def test_the_bits_of_a_stream_of_normals_are_the_same_everywhere() -> None:
    drawn = Coins.from_seed(VECTORS["stream"]["seed"]).secure().normal(len(VECTORS["stream"]["normals"]))
    assert [value.hex() for value in drawn.tolist()] == VECTORS["stream"]["normals"]


def test_quantiles_agree_with_an_independent_routine() -> None:
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 20_001), np.logspace(-300, -1, 600), [0.075, 0.925, 0.5]])
    np.testing.assert_allclose(quantile(p), special.ndtri(p), rtol=2e-14, atol=1e-15)


@examples()
@given(st.floats(1e-300, 0.49999999))
def test_quantiles_rise(p: float) -> None:
    # Ten units in the last place of p: more than the routine's own error can turn round.
    low, high = quantile(np.array([p, p * (1 + 1e-12)]))
    assert low < high < 0


@pytest.mark.parametrize("k", [1, 2, 5, 20, 52])
def test_quantiles_are_odd_about_one_half(k: int) -> None:
    p = 0.5 - 2.0**-k * 0.49
    low, high = quantile(np.array([p, 1 - p]))
    assert low == pytest.approx(-high, rel=1e-12)


def test_the_smallest_word_is_far_in_the_lower_tail() -> None:
    (lowest,) = from_words(np.array([0], np.uint64))
    assert -8.5 < lowest < -8.1


def test_the_compiled_loop_gives_the_bits_of_the_plain_form() -> None:
    """Everywhere: words drawn, the smallest and the largest, next to the middle and on either side of the tails."""
    edges = [0, 1 << 12, (1 << 64) - 1, 1 << 63, (1 << 63) - 1]
    sides = [int(p * 2**64) + step for p in (0.075, 0.925, 1.4e-11, 1 - 1.4e-11) for step in (-(1 << 13), 0, 1 << 13)]
    spread = [1 << bit for bit in range(64)] + [(1 << 64) - (1 << bit) for bit in range(1, 64)]
    drawn = Coins.from_seed(8).secure().words(100_000)
    words = np.concatenate([np.array([*edges, *sides, *spread], np.uint64), drawn])
    out = np.empty(len(words))
    jit.from_words(words, _CENTRE, _TAIL, _FAR, out)
    assert np.array_equal(out, from_words_plain(words))
    assert np.array_equal(from_words(words), out)


def test_normals_have_the_right_moments_and_shape() -> None:
    drawn = Coins.from_seed(6).secure().normal(200_000)
    assert drawn.dtype == np.float64
    assert abs(drawn.mean()) < 4 / np.sqrt(200_000)
    assert abs(drawn.var() - 1) < 4 * np.sqrt(2 / 200_000)
    assert abs(stats.skew(drawn)) < 4 * np.sqrt(6 / 200_000)
    assert abs(stats.kurtosis(drawn)) < 4 * np.sqrt(24 / 200_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4 / np.sqrt(200_000)
