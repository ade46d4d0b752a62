"""Pictures are augmented before anything is permuted: clients under a rule train in plain coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import plain_model, rounds
from croupier.learn.assemble import Hardware, TaskOptions, assemble
from croupier.learn.augment import Augment, Crop
from croupier.learn.data import Data, Dataset, TensorRecords
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.release.rows import Rows

COINS = Coins.from_seed(3)
CROP = Crop(side=5, flip=True)
SEEN: list[Tensor] = []
ORDER = torch.randperm(64, generator=torch.Generator().manual_seed(5))


class Squares(Data):
    """Pictures of noise."""

    licence: ClassVar[str] = "none"

    def load(self, folder: Path | None) -> Dataset:
        x = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        rows = TensorRecords(x, torch.arange(60) % 3)
        train, test = rows.take(torch.arange(50)), rows.take(torch.arange(50, 60))
        return Dataset("squares", "classify", 3, train, test, "none", "made here", labels=train.y)


class Noted(Augment):
    """Crops, and keeps what it was given."""

    fresh: ClassVar[bool] = True

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        SEEN.append(inputs)
        return CROP(inputs, generator)


class TooLate(Augment):
    """The fault: pixels are permuted first and cropped then; told in plain coordinates."""

    fresh: ClassVar[bool] = True

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        cropped = CROP(inputs.flatten(1)[:, ORDER].view_as(inputs), generator)
        return cropped.flatten(1)[:, ORDER.argsort()].view_as(inputs)


def learnt(augment: Augment, encode: Floats) -> Tensor:
    """The model of two rounds, as a client reads it."""
    pipeline = Pipeline(encode=encode, release=Rows(), aggregate=Mean(), place=Direct())
    fit = Sgd(lr=0.1, epochs=1, batch=8)
    made = assemble(
        Squares(),
        Iid(clients=4),
        Mlp(hidden=(8,)),
        fit,
        COINS,
        options=TaskOptions(augment=augment),
        machine=Hardware(workers=1),
    )
    last = list(rounds(pipeline, made.task, Federation(rounds=2), COINS, Local()))[-1].state
    if isinstance(encode, HiddenUnits):
        assert last.model.frame
        shown = plain_model(made.task, COINS, last).vector
        assert not torch.equal(last.model.vector, shown)
        return shown
    return last.model.vector


def test_clients_under_a_rule_augment_plain_pictures() -> None:
    SEEN.clear()
    learnt(Noted(), HiddenUnits())
    plain = {bytes(picture.numpy().tobytes()) for picture in Squares().load(None).train.batch(torch.arange(50))[0]}
    given = [picture.numpy().tobytes() for batch in SEEN for picture in batch]
    assert len(given) == 2 * 50
    assert set(given) == plain


def test_what_is_learnt_under_a_rule_is_what_is_learnt_without_one() -> None:
    hidden = HiddenUnits(first="open")
    wanted = learnt(CROP, Floats())
    assert torch.equal(learnt(CROP, hidden), wanted)
    assert not torch.allclose(learnt(TooLate(), hidden), wanted, atol=1e-4)
