"""The one record behind a gradient, and uploads under a rule that was tampered with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.clusters import Clusters
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Model
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import Unsuited
from croupier.learn.axes import symmetry_of
from croupier.learn.flat import layout_of
from croupier.learn.gradient_search import SearchRecipe
from croupier.learn.gradients import gradient_of, holding
from croupier.learn.layer_gradients import label_of
from croupier.learn.models import Perceptron, SigmoidNet
from croupier_lab.attacks.permuted_upload import record_behind

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


def test_a_record_is_read_off_a_layer_or_searched_for() -> None:
    x, y = torch.rand(1, 1, 8, 8, generator=COINS.child("record").fast()), torch.tensor([2])
    module, _, _ = perceptron()
    read = record_behind(gradient_of(module, x, y), module, (1, 8, 8), 4, COINS.child("read"))
    assert float((read - x).square().mean()) < 1e-8
    with COINS.child("lenet").ambient():
        other = SigmoidNet(1, 8, 8, 4)
    recipe, gradient = SearchRecipe(steps=300, variation=1e-6), gradient_of(other, x, y)
    found = record_behind(gradient, other, (1, 8, 8), 4, COINS.child("search"), recipe)
    # A picture all grey has 1 / 12.
    assert float((found - x).square().mean()) < 1 / 24


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(Unsuited, match="not linear"):
        record_behind(torch.zeros(10), nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten()), (1, 8, 8), 4, COINS.child("no"))
    with pytest.raises(Unsuited, match="has no biases, and two classes"):
        label_of(torch.zeros(8), nn.Linear(4, 2, bias=False), (4,))
    with pytest.raises(Unsuited, match="no layer gives"):
        label_of(torch.zeros(8), nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (4,))


def test_a_label_is_read_without_biases_where_there_are_three_classes() -> None:
    layer = nn.Linear(6, 5, bias=False)
    for label in range(5):
        x = torch.randn(1, 6, generator=COINS.child("signed", label).fast())
        assert label_of(gradient_of(layer, x, torch.tensor([label])), layer, (6,)).tolist() == [label]


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
