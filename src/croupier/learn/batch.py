"""Small models of many clients trained as one stacked model."""

from __future__ import annotations

from collections.abc import Sequence

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
    plans = [list(fit.batches(len(records), generator)) for _, records, generator in clients]

    def forward(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        out: Tensor = functional_call(net.module, parameters, (inputs,))
        return out

    for number in range(1, len(plans[0]) + 1):
        active = sum(len(plan) >= number for plan in plans)
        inputs, targets, share = _stack(clients[:active], [plan[number - 1] for plan in plans[:active]], device)
        now = {name: leaf[:active].detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = vmap(forward, randomness="error")(now, inputs)
        losses = loss_of(goal, outputs.flatten(0, 1), targets.flatten(0, 1), "none")
        total = (losses.reshape(*share.shape, -1).mean(-1) * share).sum()
        # Clients share no weights, so the gradient of the total is every client's own gradient.
        for (name, leaf), grad in zip(now.items(), torch.autograd.grad(total, list(now.values())), strict=True):
            fit.step(leaf.detach(), grad, {key: held[:active] for key, held in states[name].items()}, number)
    return list(torch.cat([leaf.flatten(1) for leaf in leaves.values()], 1).cpu())


def _stack(clients: Sequence[Client], index: list[Tensor], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """One batch of every client, padded to the longest; `share` is what each record counts for, 0 for padding."""
    width = max(len(rows) for rows in index)
    padded = [torch.cat([rows, rows.new_zeros(width - len(rows))]) for rows in index]
    got = [records.batch(rows.to(device)) for (_, records, _), rows in zip(clients, padded, strict=True)]
    share = torch.tensor([[1 / len(rows)] * len(rows) + [0.0] * (width - len(rows)) for rows in index], device=device)
    return torch.stack([x for x, _ in got]), torch.stack([y for _, y in got]), share
