"""Dropout that belongs to the client, and inputs standardised by the network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import ActivityCnn, CifarCnn, Dropout, Mlp, MnistCnn, Network, ResNet18, TextTransformer
from croupier.learn.split import Iid
from croupier.learn.train import Learner

COINS = Coins.from_seed(2)


def images(*shape: int) -> Dataset:
    rows = TensorRecords(torch.rand(3, *shape), torch.tensor([0, 1, 2]))
    return Dataset("pictures", "classify", 10, rows, rows, "none", "made up", labels=rows.y)


def made(dropout: float, workers: int = 1) -> Assembled:
    torch.set_num_threads(1)
    fit = Sgd(lr=0.1, epochs=1, batch=32, momentum=0)
    model = Mlp(hidden=(24, 16), dropout=dropout)
    return assemble(
        Digits(), Iid(clients=5), model, fit, COINS, options=TaskOptions(together=64), machine=Hardware(workers=workers)
    )


def trained(task: Assembled) -> Tensor:
    first = task.task.first.vector
    done = task.task.fit([(first, shard, COINS.child(shard)) for shard in task.task.shards.values()])
    assert all(isinstance(update, Update) for update in done)
    return torch.stack([update.vector for update in done if isinstance(update, Update)])


def test_dropout_zeroes_at_its_rate_and_scales_the_rest() -> None:
    layer = Dropout(0.25)
    layer.generator = torch.Generator().manual_seed(0)
    out = layer(torch.full((200, 200), 3.0))
    assert set(out.unique().tolist()) == {0.0, 4.0}
    assert float((out == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert not torch.equal(out, layer(torch.full((200, 200), 3.0)))


def test_dropout_does_nothing_in_evaluation() -> None:
    x = torch.rand(4, 5)
    assert torch.equal(Dropout(0.9).eval()(x), x)
    dropping, plain = made(0.5), made(0)
    assert torch.equal(dropping.task.first.vector, plain.task.first.vector)
    assert dropping.task.evaluate(dropping.task.first) == plain.task.evaluate(plain.task.first)
    before = plain.task.evaluate(plain.task.first)
    trained(dropping)
    assert dropping.task.evaluate(dropping.task.first) == before


@pytest.mark.parametrize(
    ("part", "shape"), [(Mlp(hidden=(5, 4)), (6,)), (MnistCnn(), (1, 28, 28)), (CifarCnn(), (3, 32, 32))]
)
def test_dropout_changes_no_name_and_comes_after_every_hidden_linear_layer(part: Network, shape: tuple[int]) -> None:
    dropping = type(part).parse({**part.plain(), "dropout": 0.5}).build(images(*shape))
    assert list(dropping.state_dict()) == list(part.build(images(*shape)).state_dict())
    widths: list[int] = []
    for layer in dropping.modules():
        if isinstance(layer, Dropout):
            layer.register_forward_hook(lambda module, given, out: widths.append(out.shape[1]))
    dropping(torch.rand(2, *shape))
    assert widths == ([5, 4] if isinstance(part, Mlp) else [512, 128])


def test_the_names_of_a_perceptrons_weights_stay() -> None:
    names = ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"]
    assert list(Mlp(dropout=0.5).build(images(6)).state_dict()) == names


def test_dropout_is_the_same_with_any_number_of_workers_and_every_time() -> None:
    one, two = made(0.5), made(0.5, workers=2)
    wanted = trained(one)
    for again in (trained(one), trained(two), trained(two)):
        assert torch.equal(again, wanted)
    assert not torch.equal(wanted, trained(made(0)))


def test_dropout_draws_from_each_clients_own_coins() -> None:
    # One record many times over: whatever the order of the batches, only dropout can tell two clients apart.
    same = TensorRecords(torch.rand(1, 6).repeat(20, 1), torch.ones(20, dtype=torch.int64))
    for rate, alike in ((0.0, True), (0.5, False)):
        module = Mlp(dropout=rate).build(images(6))
        learner = Learner(module, "classify", Sgd(lr=0.1, batch=5), {"same": same})
        start = nn.utils.parameters_to_vector(module.parameters()).detach()
        one, other = learner([(start, "same", COINS.child(name)) for name in ("a", "b")])
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert torch.equal(one.vector, other.vector) == alike


def test_dropout_leaves_torchs_own_generator_alone() -> None:
    task = made(0.5)
    before = torch.get_rng_state()
    trained(task)
    assert torch.equal(before, torch.get_rng_state())


def test_clients_with_dropout_are_not_stacked() -> None:
    for rate, group in ((0.5, 1), (0.0, 64)):
        learner = made(rate).task.fit
        assert isinstance(learner, Learner)
        assert learner.group == group


@pytest.mark.parametrize("part", [ActivityCnn, CifarCnn, Mlp, MnistCnn, TextTransformer])
@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_out_of_bounds_is_named(part: type[Network], rate: float) -> None:
    with pytest.raises(SpecError, match=rf"{part.__name__}\(dropout={rate}\): input should be"):
        part(dropout=rate)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("off", "on", "shape", "mean", "deviation"),
    [
        (MnistCnn(), MnistCnn(standardise=True), (1, 28, 28), 0.1307, 0.3081),
        (CifarCnn(), CifarCnn(standardise=True), (3, 32, 32), 0.5, 0.5),
        (ResNet18(), ResNet18(standardise=True), (3, 32, 32), 0.5, 0.5),
    ],
)
def test_to_standardise_is_to_do_so_by_hand(
    off: Network, on: Network, shape: tuple[int, ...], mean: float, deviation: float
) -> None:
    plain, told = off.build(images(*shape)).eval(), on.build(images(*shape)).eval()
    assert list(plain.state_dict()) == list(told.state_dict())
    told.load_state_dict(plain.state_dict())
    x = torch.rand(2, *shape)
    assert torch.equal(told(x), plain((x - mean) / deviation))
    assert not torch.allclose(told(x), plain(x))
