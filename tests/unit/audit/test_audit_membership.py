"""Membership inference: a model that knows its records by heart is found out, and one that knows none is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.scenes import draw
from torch import Tensor

from croupier.audit import membership
from croupier.audit.knowledge import Knowledge, Scene
from croupier.audit.membership import ATTACKS
from croupier.audit.score import area
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import SpecError
from croupier.learn.data import Rows
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import Mlp
from croupier.learn.train import Learner

COINS = Coins.from_seed(2)
WIDE, CLASSES, MANY = 30, 10, 40
MEMBERS = torch.arange(2 * MANY) < MANY


def noise(count: int, name: str) -> tuple[Tensor, Tensor]:
    """Records whose labels are drawn at random: nothing to learn about them but by heart."""
    return torch.randn(count, WIDE, generator=draw(name)), torch.randint(CLASSES, (count,), generator=draw(name, "y"))


@pytest.fixture(scope="module")
def known() -> Knowledge:
    """Suspects: members first, so that a mask of them is the truth."""
    suspects, asked = noise(2 * MANY, "suspects"), noise(4, "records")
    shadows = (noise(20, "shadow 1"), noise(20, "shadow 2"))
    return Knowledge(("a", "b"), Mlp(hidden=(64,)).plain(), Sgd(lr=0.1).plain(), CLASSES, asked, shadows, suspects)


def by_heart(known: Knowledge, members: Tensor) -> Tensor:
    """A model overfitted to these suspects."""
    x, y = known.suspects
    learner = Learner(known.module, "classify", Sgd(lr=0.2, epochs=300), {"all": Rows(x[members], y[members])})
    with COINS.child("start").ambient():
        start = FlatNet(known.module).layout.flatten(known.build().state_dict())
    (got,) = learner([(start, "all", COINS.child("fit"))])
    assert not isinstance(got, Exception)
    return got.vector


def facing(known: Knowledge, *models: Tensor) -> Scene:
    return Scene(known, Gathered(known.clients, torch.stack(models)), FlatNet(known.module), COINS.child("quiet"))


def areas(where: Scene, names: tuple[str, ...] = ("prior", "loss", "rows", "lira")) -> dict[str, float]:
    scores = {name: ATTACKS[name](where, COINS.child(name)) for name in names}
    return {name: area(score[MEMBERS], score[~MEMBERS]) for name, score in scores.items()}


def test_an_overfitted_model_gives_its_records_away(known: Knowledge) -> None:
    learnt = by_heart(known, MEMBERS)
    got = areas(facing(known, learnt, learnt))
    assert got["loss"] > 0.95
    assert got["lira"] > 0.95
    assert got["rows"] > 0.95
    assert 0.35 < got["prior"] < 0.65


def test_a_model_that_learnt_the_others_points_the_other_way(known: Knowledge) -> None:
    """Higher must mean likelier a member, not merely different."""
    learnt = by_heart(known, ~MEMBERS)
    got = areas(facing(known, learnt, learnt), ("loss", "lira", "rows"))
    assert all(value < 0.05 for value in got.values())


def test_a_model_that_learnt_nothing_gives_nothing_away(known: Knowledge) -> None:
    fresh = torch.randn(FlatNet(known.module).layout.size, generator=draw("fresh")) * 0.1
    got = areas(facing(known, fresh, fresh), ("loss", "lira", "rows"))
    assert all(0.35 < value < 0.65 for value in got.values())


def test_rows_look_at_each_clients_model(known: Knowledge) -> None:
    """Two clients know half of the members each by heart: the best of both knows all."""
    first = MEMBERS & (torch.arange(2 * MANY) % 2 == 0)
    where = facing(known, by_heart(known, first), by_heart(known, MEMBERS & ~first))
    scores = ATTACKS["rows"](where, COINS)
    each = torch.stack([membership._odds(where, row) for row in where.seen.rows])  # type: ignore[union-attr]
    assert torch.equal(scores, each.max(0).values)
    assert not torch.equal(scores, each[0])
    assert area(scores[MEMBERS], scores[~MEMBERS]) > 0.9


def test_rows_refuse_a_sum(known: Knowledge) -> None:
    size = FlatNet(known.module).layout.size
    sums = Gathered(known.clients, sums=torch.zeros(size), weights=torch.tensor([2.0]))
    for seen in (sums, None):
        with pytest.raises(SpecError, match="attack 'rows' needs whole models"):
            ATTACKS["rows"](Scene(known, seen, FlatNet(known.module), COINS), COINS)


def test_the_adversarys_own_models_are_the_same_whichever_view_comes_first(known: Knowledge) -> None:
    size = FlatNet(known.module).layout.size
    views = [Gathered(known.clients, torch.randn(2, size, generator=draw("view", number))) for number in range(2)]
    scores = []
    for order in ((0, 1), (1, 0)):
        begun = Scene(known, None, FlatNet(known.module), COINS.child("quiet"))
        found = {at: ATTACKS["lira"](begun.facing(views[at]), COINS.child("attack", at)) for at in order}
        scores.append((found, ATTACKS["prior"](begun.facing(None), COINS.child("other"))))
    (first, alone), (second, again) = scores
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(alone, again)
    assert not torch.equal(first[0], first[1])


def test_the_adversarys_own_models_are_trained_once(known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    trained = membership._trained

    def counted(scene: Scene, coins: Coins) -> list[Tensor]:
        calls.append(1)
        return trained(scene, coins)

    monkeypatch.setattr(membership, "_trained", counted)
    where = facing(known, *torch.zeros(2, FlatNet(known.module).layout.size))
    for name in ("lira", "prior", "lira"):
        ATTACKS[name](where.facing(where.seen), COINS)
    assert len(calls) == 1


def test_the_adversarys_own_models_never_see_a_suspect(known: Knowledge) -> None:
    """They are trained on halves of the shadow sets alone: other suspects leave them as they are."""
    one = membership._trained(facing(known, *torch.zeros(2, FlatNet(known.module).layout.size)), COINS.child("x"))
    other = replace(known, suspects=noise(6, "others"))
    two = membership._trained(facing(other, *torch.zeros(2, FlatNet(known.module).layout.size)), COINS.child("x"))
    assert len(one) == len(two) == membership.MODELS
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert len({tuple(vector[:4].tolist()) for vector in one}) == membership.MODELS
