"""The bench of the coordinate shuffle: what it says is there, adds up, and comes from work that is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.errors import CroupierError
from croupier_lab.bench.speed import argsort_shuffle, coordinate_shuffle


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a fresh one takes seconds to load."""

    def work(what: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        return what(*arguments)

    monkeypatch.setattr(coordinate_shuffle, "apart", work)
    monkeypatch.setattr(coordinate_shuffle, "PART", 1 << 10)
    monkeypatch.setattr(coordinate_shuffle, "SMALLEST", 1000)


@pytest.mark.usefixtures("here")
def test_what_is_measured_adds_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    words = ("--params", "5000", "--clients", "20", "--repeats", "2", "--sweep")
    found = shell.json("bench", "intra", *words)
    assert all(found[key] > 0 for key in ("shuffle_s", "argsort_s", "shuffle_cpu_s", "words_s", "peak_bytes"))
    assert found["shuffle_s"] == min(found["shuffle_all_s"])
    assert found["argsort_s"] == min(found["argsort_all_s"])
    assert len(found["shuffle_all_s"]) == len(found["argsort_all_s"]) == 2
    assert found["ratio"] == pytest.approx(found["argsort_s"] / found["shuffle_s"])
    for form in ("line", "all_cores", "cipher"):
        assert found[f"ratio_{form}"] == pytest.approx(found[f"argsort_{form}_s"] / found["shuffle_s"])
    assert found["others_measured_on"] == 1024
    assert found["ns_per_element"] == pytest.approx(1e9 * found["shuffle_s"] / 100_000)
    assert (found["random_bytes_per_parameter"], found["data_bytes"]) == (16, 400_000)
    assert found["peak_bytes"] >= found["peak_growth_bytes"]
    points = found["sweep"]["points"]
    sizes = [(5, 1000), (5, 10_000), (10, 1000), (10, 10_000), (20, 1000), (40, 1000), (80, 1000)]
    assert [(point["clients"], point["params"]) for point in points] == sizes
    assert found["sweep"]["power"] == coordinate_shuffle.power(points, "seconds")
    code, out, _ = shell("bench", "intra", *words)
    assert code == 0
    assert "scaled up from 1024 parameters" in out
    assert "(clients x parameters)^" in out


@pytest.mark.usefixtures("here")
def test_a_caller_may_leave_the_rival_out() -> None:
    found = coordinate_shuffle.measure(
        coordinate_shuffle.CoordinateShuffleSize(clients=4, params=3000, repeats=1), 0, rival=False
    )
    assert found["shuffle_s"] > 0
    assert "argsort_s" not in found
    alone = coordinate_shuffle.sweep(coordinate_shuffle.CoordinateShuffleSize(clients=3, params=100), 0)
    assert [(point["clients"], point["params"]) for point in alone["points"]] == [(3, 100)]
    assert alone["power"] is None


def test_the_power_of_growth() -> None:
    points = [
        {"clients": n, "params": d, "linear": 7.0 * n * d, "square": (n * d) ** 2.0} for n in (2, 5) for d in (3, 9)
    ]
    assert coordinate_shuffle.power(points, "linear") == pytest.approx(1)
    assert coordinate_shuffle.power(points, "square") == pytest.approx(2)


RIVALS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "line": lambda rows: argsort_shuffle.line(rows, 1),
    "blocked": lambda rows: argsort_shuffle.blocked(rows, argsort_shuffle.generator(1)),
    "cipher": lambda rows: argsort_shuffle.blocked(rows, argsort_shuffle.cipher(Coins.from_seed(1))),
    "together": lambda rows: argsort_shuffle.together(rows, 1),
    "ours": lambda rows: coordinate_shuffle._shuffled(rows, Coins.from_seed(1)),
}


@pytest.mark.parametrize("name", list(RIVALS))
def test_all_of_them_shuffle_uniformly(name: str) -> None:
    """Three clients, more coordinates than a block: six orders, equally often, at every place."""
    size = 70_000
    rows = [torch.full((size,), float(who)) for who in range(3)]
    out = RIVALS[name](rows)
    assert (out.shape, out.dtype) == ((3, size), np.float32)
    for part in (out[:, : size // 2], out[:, size // 2 :]):
        seen = Counter(map(tuple, part.T.astype(int).tolist()))
        assert set(seen) == set(permutations(range(3)))
        assert stats.chisquare(list(seen.values())).pvalue > 1e-5


def test_a_shuffle_that_loses_a_value_or_does_nothing_is_caught() -> None:
    rows = np.arange(20 * 4096, dtype=np.float32).reshape(20, 4096)
    coordinate_shuffle.check(rows, rows[::-1])
    changed = rows[::-1].copy()
    changed[3, 5] = -1
    with pytest.raises(CroupierError, match="not those that went in"):
        coordinate_shuffle.check(rows, changed)
    with pytest.raises(CroupierError, match="nothing was shuffled"):
        coordinate_shuffle.check(rows, rows)


def test_bench_intra_prints_what_it_would_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Shell(monkeypatch, capsys).json("bench", "intra", "--params", "7", "--print-config")
    assert found == {"params": 7, "clients": 20, "repeats": 3}
