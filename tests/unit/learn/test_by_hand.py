"""Gradients made by hand: the models of torch's automatic ones, bit by bit, on one thread and on several."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.learn import batch
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.models.mlp import Mlp
from croupier.learn.train import Learner

FITS = st.builds(Sgd, momentum=st.sampled_from([0.0, 0.9]), weight_decay=st.sampled_from([0.0, 0.01])) | st.builds(
    Adam, keep=st.sampled_from([0.3, 1.0])
)
COUNTS = st.lists(st.sampled_from([1, 2, 5, 14, 30]), min_size=2, max_size=40)


def records(count: int, features: int, classes: int) -> TensorRecords:
    generator = torch.Generator().manual_seed(count)
    drawn = torch.randn(count, features, generator=generator)
    return TensorRecords(drawn, torch.randint(classes, (count,), generator=generator))


def module_for(held: TensorRecords, classes: int, hidden: tuple[int, ...]) -> torch.nn.Module:
    dataset = Dataset("own", "classify", classes, held, held, "none", "made up")
    with Coins.from_seed(1).ambient():
        return Mlp(hidden=hidden).build(dataset)


@given(
    counts=COUNTS, features=st.sampled_from([1, 7, 16, 64]), classes=st.sampled_from([2, 10, 15, 16, 26]),
    hidden=st.lists(st.sampled_from([1, 9, 16, 50]), max_size=2).map(tuple), fit=FITS,
    size=st.sampled_from([1, 5, 16]), epochs=st.sampled_from([1, 2]),
)  # fmt: skip
def test_models_are_the_same_to_the_last_bit(
    counts: list[int], features: int, classes: int, hidden: tuple[int, ...], fit: Fit, size: int, epochs: int
) -> None:
    shards = [records(count, features, classes) for count in sorted(counts, reverse=True)]
    module = module_for(shards[0], classes, hidden)
    first = layout_of(module).flatten(module.state_dict())
    fit = fit.model_copy(update={"lr": 0.05, "batch": size, "epochs": epochs})

    def train(threads: int) -> Tensor:
        clients = [(first, shard, Coins.from_seed(at).fast()) for at, shard in enumerate(shards)]
        return torch.stack(batch.train_together(FlatNet(module), "classify", fit, clients, threads=threads))

    with pytest.MonkeyPatch.context() as change:
        change.setattr(batch, "_SHARE", 1)
        one, two = train(1), train(2)
        change.setattr(batch, "offers_by_hand", lambda module, goal: False)
        automatic = train(1)
    torch.set_num_threads(1)
    assert not torch.equal(one[0], first)
    assert torch.equal(one, two)
    assert torch.equal(one, automatic)


def test_a_wrong_gradient_would_be_seen() -> None:
    """The law above can fail: a bias that counts twice gives other models."""
    shards = [records(14, 7, 10)] * 2
    module = module_for(shards[0], 10, (9,))
    first = layout_of(module).flatten(module.state_dict())
    made = batch._gradients

    def wrong(*args: object) -> batch.Gradients:
        right = made(*args)  # type: ignore[arg-type]
        return lambda *step: [grad * 2 if grad.dim() == 2 else grad for grad in right(*step)]

    def train() -> Tensor:
        clients = [(first, shard, Coins.from_seed(1).fast()) for shard in shards]
        return torch.stack(batch.train_together(FlatNet(module), "classify", Sgd(lr=0.1), clients))

    right = train()
    with pytest.MonkeyPatch.context() as change:
        change.setattr(batch, "_gradients", wrong)
        assert not torch.equal(train(), right)


def test_groups_join_where_no_batch_becomes_wider_and_whatever_the_workers() -> None:
    counts = (30, 14, 30, 14, 9, 5, 30, 2)
    shards = {f"c{at}": records(count, 7, 10) for at, count in enumerate(counts)}
    module = module_for(shards["c0"], 10, (9,))
    first = layout_of(module).flatten(module.state_dict())
    jobs = [(first, name, Coins.from_seed(at)) for at, name in enumerate(shards)]

    def train(workers: int, sizes: list[int]) -> list[Tensor]:
        learner = Learner(
            module, "classify", Sgd(lr=0.1, batch=10, epochs=2), shards, workers=workers, group=2, alone=True
        )
        assert [len(part) for part in learner.parts(jobs)] == sizes
        return [one.vector for one in learner(jobs) if isinstance(one, Update)]

    one, two = train(1, [6, 2]), train(2, [6, 2])
    with pytest.MonkeyPatch.context() as change:
        change.setattr(Learner, "_by_hand", False)
        apart = train(2, [2, 2, 2, 2])
    assert len(one) == len(jobs)
    for joined, other, by_two in zip(one, two, apart, strict=True):
        assert torch.equal(joined, other)
        assert torch.allclose(joined, by_two, rtol=0, atol=1e-6)
