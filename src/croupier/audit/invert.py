"""Gradient inversion: pictures from what a server saw of gradients.

From: Zhu et al. 2019 (`dlg`), Zhao et al. 2020 (`single_label`), Geiping et al. 2020 (`inverting`). The counting of
labels in batches and the linking of shuffled layers are ours. An attack is given the public network with the weights
handed out, a gradient, and what it assumes; it never sees the truth, and chooses between restarts by its own loss.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import RangeError, SpecError, Unsuited
from croupier.learn.ends import in_order_of_use, last_gradient, last_layer
from croupier.learn.flat import layout_of

Span = tuple[int, int]
Defence = Literal["none", "model shuffle", "layer shuffle", "parameter shuffle", "sum"]
DEFENCES: tuple[Defence, ...] = ("none", "model shuffle", "layer shuffle", "parameter shuffle", "sum")


@dataclass(frozen=True)
class Target:
    """A gradient, one vector over all weights, and what is assumed of the records behind it.

    `labels` are declared knowledge, or None. `only` are the coordinates that count; all of them when not set.
    """

    gradient: Tensor
    records: int
    shape: tuple[int, ...]
    classes: int
    labels: Tensor | None = None
    only: tuple[Span, ...] | None = None

    @property
    def counted(self) -> tuple[Span, ...]:
        """The coordinates that count."""
        return ((0, len(self.gradient)),) if self.only is None else self.only


@dataclass(frozen=True)
class Found:
    """Pictures, the chances of their classes, the attack's own loss, and that of every restart."""

    pictures: Tensor
    labels: Tensor
    loss: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Dlg:
    """How Deep Leakage from Gradients searches: as published, with one restart.

    `enough`: a loss below which it stops; restarts that are left are not begun. `inner` and `history` are L-BFGS's.
    """

    steps: int = 300
    lr: float = 1.0
    inner: int = 20
    history: int = 100
    restarts: int = 1
    enough: float = 0.0


@dataclass(frozen=True)
class Inverting:
    """How Inverting Gradients searches: the command line's defaults as published.

    `variation` weighs total variation: part of the setting, never comparable across. The search runs in pixels less
    `mean`, in units of `deviation`, and stays within pixels of 0 to 1. `labels`: "known" takes those of the target,
    "recovered" reads them in the gradient.
    """

    steps: int = 24_000
    lr: float = 0.1
    variation: float = 1e-4
    signed: bool = True
    boxed: bool = True
    restarts: int = 1
    labels: Literal["known", "recovered"] = "recovered"
    mean: float = 0.5
    deviation: float = 0.5


Attack = Callable[[nn.Module, Target, Coins], Found]


# Gradients


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
    """Where a network that runs can be differentiated twice: cuDNN's recurrent layers cannot, torch's own can."""
    if not any(isinstance(part, nn.RNNBase) for part in module.modules()):
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=False)


def gradient_from(update: Tensor, start: Tensor, lr: float, steps: int = 1) -> Tensor:
    """The gradient behind new weights.

    Exact for one step of plain SGD; over several steps it is their mean gradient, and treated as if all were taken at
    the start, which is an approximation, as it is under momentum, decay or an adaptive optimiser.
    """
    if lr <= 0 or steps < 1 or update.shape != start.shape:
        shapes = f"weights {tuple(update.shape)} from {tuple(start.shape)}"
        raise RangeError(f"{shapes}, lr = {lr}, steps = {steps}: needs one shape, a positive rate and a step")
    return (start - update) / (lr * steps)


# Labels


def single_label(module: nn.Module, target: Target) -> Tensor:
    """The class of a single record: its row of the last layer's gradient has the lowest sum.

    That row is the only one times a negative number, while what enters the layer is not negative.
    """
    weight, _ = last_gradient(module, target.gradient, target.shape)
    return weight.sum(1).argmin().reshape(1)


def counted_labels(module: nn.Module, target: Target, coins: Coins, draws: int = 64) -> Tensor:
    """The classes of several records, from the last biases: their gradient is a class's mean chance less its share.

    The chances are those that the network gives to noise, close to right only before training. Raises: SpecError for
    a last layer without biases.
    """
    _, bias = last_gradient(module, target.gradient, target.shape)
    if bias is None:
        raise SpecError("labels of several records are read in the last biases, and there are none; declare them")
    noise = torch.rand((draws, *target.shape), generator=coins.fast()).to(target.gradient)
    with torch.no_grad():
        chances = module(noise).softmax(1).mean(0)
    left = (chances - bias) * target.records
    labels = []
    for _ in range(target.records):
        labels.append(int(left.argmax()))
        left[labels[-1]] -= 1
    return torch.tensor(sorted(labels), device=target.gradient.device)


def labels_by(name: Literal["known", "recovered"], module: nn.Module, target: Target, coins: Coins) -> Tensor:
    """Labels from where the name says. Raises: SpecError when they are to be known and were not declared."""
    if name == "recovered":
        return single_label(module, target) if target.records == 1 else counted_labels(module, target, coins)
    if target.labels is None or len(target.labels) != target.records:
        raise SpecError(f"labels = 'known': declare one for each of {target.records} records, or use 'recovered'")
    return target.labels.to(target.gradient.device)


# Attacks


def dlg(recipe: Dlg = Dlg()) -> Attack:  # noqa: B008 - frozen
    """Deep Leakage from Gradients: pictures and soft labels at once, by L-BFGS on the squared distance.

    Labels that the target declares are not used: they are found with the pictures.
    """

    def attack(module: nn.Module, target: Target, coins: Coins) -> Found:
        network = _still(module)
        return _restarts(recipe.restarts, recipe.enough, lambda number: once(network, target, coins.child(number)))

    def once(network: nn.Module, target: Target, coins: Coins) -> Found:
        generator, like = coins.fast(), target.gradient
        pictures = torch.randn((target.records, *target.shape), generator=generator).to(like).requires_grad_()
        leanings = torch.randn((target.records, target.classes), generator=generator).to(like).requires_grad_()
        search = torch.optim.LBFGS(
            [pictures, leanings], lr=recipe.lr, max_iter=recipe.inner, history_size=recipe.history
        )

        def closure() -> Tensor:
            search.zero_grad()
            guess = gradient_of(network, pictures, leanings.softmax(1), differentiable=True)
            loss = _squared(guess, target)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        before = math.inf
        for _ in range(recipe.steps):
            loss = float(search.step(closure))  # type: ignore[no-untyped-call]
            # The same loss twice: L-BFGS found no step any more, and will not later.
            if not math.isfinite(loss) or loss < recipe.enough or loss == before:
                break
            before = loss
        return Found(pictures.detach(), leanings.detach().softmax(1), float(closure()), ())

    return attack


def inverting(
    recipe: Inverting = Inverting(), by: Loss = functional.cross_entropy, begin: Tensor | None = None  # noqa: B008 - frozen
) -> Attack:  # fmt: skip
    """Inverting Gradients: one cosine over all weights plus total variation, by Adam on signs; labels come first.

    It begins at noise, as published, or at records that are given to `begin` with, which takes far fewer steps.
    """

    def attack(module: nn.Module, target: Target, coins: Coins) -> Found:
        network = _still(module)
        labels = labels_by(recipe.labels, network, target, coins.child("labels"))
        return _restarts(recipe.restarts, -math.inf, lambda number: once(network, target, labels, coins.child(number)))

    def once(network: nn.Module, target: Target, labels: Tensor, coins: Coins) -> Found:
        like = target.gradient
        drawn = torch.randn((target.records, *target.shape), generator=coins.fast())
        search = (drawn if begin is None else (begin - recipe.mean) / recipe.deviation).to(like).requires_grad_()

        def objective() -> Tensor:
            guess = gradient_of(network, search * recipe.deviation + recipe.mean, labels, True, by)
            return _turned(guess, target) + recipe.variation * variation(search)

        descend(recipe, search, objective)
        pictures = search.detach() * recipe.deviation + recipe.mean
        loss = _turned(gradient_of(network, pictures, labels, loss=by), target)
        chances = labels if labels.is_floating_point() else functional.one_hot(labels, target.classes)
        return Found(pictures, chances.to(like), float(loss), ())

    return attack


def descend(recipe: Inverting, search: Tensor, objective: Callable[[], Tensor]) -> None:
    """Lower an objective of the search, in place: Adam, slower after 3, 5 and 7 eighths of the steps."""
    adam = torch.optim.Adam([search], lr=recipe.lr)
    turns = [recipe.steps * eighths // 8 for eighths in (3, 5, 7)]
    pace = torch.optim.lr_scheduler.MultiStepLR(adam, turns, 0.1)
    low, high = (0 - recipe.mean) / recipe.deviation, (1 - recipe.mean) / recipe.deviation
    for _ in range(recipe.steps):
        search.grad = torch.autograd.grad(objective(), search)[0]
        if recipe.signed:
            search.grad = search.grad.sign()
        adam.step()
        pace.step()
        if recipe.boxed:
            with torch.no_grad():
                search.clamp_(low, high)


def variation(pictures: Tensor) -> Tensor:
    """Anisotropic total variation: mean absolute differences along both sides, added; a side of one has none.

    Records that are rows of numbers have none at all: which of them lie side by side means nothing.
    """
    sides = [side for side in (-1, -2) if pictures.dim() > 2 and pictures.shape[side] > 1]
    return sum((pictures.diff(dim=side).abs().mean() for side in sides), pictures.new_zeros(()))


def _restarts(count: int, enough: float, once: Callable[[int], Found]) -> Found:
    """The restart with the lowest loss of the attack's own: nothing else is at hand to choose by."""
    if count < 1:
        raise SpecError(f"restarts = {count}: an attack starts at least once")
    tries: list[Found] = []
    for number in range(count):
        tries.append(once(number))
        if tries[-1].loss < enough:
            break
    losses = tuple(one.loss if math.isfinite(one.loss) else math.inf for one in tries)
    return replace(tries[losses.index(min(losses))], losses=losses)


def _still(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode: statistics do not move, nothing is dropped."""
    return copy.deepcopy(module).eval().requires_grad_(True)


def _squared(guess: Tensor, target: Target) -> Tensor:
    parts = [(guess[start:stop] - target.gradient[start:stop]).square().sum() for start, stop in target.counted]
    return torch.stack(parts).sum()


def _turned(guess: Tensor, target: Target) -> Tensor:
    ours = torch.cat([guess[start:stop] for start, stop in target.counted])
    theirs = torch.cat([target.gradient[start:stop] for start, stop in target.counted])
    return 1 - functional.cosine_similarity(ours, theirs, dim=0)


# What a server sees


@dataclass(frozen=True)
class Seen:
    """What a defence leaves of clients' gradients: rows, in the clients' order only under no defence, and the mean."""

    rows: Tensor | None
    mean: Tensor


def seen(defence: Defence, gradients: Tensor, module: nn.Module, coins: Coins) -> Seen:
    """What the server sees of one FedSGD step: gradients are one row a client. Raises: SpecError on another name."""
    mean = gradients.double().mean(0).to(gradients.dtype)
    count, length = gradients.shape
    generator = coins.fast()
    if defence == "none":
        return Seen(gradients, mean)
    if defence == "sum":
        return Seen(None, mean)
    if defence == "model shuffle":
        return Seen(gradients[torch.randperm(count, generator=generator).to(gradients.device)], mean)
    if defence == "layer shuffle":
        rows = torch.empty_like(gradients)
        for spans in layers(module).values():
            order = torch.randperm(count, generator=generator).to(gradients.device)
            for start, stop in spans:
                rows[:, start:stop] = gradients[order, start:stop]
        return Seen(rows, mean)
    if defence == "parameter shuffle":
        order = torch.rand((count, length), generator=generator).argsort(0).to(gradients.device)
        return Seen(gradients.gather(0, order), mean)
    raise SpecError(f"defence = {defence!r}: known are {', '.join(DEFENCES)}")


def layers(module: nn.Module) -> Mapping[str, tuple[Span, ...]]:
    """The coordinates of each layer in a gradient, which holds weights and no statistics."""
    found: dict[str, list[Span]] = {}
    for part, start, stop in layout_of(module).spans():
        if part.role == "weight":
            found.setdefault(part.layer, []).append((start, stop))
    return {name: tuple(spans) for name, spans in found.items()}


def linked(attack: Attack, module: nn.Module, rows: Tensor, anchor: int, target: Target, coins: Coins) -> Found:
    """One client's pictures from rows whose layers were permuted.

    The last layer of row `anchor` is whole, so it is inverted alone first. What that finds has a gradient in the layer
    before too, and the nearest piece there is taken to be the same client's; then both are inverted together, and so
    on to the first layer. Backwards, because what a layer's gradient is made of, its errors and its inputs, is what
    the layers after it already tell. The target says what is assumed of the records; its gradient is not looked at.
    """
    spans, network = layers(module), _still(module)
    used = [name for name in in_order_of_use(module, torch.zeros(1, *target.shape)) if name in spans]
    last = last_layer(module, target.shape)
    if last not in used:
        raise Unsuited(
            f"the last layer's weights {last!r} are no module's of their own: what ran before it is not seen"
        )
    order = used[: used.index(last) + 1][::-1]
    whole, known = rows[anchor].clone(), spans[order[0]]
    found = attack(module, replace(target, gradient=whole, only=known), coins.child(order[0]))
    for name in order[1:]:
        piece = nearest_piece(rows, gradient_of(network, found.pictures, found.labels), spans[name])
        for start, stop in spans[name]:
            whole[start:stop] = rows[piece, start:stop]
        known = (*known, *spans[name])
        found = attack(module, replace(target, gradient=whole, only=known), coins.child(name))
    return found


def nearest_piece(rows: Tensor, guess: Tensor, spans: Sequence[Span]) -> int:
    """The row that lies nearest to a guess in these coordinates."""
    apart = [_apart(row, guess, spans) for row in rows]
    return apart.index(min(apart))


def _apart(one: Tensor, two: Tensor, spans: Sequence[Span]) -> float:
    """A distance without scale: a rough guess has the direction of a gradient before it has its size."""
    here, there = (torch.cat([vector[start:stop] for start, stop in spans]) for vector in (one, two))
    apart = float(1 - functional.cosine_similarity(here, there, dim=0))
    return apart if math.isfinite(apart) else math.inf
