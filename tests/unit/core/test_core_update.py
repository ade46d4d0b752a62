"""Layouts and flat vectors: which slice is which tensor, and which numbers may not travel."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from weakref import ref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.core.update import Layout, Model, Slice, Update, check_finite, check_vector, handed_out
from croupier.errors import RangeError

LAYOUT = Layout(
    (
        Slice("conv.weight", (2, 3)),
        Slice("conv.bias", (2,)),
        Slice("norm.mean", (2,), "statistic"),
        Slice("norm.count", (), "counter"),
        Slice("head.weight", (1, 2)),
        Slice("scale", ()),
        Slice("conv.extra", (1,)),
    )
)


def test_spans_cover_the_vector_without_counters() -> None:
    spans = [(part.name, start, stop) for part, start, stop in LAYOUT.spans()]
    assert spans == [
        ("conv.weight", 0, 6),
        ("conv.bias", 6, 8),
        ("norm.mean", 8, 10),
        ("head.weight", 10, 12),
        ("scale", 12, 13),
        ("conv.extra", 13, 14),
    ]
    assert LAYOUT.size == 14
    assert "norm.count" not in [part.name for part in LAYOUT.carried]


def test_a_layer_keeps_all_its_ranges() -> None:
    assert LAYOUT.layers() == {
        "conv": [(0, 6), (6, 8), (13, 14)],
        "norm": [(8, 10)],
        "head": [(10, 12)],
        "scale": [(12, 13)],
    }
    assert Slice("a.b.c", ()).layer == "a.b"


def test_an_empty_layout_has_no_coordinates() -> None:
    assert Layout(()).size == 0
    assert list(Layout((Slice("n", (), "counter"),)).spans()) == []


def test_a_name_appears_once() -> None:
    with pytest.raises(RangeError, match="each tensor once"):
        Layout((Slice("a", (1,)), Slice("a", (2,))))


shapes = st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=5)


@examples()
@given(shapes, st.integers(0, 4))
def test_split_and_flatten_undo_each_other(sizes: list[tuple[int, ...]], counter: int) -> None:
    slices = [Slice(f"t{i}", shape, "counter" if i == counter else "weight") for i, shape in enumerate(sizes)]
    layout = Layout(tuple(slices))
    if not layout.carried:
        return
    vector = torch.arange(layout.size, dtype=torch.float32)
    named = layout.split(vector)
    assert list(named) == [part.name for part in layout.carried]
    assert all(named[part.name].shape == part.shape for part in layout.carried)
    assert torch.equal(layout.flatten({**named, "stranger": torch.ones(3)}), vector)


def test_split_gives_views_and_flatten_a_copy() -> None:
    vector = torch.zeros(14)
    named = LAYOUT.split(vector)
    named["conv.bias"][1] = 5
    assert vector[7] == 5
    flat = LAYOUT.flatten(named)
    flat[0] = 9
    assert vector[0] == 0


def test_flatten_takes_any_float_and_lets_go_of_gradients() -> None:
    named: dict[str, Tensor] = {part.name: torch.ones(part.shape, dtype=torch.float64) for part in LAYOUT.carried}
    named["scale"] = torch.tensor(2.0, requires_grad=True)
    named["conv.weight"] = torch.arange(6.0).reshape(3, 2).T
    flat = LAYOUT.flatten(named)
    assert flat.dtype == torch.float32
    assert not flat.requires_grad
    assert flat[:6].tolist() == [0, 2, 4, 1, 3, 5]
    assert flat[12] == 2


@pytest.mark.parametrize(
    ("vector", "says"),
    [
        (torch.zeros(14, dtype=torch.float64), "update has dtype float64, not float32"),
        (torch.zeros(14, dtype=torch.int64), "update has dtype int64, not float32"),
        (torch.zeros(13), r"update has shape \(13,\), not \(14,\)"),
        (torch.zeros(14, 1), r"update has shape \(14, 1\), not \(14,\)"),
        (torch.zeros(()), r"update has shape \(\), not \(14,\)"),
        (torch.full((14,), float("nan")), "update has 14 of 14 values that are NaN or infinite"),
        (torch.tensor([float("inf"), float("-inf"), *[0.0] * 12]), "update has 2 of 14 values"),
    ],
)
def test_vectors_that_cannot_travel_are_refused(vector: Tensor, says: str) -> None:
    for build in (lambda: Update(vector, LAYOUT), lambda: LAYOUT.split(vector), lambda: check_vector(vector, 14)):
        with pytest.raises(RangeError, match=says):
            build()


def test_luggage_is_finite_and_named_when_it_is_not() -> None:
    with pytest.raises(RangeError, match="luggage 'weight' has 1 of 1"):
        Update(torch.zeros(14), LAYOUT, {"weight": torch.tensor([float("nan")])})
    assert Update(torch.zeros(14), LAYOUT, {"weight": torch.tensor([3])}).luggage["weight"].item() == 3


def test_integers_are_always_finite() -> None:
    check_finite(torch.tensor([2**62]), "x")
    check_finite(torch.empty(0), "x")
    with pytest.raises(RangeError, match="x has 1 of 2"):
        check_finite(torch.tensor([1.0, float("nan")]), "x")


def test_models_are_checked_and_become_plain() -> None:
    model = Model(torch.ones(3), b"f", ("a", "b"))
    assert Model(**model.plain()) == model
    with pytest.raises(RangeError, match="model has 1 of 2"):
        Model(torch.tensor([0.0, float("nan")]))
    with pytest.raises(RangeError, match="model has dtype float64"):
        Model(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(RangeError, match=r"model has shape \(2, 2\)"):
        Model(torch.zeros(2, 2))


def test_a_model_that_is_handed_to_many_is_looked_through_once_and_not_remembered() -> None:
    one, two = torch.ones(3), torch.ones(3)
    held = handed_out(one)
    assert handed_out(one) is held
    assert handed_out(two).vector is two
    assert handed_out(one).vector is one
    wild = torch.tensor([0.0, float("nan")])
    for _ in range(2):
        with pytest.raises(RangeError, match="model has 1 of 2"):
            handed_out(wild)
    last = handed_out(two)
    gone = ref(last)
    del last
    assert gone() is None
    two[0] = float("nan")
    with pytest.raises(RangeError, match="model has 1 of 3"):
        handed_out(two)


def test_updates_do_not_change() -> None:
    update = Update(torch.zeros(14), LAYOUT)
    with pytest.raises(FrozenInstanceError):
        update.form = "delta"  # type: ignore[misc]
    with pytest.raises(TypeError):
        update.luggage["weight"] = torch.ones(1)  # type: ignore[index]
