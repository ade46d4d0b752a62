"""Gradients of a network over all weights it learns, as one vector: what a step of training shows of the records.

Attacks differentiate networks through these: `audit.attacks.reconstruction`, `audit.membership`,
`learn.gradient_search`, `learn.single` and the laboratory's. Training itself has its own loops (`learn.train`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.update import Layout
from croupier.errors import RangeError

Loss = Callable[[Tensor, Tensor], Tensor]


def gradient_of(
    module: nn.Module, inputs: Tensor, labels: Tensor, differentiable: bool = False,
    loss: Loss = functional.cross_entropy,
) -> Tensor:  # fmt: skip
    """The gradient of a loss over all weights that are learnt, as one vector; of the mean cross-entropy when not said.

    Labels are classes or chances. It is 0 in weights that the outputs do not depend on.
    """
    weights = [part for part in module.parameters() if part.requires_grad]
    with twice(module):
        value = loss(module(inputs), labels)
    parts = torch.autograd.grad(
        value, weights, create_graph=differentiable, allow_unused=True, materialize_grads=True
    )  # fmt: skip
    return torch.cat([part.reshape(-1) for part in parts])


def twice(module: nn.Module) -> AbstractContextManager[None]:
    """A context in which a network can be differentiated twice: cuDNN's recurrent layers cannot, torch's own can."""
    if not any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=False)


def gradient_from(update: Tensor, start: Tensor, lr: float) -> Tensor:
    """The gradient behind new weights, after one step of plain SGD."""
    if lr <= 0 or update.shape != start.shape:
        shapes = f"weights {tuple(update.shape)} from {tuple(start.shape)}"
        raise RangeError(f"{shapes}, lr = {lr}: needs one shape and a positive rate")
    return (start - update) / lr


def evaluation_copy(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode: statistics do not move, nothing is dropped. What is frozen stays so.

    Its gradients then lie as those of clients, which send nothing of frozen weights.
    """
    return copy.deepcopy(module).eval()


def holding(module: nn.Module, vector: Tensor, layout: Layout) -> nn.Module:
    """A copy of a network with the weights and statistics of a vector."""
    network = copy.deepcopy(module)
    held = dict(network.named_parameters()) | dict(network.named_buffers())
    with torch.no_grad():
        for part, start, stop in layout.spans():
            held[part.name].copy_(vector[start:stop].view(part.shape))
    return network
