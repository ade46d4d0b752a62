"""Adam under a defence: pruning keeps the share it says, and noised sums are clipped and noised as stated."""

from __future__ import annotations

import pytest
import torch
from tests.tape import Tape
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.normal import from_words, on_device
from croupier.core.update import Update
from croupier.errors import RangeError, SpecError
from croupier.learn.data import TensorRecords
from croupier.learn.dp_fit import BOUND, DpAdam
from croupier.learn.fit import Adam, Fit, prune
from croupier.learn.flat import layout_of
from croupier.learn.models import Perceptron
from croupier.learn.private import each
from croupier.learn.train import Learner

COINS = Coins.from_seed(11)


def rows(count: int) -> TensorRecords:
    draw = COINS.child("rows", count).fast()
    return TensorRecords(3 * torch.randn(count, 6, generator=draw), torch.randint(3, (count,), generator=draw))


def net() -> Perceptron:
    with COINS.child("net").ambient():
        return Perceptron((6, 8, 3))


def beginning() -> Tensor:
    """The weights that every client starts from."""
    return layout_of(net()).flatten(net().state_dict())


def moved(fit: Fit, shards: dict[str, TensorRecords], group: int = 1) -> list[Tensor]:
    """What training moves, client by client."""
    module = net()
    start = beginning()
    learner = Learner(module, "classify", fit, shards, group=group)
    out = []
    for done in learner([(start, name, COINS.child(name)) for name in shards]):
        assert isinstance(done, Update)
        out.append(done.vector - start)
    return out


@pytest.mark.parametrize("keep", [0.01, 0.1, 0.3, 0.5, 1.0])
def test_pruning_keeps_exactly_its_share_and_the_largest(keep: float) -> None:
    grads = torch.randn(3, 1000, generator=COINS.child("grads").fast())
    found = prune(grads, keep)
    for row, left in zip(grads, found, strict=True):
        held = left != 0
        assert int(held.sum()) == round(1000 * keep)
        assert torch.equal(left[held], row[held])
        assert keep == 1 or float(row[held].abs().min()) >= float(row[~held].abs().max())
        assert torch.equal(prune(row, keep), left)


def test_of_equal_values_no_more_are_kept_than_it_says() -> None:
    assert int((prune(torch.ones(10), 0.3) != 0).sum()) == 3
    assert int((prune(torch.tensor([0.0, 2.0, 0.0, -2.0]), 0.01) != 0).sum()) == 1
    assert prune(torch.tensor([0.1, -3.0, 2.0, 0.0]), 0.5).tolist() == [0.0, -3.0, 2.0, 0.0]


@pytest.mark.parametrize("group", [1, 4])
def test_training_steps_by_what_is_left_of_the_whole_gradient(group: int) -> None:
    # Adam's first step moves every weight whose gradient is not zero, and no other.
    for found in moved(Adam(keep=0.25, batch=64), {"a": rows(30), "b": rows(20)}, group):
        assert int((found != 0).sum()) == round(0.25 * len(found))


def test_clients_trained_together_are_pruned_each_for_itself() -> None:
    shards = {"a": rows(40), "b": rows(25), "c": rows(9)}
    for keep in (0.1, 0.5):
        fit = Adam(lr=0.01, keep=keep, epochs=3, batch=16)
        for alone, together in zip(moved(fit, shards), moved(fit, shards, 3), strict=True):
            assert float((alone - together).abs().max()) < 1e-5
    (whole, *_) = moved(Adam(lr=0.01, epochs=3, batch=16), shards)
    assert float((whole - moved(fit, shards)[0]).abs().max()) > 1e-3


def by_hand(fit: DpAdam, records: TensorRecords, clip: float, noise: float) -> Tensor:
    """One step: each record's gradient clipped, the sum noised and divided, and Adam's formula for a first step."""
    module, here = net(), COINS.child("a")
    index = next(fit.samples(len(records), here.child("sample").secure()))
    x, y = records.batch(index)
    alone = each(module, "classify", x, y)
    total = sum(row * min(1.0, clip / float(row.norm())) for row in alone)
    drawn = torch.from_numpy(here.child("noise").secure().normal(alone.shape[1])).float()
    grads = (total + noise * clip * drawn) / (fit.rate(len(records)) * len(records))
    found: Tensor = -fit.lr * grads / (grads.abs() + fit.epsilon)
    return found


def test_a_step_is_adams_on_clipped_and_noised_gradients() -> None:
    # With so large an epsilon the step is in proportion to the gradient: not only its signs are seen.
    records = rows(50)
    fit = DpAdam(lr=1.0, epsilon=10.0, batch=50, clip=0.5, noise=2.0)
    (found,) = moved(fit, {"a": records})
    assert torch.allclose(found, by_hand(fit, records, 0.5, 2.0), atol=1e-6)
    assert not torch.allclose(found, by_hand(fit, records, 0.5, 0.0), atol=1e-4), "noise is dropped"
    unclipped = by_hand(fit, records, 1e9, 2.0 * 0.5 / 1e9)
    assert not torch.allclose(found, unclipped, atol=1e-4), "clipping is dropped"


def test_its_noise_has_the_deviation_that_is_stated() -> None:
    fit, weights = DpAdam(lr=1.0, epsilon=1e3, clip=4.0, noise=4.0, batch=64), torch.zeros(40_000)
    fit.noised(weights, torch.zeros(40_000), 64.0, fit.start(weights), 1, COINS.child("loud").secure())
    assert float((1e3 * weights).std()) == pytest.approx(4.0 * 4.0 / 64, rel=0.02)


def test_without_noise_and_clipping_it_is_adam() -> None:
    # A rate of one takes every record in every step, as one batch of all of them.
    plain, silent = (kind(lr=0.01, epochs=4, batch=50, **more) for kind, more in ((Adam, {}), (DpAdam, QUIET)))
    (one,), (other,) = moved(plain, {"a": rows(50)}), moved(silent, {"a": rows(50)})
    assert float((one - other).abs().max()) < 1e-5
    (pruned,) = moved(silent.model_copy(update={"keep": 0.25, "epochs": 1}), {"a": rows(50)})
    assert int((pruned != 0).sum()) == round(0.25 * len(pruned))


QUIET = {"noise": 0.0, "clip": 1e9}


def test_what_it_says_and_refuses() -> None:
    assert (
        "by DP-Adam: each record's gradient clipped to 4, noise 2 times it at every step"
        in DpAdam(clip=4, noise=2).claims()
    )
    assert "no guarantee" in DpAdam(noise=0).claims()
    assert not DpAdam.stacks
    clamped = DpAdam(lr=5.0, tail="clamped", noise=9.0)
    (far,) = moved(clamped, {"a": rows(20)})
    assert float((far + beginning()).abs().max()) <= BOUND
    for wrong in ({"tail": "truncated"}, {"keep": 0.0}, {"keep": 1.5}, {"clip": 0.0}):
        with pytest.raises(SpecError, match=next(iter(wrong))):
            Fit.parse({"use": "dp-adam", **wrong})


def test_normals_of_a_device_are_those_of_the_processor_up_to_rounding() -> None:
    words = COINS.child("words").secure().words(20_000)
    found = on_device(torch.from_numpy(words.view("int64")))
    assert float((found - torch.from_numpy(from_words(words))).abs().max()) < 1e-9
    same = COINS.child("words").secure().gaussian(20_000, torch.device("cpu"))
    assert torch.equal(same, torch.from_numpy(from_words(words)))
    with pytest.raises(RangeError, match="a tape cannot enumerate 3 normals"):
        Tape().gaussian(3, torch.device("cpu"))
