"""A perceptron's gradients for many clients at once, in closed form: one row a client, all from the same weights.

Autograd would run a hundred small backward passes one after the other; here they are a few batched products. Tests
compare it with autograd. `clear_rounds` trains by it, and `baseline_rules` uses `features` and `spans`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Generator, Tensor

# A layer's weights and biases, as views of the flat vector.
Layer = tuple[Tensor, Tensor]


def size_of(widths: Sequence[int]) -> int:
    """How many weights and biases a perceptron of these widths has, input and output included."""
    return sum(after * (before + 1) for before, after in pairwise(widths))


def layers(vector: Tensor, widths: Sequence[int]) -> list[Layer]:
    """Weights and biases of each layer, in the order in which the product's layouts flatten them."""
    found, at = [], 0
    for before, after in pairwise(widths):
        weights = vector[..., at : at + after * before].view(*vector.shape[:-1], after, before)
        at += after * before
        found.append((weights, vector[..., at : at + after]))
        at += after
    return found


def spans(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Where each tensor lies: weights, biases, weights, biases."""
    sizes = [size for before, after in pairwise(widths) for size in (after * before, after)]
    return [(stop - size, stop) for stop, size in zip(accumulate(sizes), sizes, strict=True)]


def features(vectors: Tensor, widths: Sequence[int], x: Tensor) -> Tensor:
    """What enters the last layer of each of these models: (models, records, width)."""
    seen = x.expand(len(vectors), *x.shape)
    for weights, biases in layers(vectors, widths)[:-1]:
        seen = torch.baddbmm(biases.unsqueeze(1), seen, weights.transpose(1, 2)).relu_()
    return seen


def first(widths: Sequence[int], gain: float, generator: Generator) -> Tensor:
    """Weights by Xavier's uniform rule with this gain, biases 0."""
    vector = torch.zeros(size_of(widths))
    for weights, _ in layers(vector, widths):
        after, before = weights.shape
        bound = gain * math.sqrt(6 / (before + after))
        weights.copy_((torch.rand(after, before, generator=generator) * 2 - 1) * bound)
    return vector


def outputs(vector: Tensor, widths: Sequence[int], x: Tensor) -> Tensor:
    """The perceptron's outputs for inputs of any leading shape."""
    return _forward(layers(vector, widths), x)[-1]


def _forward(net: list[Layer], x: Tensor) -> list[Tensor]:
    """The input of every layer, then the outputs."""
    seen = [x]
    for number, (weights, biases) in enumerate(net):
        out = torch.nn.functional.linear(seen[-1], weights, biases)
        seen.append(out.relu_() if number < len(net) - 1 else out)
    return seen


class StackedClients:
    """Room for gradients of so many clients, used again in every round: fresh pages cost more than the arithmetic."""

    def __init__(self, clients: int, widths: Sequence[int], device: str | torch.device = "cpu") -> None:
        self.widths = tuple(widths)
        self.rows = torch.empty(clients, size_of(widths), device=device)
        self._views = layers(self.rows, widths)

    def gradients(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The gradient of each client's mean cross-entropy: x (clients, batch, inputs), y (clients, batch).

        The rows are this stack's own, and are overwritten by the next call.
        """
        net = layers(vector, self.widths)
        *inputs, out = _forward(net, x)
        errors = torch.softmax(out, -1)
        errors.scatter_add_(2, y.unsqueeze(2), errors.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        errors /= y.shape[1]
        for number in reversed(range(len(net))):
            weights, biases = self._views[number]
            _products(errors, inputs[number], weights)
            torch.sum(errors, 1, out=biases) if biases.is_contiguous() else biases.copy_(errors.sum(1))
            if number:
                errors = (errors @ net[number][0]).mul_(inputs[number] > 0)
        return self.rows


def _products(errors: Tensor, inputs: Tensor, into: Tensor) -> None:
    if into.device.type != "cpu":
        into.copy_(errors.transpose(1, 2) @ inputs)
        return
    # A batched product cannot write into rows that lie apart; one product a client can, and copies nothing.
    for error, one, place in zip(errors, inputs, into, strict=True):
        torch.mm(error.T, one, out=place)
