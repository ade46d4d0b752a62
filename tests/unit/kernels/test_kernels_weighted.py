"""Weighted sums: the compiled loop gives the plain form's bits, and these are the exact sums rounded once."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.kernels import threads
from croupier.kernels import weighted as module
from croupier.kernels.weighted import weighted, weighted_plain

Rows = npt.NDArray[np.float32]
# From the smallest to the largest, so that some rows vanish beside others; one sort of table has what no message may.
SIZES = st.sampled_from([1.0, 1e-30, 1e30])
WILD = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Rows and weights, of which rows may cancel each other, come in an odd number, or be one or none."""
    count, width = draw(st.integers(0, 33)), draw(st.sampled_from([1, 7, 64, 65, 700]))
    source = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    rows = source.standard_normal((count, width)) * 10.0 ** source.integers(-9, 9, (count, width)) * draw(SIZES)
    weights = np.abs(source.standard_normal(count)) * draw(SIZES)
    if count > 1 and draw(st.booleans()):
        rows[0], weights[0] = -rows[-1], weights[-1]
    if draw(st.booleans()):
        source.shuffle(rows)
    if count and draw(st.booleans()):
        places = source.integers(0, count, 40), source.integers(0, width, 40)
        rows[places] = source.choice(WILD, 40)
    with np.errstate(over="ignore"):
        return rows.astype(np.float32), weights


def bits(sums: npt.NDArray[np.float64]) -> list[int]:
    """Bit for bit; what is no number has no bits of its own."""
    assert sums.dtype == np.float64
    return [int(each) for each in np.where(np.isnan(sums), np.nan, sums).view(np.int64)]


@pytest.fixture(params=[1, 3], ids=["one core", "three cores"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many, and work that is worth cutting from a few numbers on."""
    monkeypatch.setattr(threads, "cores", lambda: request.param)
    monkeypatch.setattr(threads, "FEW", 100)


@examples()
@given(tables())
def test_compiled_sums_have_the_bits_of_plain_ones(table: tuple[Rows, npt.NDArray[np.float64]]) -> None:
    rows, weights = table
    from croupier.kernels import _weighted_jit as jit

    with np.errstate(all="ignore"):
        wanted = weighted_plain(rows, weights)
    got = np.full(rows.shape[1], 7.0)
    jit.weighted(rows, weights, 0, rows.shape[1], got)
    assert bits(got) == bits(wanted)
    # A part of the coordinates touches no others.
    some = np.full(rows.shape[1], 7.0)
    middle = rows.shape[1] // 2
    jit.weighted(rows, weights, middle, rows.shape[1], some)
    assert bits(some) == [*bits(np.full(middle, 7.0)), *bits(wanted)[middle:]]


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 50, 301])
@pytest.mark.parametrize("width", [1, 30, 3000])
@pytest.mark.parametrize("plainly", [True, False])
def test_all_ways_give_the_same(count: int, width: int, plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain or compiled, on one core or several, rows of their own or parts of longer ones, floats of either size."""
    monkeypatch.setattr(module, "few", lambda count, light: plainly)
    source = np.random.default_rng(width)
    longer = source.standard_normal((count, width + 1)).astype(np.float32)
    rows, weights = longer[:, :-1], source.random(count)
    wanted = bits(weighted_plain(rows, weights))
    assert bits(weighted(np.ascontiguousarray(rows), weights)) == wanted
    assert bits(weighted(rows, weights)) == wanted
    assert bits(weighted(rows.astype(np.float64), weights)) == wanted


@examples()
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.integers(0, 1 << 32))
def test_sums_are_those_of_exact_numbers(column: list[float], seed: int) -> None:
    """Products are rounded, and their sum is the nearest float to the exact one, in every order of the rows."""
    source = np.random.default_rng(seed)
    rows, weights = np.array(column, np.float32)[:, None], source.random(len(column))
    exact = sum(
        (Fraction(float(value) * by) for value, by in zip(rows[:, 0], weights.tolist(), strict=True)), Fraction()
    )
    largest = max(abs(float(value)) for value in rows[:, 0])
    for _ in range(3):
        found = Fraction(float(weighted_plain(rows, weights)[0]))
        # One rounding at the end, and nothing that shows of all before it.
        assert abs(found - exact) <= abs(exact) / 2**53 + Fraction(largest) / 2**95
        order = source.permutation(len(column))
        rows, weights = rows[order], weights[order]


def test_a_small_run_loads_no_compiler_for_its_means() -> None:
    program = (
        "import sys, numpy as np; from croupier.kernels.weighted import weighted\n"
        "for _ in range(20): weighted(np.ones((10, 4810), np.float32), np.ones(10))\n"
        "print('numba' in sys.modules)\n"
        "weighted(np.ones((50, 940_362), np.float32), np.ones(50)); print('numba' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "True"]
