"""Gradient inversion as published: what it recovers and what not, that it cannot peek, and priors beside it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.errors import RangeError, SpecError
from croupier.learn.datasets import Digits
from croupier.learn.ends import last_gradient, last_layer
from croupier.learn.gradient_search import Target
from croupier.learn.gradients import gradient_of
from croupier.learn.likeness import BEST, mse
from croupier.learn.models import ConvNet, SigmoidNet
from croupier_lab.attacks.gradient_search import (
    DEFENCES,
    Defence,
    Dlg,
    Found,
    Inverting,
    best_restart,
    dlg,
    inverting,
    labels_by,
    layers,
    linked,
    nearest_piece,
    seen,
    single_label,
    squared,
)
from croupier_lab.attacks.picture_priors import judged, mean_picture, some_pictures
from croupier_lab.attacks.picture_priors import without_view as priors

SHAPE = (1, 8, 8)
FAST = Dlg(steps=60, enough=1e-6)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Pictures this small are searched faster by one thread, many times so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def digits() -> tuple[Tensor, Tensor]:
    rows, labels = Digits().load(None).train.batch(torch.arange(200))
    return rows.view(-1, *SHAPE), labels


@cache
def step(seed: int, clients: int = 10) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A fresh network, clients' single pictures with their labels, and a gradient each."""
    with Coins.from_seed(seed).child("weights").ambient():
        module = SigmoidNet(*SHAPE, 10)
    x, y = (part[10 * seed : 10 * seed + clients] for part in digits())
    rows = torch.stack([gradient_of(module, x[i : i + 1], y[i : i + 1]) for i in range(clients)])
    return module, x, y, rows


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=Coins.from_seed(seed).fast())


def test_dlg_recovers_a_picture_from_one_gradient() -> None:
    errors, labels = [], []
    for seed in range(3):
        module, x, y, rows = step(seed)
        found = dlg(FAST)(module, Target(rows[0], 1, SHAPE, 10), Coins.from_seed(seed))
        errors.append(float(mse(found.pictures, x[:1])))
        labels.append(int(found.labels.argmax()) == int(y[0]))
    assert sum(error < 1e-3 for error in errors) >= 2, errors
    assert sum(labels) >= 2


def test_dlg_recovers_a_picture_although_the_first_weights_are_frozen_and_in_no_gradient() -> None:
    module, x, y, _ = step(0)
    held = deepcopy(module)
    next(held.parameters()).requires_grad_(False)
    gradient = gradient_of(held, x[:1], y[:1])
    found = dlg(replace(FAST, restarts=3))(held, Target(gradient, 1, SHAPE, 10), Coins.from_seed(0))
    assert found.loss < 1e-4
    assert float(mse(found.pictures, x[:1])) < 1e-2


def test_dlg_does_not_recover_a_picture_from_a_mean_over_ten_clients_taken_for_one_record() -> None:
    for seed in range(3):
        module, x, _, rows = step(seed)
        found = dlg(FAST)(module, Target(rows.mean(0), 1, SHAPE, 10), Coins.from_seed(seed))
        assert judged(found.pictures, x).mse > 1e-2
        assert found.loss > 1e-3


def test_a_mean_over_few_clients_is_no_defence_where_it_has_more_numbers_than_their_pictures() -> None:
    """The other way round: 8,026 numbers tell 3 pictures of 64 pixels, once the attack looks for three."""
    module, x, _, rows = step(0, 3)
    found = dlg(FAST)(module, Target(rows.mean(0), 3, SHAPE, 10), Coins.from_seed(0))
    assert judged(found.pictures, x).mse < 1e-2
    assert judged(found.pictures, x).psnr > priors(digits()[0][100:], x, 3, 4, Coins.from_seed(1))["mean picture"].psnr


def test_linked_layers_are_one_clients_again() -> None:
    module, x, _, rows = step(1, 5)
    view = seen("layer shuffle", rows, module, Coins.from_seed(3))
    assert view.rows is not None
    start, stop = layers(module)[last_layer(module, SHAPE)][0]
    whose = int((rows[:, start:stop] == view.rows[2, start:stop]).all(1).nonzero())
    target = Target(torch.full_like(rows[0], math.nan), 1, SHAPE, 10)
    found = linked(dlg(replace(FAST, restarts=3)), module, view.rows, 2, target, Coins.from_seed(1))
    assert float(mse(found.pictures, x[whose : whose + 1])) < 1e-3


def test_a_row_as_it_came_out_of_a_layer_shuffle_is_no_gradient() -> None:
    """Without linking the pieces are of different clients: the control that linking does something."""
    module, x, _, rows = step(1, 5)
    view = seen("layer shuffle", rows, module, Coins.from_seed(3))
    assert view.rows is not None
    assert not any(torch.equal(view.rows[2], row) for row in rows)
    found = dlg(replace(FAST, steps=30, restarts=2))(module, Target(view.rows[2], 1, SHAPE, 10), Coins.from_seed(1))
    assert judged(found.pictures, x).mse > 1e-3


def test_inverting_gradients_beats_both_priors_on_one_gradient() -> None:
    module, x, y, rows = step(2)
    recipe = Inverting(steps=300, variation=1e-6)
    found = inverting(recipe)(module, Target(rows[0], 1, SHAPE, 10), Coins.from_seed(0))
    blind = priors(digits()[0][100:], x[:1], 1, 8, Coins.from_seed(1))
    assert judged(found.pictures, x[:1]).psnr > 3 + max(one.psnr for one in blind.values())
    assert int(found.labels.argmax()) == int(y[0])
    assert float(found.pictures.min()) >= 0
    assert float(found.pictures.max()) <= 1


def test_the_same_coins_find_the_same_and_others_start_elsewhere() -> None:
    module, _, _, rows = step(0)
    target = Target(rows[0], 1, SHAPE, 10)
    for attack in (dlg(Dlg(steps=2)), inverting(Inverting(steps=2))):
        one, two, other = (attack(module, target, Coins.from_seed(seed)) for seed in (1, 1, 2))
        assert torch.equal(one.pictures, two.pictures)
        assert not torch.equal(one.pictures, other.pictures)


def test_an_attack_leaves_the_network_as_it_is() -> None:
    module = step(0)[0].train()
    before = [part.clone() for part in module.parameters()]
    dlg(Dlg(steps=1))(module, Target(step(0)[3][0], 1, SHAPE, 10), Coins.from_seed(0))
    assert module.training
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert all(part.grad is None for part in module.parameters())


def test_recipes_default_to_what_was_published() -> None:
    assert Dlg() == Dlg(steps=300, lr=1.0, inner=20, history=100, restarts=1, enough=0.0)
    assert Inverting() == Inverting(24_000, 0.1, 1e-4, True, True, restarts=1, labels="recovered")


def test_restarts_are_chosen_by_the_attacks_loss_and_never_by_the_truth() -> None:
    """The second restart holds the very truth, and a higher loss: it must not be taken."""
    truth = noise(1, *SHAPE)
    tries = [Found(torch.zeros_like(truth), truth, 0.1, ()), Found(truth, truth, 0.2, ()), Found(truth, truth, 0.3, ())]
    got = best_restart(3, -math.inf, tries.__getitem__)
    assert got.losses == (0.1, 0.2, 0.3)
    assert torch.equal(got.pictures, tries[0].pictures)
    nothing = [Found(truth, truth, math.nan, ()), tries[1]]
    assert best_restart(2, -math.inf, nothing.__getitem__).losses == (math.inf, 0.2)


def test_restarts_in_an_attack_keep_the_lowest_loss() -> None:
    module, _, _, rows = step(0)
    target = Target(rows[0], 1, SHAPE, 10)
    for attack in (dlg(Dlg(steps=1, restarts=3)), inverting(Inverting(steps=3, restarts=3))):
        got = attack(module, target, Coins.from_seed(0))
        assert len(set(got.losses)) == 3
        assert got.loss == min(got.losses)


def test_enough_ends_restarts() -> None:
    truth = noise(1, *SHAPE)
    got = best_restart(5, 0.5, lambda number: Found(truth, truth, 1 - number / 3, ()))
    assert got.losses == pytest.approx((1, 2 / 3, 1 / 3))
    with pytest.raises(SpecError, match="at least once"):
        best_restart(0, 0.5, lambda number: Found(truth, truth, 0, ()))


def test_an_attack_is_given_no_truth() -> None:
    """What goes in is a network, what was seen and coins; the only labels are those that were declared."""
    assert [f.name for f in fields(Target)] == ["gradient", "records", "shape", "classes", "labels", "only"]
    for attack in (dlg(), inverting()):
        assert list(inspect.signature(attack).parameters) == ["module", "target", "coins"]


def test_labels_come_from_where_the_name_says() -> None:
    module, _, y, rows = step(0)
    lie = (int(y[0]) + 1) % 10
    target = Target(rows[0], 1, SHAPE, 10, labels=torch.tensor([lie]))
    assert labels_by("known", module, target, Coins.from_seed(0)).tolist() == [lie]
    assert labels_by("recovered", module, target, Coins.from_seed(0)).tolist() == [int(y[0])]
    with pytest.raises(SpecError, match="declare one for each of 1 records"):
        labels_by("known", module, Target(rows[0], 1, SHAPE, 10), Coins.from_seed(0))


@pytest.mark.parametrize("defence", DEFENCES)
def test_every_defence_lets_out_the_mean(defence: Defence) -> None:
    module, _, _, rows = step(0)
    view = seen(defence, rows, module, Coins.from_seed(1))
    assert torch.allclose(view.mean, rows.mean(0), atol=1e-6)
    if view.rows is not None:
        assert torch.equal(view.rows.sort(0).values, rows.sort(0).values)
        assert torch.equal(view.rows, rows) == (defence == "none")


def test_pieces_of_a_shuffle_stay_whole() -> None:
    module, _, _, rows = step(0)
    views = {defence: seen(defence, rows, module, Coins.from_seed(1)).rows for defence in DEFENCES}
    assert views["sum"] is None

    def kept(defence: Defence, spans: tuple[tuple[int, int], ...]) -> list[int]:
        view = views[defence]
        assert view is not None
        whole, own = (torch.cat([part[:, start:stop] for start, stop in spans], 1) for part in (view, rows))
        return [int((own == row).all(1).nonzero()[0]) for row in whole if (own == row).all(1).any()]

    everything = ((0, rows.shape[1]),)
    assert sorted(kept("model shuffle", everything)) == list(range(10))
    assert kept("layer shuffle", everything) == []
    orders = [kept("layer shuffle", spans) for spans in layers(module).values()]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert all(kept("parameter shuffle", spans) == [] for spans in layers(module).values())


def test_an_unknown_defence_is_named() -> None:
    with pytest.raises(SpecError, match="known are none, model shuffle"):
        seen("hope", step(0)[3], step(0)[0], Coins.from_seed(0))  # type: ignore[arg-type]


def test_the_nearest_piece_does_not_mind_its_size() -> None:
    rows = torch.tensor([[1.0, 0.0, 9.0], [0.0, 1.0, 9.0]])
    assert nearest_piece(rows, torch.tensor([0.1, 7.0, -9.0]), ((0, 2),)) == 1


def test_found_pictures_are_cut_before_they_are_judged() -> None:
    true = torch.ones(1, 1, 8, 8)
    assert judged(true * 1e6, true).psnr == BEST
    assert judged(torch.full_like(true, math.nan), true).mse == pytest.approx(0.25)


def test_priors_see_public_pictures_alone() -> None:
    public, true = noise(40, 1, 8, 8, seed=3), noise(2, 1, 8, 8, seed=4)
    assert torch.equal(mean_picture(public, 2)[1], public.mean(0))
    drawn = some_pictures(public, 5, Coins.from_seed(0))
    assert len({tuple(picture.flatten().tolist()) for picture in drawn}) == 5
    assert all(any(torch.equal(picture, one) for one in public) for picture in drawn)
    got = priors(public, true, 2, 3, Coins.from_seed(0))
    assert set(got) == {"mean picture", "public pictures"}
    # Of independent noise the mean has half the squared error of a picture.
    assert got["mean picture"].mse < 0.75 * got["public pictures"].mse
    with pytest.raises(RangeError, match="41 pictures asked for where 40 are public"):
        some_pictures(public, 41, Coins.from_seed(0))


def test_the_label_of_one_record_is_read_in_its_gradient() -> None:
    with Coins.from_seed(5).ambient():
        nets: list[nn.Module] = [SigmoidNet(*SHAPE, 10), ConvNet(1, 28, 10)]
    for module, size in zip(nets, (8, 28), strict=True):
        for label in range(10):
            x = noise(1, 1, size, size, seed=label)
            gradient = gradient_of(module, x, torch.tensor([label]))
            target = Target(gradient, 1, (1, size, size), 10)
            assert single_label(module, target).tolist() == [label]
            weight, _ = last_gradient(module, gradient, (1, size, size))
            assert (weight.sum(1) < 0).nonzero().flatten().tolist() == [label]


def test_a_squared_distance_counts_only_what_counts() -> None:
    guess, true = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 0.0])
    assert float(squared(guess, Target(true, 1, SHAPE, 10))) == pytest.approx(5)
    assert float(squared(guess, Target(true, 1, SHAPE, 10, only=((0, 1), (2, 3))))) == pytest.approx(4)
