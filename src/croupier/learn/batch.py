"""Small models of many clients trained as one stacked model.

A client of a few hundred records leaves a processor idle most of the time. Here the models of many such clients are
stacked along a new first axis and take each step together, every client on its own batch and with its own optimiser
state. Which clients are stacked is the description's choice (`task.together`), because sums then round differently in
their last bits. `learn.train` decides between this and training one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from croupier.learn.data import Records
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet, loss_of

Client = tuple[Tensor, Records, torch.Generator]


def train_together(
    net: FlatNet, goal: str, fit: Fit, clients: Sequence[Client], whole: bool | None = None
) -> list[Tensor]:
    """Train each client from its start on its own records; the same steps as alone, up to rounding.

    Clients come with most records first: those who are done early form the tail, which later steps leave alone.
    `whole`: step through all weights at once and not tensor by tensor; by itself, on a device and not on a CPU.
    """
    device = net.weights.device
    starts = _begun([start[: net.size] for start, _, _ in clients], device)
    leaves = {
        part.name: starts[:, start:stop].view(len(clients), *part.shape) for part, start, stop in net.layout.spans()
    }
    # Every call costs a device the same, however little it does; a CPU's caches hold one tensor and not all.
    whole = device.type != "cpu" if whole is None else whole
    if not whole:
        leaves = {name: _laid_out(leaf) for name, leaf in leaves.items()}
    states = [fit.start(leaf) for leaf in ([starts] if whole else leaves.values())]
    heap = _Heap.of(clients)

    forward = _stacked(net.module)
    for number, (index, share) in enumerate(_plan(fit, clients, device), 1):
        active = len(index)
        inputs, targets = heap.x[index], heap.y[index]
        now = {name: leaf[:active].detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = forward(now, inputs)
        losses = loss_of(goal, outputs.flatten(0, 1), targets.flatten(0, 1), "none")
        total = (losses.reshape(*share.shape, -1).mean(-1) * share).sum()
        # Clients share no weights, so the gradient of the total is every client's own gradient.
        grads = _left(fit, torch.autograd.grad(total, list(now.values())))
        moved: list[Tensor] = [starts[:active]] if whole else [leaf.detach() for leaf in now.values()]
        along = [torch.cat([grad.flatten(1) for grad in grads], 1)] if whole else grads
        for weights, grad, state in zip(moved, along, states, strict=True):
            fit.step(weights, grad, {key: held[:active] for key, held in state.items()}, number)
    return list(home(starts if whole else torch.cat([leaf.flatten(1) for leaf in leaves.values()], 1)))


def _begun(starts: Sequence[Tensor], device: torch.device) -> Tensor:
    """A row for each client. One model that is handed to all of them goes to the device once."""
    if all(start.data_ptr() == starts[0].data_ptr() for start in starts):
        return starts[0].to(device).repeat(len(starts), 1)
    return torch.stack(list(starts)).to(device)


def home(rows: Tensor) -> Tensor:
    """Rows on the CPU. What comes from a GPU goes to memory that stays in its place: a GPU writes there by itself."""
    if rows.device.type != "cuda":
        return rows.cpu()
    return torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True).copy_(rows)


def _left(fit: Fit, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What a fit leaves of each client's whole gradient, leaf by leaf again; without a copy where that is all of it."""
    if fit.whole:
        return grads
    rows = fit.left(torch.cat([grad.flatten(1) for grad in grads], 1))
    parts = rows.split([grad[0].numel() for grad in grads], 1)  # type: ignore[no-untyped-call]
    return tuple(part.view_as(grad) for part, grad in zip(parts, grads, strict=True))


def _laid_out(leaf: Tensor) -> Tensor:
    """Matrices column by column in memory, as their gradients come: a step then runs through both in one order."""
    return leaf.transpose(1, 2).contiguous().transpose(1, 2) if leaf.dim() == 3 else leaf.contiguous()


def _stacked(module: nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """The forward pass of many models at once: the module's own, or one made of its plain one."""
    if (own := getattr(module, "stacked", None)) is not None:
        return cast(Callable[[dict[str, Tensor], Tensor], Tensor], own)

    def forward(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        out: Tensor = functional_call(module, parameters, (inputs,))
        return out

    return vmap(forward, randomness="error")


@dataclass(frozen=True)
class _Heap:
    """All clients' records in one place, client after client."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, clients: Sequence[Client]) -> _Heap:
        got = [records.everything() for _, records, _ in clients]
        return cls(torch.cat([x for x, _ in got]), torch.cat([y for _, y in got]))


def _plan(fit: Fit, clients: Sequence[Client], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step, which records of the heap each active client trains on, and what each counts for.

    Short batches are padded by records that count for nothing.
    """
    counts = [len(records) for _, records, _ in clients]
    steps = [fit.steps(count) for count in counts]
    width = min(fit.batch, counts[0])
    index = np.zeros((steps[0], len(clients), width), np.int64)
    share = np.zeros((steps[0], len(clients), width), np.float32)
    shares = {count: _shares(fit, count, width) for count in set(counts)}
    first = 0
    for client, (_, _, generator) in enumerate(clients):
        count, last = counts[client], steps[client]
        padded = np.zeros((fit.epochs, last // fit.epochs * width), np.int64)
        for epoch, order in enumerate(fit.orders(count, generator)):
            padded[epoch, :count] = order.numpy()
        index[:last, client] = padded.reshape(last, width) + first
        share[:last, client] = shares[count]
        first += count
    active = [sum(count > number for count in steps) for number in range(steps[0])]
    # Once for all steps: a device waits for every copy.
    places, parts = (torch.from_numpy(values).to(device) for values in (index, share))
    for number, many in enumerate(active):
        yield places[number, :many], parts[number, :many]


def _shares(fit: Fit, count: int, width: int) -> npt.NDArray[np.float32]:
    """What each place of each batch counts for: an equal part of its batch, or nothing where it is padding."""
    per_epoch = fit.steps(count) // fit.epochs
    real = (np.arange(per_epoch * width) < count).reshape(per_epoch, width)
    return np.tile(real / real.sum(1, keepdims=True), (fit.epochs, 1)).astype(np.float32)
