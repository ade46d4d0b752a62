"""MobileNetV2, DenseNet-121, and forecasters of many clients at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn.data import Dataset, Windows
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.learn.flat import layout_of
from croupier.learn.models import DenseNet, Forecaster, Lstm, MobileNet, Network, SeriesTransformer
from croupier.learn.models.mobilenet import in_eights
from croupier.learn.train import Learner

BLOCKS = (6, 12, 24, 16)


def weights(module: nn.Module) -> int:
    return sum(part.numel() for part in module.parameters())


def test_mobilenet_has_the_published_number_of_weights() -> None:
    # Steps change no weight, so that the count for 1000 classes is that of the published network.
    assert weights(MobileNet(1000)) == 3_504_872
    assert weights(MobileNet(10)) == 3_504_872 - 990 * 1281


def test_densenet_has_the_published_number_of_weights_but_for_its_stem() -> None:
    stem = (7 * 7 - 3 * 3) * 3 * 64
    assert weights(DenseNet(1000, 32, BLOCKS)) == 7_978_856 - stem
    assert weights(DenseNet(10, 32, BLOCKS)) == 7_978_856 - stem - 990 * 1025


def test_channels_come_in_eights() -> None:
    assert [in_eights(count) for count in (1, 8, 11.9, 12, 16, 19, 24 * 0.75, 32 * 1.4)] == [
        8, 8, 16, 16, 16, 24, 24, 48,
    ]  # fmt: skip
    narrow = MobileNet(10, 0.25)
    assert isinstance(narrow.features[0], nn.Sequential)
    assert narrow.features[0][0].weight.shape == (8, 3, 3, 3)
    assert narrow.classifier[1].weight.shape == (10, 1280)


def test_small_pictures_keep_sixteen_places() -> None:
    x = torch.rand(2, 3, 32, 32)
    assert MobileNet(10, 0.25).features(x).shape == (2, 1280, 4, 4)
    assert DenseNet(10, 4, (1, 1, 1, 1)).features(x).shape[2:] == (4, 4)


@pytest.mark.parametrize(("model", "names"), [
    (MobileNet(10, 0.25), ("features.1.conv.1.weight", "features.2.conv.0.0.weight", "features.18.1.running_var",
                           "classifier.1.weight")),
    (DenseNet(10, 4, (1, 1, 1, 1)), ("features.conv0.weight", "features.denseblock1.denselayer1.norm2.bias",
                                     "features.transition3.conv.weight", "features.norm5.weight", "classifier.bias")),
])  # fmt: skip
def test_weights_have_torchvisions_names(model: nn.Module, names: tuple[str, ...]) -> None:
    assert set(names) <= set(model.state_dict())


@pytest.mark.parametrize(("make", "lr"), [(lambda: MobileNet(3, 0.25), 0.05), (lambda: DenseNet(3, 4, (2, 2)), 0.3)])
def test_a_batch_is_learned(make: Callable[[], nn.Module], lr: float) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make()
        x, y = torch.rand(6, 3, 16, 16), torch.tensor([0, 1, 2, 0, 1, 2])
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(x), y)
        losses.append(float(loss.detach()))
        for part, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            part.data -= lr * grad
    assert losses[-1] < losses[0] / 2


def windows(count: int, seed: int) -> Windows:
    draw = torch.Generator().manual_seed(seed)
    return Windows(torch.rand(count + 12, generator=draw), torch.arange(count), 12)


def trained(network: Network, fit: Fit, group: int) -> tuple[Tensor, Tensor]:
    """Where five clients of different size start and end, alone or together."""
    one = windows(4, 0)
    with Coins.from_seed(3).ambient():
        module = network.build(Dataset("meter", "forecast", 0, one, one, "none", "made up"))
    start = layout_of(module).flatten(dict(module.named_parameters()))
    shards = {f"c{seed}": windows(20 - 3 * seed, seed) for seed in range(5)}
    done = Learner(module, "forecast", fit, shards, group=group)(
        [(start, name, Coins.from_seed(1).child(name)) for name in shards]
    )
    return start, torch.stack([update.vector for update in done if isinstance(update, Update)])


# A larger epsilon than usual: where a gradient is next to nothing, Adam otherwise makes its rounding a whole step.
@pytest.mark.parametrize(
    "fit", [Sgd(lr=0.1, epochs=3, batch=8), Adam(lr=0.01, epochs=3, batch=8, proximal=0.1, epsilon=1e-3)]
)
@pytest.mark.parametrize(
    "network",
    [
        Lstm(hidden=5, stacked=True),
        Lstm(hidden=4, layers=2, stacked=True),
        SeriesTransformer(width=8, heads=2, hidden=8),
    ],
)
def test_stacked_forecasters_learn_what_each_learns_alone(network: Network, fit: Fit) -> None:
    start, alone = trained(network, fit, 1)
    _, stacked = trained(network, fit, 5)
    assert alone.shape == stacked.shape == (5, len(start))
    assert float((alone - start).abs().max()) > 0.01
    assert float((alone - stacked).abs().max()) < 2e-5


def test_a_stacked_lstm_gives_what_torchs_gives() -> None:
    models = [Forecaster(6, 3) for _ in range(4)]
    held, _ = torch.func.stack_module_state(list[nn.Module](models))
    x = torch.randn(4, 7, 9, 1)
    got = models[0].stacked(held, x)
    for model, batch, one in zip(models, x, got, strict=True):
        assert torch.allclose(model(batch), one, atol=1e-6)


def test_heads_divide_the_width() -> None:
    with pytest.raises(SpecError, match="heads = 3: does not divide"):
        SeriesTransformer(heads=3)


def test_a_patch_of_the_past_matters() -> None:
    one = windows(4, 0)
    model = SeriesTransformer(patch=3).build(Dataset("meter", "forecast", 0, one, one, "none", "made up"))
    x = torch.rand(1, 12, 1)
    with torch.no_grad():
        changed = [float((model(x + bump.reshape(1, 12, 1)) - model(x)).abs()) for bump in torch.eye(12)]
    assert min(changed) > 0
