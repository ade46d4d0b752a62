"""Other ways to a rule than weight matching: what they can and cannot, beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError
from croupier.learn.axes import symmetry_of
from croupier.learn.axes.matching import match, shares
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.flat import layout_of
from croupier.learn.models import Mlp
from croupier_lab.attacks.rule_search import (
    blind_index_error,
    index_error,
    literal_listing1,
    match_sorted,
    nearest_by_norm,
    seek,
    swapped,
)

COINS = Coins.from_seed(7)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def vector_of(module: nn.Module) -> Tensor:
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return layout_of(module).flatten(tensors).detach().clone()


def built() -> tuple[nn.Module, Symmetry, TensorRecords]:
    """A fresh network, its symmetry and some records whose edge never lights up."""
    with COINS.child("mlp", "").ambient():
        x = torch.rand(640, 1, 28, 28)
        x[..., 0] = 0
        rows = TensorRecords(x, torch.arange(640) % 10)
        module = Mlp(hidden=(256, 128)).build(
            Dataset("mlp", "classify", 10, rows, rows, "none", "drawn", labels=rows.y)
        )
    return module, symmetry_of(module, rows.x[:2]), rows


def trained(module: nn.Module, rows: TensorRecords, epochs: int, lr: float = 1e-3) -> Tensor:
    search = torch.optim.Adam(module.parameters(), lr)
    for _ in range(epochs):
        for at in torch.arange(len(rows)).split(64):  # type: ignore[no-untyped-call]
            search.zero_grad()
            nn.functional.cross_entropy(module(rows.x[at]), rows.y[at]).backward()  # type: ignore[no-untyped-call]
            search.step()
    return vector_of(module)


def test_sorted_values_need_no_anchor_and_wear_off() -> None:
    module, symmetry, rows = built()
    reference = vector_of(module)
    rule = symmetry.rule(bytes(32), 0)
    still = match_sorted(reference, symmetry.apply(reference, rule), symmetry, COINS.child("still"))
    assert min(shares(still.rule, rule).values()) == 1
    moved = symmetry.apply(trained(module, rows, 10, lr=5e-3), rule)
    worn = match_sorted(reference, moved, symmetry, COINS.child("moved"))
    whole = match(reference, moved, symmetry, COINS.child("moved, anchored"))
    assert min(shares(worn.rule, rule).values()) < 0.9
    assert min(shares(whole.rule, rule).values()) >= 0.99


def test_weak_searches_are_near_to_guessing_where_matching_is_right() -> None:
    module, symmetry, rows = built()
    reference = vector_of(module)
    only = {group: np.arange(size) for group, size in symmetry.groups.items()}
    only["input.0"] = symmetry.rule(bytes(32), 0).of["input.0"]
    true = only["input.0"]
    upload = symmetry.apply(trained(module, rows, 1), Rule(only))
    ours, theirs = (vector[: 256 * 784].view(256, 784) for vector in (reference, upload))
    blind = blind_index_error(784)
    assert blind == pytest.approx(261.33, abs=0.01)
    assert 0.3 * blind < index_error(nearest_by_norm(ours, theirs, COINS.child("norm")), true) < 1.2 * blind
    assert 0.5 * blind < index_error(swapped(ours, theirs, 1000, COINS.child("swap")), true) < 1.2 * blind
    assert index_error(match(reference, upload, symmetry, COINS.child("match")).rule.of["input.0"], true) == 0
    assert index_error(true, true) == 0


def test_a_seed_in_reach_is_found_and_the_rest_is_counted() -> None:
    module, _, rows = built()
    layer = next(part for part in module.modules() if isinstance(part, nn.Linear))
    reference = layer.weight.detach().clone()
    trained(module, rows, 1)
    literal_listing1(layer, 41)
    found = seek(reference, layer.weight.detach(), range(100))
    assert found.seeds == (41,)
    assert found.tried == 100
    assert found.core_hours() == pytest.approx(found.trial_s * 2**32 / 3600)
    assert seek(reference, layer.weight.detach(), range(42, 60)).seeds == ()
    with pytest.raises(RangeError, match="two alike"):
        seek(reference, reference[:1], range(1))
