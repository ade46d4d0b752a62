"""FLTrust, FLOD and the majority of signs: by hand, against slow renderings, and where nobody is trusted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.toy import LAYOUT, play, task
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.majority import Majority, majority
from croupier.aggregate.reference import FLOD, FLTrust, flod, fltrust, hamming
from croupier.aggregate.robust import Robust
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.floats import Floats
from croupier.engine.task import Task
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle

START = torch.tensor([0.5, -1.0, 2.0])


def moved(
    rule: Robust, rows: Tensor, root: Tensor | None = None, memory: Any = None, seed: int = 0
) -> tuple[Tensor, Any]:
    layout = Layout((Slice("w", (2,)), Slice("s", (1,), "statistic")))
    fit = None if root is None else lambda start, coins: start + root
    desk = Desk((Model(START),), layout, Coins.from_seed(seed), fit)
    gathered = Gathered(tuple("abcdefg"[: len(rows)]), rows, weights=torch.ones(len(rows)), form="delta")
    (model,), after = rule(gathered, desk, memory or {})
    return model.vector - START, after


def test_fltrust_by_hand() -> None:
    """Root (0, 2): cosines 1, 0.6, -1, 0, and the third row has no length. Trust 1 and 0.6, both at length 2."""
    rows = torch.tensor([[0.0, 5.0], [4.0, 3.0], [0.0, -9.0], [7.0, 0.0], [0.0, 0.0]])
    direction, weights = fltrust(rows, torch.tensor([0.0, 2.0]))
    assert weights.tolist() == pytest.approx([0.625, 0.375, 0, 0, 0])
    # 0.625 (0, 2) + 0.375 (1.6, 1.2)
    assert direction.tolist() == pytest.approx([0.6, 1.7])


def test_flod_by_hand() -> None:
    """Signs against (+, +, -, +), where 0 counts as +: 0, 1, 2 and 4 of 4 differ, so that trust is 1/2, 1/4, 0, 0."""
    root = torch.tensor([1.0, 0.0, -3.0, 2.0])
    rows = torch.tensor([[9.0, 1.0, -1.0, 0.0], [0.1, -1.0, -5.0, 2.0], [1.0, -1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, -1.0]])
    assert hamming(rows, root).tolist() == [0.0, 0.25, 0.5, 1.0]
    direction, weights = flod(rows, root)
    assert weights.tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert direction.tolist() == pytest.approx([1.0, 1 / 3, -1.0, 1.0])
    assert flod(rows, root, 0.2)[1].tolist() == [1, 0, 0, 0]


def test_a_majority_by_hand() -> None:
    rows = torch.tensor([[3.0, -1.0, 0.0, -2.0], [1e-9, 7.0, 0.0, -1.0], [-5.0, 0.0, 0.0, 9.0]])
    assert majority(rows).tolist() == [1, 0, 0, -1]
    assert majority(rows, 1.0).tolist() == [1, 1, 1, -1]
    assert majority(rows, torch.tensor([-1.0, -1.0, 1.0, 1.0])).tolist() == [1, -1, 1, -1]


@examples(50)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_against_slow_renderings(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, root = draw.normal(size=(count, 5)), draw.normal(size=5)
    table, own = torch.from_numpy(rows), torch.from_numpy(root)

    trust = [max(0.0, float(row @ root) / math.hypot(*row) / math.hypot(*root)) for row in rows]
    scaled = [row * math.hypot(*root) / math.hypot(*row) for row in rows]
    want = sum(t * s for t, s in zip(trust, scaled, strict=True)) / (sum(trust) or 1.0)
    assert fltrust(table, own)[0].tolist() == pytest.approx(np.broadcast_to(want, 5).tolist())

    bits = np.where(rows >= 0, 1, -1)
    near = [max(0, 2.5 - int((row != np.where(root >= 0, 1, -1)).sum())) for row in bits]
    want = sum(t * s for t, s in zip(near, bits, strict=True)) / (sum(near) or 1.0)
    assert flod(table, own)[0].tolist() == pytest.approx(np.broadcast_to(want, 5).tolist())
    assert majority(table).tolist() == np.sign(bits.sum(0)).tolist()


def test_blocks_do_not_show() -> None:
    rows = torch.randn(5, 70_000, generator=torch.Generator().manual_seed(1))
    root = rows.sum(0)
    apart = ((rows < 0) != (root < 0)).double().mean(1)
    assert torch.equal(hamming(rows, root), apart)
    trust = (0.5 - apart).clamp(min=0)
    want = (trust / trust.sum()) @ rows.sign().double()
    assert torch.allclose(flod(rows, root)[0], want)
    assert torch.equal(majority(rows), rows.sign().sum(0).sign().double())


@pytest.mark.parametrize("rule", [fltrust, flod], ids=["fltrust", "flod"])
def test_where_nobody_is_trusted_nothing_moves(rule: Any) -> None:
    root = torch.tensor([1.0, 2.0, 3.0])
    direction, weights = rule(-root.repeat(4, 1), root)
    assert direction.tolist() == [0, 0, 0]
    assert weights.tolist() == [0, 0, 0, 0]


def test_lengths_of_zero_are_not_divided_by() -> None:
    assert fltrust(torch.ones(3, 2), torch.zeros(2))[0].tolist() == [0, 0]
    assert fltrust(torch.zeros(3, 2), torch.ones(2))[0].tolist() == [0, 0]


def test_a_huge_lie_counts_for_no_more_than_its_direction() -> None:
    """One that points away is ignored; one that points along is cut to the root's length. A mean would follow both."""
    root, honest = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.9, 0.0]])
    away, along = torch.tensor([[-1e30, 1e30]]), torch.tensor([[1e30, 1e30]])
    assert torch.equal(fltrust(torch.cat([honest, away]), root)[0], fltrust(honest, root)[0])
    assert float(fltrust(torch.cat([honest, along]), root)[0].norm()) <= 1 + 1e-9
    assert float(flod(torch.cat([honest, along]), root)[0].abs().max()) <= 1


def test_identical_rows_give_their_direction_at_the_roots_length() -> None:
    row = torch.tensor([3.0, 4.0])
    assert fltrust(row.repeat(5, 1), torch.tensor([0.0, 2.0]))[0].tolist() == pytest.approx([1.2, 1.6])
    assert flod(row.repeat(5, 1), torch.tensor([1.0, 2.0]))[0].tolist() == [1, 1]


@pytest.mark.parametrize("rule", [fltrust, flod, lambda rows, root: (majority(rows), None)])
def test_the_order_of_the_rows_does_not_show(rule: Any) -> None:
    draw = torch.Generator().manual_seed(6)
    rows, order = torch.randn(8, 50, generator=draw), torch.randperm(8, generator=draw)
    assert torch.allclose(rule(rows, rows.sum(0))[0], rule(rows[order], rows.sum(0))[0])


def test_the_parts_move_the_model_and_statistics_by_the_same_trust() -> None:
    rows = torch.tensor([[0.0, 5.0, 8.0], [4.0, 3.0, 16.0], [0.0, -9.0, 1e9]])
    root = torch.tensor([0.0, 2.0, -1e9])
    assert moved(FLTrust(), rows, root)[0].tolist() == pytest.approx([0.6, 1.7, 11.0], rel=1e-6)
    # Of two weights the third differs in one: a half, and no trust.
    assert moved(FLOD(lr=0.5), rows, root)[0].tolist() == pytest.approx([0.5, 0.5, 12.0])
    assert moved(FLOD(lr=0.5), -rows - 1, root)[0].tolist() == [0, 0, 0]
    assert moved(Majority(lr=0.5), rows)[0].tolist() == pytest.approx([0.5, 0.5, 16.0])


def test_a_tie_falls_as_the_field_says() -> None:
    up, tied = torch.tensor([[1.0, -1.0, 0.0]] * 2), torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    assert moved(Majority(lr=1), tied)[0].tolist() == [0, 0, 0]
    assert moved(Majority(lr=1, tie="up"), tied)[0].tolist() == [1, 1, 0]
    rule = Majority(lr=1, tie="previous")
    assert moved(rule, tied)[0].tolist() == [0, 0, 0]
    _, memory = moved(rule, up)
    assert moved(rule, tied, memory=memory)[0].tolist() == [1, -1, 0]
    tosses = {tuple(moved(Majority(lr=1, tie="coin"), tied, seed=seed)[0].tolist()) for seed in range(40)}
    assert tosses == {(a, b, 0.0) for a in (-1.0, 1.0) for b in (-1.0, 1.0)}
    # Only a rule that looks back remembers.
    assert moved(Majority(), up)[1] == {}


@pytest.mark.parametrize("rule", [FLTrust(), FLOD()], ids=["fltrust", "flod"])
def test_without_root_records_or_differences_it_is_refused(rule: Robust) -> None:
    with pytest.raises(SpecError, match=r"set task\.root\.records=100"):
        play(Pipeline(encode=Floats(form="delta"), aggregate=rule), of=replace(task(), root=None))
    with pytest.raises(ProtocolError, match=r"set task\.root\.records=100"):
        moved(rule, torch.ones(2, 3))
    with pytest.raises(SpecError, match="does not take updates as 'weights'"):
        Pipeline(aggregate=rule)


def rooted() -> Task:
    plain = task()

    def root(start: Tensor, coins: Coins) -> Tensor:
        return start + torch.from_numpy(coins.secure().normal(LAYOUT.size)).float()

    return Task(plain.shards, plain.layout, plain.first, plain.fit, plain.evaluate, root)


@pytest.mark.parametrize("rule", [FLTrust(), FLOD(), Majority()], ids=["fltrust", "flod", "majority"])
def test_behind_a_shuffle_of_models_it_is_the_same(rule: Any) -> None:
    encode = Floats(form="delta")
    open_rows = play(Pipeline(encode=encode, aggregate=rule), of=rooted())
    shuffled = Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=rule, place=Relay())
    for one, other in zip(open_rows, play(shuffled, of=rooted()), strict=True):
        assert torch.allclose(one.state.model.vector, other.state.model.vector, atol=1e-6)
    assert not torch.equal(open_rows[0].state.model.vector, open_rows[1].state.model.vector)
