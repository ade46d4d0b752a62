"""What defences cost: shapes of rows, ratios that come from them, and threads that are set and put back."""

from __future__ import annotations

import json
import math
import os
from functools import partial
from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.learn.models import Mlp
from croupier_lab.bench.speed import limited_cores
from croupier_lab.bench.speed.client_defences import CLOCKS, DPSGD, NONE, PRUNING, TAZZA, costs, race
from croupier_lab.bench.speed.model_permutation import subject
from croupier_lab.papers.shared.figure import SCALES, Figure, Means
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.papers.tazza import cost as tazza_cost
from croupier_lab.papers.tazza.cost import BOARDS, BUILT, KINDS, PRINTED, SEEDS, SWEPT, times_cell

TINY = (Mlp(hidden=(8,)), (1, 6, 6), 3)
COINS = Coins.from_seed(1)
USED: list[tuple[int, int, str]] = []


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks, and seconds that do not depend on the machine: they grow with the updates."""
    drawn = iter(range(1, 10_000))

    def made(kind: Any, updates: int, repeats: int, seed: int, clock: str) -> dict[str, Any]:
        USED.append((torch.get_num_threads(), len(os.sched_getaffinity(0)), clock))
        once, permuting = next(drawn) / 1000, next(drawn) / 1000
        alone = {TAZZA: permuting, PRUNING: updates * once, DPSGD: None if kind is KINDS["RNN"] else updates * 1.0}
        total = {name: None if spent is None else spent + 0.5 for name, spent in {**alone, NONE: 0.0}.items()}
        return {"parameters": 9, "total": total, "alone": alone, "pruned_once": once}

    USED.clear()
    monkeypatch.setattr(tazza_cost, "_run", made)


def found(number: int) -> dict[str, Any]:
    trial = next(one for one in tazza_cost.FIGURES if one.name == f"tazza/figure{number}")
    got = reproduce(trial, "smoke", Means(), watch=lambda _: None)
    assert json.loads(json.dumps(got, allow_nan=False)) == got
    rows = got["rows"]
    assert all(list(row) == list(rows[0]) for row in rows)
    assert all(BOARDS in row["machine"] for row in rows)
    assert any(BOARDS in said for said in got["says"])
    assert trial.draw is not None
    assert trial.draw(rows).startswith("<svg")
    return got


@pytest.mark.parametrize("number", [14, 15, 16])
def test_ratios_are_computed_from_the_rows(number: int, timed: None) -> None:
    rows = found(number)["rows"]
    for at in range(0, len(rows), 3):
        tazza, pruning, private = rows[at : at + 3]
        assert [row["defence"] for row in (tazza, pruning, private)] == [TAZZA, PRUNING, DPSGD]
        pairs = zip(pruning["_alone"]["runs"], tazza["_alone"]["runs"], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        assert tazza["_times"]["runs"] == pytest.approx(ratios)
        assert tazza["_times"]["mean"] == pytest.approx(math.exp(sum(map(math.log, ratios)) / len(ratios)))
        assert tazza["_once"]["runs"] == pytest.approx([one / tazza["updates"] for one in ratios])
        whole = zip(pruning["_total"]["runs"], tazza["_total"]["runs"], strict=True)
        assert tazza["_whole"]["runs"] == pytest.approx([ours / theirs for ours, theirs in whole])
        assert pruning["pruning_takes_times"] == "1.00 [1.00, 1.00]"


def test_the_papers_ratio_stands_beside_ours(timed: None) -> None:
    got = found(16)
    own = [row for row in got["rows"] if row["defence"] == TAZZA]
    assert [row["threads"] for row in own] == [1, 2]
    assert all(str(PRINTED) in row["paper"] for row in own)
    assert any("one thread takes so many times as long as two: Tazza" in said for said in got["says"])


def test_what_cannot_be_measured_is_left_out(timed: None) -> None:
    rows = {(row["network"], row["defence"]): row for row in found(15)["rows"]}
    assert rows["RNN", DPSGD]["alone_ms"] is None
    assert rows["MLP", DPSGD]["alone_ms"] is not None


@pytest.mark.parametrize("spent", [-0.25, 0.0])
def test_a_run_is_kept_whose_difference_of_durations_is_nothing(
    timed: None, monkeypatch: pytest.MonkeyPatch, spent: float
) -> None:
    made = tazza_cost._run

    def busy(*given: Any) -> dict[str, Any]:
        got = made(*given)
        return {**got, "alone": {**got["alone"], DPSGD: spent}}

    monkeypatch.setattr(tazza_cost, "_run", busy)
    got = found(14)
    assert sum(f"{DPSGD} could not be told from its batches" in said for said in got["says"]) == 2
    rows = [row for row in got["rows"] if row["defence"] == DPSGD]
    assert all(row["alone_ms"] is None and row["_alone"]["lost"] == 2 for row in rows)
    assert all(row["with_training_ms"] for row in rows)


def test_threads_are_set_for_every_run_and_put_back(timed: None) -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0)
    rows = found(16)["rows"]
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == before
    lent = [min(threads, len(before[1])) for threads in (1, 2)]
    each = len(USED) // 2
    assert [(1, lent[0], "wall")] * each + [(2, lent[1], "wall")] * each == USED
    assert {(row["threads"], row["cores"]) for row in rows} == {(1, lent[0]), (2, lent[1])}


def test_threads_are_put_back_after_an_error() -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0)

    def work() -> None:
        with limited_cores.lent(1) as count:
            assert (count, torch.get_num_threads(), len(os.sched_getaffinity(0))) == (1, 1, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == before


def test_costs_of_a_real_network_are_whole() -> None:
    got = costs(subject(*TINY, 4, COINS.child("real")), 3, 1, COINS.child("costs"), CLOCKS["wall"])
    assert got["parameters"] == 37 * 8 + 9 * 3
    assert set(got["total"]) == {NONE, TAZZA, PRUNING, DPSGD}
    assert set(got["alone"]) == {TAZZA, PRUNING, DPSGD}
    assert got["alone"][PRUNING] == 3 * got["pruned_once"]
    assert got["alone"][DPSGD] == got["total"][DPSGD] - got["total"][NONE]
    assert all(spent > 0 for spent in got["total"].values())


def test_works_take_turns_and_the_first_does_not_count() -> None:
    turns: list[str] = []
    clock = iter([0, 9, 0, 9, 0, 4, 0, 2, 0, 3, 0, 5])
    works = {name: partial(turns.append, name) for name in "ab"}
    assert race(works, 2, lambda: float(next(clock))) == {"a": 3.0, "b": 2.0}
    assert turns == ["a", "b"] * 3


def test_times_below_nothing_are_lost() -> None:
    got = times_cell([1.0, 4.0, -0.1])
    assert got["mean"] == pytest.approx(2.0)
    assert got["lost"] == 1


def test_every_scale_is_whole() -> None:
    assert set(SWEPT) == set(BUILT) == set(SEEDS) == set(SCALES)
    assert SWEPT["paper"][0] == (1, 2, 3, 4, 5)
    assert set(BUILT["paper"][0]) == set(KINDS)
    assert all(isinstance(one, Figure) and one.draw for one in tazza_cost.FIGURES)
