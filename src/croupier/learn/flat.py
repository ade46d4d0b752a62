"""A network whose trained weights, and their gradients, are views of two flat tensors.

Everything beyond training works on one flat float32 vector: privacy, encoding, releases and rules. `layout_of` fixes
which slice of it is which tensor. `FlatNet` lets a torch module compute on weights in that order, so that optimisers
work on one tensor and no step flattens anything; `load` copies a model in, and `vector` copies it out. `learn.train`,
`learn.private` and `learn.evaluate` compute on it, and attacks (`audit.context`) use it to try weights that they have
found. `loss_of` is passed on from `learn.loss`, because many import it together with `FlatNet`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from croupier.core.update import Layout, Slice
from croupier.learn.loss import loss_of as loss_of


def layout_of(module: nn.Module) -> Layout:
    """Weights first, then statistics, then counters: a distance over weights alone takes a prefix of the vector.

    Statistics are buffers of floats (running means), counters all other buffers (how many batches there were). Counters
    are listed and have no place in the vector. Frozen parameters are in no layout: they are neither trained nor sent.
    """
    weights = [Slice(name, tuple(p.shape), "weight") for name, p in module.named_parameters() if p.requires_grad]
    buffers = [
        Slice(name, tuple(b.shape), "statistic" if b.is_floating_point() else "counter")
        for name, b in module.named_buffers()
    ]
    return Layout(
        (*weights, *(b for b in buffers if b.role == "statistic"), *(b for b in buffers if b.role == "counter"))
    )


def frozen_of(module: nn.Module) -> dict[str, Tensor]:
    """The parameters that are never trained, by name."""
    return {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}


def train_mode(module: nn.Module) -> nn.Module:
    """The module, training: but normalising layers whose weights are frozen keep their statistics too."""
    module.train()
    for part in module.modules():
        weights = list(part.parameters()) if isinstance(part, nn.modules.batchnorm._NormBase) else []
        if weights and not any(weight.requires_grad for weight in weights):
            part.eval()
    return module


class FlatNet:
    """One module on one device for one worker: a module shared by two threads would be silently wrong."""

    def __init__(self, module: nn.Module, device: str = "cpu") -> None:
        self.layout = layout_of(module)
        self.module = copy.deepcopy(module).to(device)
        self._counters = [(b, b.clone()) for _, b in self.module.named_buffers() if not b.is_floating_point()]
        self._statistics = [b for _, b in self.module.named_buffers() if b.is_floating_point()]
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._frozen = [(p, p.detach().clone()) for p in self.module.parameters() if not p.requires_grad]
        self.size = sum(p.numel() for p in parameters)
        self.weights = torch.zeros(self.size, device=device)
        self.grads = torch.zeros(self.size, device=device)
        at = 0
        for p in parameters:
            stop = at + p.numel()
            p.data = self.weights[at:stop].view(p.shape)
            p.grad = self.grads[at:stop].view(p.shape)
            at = stop

    def load(self, vector: Tensor) -> None:
        """Take on a vector's weights and statistics; counters and frozen parameters go back to their first values."""
        self.weights.copy_(vector[: self.size])
        at = self.size
        for buffer in self._statistics:
            buffer.copy_(vector[at : at + buffer.numel()].view(buffer.shape))
            at += buffer.numel()
        with torch.no_grad():
            for held, first in (*self._counters, *self._frozen):
                held.copy_(first)

    def vector(self) -> Tensor:
        """Weights and statistics as one vector on the CPU: a copy."""
        return torch.cat([self.weights.detach(), *(b.detach().reshape(-1) for b in self._statistics)]).cpu().clone()
