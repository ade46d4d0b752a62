"""DP-SGD on a network: gradients of single records, clipped, added up and noised before an optimiser sees them.

`learn.train` calls `train_privately` where the description's `task.fit` is private. The sum of clipped gradients can be
had in three ways (`clipping` chooses): by products for perceptrons, by torch's vmap, or by Opacus (`learn.sampled`).
`learn.apart` finds out whether the guarantee holds for a network at all, and `learn.budget` what it amounts to.
`audit.membership` takes gradients of single records from here, and `learn.single` the clipping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from croupier.core.coins import Node
from croupier.errors import SpecError
from croupier.learn.data import Records
from croupier.learn.dp_fit import Private
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.models.mlp import Perceptron
from croupier.learn.sampled import sampling
from croupier.learn.unroll import unrolled

# Gradients of single records that are held at once, as floats: a record has as many as the model has weights. A device
# has more room than a CPU's caches, and pays for every call.
ROOM, ON_DEVICE = 1 << 24, 1 << 27


LAYERS = "use layers that treat each record alone, such as nn.LayerNorm or nn.GroupNorm"


def check_private(module: nn.Module, use: str = "dp-sgd") -> None:
    """Raises: SpecError when a record has no gradient of its own, or statistics of records would leave unnoised."""
    for name, part in module.named_modules():
        mixes = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if mixes or (isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats):
            raise SpecError(
                f"task.fit = {use!r}: the model's {name or 'whole'} ({type(part).__name__}) normalises over batches "
                "or keeps statistics of them, so that a record has no gradient of its own to clip; use a model "
                "without, such as 'mlp' or 'mnist-cnn'"
            )


def train_privately(
    net: FlatNet, goal: str, fit: Private, records: Records, coins: Node, augment: Callable[[Tensor], Tensor]
) -> None:
    """Take all steps of one participation, in place. Raises: SpecError when anything changes that gets no noise.

    Who is in a batch is as secret as the noise, so both are drawn from secure coins.
    """
    count, device = len(records), net.weights.device
    kept = {name: value.clone() for name, value in net.module.named_buffers() if value.is_floating_point()}
    draws, noise = coins.child("sample").secure(), coins.child("noise").secure()
    state = fit.start(net.weights)
    room = ROOM if device.type == "cpu" else ON_DEVICE
    with clipping(net, goal, fit) as sums:
        for number, index in enumerate(fit.samples(count, draws), 1):
            total, before = torch.zeros_like(net.weights), net.weights.clone()
            for part in index.split(max(1, room // max(1, net.size))):  # type: ignore[no-untyped-call]
                inputs, targets = records.batch(part.to(device))
                if len(part):
                    total += sums(augment(inputs), targets)
            # Tried before the run, and held to in it: nothing but noised steps changes what will leave.
            if not same(before, net.weights):
                raise SpecError(f"task.fit = {fit.use!r}: {moved('weights', weight=True)}")
            fit.noised(net.weights, total, fit.rate(count) * count, state, number, noise)
    for name, value in net.module.named_buffers():
        if name in kept and not same(kept[name], value):
            raise SpecError(f"task.fit = {fit.use!r}: {moved(name)}")


def same(one: Tensor, other: Tensor) -> bool:
    """The very same numbers; what is no number is like itself."""
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def moved(name: str, weight: bool = False) -> str:
    """What is wrong with state that training changes besides the noised steps, and the remedy."""
    if weight:
        return (
            f"the model changes its weight {name!r} by itself while it trains, besides the noised steps, so that "
            "records would leave without noise; let the optimiser alone change weights"
        )
    return (
        f"the model's buffer {name!r} changes while it trains, and would leave without noise; use a layer that keeps "
        "no statistics, such as nn.LayerNorm or nn.GroupNorm"
    )


@contextmanager
def clipping(net: FlatNet, goal: str, fit: Private) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
    """What gives the sum of some records' gradients, each of them clipped: without laying them all out where it can."""
    module = net.module
    whole = all(weight.requires_grad for weight in module.parameters())
    if fit.engine == "vmap" and goal == "classify" and isinstance(module, Perceptron) and whole:
        yield lambda inputs, targets: of_products(module, inputs, targets, fit.clip)
    else:
        with gradients(net, goal, fit) as grads:
            yield lambda inputs, targets: clipped(grads(inputs, targets), fit.clip)


@contextmanager
def gradients(net: FlatNet, goal: str, fit: Private) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
    """What gives each record's gradient: torch's own vmap, or Opacus."""
    if fit.engine == "opacus":
        with sampling(net, goal) as found:
            yield found
    else:
        module = unrolled(net.module)
        yield lambda inputs, targets: each(module, goal, inputs, targets)


def each(module: nn.Module, goal: str, inputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of every record alone, as rows in the order of the flat weights."""

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss_of(goal, functional_call(module, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    now = {name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad}
    # Dropout draws a mask for each record.
    grads = vmap(grad(loss), (None, 0, 0), randomness="different")(now, inputs, targets)
    return torch.cat([grads[name].flatten(1) for name in now], 1)


def of_products(module: Perceptron, inputs: Tensor, targets: Tensor, clip: float) -> Tensor:
    """The sum of clipped gradients of a perceptron's linear layers, in the order of the flat weights.

    A record's gradient of such a layer is the product of what came in and of the loss's gradient by what went out: the
    length of one is the product of the lengths, and a sum of products is one product of matrices (Goodfellow 2015).
    """
    fed: list[tuple[nn.Module, Tensor, Tensor]] = []
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    hooks = [
        part.register_forward_hook(lambda own, got, out: fed.append((own, got[0].detach(), out))) for part in layers
    ]
    try:
        loss = loss_of("classify", module(inputs), targets, "sum")
    finally:
        for hook in hooks:
            hook.remove()
    felt = torch.autograd.grad(loss, [out for _, _, out in fed])
    squares = torch.stack([(x.square().sum(1) + 1) * d.square().sum(1) for (_, x, _), d in zip(fed, felt, strict=True)])
    norms = squares.sum(0).sqrt()
    pairs = [(x, d) for (_, x, _), d in zip(fed, felt, strict=True)]
    # Asked once: a device waits at every choice of rows.
    if not bool((fine := norms.isfinite()).all()):
        norms, pairs = norms[fine], [(x[fine], d[fine]) for x, d in pairs]
    share = (clip / norms.clamp(min=clip)).unsqueeze(1)
    found = {id(own): (x, d * share) for (own, _, _), (x, d) in zip(fed, pairs, strict=True)}
    parts = [part for own in layers for x, d in [found[id(own)]] for part in ((d.T @ x).flatten(), d.sum(0))]
    return torch.cat(parts)


def clip_and_noise(fit: Fit) -> tuple[float, float] | None:
    """The norm that a record's gradient is clipped to, and the noise in units of it; None where there is none."""
    return (fit.clip, fit.noise) if isinstance(fit, Private) else None


def clipped(rows: Tensor, clip: float) -> Tensor:
    """The sum of the rows, each shortened to the norm `clip`; one that is not finite counts for nothing."""
    norms = rows.norm(dim=1)
    if not bool((fine := norms.isfinite()).all()):
        rows, norms = rows[fine], norms[fine]
    total: Tensor = (clip / norms.clamp(min=clip)) @ rows
    return total
