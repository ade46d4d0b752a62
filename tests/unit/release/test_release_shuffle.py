"""Shuffles by model, layer and parameter: values stay, orders follow the coins, and every order is as likely."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tape import Tape, outcomes
from tests.tiers import examples
from torch import Tensor

from croupier.core.coins import BLOCK, Coins, Node
from croupier.core.update import Layout, Slice
from croupier.errors import SpecError
from croupier.kernels import threads
from croupier.release.release import blocks
from croupier.release.rows import Rows
from croupier.release.shuffle import Grain, Shuffle

GRAINS: tuple[Grain, ...] = ("model", "layer", "parameter")
SMALL = Layout((Slice("one.weight", (3,)), Slice("two.weight", (2,)), Slice("one.bias", (1,)), Slice("three", (2,))))
# The second layer crosses the border between two blocks, and its bias lies a block further on.
LARGE = Layout(
    (Slice("a.w", (1_000,)), Slice("b.w", (BLOCK,)), Slice("c.w", (BLOCK + 7,)), Slice("b.bias", (50,))),
)


def stack(count: int, size: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Rows in which every value tells its client and its coordinate."""
    return [torch.arange(size, dtype=dtype) + size * client for client in range(count)]


def shuffled(grain: Grain, rows: list[Tensor], layout: Layout, coins: Node) -> Tensor:
    return Shuffle(grain=grain)(rows, layout, None, coins)["rows"]


def owners(out: Tensor, size: int) -> Tensor:
    """Which client each value came from; every value must still lie in its own slot."""
    assert torch.equal(out.long() % size, torch.arange(size).expand(len(out), size))
    return out.long() // size


def test_blocks_cover_everything_once() -> None:
    assert list(blocks(0)) == []
    assert list(blocks(3)) == [(0, 0, 3)]
    assert list(blocks(BLOCK)) == [(0, 0, BLOCK)]
    assert list(blocks(2 * BLOCK + 1)) == [(0, 0, BLOCK), (1, BLOCK, 2 * BLOCK), (2, 2 * BLOCK, 2 * BLOCK + 1)]
    assert BLOCK == 65_536


@pytest.mark.parametrize("grain", GRAINS)
@examples(40)
@given(st.integers(1, 6), st.integers(0, 2**32), st.booleans())
def test_every_slot_keeps_its_values(grain: Grain, count: int, seed: int, slot: bool) -> None:
    rows = stack(count, SMALL.size + slot)
    before = [row.clone() for row in rows]
    out = shuffled(grain, rows, SMALL, Coins.from_seed(seed))
    assert out.shape == (count, SMALL.size + slot)
    assert torch.equal(out.sort(0).values, torch.stack(before).sort(0).values)
    assert all(torch.equal(row, old) for row, old in zip(rows, before, strict=True))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_types_survive_and_the_coins_decide(grain: Grain, dtype: torch.dtype) -> None:
    rows = stack(5, SMALL.size, dtype)
    one, two, other = (shuffled(grain, rows, SMALL, Coins.from_seed(seed)) for seed in (1, 1, 2))
    assert one.dtype == dtype
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_model_grain_keeps_rows_whole_across_blocks() -> None:
    rows = stack(4, LARGE.size, torch.int64)
    whose = owners(shuffled("model", rows, LARGE, Coins.from_seed(3)), LARGE.size)
    assert (whose == whose[:, :1]).all()
    assert sorted(whose[:, 0].tolist()) == [0, 1, 2, 3]
    orders = {tuple(shuffled("model", stack(3, 2), SMALL, Coins.from_seed(s))[:, 0].tolist()) for s in range(60)}
    assert len(orders) == 6


def test_the_layer_grain_keeps_layers_whole_across_blocks_and_parts() -> None:
    rows = stack(6, LARGE.size, torch.int64)
    whose = owners(shuffled("layer", rows, LARGE, Coins.from_seed(3)), LARGE.size)
    orders = {}
    for name, spans in LARGE.layers().items():
        columns = torch.cat([whose[:, start:stop] for start, stop in spans], dim=1)
        assert (columns == columns[:, :1]).all(), name
        orders[name] = tuple(columns[:, 0].tolist())
        assert sorted(orders[name]) == list(range(6))
    assert len(set(orders.values())) == 3


def test_a_weight_slot_is_a_layer_of_its_own() -> None:
    apart = 0
    for seed in range(20):
        whose = owners(shuffled("layer", stack(6, 9), SMALL, Coins.from_seed(seed)), 9)
        assert sorted(whose[:, 8].tolist()) == list(range(6))
        apart += not any(torch.equal(whose[:, 8], whose[:, column]) for column in range(8))
    assert apart >= 18


def test_layers_of_many_clients_are_permuted_apart() -> None:
    """Two layers of three clients: all 36 pairs of orders come up, about equally often."""
    layout = Layout((Slice("a.w", (1,)), Slice("b.w", (1,))))
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(1_440):
        whose = owners(shuffled("layer", stack(3, 2), layout, Coins.from_seed(seed)), 2)
        seen[tuple(whose.T.flatten().tolist())] += 1
    assert len(seen) == 36
    assert sum((count - 40) ** 2 / 40 for count in seen.values()) < 80  # chi-square, 35 degrees: p about 2e-5


def test_the_parameter_grain_permutes_each_coordinate_anew() -> None:
    size = 2 * BLOCK
    whose = owners(
        shuffled("parameter", stack(3, size, torch.int64), Layout((Slice("w", (size,)),)), Coins.from_seed(8)), size
    )
    code = whose[0] * 3 + whose[1]
    every = [a * 3 + b for a, b, _ in permutations(range(3))]
    expected = size / 6
    assert sum(((code == c).sum().item() - expected) ** 2 / expected for c in every) < 35  # 5 degrees: p about 1e-6
    # Neighbours, and the same place in two blocks, agree one time in six.
    for left, right in ((code[:-1], code[1:]), (code[:BLOCK], code[BLOCK:])):
        share = (left == right).double().mean().item()
        assert abs(share - 1 / 6) < 5 * math.sqrt(5 / 36 / len(left))


def test_a_block_is_permuted_by_its_own_node_whatever_comes_after() -> None:
    coins, size = Coins.from_seed(5), BLOCK + 10
    long = shuffled("parameter", stack(3, size, torch.int64), Layout((Slice("w", (size,)),)), coins)
    cut = [row[:BLOCK] for row in stack(3, size, torch.int64)]
    assert torch.equal(shuffled("parameter", cut, Layout((Slice("w", (BLOCK,)),)), coins), long[:, :BLOCK])
    tail = torch.stack(stack(3, size, torch.int64))[:, BLOCK:].clone()
    coins.child("block", 1).secure().permute_columns(tail.numpy())
    assert torch.equal(tail, long[:, BLOCK:])


def test_how_many_cores_there_are_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    size, outs = 3 * BLOCK + 5, []
    for cores in (1, 2):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        outs.append(shuffled("parameter", stack(3, size), Layout((Slice("w", (size,)),)), Coins.from_seed(6)))
    assert torch.equal(*outs)


def walked(grain: Grain, count: int, layout: Layout, slots: int) -> dict[tuple[float, ...], float]:
    rows = stack(count, slots)
    return outcomes(lambda tape: tuple(shuffled(grain, rows, layout, tape).flatten().tolist()))


@pytest.mark.parametrize(("count", "slots"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_single_parameters_are_exactly_uniform(count: int, slots: int) -> None:
    found = walked("parameter", count, Layout((Slice("w", (slots,)),)), slots)
    orders = list(permutations(range(count)))
    want = {
        tuple(float(slots * choice[i][row] + i) for row in range(count) for i in range(slots))
        for choice in product(orders, repeat=slots)
    }
    assert set(found) == want
    assert all(math.isclose(p, 1 / len(want)) for p in found.values())


@pytest.mark.parametrize("count", [2, 3])
def test_layers_and_models_are_exactly_uniform(count: int) -> None:
    layout = Layout((Slice("a.w", (1,)), Slice("b.w", (1,)), Slice("a.b", (1,))))
    layers, models = walked("layer", count, layout, 3), walked("model", count, layout, 3)
    orders = math.factorial(count)
    assert len(models) == orders
    assert len(layers) == orders**2
    for found in (layers, models):
        assert all(math.isclose(p, 1 / len(found)) for p in found.values())
    with_slot = walked("layer", count, layout, 4)
    assert len(with_slot) == orders**3


@pytest.mark.parametrize("grain", GRAINS)
def test_swapping_two_clients_leaves_the_distribution_alone(grain: Grain) -> None:
    layout = Layout((Slice("a.w", (1,)), Slice("b.w", (1,))))

    def walk(rows: list[Tensor]) -> dict[tuple[float, ...], float]:
        return outcomes(lambda tape: tuple(shuffled(grain, rows, layout, tape).flatten().tolist()))

    rows = stack(3, 2)
    one, two = walk(rows), walk([rows[2], rows[1], rows[0]])
    assert one.keys() == two.keys()
    assert all(math.isclose(one[key], two[key]) for key in one)


def test_what_leaves_and_how_many_it_takes() -> None:
    (field,) = Shuffle().fields("<i4", 64, 9)
    assert (field.name, field.dtype, field.shape, field.top) == ("rows", "<i4", ("present", 9), 63)
    assert Shuffle().fields("<f4", None, 9)[0].top is None
    assert (Shuffle.least, Shuffle.shape, Shuffle.hides) == (2, "rows", frozenset({"ids"}))
    assert len({Shuffle(grain=grain).reveals() for grain in GRAINS}) == 3
    with pytest.raises(SpecError, match="grain = 'bit'"):
        Shuffle.parse({"grain": "bit"})


def test_rows_leave_as_they_came() -> None:
    rows = stack(3, 8)
    assert torch.equal(Rows()(rows, SMALL, None, Tape())["rows"], torch.stack(rows))
    (field,) = Rows().fields("<i8", 1 << 40, 9)
    assert (field.name, field.dtype, field.shape, field.top) == ("rows", "<i8", ("present", 9), (1 << 40) - 1)
    assert (Rows.least, Rows.shape, Rows.hides) == (1, "rows", frozenset())
    assert "whose" in Rows().reveals()
