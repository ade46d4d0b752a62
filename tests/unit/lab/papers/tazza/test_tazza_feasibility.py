"""Tazza's feasibility: permuted pixels, training on them, and augmentation before and after, on little data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Cifar10, Mnist
from croupier.learn.gradients import holding
from croupier.learn.models import Mlp
from croupier_lab.papers.shared.figure import SCALES, Figure, Means
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.papers.tazza import augmentation as tazza_augmented
from croupier_lab.papers.tazza import permuted_training, picture_distance
from croupier_lab.papers.tazza.augmentation import AFTER, BEFORE, NEVER, orders, rough
from croupier_lab.papers.tazza.permuted_training import CNN, CROSSED, MLP, PLAIN
from croupier_lab.papers.tazza.picture_distance import BLACK, MEAN, ORDERED, OTHER, PERMUTED, SORTED

COINS = Coins.from_seed(8)


def pictures(name: str, colours: int, side: int) -> Dataset:
    """Ten smooth pictures, one a class, each with smooth noise."""
    generator = COINS.child(name).fast()
    kinds, noise = (torch.rand(count, colours, side + 6, side + 6, generator=generator) for count in (10, 500))
    y = torch.arange(500) % 10
    x = (functional.avg_pool2d(kinds[y] + 0.4 * noise, 7, 1) - 0.7) * 5 + 0.5
    train, test = TensorRecords(x[:300].clamp(0, 1), y[:300]), TensorRecords(x[300:].clamp(0, 1), y[300:])
    return Dataset(name, "classify", 10, train, test, "none", "drawn", labels=train.y)


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    made = {"cifar10": pictures("cifar10", 3, 32), "mnist": pictures("mnist", 1, 28)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cifar10, "load", lambda *_: made["cifar10"])
        patch.setattr(Mnist, "load", lambda *_: made["mnist"])
        patch.setattr(picture_distance, "SIZES", {"smoke": (300, 200, 12)})
        patch.setattr(
            permuted_training, "SIZES", {"smoke": permuted_training.PermutedTrainingSize(None, None, 8, 2, 1, (1, 5))}
        )
        patch.setattr(tazza_augmented, "LOOKED", 60)
        sizes = tazza_augmented.AugmentationSize(None, 200, 4, 3, {"MLP": Mlp(hidden=(32,))})
        patch.setattr(tazza_augmented, "SIZES", {"smoke": sizes})
        yield
    torch.set_num_threads(before)


def run(trial: Figure) -> tuple[dict[str, Any], str]:
    found = reproduce(trial, "smoke", Means(), watch=lambda _: None)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert len({tuple(row) for row in found["rows"]}) == 1
    assert all("paper" in row for row in found["rows"])
    assert trial.draw is not None
    return found, trial.draw(found["rows"])


def test_unlikeness_is_no_secrecy() -> None:
    found, drawn = run(picture_distance.FIGURES[0])
    at = {row["shown"]: row for row in found["rows"]}
    assert set(at) == {PERMUTED, ORDERED, MEAN, BLACK, OTHER, SORTED}
    assert [at[name]["same_values"] for name in (PERMUTED, ORDERED, MEAN, SORTED)] == [1.0, 1.0, 0.0, 1.0]
    assert at[MEAN]["_psnr"]["mean"] > at[PERMUTED]["_psnr"]["mean"] + 1
    assert at[OTHER]["_read"]["mean"] > 0.9
    assert at[PERMUTED]["_read"]["mean"] < 0.5
    assert at[PERMUTED]["prior"] == 0.1
    for row in found["rows"]:
        assert sum(row["_bins"]) == pytest.approx(1)
        assert row["least"] <= row["_psnr"]["runs"][0] <= row["most"] + 0.1
    below = at[PERMUTED]["_psnr"]["mean"] < min(at[MEAN]["_psnr"]["mean"], at[BLACK]["_psnr"]["mean"])
    assert ("is below both" if below else "is not below both") in found["says"][1]
    assert drawn.count("<image") == 50


def test_another_picture_of_the_same_digit_is_another() -> None:
    y = torch.arange(40) % 4
    other = picture_distance._others(y, COINS.child("others"))
    assert torch.equal(y[other], y)
    assert not bool((other == torch.arange(40)).any())
    assert sorted(other.tolist()) == list(range(40))


def test_training_on_permuted_pixels() -> None:
    found, drawn = run(permuted_training.FIGURES[0])
    at = {(row["network"], row["pixels"]): row for row in found["rows"] if row["epochs"]}
    assert {name for name, _ in at} == {MLP, CNN}
    assert at[MLP, PLAIN]["_curve"][-1]["mean"] > 0.6
    assert at[MLP, CROSSED]["_less"]["high"] < 0
    assert [len(row["_curve"]) for row in at.values()] == [8, 8, 8, 1, 1]
    assert len(found["says"]) == 3
    assert "pixels permuted" in drawn


def test_both_trainings_are_the_same_function_at_every_step() -> None:
    """The tolerance is that of floats added in another order, and falls with their precision."""
    dataset = Mnist().load(None)
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.float64, 1e-9)):
        for weights, answers, same in permuted_training.apart(dataset, (1, 5), dtype, COINS).values():
            assert 0 < answers < tolerance
            assert 0 < weights < tolerance
            assert same == 1.0


def test_weights_that_are_not_permuted_alike_train_to_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the second network starts from the first's weights as they are."""
    calls = itertools.count()
    kept: list[torch.Tensor] = []

    def alike(module: Any, vector: torch.Tensor, layout: Any) -> Any:
        kept.append(vector)
        return holding(module, kept[0] if next(calls) else vector, layout)

    monkeypatch.setattr(permuted_training, "holding", alike)
    weights, answers, _ = permuted_training.apart(Mnist().load(None), (5,), torch.float64, COINS)[5]
    assert min(weights, answers) > 0.1


def test_augmentation_before_and_after_permuting() -> None:
    found, drawn = run(tazza_augmented.FIGURES[0])
    at = {row["augmented"]: row for row in found["rows"]}
    assert at[BEFORE]["_same"]["mean"] == 1.0
    assert at[AFTER]["_same"]["mean"] == 0.0
    assert at[BEFORE]["_rough"]["mean"] < 0.6 < at[AFTER]["_rough"]["mean"]
    assert at[BEFORE]["_read"]["mean"] > at[AFTER]["_read"]["mean"]
    assert at[NEVER]["more_than_none"] is None
    assert drawn.count("<image") == 5 * tazza_augmented.PICTURES
    assert any("by construction" in said for said in found["says"])


def test_only_the_order_differs() -> None:
    x = Cifar10().load(None).test.batch(torch.arange(8))[0]
    module = Mlp(hidden=(8,)).build(Cifar10().load(None))
    symmetry = symmetry_of(module, x[:2])
    rule = symmetry.under(symmetry.draw(COINS.child("rule"), 0))
    never, before, after = (change(x, COINS.child("fresh").fast()) for change in orders(rule).values())
    cropped = tazza_augmented.AUGMENT(x, COINS.child("fresh").fast())
    assert torch.equal(rule.restore(never), x)
    assert torch.equal(rule.restore(before), cropped)
    assert torch.equal(after, tazza_augmented.AUGMENT(never, COINS.child("fresh").fast()))
    assert not torch.allclose(rule.restore(after), cropped, atol=0.1)


def test_roughness_of_noise_is_one() -> None:
    noise = torch.rand(20, 3, 32, 32, generator=COINS.child("noise").fast())
    assert rough(noise) == pytest.approx(1, abs=0.01)
    slope = torch.linspace(0, 1, 32).expand(2, 1, 32, 32)
    assert rough(slope) == pytest.approx(1 / 31 / 2 / _mean_apart(slope[0].flatten()), rel=1e-5)


def _mean_apart(values: torch.Tensor) -> float:
    apart = (values[:, None].double() - values[None].double()).abs()
    return float(apart.sum() / (len(values) * (len(values) - 1)))


def test_every_scale_is_there() -> None:
    modules = (picture_distance, permuted_training, tazza_augmented)
    for trial in (module.FIGURES[0] for module in modules):
        assert set(trial.seeds) == set(SCALES)
        assert all(count >= 2 for count in trial.seeds.values())
