"""The proximal term, and batches larger than any client."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.batch import train_together
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.fit import Adam, Sgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import Mlp, ResidualNet
from croupier.learn.split import Dirichlet
from croupier.learn.train import Learner

COINS = Coins.from_seed(11)
HUGE = 10**18


def made(fit: Sgd | Adam, together: int = 1) -> Assembled:
    torch.set_num_threads(1)
    split = Dirichlet(clients=8, alpha=0.3)
    return assemble(
        Digits(),
        split,
        Mlp(hidden=(16,)),
        fit,
        COINS,
        options=TaskOptions(together=together),
        machine=Hardware(workers=1),
    )


def moves(task: Assembled) -> Tensor:
    """How far every client went, and where."""
    first = task.task.first.vector
    done = task.task.fit([(first, shard, COINS.child(shard)) for shard in task.task.shards.values()])
    assert all(isinstance(update, Update) for update in done)
    return torch.stack([update.vector - first for update in done if isinstance(update, Update)])


def test_one_proximal_step_by_hand() -> None:
    fit = Sgd(lr=0.5, momentum=0, proximal=0.25, weight_decay=0.125)
    weights = torch.tensor([1.0, 2.0])
    state = fit.start(weights)
    weights += 4
    fit.step(weights, torch.tensor([8.0, -8.0]), state, 1)
    # gradient + decay x weights + mu x (weights - start)
    assert weights.tolist() == [5 - 0.5 * (8 + 0.125 * 5 + 0.25 * 4), 6 - 0.5 * (-8 + 0.125 * 6 + 0.25 * 4)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_proximal_clients_learn_stacked_what_they_learn_alone(momentum: float) -> None:
    fit = Sgd(lr=0.05, momentum=momentum, epochs=3, batch=16, proximal=0.5)
    alone, stacked = moves(made(fit)), moves(made(fit, together=5))
    free = moves(made(Sgd(lr=0.05, momentum=momentum, epochs=3, batch=16)))
    assert float((alone - stacked).abs().max()) < 1e-5
    assert float((alone - free).abs().max()) > 1e-2


@pytest.mark.parametrize("fit", [Adam(lr=0.01, epochs=2, batch=16), Sgd(lr=0.05, epochs=2, batch=16, proximal=0.5)])
def test_all_weights_at_once_go_where_each_tensor_goes(fit: Sgd | Adam) -> None:
    task = made(fit)
    first, learner = task.task.first.vector, task.task.fit
    assert isinstance(learner, Learner)
    shards = sorted(learner.shards.values(), key=len, reverse=True)

    def moved(whole: bool) -> Tensor:
        clients = [(first, rows, COINS.child(at).fast()) for at, rows in enumerate(shards)]
        return torch.stack(train_together(FlatNet(task.module), "classify", fit, clients, whole)) - first

    by_tensor, at_once = moved(False), moved(True)
    assert float(by_tensor.abs().max()) > 1e-2
    assert float((by_tensor - at_once).abs().max()) < 1e-6


def test_the_more_proximal_the_nearer_to_the_start() -> None:
    far, nearer, nearest = (
        moves(made(Sgd(lr=0.01, momentum=0, epochs=5, batch=16, proximal=mu))).norm(dim=1) for mu in (0.0, 1.0, 50.0)
    )
    assert bool((nearer < far).all())
    # Where the pull balances the gradient, the way is the gradient's length over mu.
    assert float(nearest.max()) < 0.03
    assert float(far.max()) > 0.5


def test_no_proximal_term_keeps_no_start() -> None:
    assert set(Sgd(proximal=0.1).start(torch.zeros(2))) == {"speed", "start"}
    assert set(Sgd().start(torch.zeros(2))) == {"speed"}
    with pytest.raises(SpecError, match=r"^Sgd\(proximal=-1.0\): .*greater than or equal to 0"):
        Sgd(proximal=-1.0)


def test_a_batch_larger_than_any_client_is_one_step_on_all_its_records() -> None:
    fit = Sgd(lr=0.5, momentum=0, epochs=1, batch=HUGE)
    alone = made(fit)
    found = moves(alone)
    assert isinstance(alone.task.fit, Learner)
    for shard, move in zip(alone.task.shards.values(), found, strict=True):
        rows = alone.task.fit.shards[shard]
        assert isinstance(rows, TensorRecords)
        loss = functional.cross_entropy(alone.module(rows.x), rows.y)
        grads = torch.autograd.grad(loss, list(alone.module.parameters()))
        wanted = -0.5 * torch.cat([grad.flatten() for grad in grads])
        assert float((move - wanted).abs().max()) < 1e-5
    assert float((moves(made(fit, together=64)) - found).abs().max()) < 1e-5


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_a_lone_last_record_joins_the_batch_before(count: int) -> None:
    fit = Sgd(batch=4, epochs=2)
    plain = list(fit.batches(count, COINS.child("order").fast()))
    joined = list(fit.batches(count, COINS.child("order").fast(), 2))
    assert torch.equal(torch.cat(plain), torch.cat(joined))
    assert [len(batch) for batch in plain] == 2 * ([4] * (count // 4) + [count % 4] * (count % 4 > 0))
    assert min(len(batch) for batch in joined) >= min(count, 2)
    assert [len(plain), len(joined)] == [fit.steps(count), fit.steps(count, 2)]
    if count in (5, 9):
        assert [len(batch) for batch in joined] == 2 * ([4] * (count // 4 - 1) + [5])


def test_a_network_that_normalises_over_batches_never_gets_one_record() -> None:
    rows = TensorRecords(torch.rand(5, 3, 8, 8), torch.tensor([0, 1, 0, 1, 0]))
    net = ResidualNet(2)
    start = FlatNet(net).vector()
    (done,) = Learner(net, "classify", Sgd(batch=4), {"a": rows})([(start, "a", COINS)])
    assert isinstance(done, Update)
    with pytest.raises(SpecError, match=r"task.split.least = 1: a client has one record.*set it to 2"):
        Learner(net, "classify", Sgd(batch=4), {"a": rows.take(torch.tensor([0]))})


def test_one_proximal_step_of_adam_by_hand() -> None:
    fit = Adam(lr=0.5, proximal=0.25, weight_decay=0.125, epsilon=1e-12)
    weights = torch.tensor([1.0, 2.0])
    state = fit.start(weights)
    weights += 4
    fit.step(weights, torch.tensor([-1.5, -1.8]), state, 1)
    # The first step of Adam is one of lr by the sign, and the pull and the decay turn one sign.
    assert weights.tolist() == pytest.approx([4.5, 6.5])
    assert state["first"].tolist() == pytest.approx([0.1 * (-1.5 + 0.125 * 5 + 0.25 * 4), 0.1 * (-1.8 + 0.75 + 1)])
    assert set(Adam().start(weights)) == {"first", "second"}
