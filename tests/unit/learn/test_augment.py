"""Crops that differ every time, and InstaHide's encoding."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.job.run import run
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.augment import Augment, Crop, InstaHide, NoAugment, weights
from croupier.learn.data import Data, Dataset, TensorRecords, Windows
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.learn.train import Learner
from croupier.spec import Spec, load
from croupier.toml_text import to_toml

COINS = Coins.from_seed(6)


class Squares(Data):
    """Pictures of noise."""

    licence: ClassVar[str] = "none"

    shape: tuple[int, ...] = (1, 8, 8)
    value: float | None = None

    def load(self, folder: Path | None) -> Dataset:
        drawn = torch.rand(60, *self.shape, generator=torch.Generator().manual_seed(1)) + 0.01
        x = drawn if self.value is None else torch.full_like(drawn, self.value)
        rows = TensorRecords(x, torch.arange(60) % 3)
        train, test = rows.take(torch.arange(50)), rows.take(torch.arange(50, 60))
        return Dataset("squares", "classify", 3, train, test, "none", "made here", labels=train.y)


def made(augment: Augment, workers: int = 1, together: int = 64) -> Assembled:
    torch.set_num_threads(1)
    fit = Sgd(lr=0.1, epochs=2, batch=5, momentum=0)
    return assemble(
        Squares(),
        Iid(clients=4),
        Mlp(hidden=(8,)),
        fit,
        COINS,
        options=TaskOptions(augment=augment, together=together),
        machine=Hardware(workers=workers),
    )


def trained(task: Assembled) -> Tensor:
    first = task.task.first.vector
    done = task.task.fit([(first, shard, COINS.child(shard)) for shard in task.task.shards.values()])
    assert all(isinstance(update, Update) for update in done)
    return torch.stack([update.vector for update in done if isinstance(update, Update)])


def windows(picture: Tensor, side: int) -> dict[tuple[int, int], Tensor]:
    """Every window of a picture, stretched, cut by plain slices."""
    full = picture.shape[1]
    return {
        (top, left): functional.interpolate(
            picture[None, :, top : top + side, left : left + side], size=(full, full), mode="bilinear"
        )[0]
        for top in range(full - side + 1)
        for left in range(full - side + 1)
    }


@pytest.mark.parametrize(("colours", "side"), [(1, 6), (3, 7), (3, 1)])
def test_every_picture_is_cut_by_a_window_of_its_own(colours: int, side: int) -> None:
    inputs = torch.rand(80, colours, 8, 8)
    out = Crop(side=side)(inputs, torch.Generator().manual_seed(0))
    assert out.shape == inputs.shape
    seen = set()
    for picture, got in zip(inputs, out, strict=True):
        fitting = [at for at, wanted in windows(picture, side).items() if torch.allclose(wanted, got, atol=1e-6)]
        assert len(fitting) == 1
        seen.add(fitting[0])
    # With 4 or 9 places to cut, 80 pictures leave none out but by a very rare chance.
    assert len(seen) == (9 - side) ** 2 or side == 1 < len(seen)


def test_crops_of_a_batch_differ_every_time() -> None:
    inputs, generator = torch.rand(9, 1, 8, 8), torch.Generator().manual_seed(0)
    one, other = (Crop(side=5)(inputs, generator) for _ in range(2))
    assert not torch.equal(one, other)
    assert torch.equal(one, Crop(side=5)(inputs, torch.Generator().manual_seed(0)))


def test_every_other_crop_is_mirrored_and_the_windows_stay() -> None:
    inputs = torch.rand(60, 3, 8, 8)
    plain, mirrored = (Crop(side=6, flip=flip)(inputs, torch.Generator().manual_seed(0)) for flip in (False, True))
    kept = (plain == mirrored).flatten(1).all(1)
    assert torch.equal(mirrored[~kept], plain[~kept].flip(3))
    assert 15 < int(kept.sum()) < 45


def test_crops_are_the_same_with_any_number_of_workers_and_every_time() -> None:
    one, two = made(Crop(side=5)), made(Crop(side=5), workers=2)
    wanted = trained(one)
    for again in (trained(one), trained(two), trained(two)):
        assert torch.equal(again, wanted)


def test_crops_come_from_each_clients_own_coins() -> None:
    # One picture many times over: whatever the order of the batches, only crops can tell two clients apart.
    data = Squares().load(None)
    x, _ = data.train.batch(torch.tensor([0]))
    same = TensorRecords(x.repeat(20, 1, 1, 1), torch.ones(20, dtype=torch.int64))
    module = Mlp().build(data)
    start = nn.utils.parameters_to_vector(module.parameters()).detach()
    for augment, alike in ((NoAugment(), True), (Crop(side=4), False)):
        learner = Learner(module, "classify", Sgd(lr=0.1, batch=5), {"same": same}, augment=augment)
        one, other = learner([(start, "same", COINS.child(name)) for name in ("a", "b")])
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert torch.equal(one.vector, other.vector) == alike


def test_a_crop_of_the_whole_picture_changes_nothing_not_even_the_order_of_batches() -> None:
    assert torch.equal(trained(made(Crop(side=8))), trained(made(NoAugment(), together=1)))


def test_only_what_changes_batches_keeps_clients_from_being_stacked() -> None:
    for augment, group in ((NoAugment(), 64), (InstaHide(k=1), 64), (Crop(side=8), 1)):
        learner = made(augment).task.fit
        assert isinstance(learner, Learner)
        assert learner.group == group


@pytest.mark.parametrize(
    ("shape", "side", "said"),
    [
        ((64,), 4, r"'crop': needs square pictures, but 'squares' has inputs of shape \(64,\); use data of pictures"),
        ((1, 8, 9), 4, r"inputs of shape \(1, 8, 9\)"),
        ((3, 8, 8), 9, r"task\.augment\.side = 9: the pictures have 8 pixels; use at most that"),
    ],
)
def test_what_cannot_be_cut_is_named(shape: tuple[int, ...], side: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Crop(side=side).prepare(Squares(shape=shape).load(None), None, COINS)


def rows(part: object) -> TensorRecords:
    assert isinstance(part, TensorRecords)
    return part


def test_instahide_of_one_picture_changes_only_signs() -> None:
    plain = Squares().load(None)
    coded = InstaHide(k=1).prepare(plain, None, COINS)
    for before, after in ((rows(plain.train), rows(coded.train)), (rows(plain.test), rows(coded.test))):
        assert torch.equal(after.y, before.y)
        assert torch.equal(after.x.abs(), before.x)
        assert float((after.x < 0).float().mean()) == pytest.approx(0.5, abs=0.1)
    assert coded.labels is plain.labels
    assert not torch.equal(rows(coded.train).x[:10] < 0, rows(coded.test).x < 0)


@pytest.mark.parametrize("k", [2, 4])
def test_instahide_blends_so_much_of_the_private_and_of_the_public(k: int) -> None:
    lit, dark = Squares(value=1.0), Squares(value=0.0)
    private = rows(InstaHide(k=k, public=dark).prepare(lit.load(None), None, COINS).train).x.abs().flatten(1)
    public = rows(InstaHide(k=k, public=lit).prepare(dark.load(None), None, COINS).train).x.abs().flatten(1)
    # One share for the whole of a picture, and the shares make up the whole.
    assert float((private - private[:, :1]).abs().max()) == 0
    assert bool((private <= 0.65).all())
    assert bool((private >= 1 / k).all())
    assert len(set(private[:, 0].tolist())) > 40
    assert torch.allclose(private + public, torch.ones_like(private))


def test_instahide_takes_other_public_pictures_for_every_record() -> None:
    coded = rows(InstaHide(k=2, public=Squares()).prepare(Squares(value=0.0).load(None), None, COINS).train)
    flat = functional.normalize(coded.x.abs().flatten(1))
    pictures = functional.normalize(rows(Squares().load(None).train).x.flatten(1))
    nearest = (flat @ pictures.t()).max(1)
    assert bool((nearest.values > 0.9999).all())
    assert len(set(nearest.indices.tolist())) > 20


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_shares_add_up_with_the_largest_first_and_none_too_large(k: int) -> None:
    shares = weights(5000, k, COINS.child("weights").secure())
    assert shares.shape == (5000, k)
    assert np.allclose(shares.sum(1), 1)
    assert bool((np.diff(shares, axis=1) <= 0).all())
    assert shares.min() >= 0
    if k > 1:
        assert shares.max() <= 0.65
        assert shares[:, 0].max() > 0.6
        assert shares[:, 0].min() < 1 / k + 0.1


def test_instahide_is_a_function_of_its_coins() -> None:
    found = [
        InstaHide(k=2, public=Squares()).prepare(Squares().load(None), None, COINS.child(name)).digest
        for name in ("a", "a", "b")
    ]
    assert found[0] == found[1] != found[2]


def test_instahide_needs_pictures_of_one_shape() -> None:
    with pytest.raises(SpecError, match=r"public = 'digits': .* the shape \(64,\), those of 'squares' \(1, 8, 8\)"):
        InstaHide(k=2, public=Digits()).prepare(Squares().load(None), None, COINS)
    series = Windows(torch.rand(20), torch.arange(3), 4)
    with pytest.raises(SpecError, match="'instahide': 'meter' has no pictures"):
        InstaHide().prepare(Dataset("meter", "forecast", 0, series, series, "none", "made up"), None, COINS)


def test_a_description_says_what_is_done() -> None:
    assert Augment.choices() == ["crop", "instahide", "none"]
    assert Spec().task.augment == NoAugment()
    told = load("digits", ["task.augment=instahide", "task.augment.k=2", "task.augment.public=digits"])
    assert told.task.augment == InstaHide(k=2, public=Digits())
    assert load("digits", ["task.augment=crop", "task.augment.side=5"]).task.augment == Crop(side=5)
    assert Spec.parse(told.plain()) == told
    assert "[task.augment.public]" in to_toml(told)
    with pytest.raises(SpecError, match=r"task\.augment\.side: this key is required"):
        load("digits", ["task.augment=crop"])
    with pytest.raises(SpecError, match=r"task\.augment\.k = 0: .*greater than or equal to 1"):
        load("digits", ["task.augment=instahide", "task.augment.k=0"])


def test_a_run_learns_from_what_was_made_of_the_data(tmp_path: Path) -> None:
    small = ["federation.rounds=1", "task.fit.epochs=1", "run.workers=1"]
    hidden = ["task.augment=instahide", "task.augment.k=2", "task.augment.public=digits"]
    models = [
        run("digits", sets=[*small, *sets], out=tmp_path / name, seed=1).final["model"]
        for name, sets in (("plain", []), ("none", ["task.augment=none"]), ("hidden", hidden))
    ]
    assert models[0] == models[1] != models[2]
