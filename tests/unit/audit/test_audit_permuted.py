"""Inversion on permuted uploads: nothing without the rule, all of it with it, and rules that were tampered with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.clusters import Clusters
from croupier.audit.invert import Dlg, dlg, gradient_of
from croupier.audit.likeness import psnr
from croupier.audit.perceive import Perceiver, fitted, perceiver
from croupier.audit.permuted import KNOWS, Knows, glance, holding, inverted, label_of, linear_input, recovered, survives
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Model
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError, SpecError, Unsuited
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset, Rows
from croupier.learn.flat import layout_of
from croupier.learn.models import Perceptron, SigmoidNet

COINS = Coins.from_seed(5)
RATE = 0.1


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def perceptron() -> tuple[nn.Module, Symmetry, Tensor]:
    with COINS.child("weights").ambient():
        module = Perceptron((64, 32, 16, 4))
    handed = layout_of(module).flatten(dict(module.named_parameters())).detach().clone()
    return module, symmetry_of(module, torch.zeros(2, 1, 8, 8)), handed


def step(module: nn.Module, handed: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return handed - RATE * gradient_of(module, x, y)


def found_by(knows: Knows) -> tuple[Tensor, Tensor]:
    """A record, and what the server makes of its permuted upload."""
    module, symmetry, handed = perceptron()
    x, y = torch.rand(1, 1, 8, 8, generator=COINS.child("record", knows).fast()), torch.tensor([2])
    rule, frame = symmetry.rule(bytes(32), 0), symmetry.rule(bytes(32), 1)
    upload = step(module, handed, x, y)
    sent = upload if knows == "order" else symmetry.apply(upload, rule)
    mine = symmetry.apply(handed, frame) if knows == "relative" else handed
    view = glance(knows, module, mine, sent, symmetry, RATE, COINS.child("glance", knows), rule)
    got = inverted(view, (1, 8, 8), 4, COINS.child("invert", knows))
    return (symmetry.permute_inputs(x, frame) if knows == "relative" else x), got.clamp(0, 1)


@pytest.mark.parametrize("knows", KNOWS)
def test_a_record_is_read_off_wherever_the_order_is_known(knows: Knows) -> None:
    true, found = found_by(knows)
    ratio = float(psnr(found, true))
    assert ratio < 15 if knows == "nothing" else ratio > 40


def test_a_search_finds_the_same_with_the_matched_rule_as_without_a_defence() -> None:
    with COINS.child("lenet").ambient():
        module = SigmoidNet(1, 8, 8, 4)
    symmetry = symmetry_of(module, torch.zeros(2, 1, 8, 8))
    handed = layout_of(module).flatten(dict(module.named_parameters())).detach().clone()
    x, y = torch.rand(1, 1, 8, 8, generator=COINS.child("picture").fast()), torch.tensor([1])
    sent = symmetry.apply(step(module, handed, x, y), symmetry.rule(bytes(32), 0))
    ratios = {}
    for knows in ("nothing", "matched"):
        view = glance(knows, module, handed, sent, symmetry, RATE, COINS.child(knows))
        got = inverted(view, (1, 8, 8), 4, COINS.child("search"), dlg(Dlg(steps=25, restarts=2, enough=1e-4)))
        ratios[knows] = float(psnr(got.nan_to_num(0.5).clamp(0, 1), x))
    assert ratios["matched"] > 20 > ratios["nothing"]


def test_what_cannot_be_read_is_refused() -> None:
    module, symmetry, handed = perceptron()
    with pytest.raises(SpecError, match="'told'"):
        glance("told", module, handed, handed, symmetry, RATE, COINS.child("untold"))
    with pytest.raises(Unsuited, match="not linear"):
        linear_input(torch.zeros(10), nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten()), (1, 8, 8))
    with pytest.raises(Unsuited, match="has no biases, and two classes"):
        label_of(torch.zeros(8), nn.Linear(4, 2, bias=False), (4,))
    with pytest.raises(Unsuited, match="no layer gives"):
        label_of(torch.zeros(8), nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (4,))


def test_a_label_is_read_without_biases_where_there_are_three_classes() -> None:
    layer = nn.Linear(6, 5, bias=False)
    for label in range(5):
        x = torch.randn(1, 6, generator=COINS.child("signed", label).fast())
        assert label_of(gradient_of(layer, x, torch.tensor([label])), layer, (6,)).tolist() == [label]


def test_the_findings_say_what_was_measured() -> None:
    _, symmetry, handed = perceptron()
    rule = symmetry.rule(bytes(32), 0)
    noise = [torch.randn(len(handed), generator=COINS.child("noise", n).fast()) for n in range(3)]
    near = recovered(handed, [symmetry.apply(handed + 0.01 * n, rule) for n in noise], symmetry, rule, COINS.child("a"))
    assert all(group["recovered"] == group["low"] == 1 and group["chance"] == 1 / group["size"] for group in near)
    told = survives(near, {"nothing": 5.0, "matched": 90.0}, 12.0)
    assert told["recovered"] == 1
    text = " ".join(told["says"])
    assert "obfuscation, not encryption: nothing" in text
    assert "-7.0 dB" in text
    assert "+78.0 dB" in text
    assert "sum servers" in text
    far = recovered(handed, [symmetry.apply(5 * n, rule) for n in noise], symmetry, rule, COINS.child("b"))
    failed = " ".join(survives(far, {"matched": 5.0}, 12.0)["says"])
    assert "did not recover the rule" in failed
    assert "obfuscation" not in failed


def _clustered(tampered: Rule, rule: Rule, kin: float = 0.5) -> tuple[list[list[str]], Tensor]:
    """Six clients, one of whom uploads under another rule: the clusters, and the model of the first client's."""
    module, symmetry, handed = perceptron()
    rows = []
    for client in range(6):
        x = torch.rand(64, 1, 8, 8, generator=COINS.child("client", client).fast())
        upload = step(module, handed, x, torch.arange(64) % 4)
        rows.append(symmetry.apply(upload, tampered if client == 5 else rule))
    names = tuple(f"c{client}" for client in range(6))

    def answers(vector: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = holding(module, vector, symmetry.layout)(inputs)
        return out

    desk = Desk((Model(handed),), symmetry.layout, COINS.child("desk"), answers=answers, inputs=(1, 8, 8))
    gathered = Gathered(names, torch.stack(rows), weights=torch.ones(6, dtype=torch.float64), ids=names)
    models, memory = Clusters(probes=64, kin=kin)(gathered, desk, {})
    mine = next(model for model in models if model.recipients is not None and "c0" in model.recipients)
    return [list(group) for group in memory["groups"]], symmetry.invert(mine.vector, rule)


def test_an_upload_under_a_tampered_rule_is_a_cluster_of_its_own() -> None:
    _, symmetry, _ = perceptron()
    groups, _ = _clustered(symmetry.rule(bytes(32), 9), symmetry.rule(bytes(32), 0))
    assert ["c5"] in groups
    assert ["c0", "c1", "c2", "c3", "c4"] in groups


def test_a_rule_tampered_in_hidden_units_only_answers_alike_and_spoils_the_mean() -> None:
    """What the check by answers cannot see: the same function in another order of hidden units."""
    _, symmetry, handed = perceptron()
    rule = symmetry.rule(bytes(32), 0)
    other = symmetry.rule(bytes(32), 9)
    hidden = Rule({name: rule.of[name] if name.startswith("input") else order for name, order in other.of.items()})
    honest = float((_clustered(rule, rule)[1] - handed).norm())
    groups, spoilt = _clustered(hidden, rule, kin=-1)
    assert groups == [["c0", "c1", "c2", "c3", "c4", "c5"]]
    assert float((spoilt - handed).norm()) > 10 * honest
    groups, kept = _clustered(hidden, rule)
    assert groups == [["c0", "c1", "c2", "c3", "c4"], ["c5"]]
    assert float((kept - handed).norm()) < 2 * honest


def _eye() -> Perceiver:
    generator = COINS.child("classes").fast()
    y = torch.arange(200) % 2
    x = 0.2 * torch.rand(200, 3, 32, 32, generator=generator) + 0.8 * (y.view(-1, 1, 1, 1) * torch.linspace(0, 1, 32))
    rows = Rows(x, y)
    return perceiver(Dataset("cifar10", "classify", 2, rows, rows, "none", "drawn", labels=y), 2, COINS.child("eye"))


def test_the_perceptual_distance_is_zero_for_equals_and_grows_with_noise() -> None:
    eye = _eye()
    assert eye.accuracy > 0.9
    pictures = torch.rand(4, 1, 28, 28, generator=COINS.child("shown").fast())
    noise = torch.rand(4, 1, 28, 28, generator=COINS.child("noise").fast())
    zero, little, much = (eye.distance(pictures + share * (noise - pictures), pictures) for share in (0, 0.1, 1))
    assert float(zero.max()) < 1e-9
    assert bool((little < much).all())
    assert fitted(pictures).shape == (4, 3, 32, 32)
    with pytest.raises(RangeError, match="two sets alike"):
        eye.distance(pictures, pictures[:1])
    assert np.isfinite(much.numpy()).all()
