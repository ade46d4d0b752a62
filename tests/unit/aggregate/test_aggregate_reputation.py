"""FoolsGold, CONTRA and ShieldFL: by hand, against slow renderings, and whose history it is that they keep."""

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
from croupier.aggregate.reputation import Contra, FoolsGold, ShieldFL, contra, foolsgold, last_layer, shieldfl
from croupier.aggregate.robust import Robust
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle

LAYOUT = Layout(
    (Slice("body.weight", (2,)), Slice("head.weight", (2,)), Slice("head.bias", (1,)), Slice("s", (1,), "statistic"))
)


def moved(
    rule: Robust, rows: Tensor, memory: Memory | None = None, ids: tuple[str, ...] | None = None, seed: int = 0
) -> tuple[Tensor, Memory]:
    width = rows.shape[1]
    layout = LAYOUT if width == LAYOUT.size else Layout((Slice("w", (width,)),))
    desk = Desk((Model(torch.zeros(width)),), layout, Coins.from_seed(seed))
    names = tuple(f"c{i}" for i in range(len(rows)))
    gathered = Gathered(names, rows, weights=torch.ones(len(rows)), ids=ids or names, form="delta")
    (model,), after = rule(gathered, desk, memory or {})
    return model.vector, after


def cosine(one: Any, other: Any) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return float(np.dot(one, other)) / lengths if lengths else 0.0


def spread(kept: list[float], kappa: float = 1.0) -> list[float]:
    kept = [min(1.0, max(0.0, value)) for value in kept]
    top = max(kept)
    out = []
    for value in kept:
        value = value / top if top else 0.0
        value = 0.99 if value == 1 else value
        out.append(min(1.0, max(0.0, kappa * (math.log(value / (1 - value)) + 0.5))) if value else 0.0)
    return out


def slow_foolsgold(history: Any) -> list[float]:
    count = len(history)
    alike = [[0.0 if i == j else cosine(history[i], history[j]) for j in range(count)] for i in range(count)]
    most = [max(row) for row in alike]
    for i in range(count):
        for j in range(count):
            if most[j] > most[i]:
                alike[i][j] *= most[i] / most[j]
    return spread([1 - max(row) for row in alike])


def slow_contra(history: Any, k: int) -> tuple[list[float], list[float]]:
    count = len(history)

    def top(table: list[list[float]]) -> list[float]:
        others = [sorted((v for j, v in enumerate(row) if j != i), reverse=True)[:k] for i, row in enumerate(table)]
        return [sum(row) / len(row) for row in others]

    alike = [[cosine(history[i], history[j]) for j in range(count)] for i in range(count)]
    aligned = top(alike)
    for i in range(count):
        for j in range(count):
            if aligned[j] > max(aligned[i], 0):
                alike[i][j] *= max(aligned[i], 0) / aligned[j]
    return spread([1 - value for value in top(alike)]), aligned


def test_foolsgold_by_hand() -> None:
    """Two of one direction are sybils and get nothing; the third, at a right angle, gets all."""
    assert foolsgold(torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0]])).tolist() == [0, 0, 1]
    # At 60 degrees each is like the next by a half: all are the best there is.
    third = [[math.cos(a), math.sin(a)] for a in (0, math.pi / 3, 2 * math.pi / 3)]
    assert foolsgold(torch.tensor(third, dtype=torch.float64)).tolist() == pytest.approx([1, 1, 1])


@examples(60)
@given(st.integers(2, 7), st.integers(0, 1000), st.integers(1, 7))
def test_against_slow_renderings(count: int, seed: int, k: int) -> None:
    history = np.random.default_rng(seed).normal(size=(count, 4))
    table = torch.from_numpy(history)
    assert foolsgold(table).tolist() == pytest.approx(slow_foolsgold(history), abs=1e-9)
    weights, aligned = contra(table, k)
    slow, slow_aligned = slow_contra(history, min(k, count - 1))
    assert weights.tolist() == pytest.approx(slow, abs=1e-9)
    assert aligned.tolist() == pytest.approx(slow_aligned)

    if count == 2:  # both are as far from their mean
        return
    units = [row / math.hypot(*row) for row in history]
    reference = np.mean(units, axis=0)
    worst = units[int(np.argmin([cosine(row, reference) for row in units]))]
    trust = [1 - cosine(row, worst) for row in units]
    want = sum(t * row for t, row in zip(trust, units, strict=True)) / sum(map(abs, trust))
    assert shieldfl(table)[0].tolist() == pytest.approx(np.asarray(want).tolist())


def test_shieldfl_by_hand() -> None:
    """The last step was up: the row down is the baseline, and the others count by 1 less their cosine to it."""
    rows = torch.tensor([[0.0, 3.0], [4.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    direction, weights = shieldfl(rows, torch.tensor([0.0, 9.0]))
    assert weights.tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert direction.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_where_all_point_the_same_way() -> None:
    """Sybils, all of them, to FoolsGold and CONTRA; nothing to choose from for ShieldFL."""
    row = torch.tensor([0.3, -0.7, 0.1])
    rows = row.repeat(6, 1) * torch.tensor([1.0, 2, 3, 4, 5, 6])[:, None]
    assert foolsgold(rows).tolist() == [0] * 6
    assert contra(rows, 5)[0].tolist() == [0] * 6
    assert shieldfl(rows)[1].tolist() == pytest.approx([1 / 6] * 6)
    assert moved(ShieldFL(), row.repeat(6, 1))[0].tolist() == pytest.approx(row.tolist())
    assert moved(FoolsGold(), row.repeat(6, 1))[0].tolist() == [0, 0, 0]


def test_one_client_alone_and_rows_without_length() -> None:
    one = torch.tensor([[1.0, 2.0]])
    assert foolsgold(one).tolist() == [1]
    assert contra(one, 5)[0].tolist() == [1]
    assert shieldfl(one)[0].tolist() == pytest.approx((one[0] / 5**0.5).tolist())
    none = torch.zeros(3, 2)
    assert foolsgold(none).tolist() == [1, 1, 1]
    assert shieldfl(none)[0].tolist() == [0, 0]


@pytest.mark.parametrize("rule", [foolsgold, lambda rows: contra(rows, 2)[0], lambda rows: shieldfl(rows)[1]])
def test_the_order_of_the_rows_does_not_show(rule: Any) -> None:
    draw = torch.Generator().manual_seed(8)
    rows, order = torch.randn(7, 5, generator=draw), torch.randperm(7, generator=draw)
    assert torch.allclose(rule(rows)[order], rule(rows[order]), atol=1e-9)


def test_shieldfl_keeps_the_pace_of_the_median_and_a_huge_row_does_not_set_it() -> None:
    rows = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.9, 0.0], [-1e30, 0.0]])
    first, memory = moved(ShieldFL(), rows)
    assert float(first.norm()) <= 1.01
    assert float(first[0]) > 0.9
    assert memory["last"].tolist() == pytest.approx((first / 1.005).tolist(), rel=1e-2)
    # Now the last step is known: one that goes against it is the baseline even where it is in the majority.
    turned, _ = moved(ShieldFL(), torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]), memory)
    assert turned.tolist() == pytest.approx([1.0, 0.0])


def test_what_is_compared_is_the_sum_over_rounds() -> None:
    """In each round alone a and b are at right angles, over two rounds they have gone the same way."""
    first, second = torch.tensor([[1.0, 0], [0, 1], [-1, -1]]), torch.tensor([[0.0, 1], [1, 0], [-1, -1]])
    _, memory = moved(FoolsGold(), first)
    assert {name: sent.tolist() for name, sent in memory["sent"].items()} == {
        "c0": [1, 0],
        "c1": [0, 1],
        "c2": [-1, -1],
    }
    direction, memory = moved(FoolsGold(), second, memory)
    assert memory["sent"]["c0"].tolist() == memory["sent"]["c1"].tolist() == [1, 1]
    # Only c2 is left, over three.
    assert direction.tolist() == pytest.approx([-1 / 3, -1 / 3])
    alone, _ = moved(FoolsGold(), second)
    assert alone.tolist() == pytest.approx([0, 0])


def test_a_history_is_a_clients_or_a_places() -> None:
    rows = torch.tensor([[1.0, 0], [0, 1], [-1, -1]])
    _, memory = moved(FoolsGold(), rows, ids=("ann", "bob", "cy"))
    _, memory = moved(FoolsGold(), rows, memory, ids=("bob", "cy", "dan"))
    assert {name: sent.tolist() for name, sent in memory["sent"].items()} == {
        "ann": [1, 0], "bob": [1, 1], "cy": [-1, 0], "dan": [-1, -1],
    }  # fmt: skip
    _, memory = moved(FoolsGold(slots=True), rows, ids=("ann", "bob", "cy"))
    _, memory = moved(FoolsGold(slots=True), rows, memory, ids=("bob", "cy", "dan"))
    assert {name: sent.tolist() for name, sent in memory["sent"].items()} == {
        "0": [2, 0], "1": [0, 2], "2": [-2, -2],
    }  # fmt: skip


def test_only_the_last_layer_is_remembered_unless_all_is_asked_for() -> None:
    assert last_layer(LAYOUT) == 2
    rows = torch.tensor([[9.0, 9, 1, 0, 0, 5], [9, 9, 0, 1, 0, 7], [9, 9, 0, 0, 1, 9]])
    found, memory = moved(FoolsGold(), rows)
    assert memory["sent"]["c1"].tolist() == [0, 1, 0]
    # At right angles in the last layer: all count, and statistics are averaged.
    assert found.tolist() == pytest.approx([9, 9, 1 / 3, 1 / 3, 1 / 3, 7])
    _, memory = moved(FoolsGold(last=False), rows)
    assert memory["sent"]["c1"].tolist() == [9, 9, 0, 1, 0]


def test_a_reputation_moves_and_decides_who_is_used() -> None:
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [-1.0, -1.0]])
    rule = Contra(k=1, delta=0.3, threshold=0.5, fraction=0.5)
    memory: Memory = {}
    for number in range(4):
        _, memory = moved(rule, rows, memory, seed=number)
    # Twins fall to nothing and not below; the others rise.
    assert [memory["standing"][f"c{i}"] for i in range(4)] == pytest.approx([0, 0, 2.2, 2.2])
    used = torch.zeros(4)
    for seed in range(300):
        desk = Desk((Model(torch.zeros(2)),), Layout((Slice("w", (2,)),)), Coins.from_seed(seed))
        used += rule._used([0.0, 0.0, 2.0, 2.0], desk).float()
    assert float(used.sum()) == 600
    assert float(used[2:].sum()) > 1.3 * float(used[:2].sum())
    assert Contra()._used([0.0] * 3, desk).tolist() == [True] * 3
    # Memory is plain: a checkpoint can hold it.
    assert canon.load(canon.dump(memory))["standing"] == memory["standing"]


def test_contra_divides_by_those_it_uses() -> None:
    rows = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert moved(Contra(), rows)[0].tolist() == pytest.approx([1 / 3] * 3)
    found = moved(Contra(fraction=0.5), rows)[0]
    assert sorted(found.tolist()) == pytest.approx([0, 0.5, 0.5])


@pytest.mark.parametrize("rule", [FoolsGold, Contra])
def test_behind_a_shuffle_only_places_are_left(rule: type[FoolsGold | Contra]) -> None:
    encode = Floats(form="delta")
    with pytest.raises(SpecError, match="needs to know whose row is whose"):
        Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=rule(), place=Relay())
    shuffled = Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=rule(slots=True), place=Relay())
    for done in play(shuffled):
        assert set(done.state.memories["server"]["rule"]["sent"]) == {"0", "1", "2", "3"}
    named = play(Pipeline(encode=encode, aggregate=rule()))[-1]
    assert set(named.state.memories["server"]["rule"]["sent"]) == {"c0", "c1", "c2", "c3"}
    gathered = Gathered(("a",), torch.ones(1, 2), weights=torch.ones(1), form="delta")
    desk = Desk((Model(torch.zeros(2)),), Layout((Slice("w", (2,)),)), Coins.from_seed(0))
    with pytest.raises(ProtocolError, match="slots = true"):
        rule()(gathered, desk, {})
