"""A network, its optimiser and its inputs under a rule, as they are: in place, and back.

For users' own experiments with torch modules: runs permute flat vectors instead (`encode.hidden`), and need none of it.

>>> import secrets, torch
>>> from torch import nn
>>> from croupier.learn.axes import Permuted, permute_module, permute_optimizer, symmetry_of
>>> network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
>>> optimizer, inputs = torch.optim.Adam(network.parameters()), torch.randn(5, 8)
>>> before = network(inputs).detach()
>>> symmetry = symmetry_of(network, inputs)
>>> rule = symmetry.rule(secrets.token_bytes(32), 0)  # the secret that clients share, and the round
>>> permute_optimizer(optimizer, network, symmetry, rule)
>>> permute_module(network, symmetry, rule)
>>> bool(torch.allclose(Permuted(network, symmetry, rule)(inputs), before, atol=1e-6))
True
>>> permute_module(network, symmetry, rule, back=True)
>>> bool(torch.equal(network(inputs), before))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError


def permute_module(module: nn.Module, symmetry: Symmetry, rule: Rule, *, back: bool = False) -> None:
    """Bring weights, their gradients and statistics into the rule's coordinates, or `back` out of them, in place.

    The rule is of `symmetry.rule(secret, round)`; inputs are moved by `symmetry.permute_inputs(x, rule)` or `Permuted`.
    Counters stay. An optimiser keeps its hold on the weights; its state is for `permute_optimizer`.
    Raises: SpecError where the network is not the one that the symmetry is of, before anything has changed.
    """
    held = _held(module, symmetry)
    with torch.no_grad():
        for name, index in _indices(symmetry, rule, back):
            _permute(held[name].data, index)
            if (grad := held[name].grad) is not None:
                _permute(grad, index)


def permute_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, symmetry: Symmetry, rule: Rule, *, back: bool = False
) -> None:
    """Bring what an optimiser remembers of each weight (momentum, moments) into the rule's coordinates, or `back`.

    What has the shape of the weight is permuted like it, and single numbers (counts of steps) stay.
    Raises: SpecError where the optimiser holds weights that are not the module's, or remembers anything else, before
    anything has changed.
    """
    held = _held(module, symmetry)
    names = {id(tensor): name for name, tensor in held.items()}
    for number, group in enumerate(optimizer.param_groups):
        for weight in group["params"]:
            if id(weight) not in names:
                raise SpecError(
                    f"optimizer: group {number} holds a tensor of shape {tuple(weight.shape)} that is no weight of the "
                    "module; permute it with the module whose weights it was made for"
                )
    moved = {
        names[id(weight)]: [
            found for key, value in state.items() for found in _kept(names[id(weight)], weight, key, value)
        ]
        for weight, state in optimizer.state.items()
    }
    with torch.no_grad():
        for name, index in _indices(symmetry, rule, back):
            for tensor in moved.get(name, ()):
                _permute(tensor, index)


class Permuted(nn.Module):
    """A network that is in a rule's coordinates already, for inputs that are not: they are permuted on their way in."""

    def __init__(self, module: nn.Module, symmetry: Symmetry, rule: Rule) -> None:
        super().__init__()
        self.module = module
        self._shuffled = symmetry.under(rule)

    def forward(self, inputs: Tensor) -> Any:
        """What the network under the rule makes of a batch. Raises: RangeError on inputs of another shape."""
        return self.module(self._shuffled.permute(inputs))


def _held(module: nn.Module, symmetry: Symmetry) -> dict[str, Tensor]:
    """The module's tensors by name, once they are found to be those that the symmetry speaks of."""
    held: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for part in symmetry.layout.carried:
        if part.name not in held or tuple(held[part.name].shape) != part.shape:
            found = f"of shape {tuple(held[part.name].shape)}" if part.name in held else "missing"
            raise SpecError(
                f"symmetry: {part.name!r} has shape {part.shape}, but in the module it is {found}; find the symmetry "
                "of this very module by symmetry_of"
            )
    learnt = {name for name, weight in module.named_parameters() if weight.requires_grad}
    if more := learnt - {part.name for part in symmetry.layout.carried}:
        raise SpecError(f"symmetry: it says nothing of the module's {min(more)!r}; find it anew by symmetry_of")
    return held


def _kept(name: str, weight: Tensor, key: str, value: Any) -> Iterator[Tensor]:
    """What the optimiser remembers under one key, where that has the order of the weight."""
    if isinstance(value, Tensor) and value.shape == weight.shape:
        yield value
    elif not (value is None or isinstance(value, bool | int | float | str) or _single(value)):
        what = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise SpecError(
            f"optimizer: its {key!r} for {name!r} ({what}) is neither of the weight's shape {tuple(weight.shape)} nor "
            "one number, and cannot be permuted; clear the state, or use an optimiser that works weight by weight"
        )


def _single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _indices(symmetry: Symmetry, rule: Rule, back: bool) -> Iterator[tuple[str, Tensor]]:
    """For each carried tensor, where in it each of its numbers comes from."""
    shuffled, places = symmetry.under(rule), torch.arange(symmetry.layout.size)
    index = shuffled.invert(places) if back else shuffled.apply(places)
    for part, start, stop in symmetry.layout.spans():
        yield part.name, index[start:stop] - start


def _permute(tensor: Tensor, index: Tensor) -> None:
    tensor.copy_(tensor.reshape(-1)[index.to(tensor.device)].view(tensor.shape))
