"""Small models of many clients trained as one stacked model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from croupier.learn.data import Records
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet, loss_of

Client = tuple[Tensor, Records, torch.Generator]


def train_together(net: FlatNet, goal: str, fit: Fit, clients: Sequence[Client]) -> list[Tensor]:
    """Train each client from its start on its own records; the same steps as alone, up to rounding.

    Clients come with most records first: those who are done early form the tail, which later steps leave alone.
    """
    device = net.weights.device
    starts = torch.stack([start[: net.size] for start, _, _ in clients]).to(device)
    leaves = {
        part.name: starts[:, start:stop].reshape(len(clients), *part.shape) for part, start, stop in net.layout.spans()
    }
    states = {name: fit.start(leaf) for name, leaf in leaves.items()}
    heap = _Heap.of(clients, device)

    def forward(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        out: Tensor = functional_call(net.module, parameters, (inputs,))
        return out

    for number, (index, share) in enumerate(_plan(fit, clients, device), 1):
        active = len(index)
        inputs, targets = heap.x[index], heap.y[index]
        now = {name: leaf[:active].detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = vmap(forward, randomness="error")(now, inputs)
        losses = loss_of(goal, outputs.flatten(0, 1), targets.flatten(0, 1), "none")
        total = (losses.reshape(*share.shape, -1).mean(-1) * share).sum()
        # Clients share no weights, so the gradient of the total is every client's own gradient.
        for (name, leaf), grad in zip(now.items(), torch.autograd.grad(total, list(now.values())), strict=True):
            fit.step(leaf.detach(), grad, {key: held[:active] for key, held in states[name].items()}, number)
    return list(torch.cat([leaf.flatten(1) for leaf in leaves.values()], 1).cpu())


@dataclass(frozen=True)
class _Heap:
    """All clients' records in one place, client after client."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, clients: Sequence[Client], device: torch.device) -> _Heap:
        got = [records.batch(torch.arange(len(records), device=device)) for _, records, _ in clients]
        return cls(torch.cat([x for x, _ in got]), torch.cat([y for _, y in got]))


def _plan(fit: Fit, clients: Sequence[Client], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """For each step, which records of the heap each active client trains on, and what each counts for.

    Short batches are padded to the longest by records that count for nothing.
    """
    steps: list[list[Tensor]] = [[] for _ in range(max(fit.steps(len(records)) for _, records, _ in clients))]
    first = 0
    for _, records, generator in clients:
        for number, rows in enumerate(fit.batches(len(records), generator)):
            steps[number].append(rows + first)
        first += len(records)
    return [_padded(batches, device) for batches in steps]


def _padded(batches: list[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(rows.shape[0] for rows in batches)
    index = np.zeros((len(batches), width), np.int64)
    share = np.zeros((len(batches), width), np.float32)
    for client, rows in enumerate(batches):
        count = rows.shape[0]
        index[client, :count] = rows.numpy()
        share[client, :count] = 1 / count
    return torch.from_numpy(index).to(device), torch.from_numpy(share).to(device)
