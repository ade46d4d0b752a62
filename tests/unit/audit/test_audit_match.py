"""Weight matching gives the rule back, other searches show what they can and cannot, and relative is only relative."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.audit.listing import literal_listing1
from croupier.audit.match import after, assigned, back, chances, match, match_rounds, match_sorted, shares
from croupier.audit.search import blind_index_error, index_error, nearest_by_norm, seek, swapped
from croupier.core.coins import Coins
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset, Rows
from croupier.learn.flat import layout_of
from croupier.learn.models import CifarCnn, Mixer, Mlp, Network, Rnn, Vit

COINS = Coins.from_seed(7)
CASES: dict[str, tuple[Network, tuple[int, ...]]] = {
    "mlp": (Mlp(hidden=(256, 128)), (1, 28, 28)),
    "rnn": (Rnn(), (30, 20)),
    "mixer": (Mixer(layers=2, width=64), (3, 32, 32)),
    "vit": (Vit(layers=2), (3, 32, 32)),
    "cnn": (CifarCnn(), (3, 32, 32)),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def vector_of(module: nn.Module) -> Tensor:
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return layout_of(module).flatten(tensors).detach().clone()


def built(name: str, label: str = "") -> tuple[nn.Module, Symmetry, Rows]:
    """A fresh network, its symmetry and some records whose edge never lights up."""
    network, shape = CASES[name]
    with COINS.child(name, label).ambient():
        x = torch.rand(640, *shape)
        x[..., 0] = 0
        rows = Rows(x, torch.arange(640) % 10)
        module = network.build(Dataset(name, "classify", 10, rows, rows, "none", "drawn", labels=rows.y))
    return module, symmetry_of(module, rows.x[:2]), rows


def trained(module: nn.Module, rows: Rows, epochs: int, lr: float = 1e-3) -> Tensor:
    search = torch.optim.Adam(module.parameters(), lr)
    for _ in range(epochs):
        for at in torch.arange(len(rows)).split(64):  # type: ignore[no-untyped-call]
            search.zero_grad()
            nn.functional.cross_entropy(module(rows.x[at]), rows.y[at]).backward()  # type: ignore[no-untyped-call]
            search.step()
    return vector_of(module)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("start", ["anchored", "mixed"])
def test_a_rule_is_recovered_from_a_trained_model(name: str, start: str) -> None:
    module, symmetry, rows = built(name)
    few = rows.take(torch.arange(64 if name != "mlp" else 640))
    reference = vector_of(module)
    rule = symmetry.rule(bytes(32), 3)
    upload = symmetry.apply(trained(module, few, 1), rule)
    found = match(reference, upload, symmetry, COINS.child("attack"), start)  # type: ignore[arg-type]
    assert min(shares(found.rule, rule).values()) >= 0.99
    assert found.apart < 0.5


@pytest.mark.parametrize("epochs", [1, 10])
def test_the_average_of_clients_gives_the_rule_away_as_one_does(epochs: int) -> None:
    module, symmetry, rows = built("mlp")
    reference = vector_of(module)
    uploads = []
    for part in torch.arange(len(rows)).chunk(3):
        nn.utils.vector_to_parameters(reference, module.parameters())
        uploads.append(trained(module, rows.take(part), epochs))
    rule = symmetry.rule(bytes(32), epochs)
    for upload in (uploads[0], torch.stack(uploads).mean(0)):
        found = match(reference, symmetry.apply(upload, rule), symmetry, COINS.child("mean"))
        assert min(shares(found.rule, rule).values()) >= 0.99


def test_an_unrelated_model_gives_nothing_away() -> None:
    _, symmetry, _ = built("mlp")
    other, _, _ = built("mlp", "other")
    mine, _, _ = built("mlp", "mine")
    rule = symmetry.rule(bytes(32), 0)
    found = match(vector_of(other), symmetry.apply(vector_of(mine), rule), symmetry, COINS.child("stranger"))
    assert max(shares(found.rule, rule).values()) < 0.05
    assert found.apart > 1
    assert chances(symmetry) == {group: 1 / size for group, size in symmetry.groups.items()}


def test_sorted_values_need_no_anchor_and_wear_off() -> None:
    module, symmetry, rows = built("mlp")
    reference = vector_of(module)
    rule = symmetry.rule(bytes(32), 0)
    still = match_sorted(reference, symmetry.apply(reference, rule), symmetry, COINS.child("still"))
    assert min(shares(still.rule, rule).values()) == 1
    moved = symmetry.apply(trained(module, rows, 10, lr=5e-3), rule)
    worn = match_sorted(reference, moved, symmetry, COINS.child("moved"))
    whole = match(reference, moved, symmetry, COINS.child("moved, anchored"))
    assert min(shares(worn.rule, rule).values()) < 0.9
    assert min(shares(whole.rule, rule).values()) >= 0.99


def test_between_rounds_only_relative_orders_are_found() -> None:
    module, symmetry, rows = built("mlp")
    frames = [symmetry.rule(bytes(32), number) for number in range(3)]
    models = [vector_of(module), trained(module, rows, 1), trained(module, rows, 1), trained(module, rows, 1)]
    handed = [symmetry.apply(models[number], frames[max(number - 1, 0)]) for number in range(3)]
    uploads = [symmetry.apply(models[number + 1], frames[number]) for number in range(3)]
    found = match_rounds(handed, uploads, symmetry, COINS.child("rounds"))
    # In the frame of the first model every later frame is known; that frame itself is not.
    for rule, frame in zip(found, frames, strict=True):
        assert min(shares(after(frames[0], rule), frame).values()) >= 0.99
        assert max(shares(rule, frame).values()) < 0.05
    assert torch.equal(symmetry.apply(symmetry.apply(models[0], frames[0]), back(frames[0])), models[0])


def test_ties_fall_at_random() -> None:
    orders = {tuple(assigned(np.zeros((5, 5)), COINS.child("tie", number)).tolist()) for number in range(20)}
    assert len(orders) > 10


def test_models_of_another_length_are_refused() -> None:
    module, symmetry, _ = built("mlp")
    with pytest.raises(RangeError, match="the symmetry is of"):
        match(vector_of(module)[:-1], vector_of(module), symmetry, COINS.child("short"))


def test_weak_searches_are_near_to_guessing_where_matching_is_right() -> None:
    module, symmetry, rows = built("mlp")
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
    module, _, rows = built("mlp")
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
