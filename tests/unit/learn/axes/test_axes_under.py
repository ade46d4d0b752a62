"""A network and its optimiser under a rule, in place: training goes on as if nothing had been permuted."""

from __future__ import annotations

import copy
import doctest
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError, SpecError
from croupier.learn.axes import Permuted, permute_module, permute_optimizer, symmetry_of, under

SEED = bytes(range(32))
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
MAKES: dict[str, Make] = {
    "adam": lambda held: torch.optim.Adam(held, 1e-2),
    "amsgrad": lambda held: torch.optim.Adam(held, 1e-2, amsgrad=True),
    "adamw": lambda held: torch.optim.AdamW(held, 1e-2, weight_decay=0.1),
    "momentum": lambda held: torch.optim.SGD(held, 1e-2, momentum=0.9, nesterov=True),
    "plain": lambda held: torch.optim.SGD(held, 1e-2),
    "rmsprop": lambda held: torch.optim.RMSprop(held, 1e-3, momentum=0.5, centered=True),
}


def _network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 16, 12), nn.Tanh(),
        nn.Linear(12, 4),
    ).double()  # fmt: skip


def _train(network: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), torch.arange(len(inputs)) % 4).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _found() -> tuple[nn.Sequential, Tensor, Symmetry, Rule]:
    network, inputs = _network(), torch.randn(16, 3, 6, 6, dtype=torch.float64)
    symmetry = symmetry_of(network, inputs)
    return network, inputs, symmetry, symmetry.rule(SEED, 3)


@pytest.mark.parametrize("name", MAKES)
def test_training_under_the_rule_is_training(name: str) -> None:
    network, inputs, symmetry, rule = _found()
    optimizer = MAKES[name](list(network.parameters()))
    _train(network, optimizer, inputs, 3)
    start = copy.deepcopy((network.state_dict(), optimizer.state_dict()))
    plain = copy.deepcopy(network)
    other = MAKES[name](list(plain.parameters()))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    permute_optimizer(optimizer, network, symmetry, rule)
    permute_module(network, symmetry, rule)
    moved = [key for key, held in network.state_dict().items() if not torch.equal(held, start[0][key])]
    assert {"0.weight", "1.running_mean", "1.running_var", "4.weight", "6.weight"} <= set(moved)
    _train(plain, other, inputs, 3)
    _train(network, optimizer, symmetry.permute_inputs(inputs, rule), 3)
    permute_optimizer(optimizer, network, symmetry, rule, back=True)
    permute_module(network, symmetry, rule, back=True)
    for key, held in plain.state_dict().items():
        torch.testing.assert_close(network.state_dict()[key], held, rtol=1e-7, atol=1e-9, msg=key)
    for number, state in other.state_dict()["state"].items():
        for key, held in state.items():
            got = optimizer.state_dict()["state"][number][key]
            torch.testing.assert_close(got, held, rtol=1e-7, atol=1e-9, msg=key)


def test_there_and_back_is_bit_for_bit_and_a_state_left_behind_is_not_the_same() -> None:
    network, inputs, symmetry, rule = _found()
    optimizer = MAKES["adam"](list(network.parameters()))
    _train(network, optimizer, inputs, 2)
    start = copy.deepcopy(
        (network.state_dict(), optimizer.state_dict()["state"], [p.grad for p in network.parameters()])
    )
    for back in (False, True):
        permute_optimizer(optimizer, network, symmetry, rule, back=back)
        permute_module(network, symmetry, rule, back=back)
        same = [
            *(torch.equal(held, start[0][key]) for key, held in network.state_dict().items()),
            *(torch.equal(state[key], start[1][number][key])
              for number, state in optimizer.state_dict()["state"].items() for key in state),
            *(torch.equal(p.grad, grad) for p, grad in zip(network.parameters(), start[2], strict=True)
              if p.grad is not None and grad is not None),
        ]  # fmt: skip
        assert all(same) is back
    # The control: with the weights alone permuted the next step goes elsewhere.
    torch.manual_seed(2)
    plain, other = copy.deepcopy((network, optimizer.state_dict()))
    follows = MAKES["adam"](list(plain.parameters()))
    follows.load_state_dict(other)
    permute_module(network, symmetry, rule)
    _train(network, optimizer, symmetry.permute_inputs(inputs, rule), 1)
    permute_module(network, symmetry, rule, back=True)
    _train(plain, follows, inputs, 1)
    assert not torch.allclose(network.state_dict()["4.weight"], plain.state_dict()["4.weight"], atol=1e-4)


def test_inference_under_the_rule_takes_plain_inputs() -> None:
    network, inputs, symmetry, rule = _found()
    plain = network.eval()(inputs)
    permute_module(network, symmetry, rule)
    under_rule = Permuted(network, symmetry, rule)
    torch.testing.assert_close(under_rule(inputs), plain)
    assert not torch.allclose(network(inputs), plain)
    assert "array" not in repr(under_rule)
    assert "Rule" not in repr(under_rule)
    with pytest.raises(RangeError, match="inputs have shape"):
        under_rule(inputs[:, :, :5])


def test_numbers_of_other_kinds_and_orders_in_memory_are_permuted_too() -> None:
    network, inputs, symmetry, rule = _found()
    plain = network.eval()(inputs)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    permute_module(network, symmetry, rule)
    torch.testing.assert_close(Permuted(network, symmetry, rule)(inputs), plain)
    halved = _network().bfloat16()
    start = copy.deepcopy(halved.state_dict())
    permute_module(halved, symmetry, rule)
    permute_module(halved, symmetry, rule, back=True)
    assert all(torch.equal(held, start[key]) for key, held in halved.state_dict().items())


def test_what_does_not_fit_is_named_and_nothing_changes() -> None:
    network, inputs, symmetry, rule = _found()
    start = copy.deepcopy(network.state_dict())
    strange = torch.optim.Adam([{"params": list(network.parameters())}, {"params": [nn.Parameter(torch.ones(2))]}])
    with pytest.raises(SpecError, match=r"group 1 holds a tensor of shape \(2,\) that is no weight of the module"):
        permute_optimizer(strange, network, symmetry, rule)
    with pytest.raises(SpecError, match=r"'0.weight' has shape \(8, 3, 3, 3\), but in the module it is missing"):
        permute_module(nn.Linear(3, 2), symmetry, rule)
    longer = copy.deepcopy(network).append(nn.Linear(4, 4))
    with pytest.raises(SpecError, match=r"says nothing of the module's '7\.bias'"):
        permute_module(longer, symmetry, rule)
    other = torch.optim.Adafactor(network.parameters())
    _train(network, other, inputs, 1)
    start = copy.deepcopy(network.state_dict())
    with pytest.raises(SpecError, match=r"its 'row_var' for '0\.weight'"):
        permute_optimizer(other, network, symmetry, rule)
    assert all(torch.equal(held, start[key]) for key, held in network.state_dict().items())


def test_the_example_holds() -> None:
    failed, tried = doctest.testmod(under)
    assert failed == 0
    assert tried > 0
