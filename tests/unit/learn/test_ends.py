"""The layer that gives the logits and the one that reads records, found by running networks of every shape."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from tests import zoo
from tests.networks import Encoder
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.errors import SpecError, Unsuited
from croupier.learn.data import TensorRecords
from croupier.learn.ends import (
    Entrance,
    Head,
    check_logits,
    find_entrance,
    find_head,
    in_order_of_use,
    is_felt,
    last_layer,
)
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.gradients import gradient_of

Make = Callable[[tuple[int, ...], int], nn.Module]
ROW, PICTURE = (6,), (1, 8, 8)
HEADS: dict[Make, Head] = {
    zoo.bare: Head("weight", 0, "bias", ""),
    zoo.bare_unbiased: Head("weight", 0, None, ""),
    zoo.head_first: Head("head.weight", 0, "head.bias", "head"),
    zoo.unbiased: Head("2.weight", 0, None, "2"),
    zoo.parameter: Head("w", 1, "b"),
    zoo.einsum: Head("w", 1, None),
    zoo.conv: Head("2.weight", 0, "2.bias"),
    zoo.normed: Head("3.weight", 0, "3.bias", "3"),
    zoo.unused: Head("head.weight", 0, "head.bias", "head"),
    zoo.embedding: Head("head.weight", 0, "head.bias", "head"),
    zoo.stepwise: Head("head.weight", 0, "head.bias"),
    zoo.frozen_body: Head("2.weight", 0, "2.bias", "2"),
}
OTHERS: dict[Make, str] = {
    zoo.conv_max: "no layer gives each logit",
    zoo.tied: "no layer gives each logit",
    zoo.chances: "no layer gives each logit",
    zoo.log_chances: "ends in a log-softmax",
    zoo.frozen_head: "no layer that is trained",
    zoo.wide_and_deep: "more than one layer's outputs",
}
ENTRANCES: dict[Make, Entrance | None] = {
    zoo.bare: Entrance("weight", "bias", False),
    zoo.bare_unbiased: None,
    zoo.head_first: Entrance("body.weight", "body.bias", False),
    zoo.unbiased: None,
    zoo.parameter: Entrance("body.weight", "body.bias", False),
    zoo.conv: None,
    zoo.unused: Entrance("head.weight", "head.bias", False),
    zoo.stepwise: None,
    zoo.frozen_head: Entrance("0.weight", "0.bias", False),
    zoo.frozen_body: None,
}


def shape_of(make: Make) -> tuple[int, ...]:
    return PICTURE if make in (zoo.conv, zoo.conv_max) else ROW


def built(make: Make, classes: int = 3) -> tuple[nn.Module, Tensor]:
    with Coins.from_seed(2).child(make.__name__).ambient():
        return make(shape_of(make), classes).eval(), torch.rand(9, *shape_of(make))


def name_of(make: Make) -> str:
    return make.__name__


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("make", "head"), HEADS.items(), ids=map(name_of, HEADS))
def test_a_head_is_found_and_its_formula_gives_the_outputs(make: Make, head: Head, classes: int) -> None:
    module, x = built(make, classes)
    assert find_head(module, x) == head
    net = FlatNet(module)
    vector = layout_of(module).flatten(module.state_dict())
    net.load(vector)
    weights, biases = head.places(net.layout)
    with torch.no_grad():
        fed, out = head.features(net.module, x), net.module(x)
    assert weights.shape == (classes, fed.shape[1])
    assert torch.allclose(fed @ vector[weights].T + (vector[biases] if head.bias else 0), out, atol=1e-5)
    # What was read with other weights in place is put back.
    assert torch.equal(net.vector(), vector)


@pytest.mark.parametrize(("make", "why"), OTHERS.items(), ids=map(name_of, OTHERS))
def test_another_ending_is_said(make: Make, why: str) -> None:
    with pytest.raises(Unsuited, match=why):
        find_head(*built(make))


def test_outputs_that_do_not_hang_on_weights_have_no_head() -> None:
    with pytest.raises(Unsuited, match="do not depend on its weights"):
        find_head(zoo.Made(lambda m, x: x.detach()[:, :3], spare=nn.Linear(2, 2)), torch.rand(4, 6))


def test_weights_that_are_all_nought_hide_no_head() -> None:
    module, x = built(zoo.head_first)
    with torch.no_grad():
        for part in module.parameters():
            part.zero_()
    assert find_head(module, x) == HEADS[zoo.head_first]
    assert find_entrance(module, ROW) == ENTRANCES[zoo.head_first]


def test_looking_changes_neither_the_network_nor_what_is_drawn_next() -> None:
    module, x = built(zoo.normed)
    module.train()
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    find_head(module, x)
    find_entrance(module, ROW)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training
    assert all(torch.equal(part, before[name]) for name, part in module.state_dict().items())


@pytest.mark.parametrize(("make", "first"), ENTRANCES.items(), ids=map(name_of, ENTRANCES))
def test_the_layer_that_reads_records_is_found(make: Make, first: Entrance | None) -> None:
    module, x = built(make)
    assert find_entrance(module, shape_of(make)) == first
    if first is not None:
        parts = layout_of(module).split(gradient_of(module, x[:1], torch.tensor([1])))
        assert torch.allclose(parts[first.weight], torch.outer(parts[first.bias], x[0]), atol=1e-6)


def test_weights_and_biases_of_their_own_are_layers_of_their_own() -> None:
    for make, apart in ((zoo.bare, True), (zoo.parameter, True), (zoo.head_first, False), (zoo.unbiased, False)):
        module, _ = built(make)
        assert HEADS[make].apart(layout_of(module)) is apart


def test_words_have_no_gradient() -> None:
    assert is_felt(*built(zoo.bare))
    assert not is_felt(*built(zoo.embedding))
    assert not is_felt(nn.Embedding(9, 3), torch.arange(4))


def test_probabilities_and_a_single_class_are_refused() -> None:
    class Named(Part):
        make: str = "mine:make"

    rows = TensorRecords(torch.rand(9, 6), torch.arange(9) % 3)
    for make in (zoo.bare, zoo.log_chances):
        check_logits(built(make)[0], rows, Named())
    with pytest.raises(SpecError, match=r"'mine:make': it gives probabilities.*; return logits"):
        check_logits(built(zoo.chances)[0], rows, Named())
    with pytest.raises(SpecError, match=r"one class.*give two or more"):
        check_logits(built(zoo.bare, 1)[0], rows, Named())


def test_layers_come_in_the_order_in_which_they_run() -> None:
    module, x = built(zoo.head_first)
    assert in_order_of_use(module, x) == ["body", "head"]
    assert last_layer(module, ROW) == "head"
    assert in_order_of_use(built(zoo.unused)[0], x) == ["head"]


def test_torchs_own_transformer_has_its_head() -> None:
    assert find_head(Encoder(), torch.rand(4, 5, 8)) == Head("fc.weight", 0, "fc.bias", "fc")
