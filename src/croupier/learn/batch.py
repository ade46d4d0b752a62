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
    # Every call costs a device the same, however little it does; a CPU's caches hold one tensor and not all.
    whole = device.type != "cpu" if whole is None else whole
    starts = _begun([start[: net.size] for start, _, _ in clients], device, whole)
    leaves = {
        part.name: starts[:, start:stop].view(len(clients), *part.shape) for part, start, stop in net.layout.spans()
    }
    if not whole:
        leaves = {name: _laid_out(leaf) for name, leaf in leaves.items()}
    states = [fit.start(leaf) for leaf in ([starts] if whole else leaves.values())]
    heap = _Heap.of(clients)

    forward = _stacked(net.module)
    for number, (index, share) in enumerate(_plan(fit, clients, device), 1):
        active = len(index)
        inputs, targets = heap.taken(index)
        # While all are at it nothing is cut out: that would be a call for each tensor and each part of its state.
        cut = slice(active) if active < len(clients) else None
        now = {name: _of(leaf, cut).detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = forward(now, inputs)
        losses = loss_of(goal, outputs.flatten(0, 1), targets, "none")
        # Clients share no weights, so the gradient of the total is every client's own gradient.
        grads = _left(fit, torch.autograd.grad(total(losses, share), list(now.values())))
        moved: list[Tensor] = [_of(starts, cut)] if whole else [leaf.detach() for leaf in now.values()]
        along = [torch.cat([grad.flatten(1) for grad in grads], 1)] if whole else grads
        for weights, grad, state in zip(moved, along, states, strict=True):
            fit.step(weights, grad, {key: _of(held, cut) for key, held in state.items()}, number)
    return list(home(starts if whole else torch.cat([leaf.flatten(1) for leaf in leaves.values()], 1)))


def _of(values: Tensor, cut: slice | None) -> Tensor:
    return values if cut is None else values[cut]


def _begun(starts: Sequence[Tensor], device: torch.device, own: bool) -> Tensor:
    """A row for each client. One model that is handed to all of them goes to the device once.

    Where rows need be nobody's own, because they are copied tensor by tensor, that one stands for all of them.
    """
    if all(start.data_ptr() == starts[0].data_ptr() for start in starts):
        one = starts[0].to(device)
        return one.repeat(len(starts), 1) if own else one.expand(len(starts), -1)
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
    turned = leaf.transpose(1, 2) if leaf.dim() == 3 else leaf
    mine = turned.clone(memory_format=torch.contiguous_format)
    return mine.transpose(1, 2) if leaf.dim() == 3 else mine


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

    def taken(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Each client's inputs, and all targets one after another."""
        places = index.flatten()
        # Whole records are copied; by its square form, an index is applied number by number.
        inputs = self.x.index_select(0, places)
        return inputs.view(*index.shape, *inputs.shape[1:]), self.y.index_select(0, places)


def total(losses: Tensor, share: Tensor) -> Tensor:
    """The sum of each record's mean loss times its share, in one step there and one back."""
    each = losses.numel() // share.numel()
    parts = share.to(losses.dtype).flatten()
    # Gradients from outside would do without a sum, but torch loads a library of symbols before it takes them.
    return torch.dot(losses.reshape(-1), parts if each == 1 else (parts / each).repeat_interleave(each))


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
