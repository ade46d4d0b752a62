"""The server's root records: drawn as said, kept from everybody else, and of no effect when there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from tests.claims.test_training import Pictures
from tests.laws.toy import play, task
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Model
from croupier.engine.federation import Federation
from croupier.engine.job.run import run
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.fit import Adam, Sgd
from croupier.learn.models import Mlp, ResNet18
from croupier.learn.root import Root
from croupier.learn.split import Iid, QSkew
from croupier.pipeline import Pipeline
from croupier.spec import load

COINS = Coins.from_seed(5)


class Watching(Mean, use="watching"):
    """A mean that asks for what the server owns."""

    needs: ClassVar[frozenset[str]] = frozenset({"root", "forward"})

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        assert desk.fit is not None
        assert desk.features is not None
        moved = desk.fit(desk.models[0].vector, desk.coins)
        return super().__call__(gathered, desk, {**memory, "moved": moved, "features": desk.features(moved)})


def made(root: Root, **more: Any) -> Assembled:
    fit = more.pop("fit", Sgd(lr=0.1, batch=20))
    return assemble(
        Digits(),
        Iid(clients=5),
        Mlp(hidden=(16,)),
        fit,
        COINS,
        options=TaskOptions(root=root),
        machine=Hardware(workers=1),
        **more,
    )


def toy(labels: Sequence[int]) -> Dataset:
    y = torch.tensor(labels)
    rows = TensorRecords(torch.arange(len(y)).float().reshape(-1, 1), y)
    owner = torch.zeros(len(y), dtype=torch.int64)
    return Dataset("toy", "classify", 3, rows, rows, "none", "made up", labels=y, owner=owner, owners=("ann",))


def inputs(records: Any) -> list[float]:
    values: Tensor = records.batch(torch.arange(len(records)))[0]
    return values[:, 0].tolist()


def test_without_records_everything_is_as_before() -> None:
    plain, same = (
        made(Root()),
        assemble(Digits(), Iid(clients=5), Mlp(hidden=(16,)), Sgd(batch=20), COINS, machine=Hardware(workers=1)),
    )
    assert plain.task.shards == same.task.shards
    assert (plain.task.root, plain.task.features, plain.root) == (None, None, None)
    assert not plain.task.offers & {"root", "forward"}
    data = toy([0, 1, 2])
    assert Root().draw(data, COINS) == (data, None)


def test_records_are_drawn_by_each_class_and_leave_the_data() -> None:
    data = toy([0] * 50 + [1] * 30 + [2] * 20)
    left, kept = Root(records=10).draw(data, COINS)
    assert kept is not None
    assert kept.batch(torch.arange(10))[1].bincount().tolist() == [5, 3, 2]
    assert sorted(inputs(left.train) + inputs(kept)) == inputs(data.train)
    assert left.labels is not None
    assert left.owner is not None
    assert left.labels.tolist() == left.train.batch(torch.arange(90))[1].tolist()
    assert len(left.owner) == 90
    assert inputs(left.test) == inputs(data.test)
    again, other = (Root(records=10).draw(data, Coins.from_seed(seed))[1] for seed in (5, 6))
    assert inputs(again) == inputs(kept)
    assert inputs(other) != inputs(kept)


@pytest.mark.parametrize(("bias", "counts"), [(0.0, [0, 6, 4]), (0.5, [5, 3, 2]), (0.8, [8, 1, 1]), (1.0, [10, 0, 0])])
def test_a_bias_is_the_share_of_the_first_class(bias: float, counts: list[int]) -> None:
    _, kept = Root(records=10, bias=bias).draw(toy([0] * 50 + [1] * 30 + [2] * 20), COINS)
    assert kept is not None
    assert kept.batch(torch.arange(10))[1].bincount(minlength=3).tolist() == counts


def test_data_without_classes_are_drawn_from_too() -> None:
    rows = TensorRecords(torch.arange(30).float().reshape(-1, 1), torch.zeros(30, 1))
    data = Dataset("series", "forecast", 0, rows, rows, "none", "made up")
    left, kept = Root(records=7).draw(data, COINS)
    assert kept is not None
    assert len(kept) == 7
    assert sorted(inputs(left.train) + inputs(kept)) == inputs(rows)
    with pytest.raises(SpecError, match=r"task\.root\.bias = 0\.3: 'series' has no classes"):
        Root(records=7, bias=0.3).draw(data, COINS)


@pytest.mark.parametrize(
    ("root", "said"),
    [
        (Root(records=100), "'toy' has 100 training records, and clients need some; use fewer"),
        (Root(records=60, bias=1.0), "class 0 has 50 records and 60 are wanted; use fewer, or another task.root.bias"),
    ],
)
def test_what_the_data_cannot_give_is_refused(root: Root, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        root.draw(toy([0] * 50 + [1] * 30 + [2] * 20), COINS)


def test_the_clients_hold_none_of_them() -> None:
    with_root = made(Root(records=100))
    assert with_root.root is not None
    assert len(with_root.root) == 100
    assert len(with_root.dataset.train) == len(made(Root()).dataset.train) - 100
    held: Any = with_root.task.fit
    everybody = [row.numpy().tobytes() for shard in held.shards.values() for row in shard.x]
    own = {row.numpy().tobytes() for row in with_root.root.x}  # type: ignore[attr-defined]
    # Digits has no two equal pictures, so that a shared one would be seen.
    assert not own & set(everybody)
    assert len(everybody) == len(with_root.dataset.train)


@pytest.mark.parametrize("fit", [Sgd(lr=0.1, batch=20), Adam(batch=20, epochs=2)])
def test_the_server_trains_as_a_client_with_these_records_would(fit: Any) -> None:
    ours = made(Root(records=60), fit=fit)
    assert ours.task.root is not None
    assert ours.root is not None
    start, coins = ours.task.first.vector, COINS.child("one")
    moved = ours.task.root(start, coins)

    held: Any = ours.task.fit
    held.shards["the same"] = ours.root
    (update,) = held([(start, "the same", coins)])
    assert torch.equal(moved, update.vector)
    assert not torch.equal(moved, start)


def test_features_are_what_the_last_linear_layer_is_fed() -> None:
    ours = made(Root(records=60))
    assert ours.task.features is not None
    assert ours.root is not None
    net: Any = ours.export(ours.task.first.vector)
    pictures = ours.root.batch(torch.arange(60))[0]
    want = net.layers[:-1](pictures.flatten(1)).detach()
    found = ours.task.features(ours.task.first.vector)
    assert found.shape == (60, 16)
    assert torch.allclose(found, want, atol=1e-6)
    assert not torch.allclose(ours.task.features(ours.task.first.vector * 2), want)


def test_a_rule_finds_both_at_its_desk() -> None:
    of = made(Root(records=40))
    (done,) = rounds(Pipeline(aggregate=Watching()), of.task, Federation(rounds=1), COINS, Local())
    rule = done.state.memories["server"]["rule"]
    assert rule["features"].shape == (40, 16)
    assert not torch.equal(rule["moved"], of.task.first.vector)


def test_a_rule_that_needs_them_is_refused_without() -> None:
    with pytest.raises(SpecError, match=r"'watching': it .* and there are none; set task\.root\.records=100"):
        play(Pipeline(aggregate=Watching()), of=task())


def test_a_description_says_how_many(tmp_path: Any) -> None:
    sets = ["federation.rounds=1", "task.fit.epochs=1", "run.workers=1"]
    with pytest.raises(SpecError, match=r"set task\.root\.records=100"):
        run("digits", sets=[*sets, "protocol.aggregate=watching"], seed=1, out=tmp_path / "a")
    done = run("digits", sets=[*sets, "task.root.records=50"], seed=1, out=tmp_path / "b")
    assert done.spec.task.root == Root(records=50)
    assert load("digits").task.root == Root()
    with pytest.raises(SpecError, match=r"task\.root\.records = -1"):
        load("digits", ["task.root.records=-1"])


def test_one_record_is_too_few_to_normalise_by() -> None:
    with pytest.raises(SpecError, match=r"task\.root\.records = 1: task\.model normalises over batches"):
        assemble(
            Pictures(),
            Iid(clients=2),
            ResNet18(),
            Sgd(),
            COINS,
            options=TaskOptions(root=Root(records=1)),
            machine=Hardware(workers=1),
        )


def test_the_split_works_on_what_is_left() -> None:
    ours = assemble(
        Digits(),
        QSkew(clients=10, least=2),
        Mlp(),
        Sgd(),
        COINS,
        options=TaskOptions(root=Root(records=100)),
        machine=Hardware(workers=1),
    )
    held: Any = ours.task.fit
    assert sum(len(shard) for shard in held.shards.values()) == len(ours.dataset.train)
