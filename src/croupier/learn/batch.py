"""Small models of many clients trained as one stacked model.

A client of a few hundred records leaves a processor idle most of the time. Here the models of many such clients are
stacked along a new first axis and take each step together, every client on its own batch and with its own optimiser
state. How many are stacked is the description's choice (`task.together`), because sums then round differently in their
last bits; which ones follows from their sizes. `learn.train` decides between this and training one by one, and is the
only caller of `train_together`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from croupier.learn.data import Records
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet
from croupier.learn.loss import USUAL, loss_of

Client = tuple[Tensor, Records, torch.Generator]
# The gradient of each of the stacked weights, by one batch a client, its targets, and what each record counts for.
Gradients = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]
# A thread's least share of the weights: with fewer of them a step is over before another thread is awake.
_SHARE = 1 << 15


def train_together(
    net: FlatNet, goal: str, fit: Fit, clients: Sequence[Client], whole: bool | None = None, threads: int = 1
) -> list[Tensor]:
    """Train each client from its start on its own records; the same steps as alone, up to rounding.

    Clients come with most records first: those who are done early form the tail, which later steps leave alone.
    `whole` (not `fit.whole`): a step takes all weights at once and not tensor by tensor; by default on a device alone.
    `threads`: among how many the clients of a step are divided, where gradients are made by hand; see `offers_by_hand`.
    """
    device = net.weights.device
    # Every call costs a device the same, however little it does; a CPU's caches hold one tensor and not all.
    whole = device.type != "cpu" if whole is None else whole
    threads = threads if not whole and offers_by_hand(net.module, goal) else 1
    starts = _begun([start for start, _, _ in clients], net.size, device, whole)
    leaves = {
        part.name: starts[:, start:stop].view(len(clients), *part.shape) for part, start, stop in net.layout.spans()
    }
    if not whole:
        leaves = {name: _laid_out(leaf) for name, leaf in leaves.items()}
    states = [fit.start(leaf) for leaf in ([starts] if whole else leaves.values())]
    heap = _Heap.of(clients)

    gradients = _gradients(net.module, goal, leaves, min(fit.batch, len(clients[0][1])), whole)
    weights = [starts] if whole else list(leaves.values())
    moved, now, active = weights, states, 0
    for number, (index, share) in enumerate(_plan(fit, clients, device), 1):
        if len(index) != active:
            active = len(index)
            torch.set_num_threads(_worth(threads, active, net.size))
            moved = [leaf[:active] for leaf in weights]
            now = [{key: held[:active] for key, held in state.items()} for state in states]
        grads = _left(fit, gradients(*heap.taken(index), share))
        along = [torch.cat([grad.flatten(1) for grad in grads], 1)] if whole else grads
        for leaf, grad, state in zip(moved, along, now, strict=True):
            fit.step(leaf, grad, state, number)
    return list(home(starts if whole else _rows(list(leaves.values()))))


def offers_by_hand(module: nn.Module, goal: str) -> bool:
    """Whether a module's gradients can be made by hand on a CPU.

    Several threads may then share each call, because they divide the clients and not what is added up for one of them:
    the same bits come out. Torch's automatic gradients promise no such thing, and are left to one thread.
    """
    return hasattr(module, "by_hand") and USUAL.get(goal, goal) == "cross-entropy"


def _worth(threads: int, clients: int, size: int) -> int:
    """How many threads a step is divided among: each has whole clients, and enough to do to be worth waking."""
    return max(1, min(threads, clients, clients * size // _SHARE))


def _gradients(module: nn.Module, goal: str, leaves: Mapping[str, Tensor], width: int, whole: bool) -> Gradients:
    """Each leaf's gradient of one batch a client: by hand where the module offers that, else torch's automatic one."""
    if not whole and offers_by_hand(module, goal):
        return cast(Callable[[Mapping[str, Tensor], int], Gradients], module.by_hand)(leaves, width)
    forward = _stacked(module)

    def automatic(inputs: Tensor, targets: Tensor, share: Tensor) -> Sequence[Tensor]:
        held = {name: leaf[: len(inputs)].detach().requires_grad_() for name, leaf in leaves.items()}
        outputs = forward(held, inputs)
        losses = loss_of(goal, outputs.flatten(0, 1), targets, "none")
        # Clients share no weights, so the gradient of the total is every client's own gradient.
        return torch.autograd.grad(total(losses, share), list(held.values()))

    return automatic


def _begun(starts: Sequence[Tensor], size: int, device: torch.device, own: bool) -> Tensor:
    """A row of weights for each client. One model that is handed to all of them goes to the device once.

    With `own` each client then gets a copy of that model. Without, one row of it stands for all, because the caller
    copies tensors.
    """
    model = starts[0]
    if all(start is model or start.data_ptr() == model.data_ptr() for start in starts):
        one = model[:size].to(device)
        return one.repeat(len(starts), 1) if own else one.expand(len(starts), -1)
    return torch.stack([start[:size] for start in starts]).to(device)


def home(rows: Tensor) -> Tensor:
    """Rows on the CPU. What comes from a GPU goes to pinned memory, into which the GPU writes by itself."""
    if rows.device.type != "cuda":
        return rows.cpu()
    return torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True).copy_(rows)


def _left(fit: Fit, grads: Sequence[Tensor]) -> Sequence[Tensor]:
    """Each client's gradient after a fit's pruning, tensor by tensor again; without a copy where it prunes nothing."""
    if fit.whole:
        return grads
    rows = fit.left(torch.cat([grad.flatten(1) for grad in grads], 1))
    parts = rows.split([grad[0].numel() for grad in grads], 1)  # type: ignore[no-untyped-call]
    return tuple(part.view_as(grad) for part, grad in zip(parts, grads, strict=True))


def _laid_out(leaf: Tensor) -> Tensor:
    """Matrices column by column in memory, as their gradients come: a step then runs through both in one order."""
    if leaf.dim() != 3:
        return leaf.clone(memory_format=torch.contiguous_format)
    # One model that stands for all is turned once.
    one = leaf[:1] if leaf.stride(0) == 0 else leaf
    turned = one.transpose(1, 2).contiguous().expand(len(leaf), -1, -1)
    return turned.clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _rows(leaves: Sequence[Tensor]) -> Tensor:
    """Each client's weights in one row, copied once from where they lie."""
    sizes = [leaf[0].numel() for leaf in leaves]
    rows = torch.empty(len(leaves[0]), sum(sizes))
    parts = rows.split(sizes, 1)  # type: ignore[no-untyped-call]
    for part, leaf in zip(parts, leaves, strict=True):
        part.unflatten(1, leaf.shape[1:]).copy_(leaf)
    return rows


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
        # A flat index copies whole records; `x[index]` would copy them number by number.
        inputs = self.x.index_select(0, places)
        return inputs.view(*index.shape, *inputs.shape[1:]), self.y.index_select(0, places)


def total(losses: Tensor, share: Tensor) -> Tensor:
    """The sum of each record's mean loss times its share, as one operation forward and one backward."""
    each = losses.numel() // share.numel()
    parts = share.to(losses.dtype).flatten()
    # `share` could be handed to torch as the gradient of the losses instead, but torch would import sympy for that.
    return torch.dot(losses.reshape(-1), parts if each == 1 else (parts / each).repeat_interleave(each))


def _plan(fit: Fit, clients: Sequence[Client], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step, which records of the heap each active client trains on, and what each counts for.

    Short batches are padded by records that count for nothing.
    """
    counts = [len(records) for _, records, _ in clients]
    most, width = fit.steps(counts[0]), min(fit.batch, counts[0])
    index = np.zeros((most, len(clients), width), np.int64)
    share = np.zeros((most, len(clients), width), np.float32)
    active = np.zeros(most, np.int64)
    first = begin = 0
    # Clients of equally many records stand side by side: their orders are laid down in one call.
    for count, alike in groupby(counts):
        many, last = len(list(alike)), fit.steps(count)
        end = begin + many
        orders = [order for _, _, generator in clients[begin:end] for order in fit.orders(count, generator)]
        firsts = first + count * np.arange(many).reshape(-1, 1, 1)
        padded = np.zeros((many, fit.epochs, last // fit.epochs * width), np.int64)
        padded[:, :, :count] = torch.cat(orders).numpy().reshape(many, fit.epochs, count)
        index[:last, begin:end] = (padded + firsts).reshape(many, last, width).swapaxes(0, 1)
        share[:last, begin:end] = _shares(fit, count, width)[:, None]
        active[:last] = end
        first, begin = first + count * many, end
    # Once for all steps: a device waits for every copy.
    places, parts = (torch.from_numpy(values).to(device) for values in (index, share))
    for number, many in enumerate(active.tolist()):
        yield places[number, :many], parts[number, :many]


def _shares(fit: Fit, count: int, width: int) -> npt.NDArray[np.float32]:
    """What each place of each batch counts for: an equal part of its batch, or nothing where it is padding."""
    per_epoch = fit.steps(count) // fit.epochs
    real = (np.arange(per_epoch * width) < count).reshape(per_epoch, width)
    return np.tile(real / real.sum(1, keepdims=True), (fit.epochs, 1)).astype(np.float32)
