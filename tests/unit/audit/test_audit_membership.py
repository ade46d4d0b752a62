"""Membership inference: a model that knows its records by heart is found out, and one that knows none is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.scenes import draw
from torch import Tensor, nn

from croupier.audit import membership
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge
from croupier.audit.membership import ATTACKS, area
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import RangeError, SpecError, Unsuited
from croupier.learn.data import TensorRecords
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import Mlp, MnistCnn
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
    learner = Learner(known.module, "classify", Sgd(lr=0.2, epochs=300), {"all": TensorRecords(x[members], y[members])})
    with COINS.child("start").ambient():
        start = FlatNet(known.module).layout.flatten(known.build().state_dict())
    (got,) = learner([(start, "all", COINS.child("fit"))])
    assert not isinstance(got, Exception)
    return got.vector


def facing(known: Knowledge, *models: Tensor) -> AttackContext:
    return AttackContext(
        known, Gathered(known.clients, torch.stack(models)), FlatNet(known.module), COINS.child("quiet")
    )


def areas(where: AttackContext, names: tuple[str, ...] = ("prior", "loss", "rows", "lira")) -> dict[str, float]:
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


def test_a_change_spans_the_records_that_made_it(known: Knowledge) -> None:
    """Fewer records than inputs: exact, however long was trained; of more of them it leans to them; noise hides all."""
    with COINS.child("start").ambient():
        start = FlatNet(known.module).layout.flatten(known.build().state_dict())

    def found(learnt: Tensor, members: Tensor) -> float:
        where = facing(known, learnt, start)
        scores = ATTACKS["spans"](where.with_view(where.seen, start=start), COINS)
        return area(scores[members], scores[~members])

    few = torch.arange(2 * MANY) % 4 == 0
    learnt = by_heart(known, few)
    assert found(learnt, few) == 1.0
    assert 0.7 < found(by_heart(known, MEMBERS), MEMBERS) < 1.0
    assert 0.3 < found(learnt + 10 * torch.randn(learnt.shape, generator=draw("drowned")), few) < 0.7


def test_without_a_layer_that_reads_records_no_change_spans_them(known: Knowledge) -> None:
    pictures = torch.randn(6, 1, 28, 28, generator=draw("pictures")), torch.zeros(6, dtype=torch.int64)
    odd = replace(known, model=MnistCnn().plain(), records=pictures, suspects=pictures)
    rows = torch.zeros(2, FlatNet(odd.module).layout.size)
    with pytest.raises(Unsuited, match="no linear layer with biases reads whole records"):
        ATTACKS["spans"](facing(odd, *rows), COINS)


def test_rows_look_at_each_clients_model(known: Knowledge) -> None:
    """Two clients know half of the members each by heart: the best of both knows all."""
    first = MEMBERS & (torch.arange(2 * MANY) % 2 == 0)
    where = facing(known, by_heart(known, first), by_heart(known, MEMBERS & ~first))
    scores = ATTACKS["rows"](where, COINS)
    each = torch.stack([membership._odds(where, row) for row in where.seen.rows])  # type: ignore[union-attr]
    assert torch.equal(scores, each.max(0).values)
    assert not torch.equal(scores, each[0])
    assert area(scores[MEMBERS], scores[~MEMBERS]) > 0.9


@pytest.mark.parametrize("name", ["rows", "row-gradients"])
def test_attacks_on_rows_refuse_a_sum(known: Knowledge, name: str) -> None:
    size = FlatNet(known.module).layout.size
    sums = Gathered(known.clients, sums=torch.zeros(size), weights=torch.tensor([2.0]))
    for seen in (sums, None):
        with pytest.raises(SpecError, match=f"attack '{name}' needs whole models"):
            ATTACKS[name](AttackContext(known, seen, FlatNet(known.module), COINS), COINS)


def test_the_adversarys_own_models_are_the_same_whichever_view_comes_first(known: Knowledge) -> None:
    size = FlatNet(known.module).layout.size
    views = [Gathered(known.clients, torch.randn(2, size, generator=draw("view", number))) for number in range(2)]
    scores = []
    for order in ((0, 1), (1, 0)):
        begun = AttackContext(known, None, FlatNet(known.module), COINS.child("quiet"))
        found = {at: ATTACKS["lira"](begun.with_view(views[at]), COINS.child("attack", at)) for at in order}
        scores.append((found, ATTACKS["prior"](begun.with_view(None), COINS.child("other"))))
    (first, alone), (second, again) = scores
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(alone, again)
    assert not torch.equal(first[0], first[1])


def test_own_models_take_as_many_steps_where_a_single_record_joins_the_batch_before(
    known: Knowledge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in networks that normalise over batches: an epoch of 20 records in batches of 19 has one step there."""
    known, took = replace(known, fit=Sgd(lr=0.1, batch=19).plain(), models=2), list[int]()
    assert len(known.pool[1]) // 2 == 20

    def told(module: nn.Module, goal: str, fit: Sgd, *_: object, **__: object) -> Learner:
        took.append(fit.epochs)
        raise RangeError("that is all")

    monkeypatch.setattr(membership, "Learner", told)
    for least, epochs in ((1, membership.STEPS // 2), (2, membership.STEPS)):
        monkeypatch.setattr(membership, "fewest", lambda _, least=least: least)
        with pytest.raises(RangeError, match="that is all"):
            membership._trained(facing(known, *torch.zeros(2, FlatNet(known.module).layout.size)), COINS.child("x"))
        assert took.pop() == epochs


def test_the_adversarys_own_models_are_trained_once(known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    trained = membership._trained

    def counted(scene: AttackContext, coins: Coins) -> list[Tensor]:
        calls.append(1)
        return trained(scene, coins)

    monkeypatch.setattr(membership, "_trained", counted)
    where = facing(known, *torch.zeros(2, FlatNet(known.module).layout.size))
    for name in ("lira", "prior", "lira"):
        ATTACKS[name](where.with_view(where.seen), COINS)
    assert len(calls) == 1


def test_the_adversarys_own_models_never_see_a_suspect(known: Knowledge) -> None:
    """They are trained on halves of the shadow sets alone: other suspects leave them as they are."""
    one = membership._trained(facing(known, *torch.zeros(2, FlatNet(known.module).layout.size)), COINS.child("x"))
    other = replace(known, suspects=noise(6, "others"))
    two = membership._trained(facing(other, *torch.zeros(2, FlatNet(known.module).layout.size)), COINS.child("x"))
    assert len(one) == len(two) == membership.MODELS
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert len({tuple(vector[:4].tolist()) for vector in one}) == membership.MODELS


def one_step(known: Knowledge, members: Tensor) -> tuple[Tensor, Tensor]:
    """A model, and the same after a single step on these suspects: far too little to know any by heart."""
    x, y = known.suspects
    learner = Learner(known.module, "classify", Sgd(lr=0.1, batch=MANY), {"all": TensorRecords(x[members], y[members])})
    with COINS.child("start").ambient():
        start = FlatNet(known.module).layout.flatten(known.build().state_dict())
    (got,) = learner([(start, "all", COINS.child("fit"))])
    assert not isinstance(got, Exception)
    return start, got.vector


def by_gradients(known: Knowledge, start: Tensor | None, *models: Tensor) -> dict[str, float]:
    where = facing(known, *models)
    return areas(where.with_view(where.seen, start=start), ("gradients", "row-gradients"))


def test_a_single_step_gives_its_records_away_by_their_gradients(known: Knowledge) -> None:
    """Where losses still tell little. Who learnt the others points the other way: it is no matter of the records."""
    start, after = one_step(known, MEMBERS)
    assert areas(facing(known, after, after), ("loss",))["loss"] < 0.8
    assert all(value > 0.98 for value in by_gradients(known, start, after, after).values())
    start, after = one_step(known, ~MEMBERS)
    assert all(value < 0.02 for value in by_gradients(known, start, after, after).values())


def test_rows_tell_members_that_another_clients_update_covers(known: Knowledge) -> None:
    """The joint model adds the other client's update, here noise; the client's own row is free of it."""
    start, after = one_step(known, MEMBERS)
    noisy = start + 0.02 * torch.randn(len(start), generator=draw("other update"))
    got = by_gradients(known, start, after, noisy)
    assert got["row-gradients"] > 0.9
    assert got["row-gradients"] > got["gradients"]


def test_a_few_coordinates_of_a_large_network_are_enough(known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    start, after = one_step(known, MEMBERS)
    count = len(known.suspects[1]) + len(known.records[1])
    monkeypatch.setattr(membership, "ROOM", 500 * count)
    *_, kept = membership._gradients(facing(known, after, after), start)
    assert len(kept) == 500 < len(start)
    assert all(value > 0.9 for value in by_gradients(known, start, after, after).values())


def test_gradients_find_nothing_where_nothing_was_learnt_or_its_start_is_unknown(known: Knowledge) -> None:
    start, after = one_step(known, MEMBERS)
    assert all(value == 0.5 for value in by_gradients(known, start, start, start).values())
    assert all(value == 0.5 for value in by_gradients(known, None, after, after).values())
