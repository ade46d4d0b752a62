"""The networks by name: their sizes, that they learn from a batch, and that the coins alone decide their start."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn.data import Dataset, TensorRecords, Windows
from croupier.learn.ends import Head, find_head
from croupier.learn.fit import Sgd
from croupier.learn.flat import layout_of
from croupier.learn.models import (
    ActivityCnn,
    CifarCnn,
    DenseNet121,
    DlgLeNet,
    Lstm,
    Mixer,
    Mlp,
    MnistCnn,
    MobileNetV2,
    Network,
    OwnNetwork,
    ResidualNet,
    ResNet18,
    Rnn,
    SeriesTransformer,
    TextTransformer,
    Vit,
)
from croupier.learn.models.cnn import ConvNet
from croupier.learn.models.layers import Standardise
from croupier.learn.train import Learner


def images(*shape: int, classes: int = 10) -> Dataset:
    rows = TensorRecords(torch.rand(3, *shape), torch.tensor([0, 1, 2]))
    return Dataset("pictures", "classify", classes, rows, rows, "none", "made up", labels=rows.y)


def series(width: int = 6) -> Dataset:
    windows = Windows(torch.rand(width + 14), torch.arange(3), width)
    return Dataset("meter", "forecast", 0, windows, windows, "none", "made up")


def texts(length: int = 128, tokens: int = 8192) -> Dataset:
    rows = TensorRecords(torch.randint(1, tokens, (3, length)), torch.tensor([0, 1, 2]))
    return Dataset("texts", "classify", 20, rows, rows, "none", "made up", labels=rows.y, tokens=tokens)


def weights(model: nn.Module) -> int:
    return sum(part.numel() for part in model.parameters())


CASES = [
    (Mlp(), images(64), 64 * 64 + 64 + 650),
    (Mlp(hidden=()), images(1, 8, 8), 650),
    (Mlp(hidden=(5, 4)), series(), 35 + 24 + 5),
    (MnistCnn(), images(1, 28, 28), 643_850),
    (CifarCnn(), images(3, 32, 32), 940_362),
    (ResNet18(), images(3, 32, 32, classes=100), 11_227_812),
    (ActivityCnn(), images(6, 128, classes=6), 176_710),
    (TextTransformer(), texts(), 567_380),
    (
        TextTransformer(vocabulary=30, width=8, heads=4, layers=2, hidden=5),
        texts(6, 30),
        30 * 8 + 6 * 8 + 2 * 413 + 16 + 180,
    ),
    (DlgLeNet(), images(3, 32, 32), 15_826),
    (DlgLeNet(), images(1, 8, 8), 8_026),
    (Lstm(), series(), 4 * 32 * (1 + 32 + 2) + 33),
    (Lstm(hidden=3, layers=2), series(), 12 * (1 + 3 + 2) + 12 * (3 + 3 + 2) + 4),
    (MobileNetV2(), images(3, 32, 32), 2_236_682),
    (DenseNet121(growth=4, blocks=(2, 1)), images(3, 8, 8), 216 + 16 + 752 + 824 + 160 + 752 + 24 + 130),
    (SeriesTransformer(), series(48), 68_097),
    (SeriesTransformer(patch=3, width=4, heads=2, layers=1, hidden=5), series(), 4 * 4 + 2 * 4 + 141 + 8 + 5),
    (Mixer(), images(3, 32, 32), 569_994),
    (Mixer(patch=2, width=4, across=3, within=5, layers=1), images(1, 4, 4), 20 + 8 + 31 + 8 + 49 + 8 + 50),
    (Vit(), images(3, 32, 32), 545_930),
    (Vit(token=True), images(3, 32, 32), 546_186),
    (Rnn(), images(30, 20, classes=4), 14_084),
    (Rnn(cell="gru", hidden=3, layers=1), images(5, 2), 9 * (2 + 3 + 2) + 40),
    (Rnn(cell="lstm", hidden=3, layers=1, both=True), images(5, 2), 2 * 12 * (2 + 3 + 2) + 70),
]


@pytest.mark.parametrize(("network", "dataset", "count"), CASES)
def test_models_have_their_size_and_learn_from_a_batch(network: Network, dataset: Dataset, count: int) -> None:
    model = network.build(dataset)
    x, _ = dataset.train.batch(torch.arange(3))
    out = model(x)
    assert weights(model) == count
    assert out.shape == (3, dataset.outputs)
    out.sum().backward()
    assert all(part.grad is not None for part in model.parameters())


def test_the_same_coins_start_the_same_model() -> None:
    for network, dataset, _ in CASES[:5]:
        with Coins.from_seed(1).ambient():
            one = network.build(dataset)
        with Coins.from_seed(1).ambient():
            other = network.build(dataset)
        pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_the_mnist_layers_follow_the_paper() -> None:
    shapes = {name: tuple(part.shape) for name, part in MnistCnn().build(images(1, 28, 28)).named_parameters()}
    assert shapes["conv1.weight"] == (32, 1, 5, 5)
    assert shapes["conv2.weight"] == (64, 32, 5, 5)
    assert shapes["fc1.weight"] == (512, 64 * 4 * 4)
    assert shapes["fc2.weight"] == (128, 512)
    assert shapes["fc3.weight"] == (10, 128)


def resnet18_layout(classes: int) -> dict[str, tuple[int, ...]]:
    """The published names and shapes of ResNet-18, written down apart from the code under test."""
    layout: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)}

    def norm(name: str, width: int) -> None:
        layout.update({f"{name}.{key}": (width,) for key in ("weight", "bias", "running_mean", "running_var")})
        layout[f"{name}.num_batches_tracked"] = ()

    norm("bn1", 64)
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            layout[f"{at}.conv1.weight"] = (width, before, 3, 3)
            norm(f"{at}.bn1", width)
            layout[f"{at}.conv2.weight"] = (width, width, 3, 3)
            norm(f"{at}.bn2", width)
            if before != width:
                layout[f"{at}.downsample.0.weight"] = (width, before, 1, 1)
                norm(f"{at}.downsample.1", width)
            before = width
    return layout | {"fc.weight": (classes, 512), "fc.bias": (classes,)}


def test_resnet18_has_torchvisions_state() -> None:
    model = ResNet18().build(images(3, 32, 32, classes=100))
    assert {name: tuple(part.shape) for name, part in model.state_dict().items()} == resnet18_layout(100)
    assert list(model.state_dict()) == list(resnet18_layout(100))
    assert sum(part.numel() for part in model.buffers()) == 9_620


def test_the_dlg_network_starts_uniform_biases_too() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DlgLeNet().build(images(3, 32, 32))
    for name, part in model.named_parameters():
        assert float(part.detach().abs().max()) <= 0.5, name
        assert part.numel() < 100 or float(part.detach().std()) == pytest.approx(12**-0.5, rel=0.1), name
    biases = torch.cat([part.detach() for name, part in model.named_parameters() if "bias" in name])
    assert float(biases.abs().max()) > 0.4


def test_resnet18_takes_images_of_any_size() -> None:
    model = ResidualNet(7).eval()
    for side in (32, 64, 224):
        assert model(torch.rand(1, 3, side, side)).shape == (1, 7)


def test_only_small_models_without_running_state_can_be_stacked() -> None:
    assert all(
        part.batchable for part in (Mlp(), Lstm(stacked=True), SeriesTransformer(), Mixer(), MnistCnn(stacked=True))
    )
    others: tuple[Network, ...] = (
        Mlp(dropout=0.1),
        MnistCnn(),
        CifarCnn(),
        ResNet18(),
        Lstm(),
        ActivityCnn(),
        DlgLeNet(),
        MobileNetV2(),
        DenseNet121(),
    )
    others += (DlgLeNet(), TextTransformer(), OwnNetwork(make="mine:make"), Vit(), Rnn())
    assert not any(part.batchable for part in others)
    assert Network.choices() == [
        "activity-cnn", "cifar-cnn", "densenet", "dlg-lenet", "lstm", "mixer", "mlp", "mnist-cnn", "mobilenet", "own",
        "resnet18", "rnn", "series-transformer", "text-transformer", "vit",
    ]  # fmt: skip


@pytest.mark.parametrize(("network", "dataset"), [case[:2] for case in CASES])
def test_the_last_layer_is_linear_and_its_biases_follow_its_weights(network: Network, dataset: Dataset) -> None:
    """Found by running it, too, which is where un-shuffling looks."""
    module = network.build(dataset)
    name, layer = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
    spans = [part.name for part, _, _ in layout_of(module).spans() if part.role == "weight"]
    assert spans[-2:] == [f"{name}.weight", f"{name}.bias"]
    assert layer.out_features == dataset.outputs
    if dataset.goal == "classify" and weights(module) < 10**6:
        inputs, _ = dataset.train.batch(torch.arange(3))
        assert find_head(module, inputs) == Head(f"{name}.weight", 0, f"{name}.bias", name)


def test_stacked_mixers_learn_what_each_learns() -> None:
    dataset = images(3, 16, 16)
    module = Mixer(patch=8, width=8, across=4, within=16, layers=1).build(dataset)
    x, y = torch.rand(30, 3, 16, 16), torch.arange(30) % dataset.outputs
    shards = {"a": TensorRecords(x[:18], y[:18]), "b": TensorRecords(x[18:], y[18:])}
    start = layout_of(module).flatten(dict(module.named_parameters())).detach()
    jobs = [(start, name, Coins.from_seed(number)) for number, name in enumerate(shards)]
    fit = Sgd(lr=0.1, epochs=3, batch=8)
    alone, stacked = (Learner(module, "classify", fit, shards, group=size)(jobs) for size in (1, 2))
    for one, other in zip(alone, stacked, strict=True):
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert torch.allclose(one.vector, other.vector, atol=1e-5)
        assert float((one.vector - start).abs().max()) > 0.01


@pytest.mark.parametrize(
    ("network", "shape"),
    [(MnistCnn(stacked=True), (1, 28, 28)), (CifarCnn(stacked=True, standardise=True), (3, 32, 32))],
)
def test_stacked_pictures_are_learned_as_each_learns_them(network: Network, shape: tuple[int, int, int]) -> None:
    """Clients of unlike size: the last batches are padded, and the smaller client is done early."""
    dataset = images(*shape)
    module = network.build(dataset)
    x, y = torch.rand(14, *shape), torch.arange(14) % dataset.outputs
    shards = {"a": TensorRecords(x[:9], y[:9]), "b": TensorRecords(x[9:], y[9:])}
    start = layout_of(module).flatten(dict(module.named_parameters())).detach()
    jobs = [(start, name, Coins.from_seed(number)) for number, name in enumerate(shards)]
    fit = Sgd(lr=0.1, epochs=2, batch=4)
    alone, stacked = (Learner(module, "classify", fit, shards, group=size)(jobs) for size in (1, 2))
    for one, other in zip(alone, stacked, strict=True):
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert torch.allclose(one.vector, other.vector, atol=1e-5)
        assert float((one.vector - start).abs().max()) > 0.01


@pytest.mark.parametrize("module", [ConvNet(1, 28, 10), ConvNet(3, 32, 7, first=Standardise(0.5, 0.5))])
def test_stacked_convolutions_give_what_each_gives(module: ConvNet) -> None:
    models = [copy.deepcopy(module) for _ in range(3)]
    for number, model in enumerate(models):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.05 + 0.01 * number)
    held, _ = torch.func.stack_module_state(list[nn.Module](models))
    side = 28 if module.conv1.in_channels == 1 else 32
    x = torch.rand(3, 5, module.conv1.in_channels, side, side)
    got = module.stacked(held, x)
    for model, batch, one in zip(models, x, got, strict=True):
        assert torch.allclose(model(batch), one, atol=1e-4)


def test_pictures_with_dropout_are_not_stacked() -> None:
    with pytest.raises(SpecError, match=r"task\.model\.stacked = true: dropout = 0\.5 draws for one client at a time"):
        CifarCnn(dropout=0.5, stacked=True)


def test_stacked_perceptrons_give_what_each_gives() -> None:
    models = [Mlp().build(images(64)) for _ in range(3)]
    state, _ = torch.func.stack_module_state(list[nn.Module](models))
    x = torch.rand(3, 5, 64)
    out = torch.vmap(lambda held, batch: torch.func.functional_call(models[0], held, (batch,)))(state, x)
    for model, batch, got in zip(models, x, out, strict=True):
        assert torch.allclose(model(batch), got, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "dataset", "said"),
    [
        (
            MnistCnn(),
            images(64),
            r"'mnist-cnn': needs inputs of shape \(1, 28, 28\).* \(64,\) .* data = \"mnist\"",
        ),
        (
            CifarCnn(),
            images(1, 28, 28),
            r"'cifar-cnn': needs .* \(1, 28, 28\) to classify; .* model = \"mlp\"",
        ),
        (ResNet18(), images(1, 28, 28), r"'resnet18': needs inputs of shape \(3, height, width\)"),
        (DlgLeNet(), series(), r"'dlg-lenet': needs inputs of shape \(channels, height, width\)"),
        (ResNet18(), series(), r"'resnet18': .*'meter' has inputs of shape \(6, 1\) to forecast"),
        (MobileNetV2(), images(1, 28, 28), r"'mobilenet': needs inputs of shape \(3, height, width\)"),
        (DenseNet121(), images(3, 7, 32), r"'densenet': needs inputs of shape \(3, 8 or more, 8 or more\)"),
        (SeriesTransformer(), images(6, 1), r"'series-transformer': needs .* to forecast, .* to classify"),
        (SeriesTransformer(), series(6), r"patch = 4: does not divide the windows' width, 6; use 1"),
        (Lstm(), images(6, 1), r"'lstm': needs .* to forecast, .* to classify; use data = \"households\""),
        (Mixer(), images(64), "channels, height, width"),
        (Mixer(patch=5), images(3, 32, 32), r"patch = 5: does not divide the pictures' sides, 32 and 32"),
        (Vit(), series(), "channels, height, width"),
        (Rnn(), images(3, 8, 8), "steps, features"),
        (Rnn(), series(), "steps, features"),
    ],
)
def test_a_misfit_is_explained(network: Network, dataset: Dataset, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        network.build(dataset)


def test_widths_out_of_bounds_are_named() -> None:
    with pytest.raises(SpecError, match=r"model\.hidden\.1 = 0: input should be greater than 0"):
        Network.parse({"use": "mlp", "hidden": [8, 0]}, "model")


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(SpecError, match=r"heads = 3: does not divide task\.model\.width = 128"):
        Vit(heads=3)
