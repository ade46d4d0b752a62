"""Gradient inversion as published, with restarts: DLG and Inverting Gradients, and the linking of shuffled layers.

`dlg` is after Zhu et al. 2019, `single_label` after Zhao et al. 2020, and `inverting` after Geiping et al. 2020 (its
search is `learn.gradient_search.search_records`). `linked`, which joins shuffled layers of one client, is our own. An
attack is given the public network with the weights that were handed out, a gradient, and what it assumes. It never sees
the truth, and chooses between restarts by its own loss. RNS's Figure 8 (`papers.rns.inversion`) and Tazza's Table 2
(`papers.tazza.inversion_targets`) mount them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import SpecError, Unsuited
from croupier.learn.ends import in_order_of_use, last_gradient, last_layer
from croupier.learn.flat import layout_of
from croupier.learn.gradient_search import SearchRecipe, Span, Target, search_records
from croupier.learn.gradients import evaluation_copy, gradient_of
from croupier.learn.layer_gradients import counted_labels

Defence = Literal["none", "model shuffle", "layer shuffle", "parameter shuffle", "sum"]
DEFENCES: tuple[Defence, ...] = ("none", "model shuffle", "layer shuffle", "parameter shuffle", "sum")


@dataclass(frozen=True)
class Found:
    """Pictures, the chances of their classes, the attack's own loss, and that of every restart."""

    pictures: Tensor
    labels: Tensor
    loss: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Dlg:
    """How Deep Leakage from Gradients searches: as published. `restarts` counts all starts, the first included.

    `enough` is a loss below which it stops, and no further restart is begun. `inner` and `history` are the number of
    inner iterations and the memory of L-BFGS.
    """

    steps: int = 300
    lr: float = 1.0
    inner: int = 20
    history: int = 100
    restarts: int = 1
    enough: float = 0.0


@dataclass(frozen=True)
class Inverting(SearchRecipe):
    """How Inverting Gradients is mounted: its search, restarts, and where labels come from.

    With labels "known" it takes those that the target declares, with "recovered" it reads them off the gradient.
    """

    restarts: int = 1
    labels: Literal["known", "recovered"] = "recovered"


Attack = Callable[[nn.Module, Target, Coins], Found]


def single_label(module: nn.Module, target: Target) -> Tensor:
    """The class of a single record, trained by cross-entropy: its row of the last layer's gradient has the lowest sum.

    Each row is the layer's input times the chance of its class, less 1 for the true class. So the true row alone has a
    negative factor, and the input is not negative after a ReLU.
    """
    weight, _ = last_gradient(module, target.gradient, target.shape)
    return weight.sum(1).argmin().reshape(1)


def labels_by(name: Literal["known", "recovered"], module: nn.Module, target: Target, coins: Coins) -> Tensor:
    """Labels from where the name says. Raises: SpecError when they are to be known and were not declared."""
    if name == "recovered":
        if target.records == 1:
            return single_label(module, target)
        return counted_labels(target.gradient, module, target.records, target.shape, coins)
    if target.labels is None or len(target.labels) != target.records:
        raise SpecError(f"labels = 'known': declare one for each of {target.records} records, or use 'recovered'")
    return target.labels.to(target.gradient.device)


def dlg(recipe: Dlg = Dlg()) -> Attack:  # noqa: B008 - frozen
    """Deep Leakage from Gradients: pictures and soft labels at once, by L-BFGS on the squared distance.

    Labels that the target declares are not used: they are found with the pictures.
    """

    def attack(module: nn.Module, target: Target, coins: Coins) -> Found:
        network = evaluation_copy(module)
        return best_restart(recipe.restarts, recipe.enough, lambda number: once(network, target, coins.child(number)))

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
            loss = squared(guess, target)
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


def inverting(recipe: Inverting = Inverting()) -> Attack:  # noqa: B008 - frozen
    """Inverting Gradients: one cosine over all weights plus total variation, by Adam on signs; labels come first."""

    def attack(module: nn.Module, target: Target, coins: Coins) -> Found:
        labels = labels_by(recipe.labels, evaluation_copy(module), target, coins.child("labels"))
        known = replace(target, labels=labels)
        return best_restart(recipe.restarts, -math.inf, lambda number: once(module, known, coins.child(number)))

    def once(module: nn.Module, target: Target, coins: Coins) -> Found:
        pictures, loss = search_records(recipe, module, target, coins)
        assert target.labels is not None
        chances = functional.one_hot(target.labels, target.classes).to(target.gradient)
        return Found(pictures, chances, loss, ())

    return attack


def best_restart(count: int, enough: float, once: Callable[[int], Found]) -> Found:
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


def squared(guess: Tensor, target: Target) -> Tensor:
    """The squared distance of a guess from the target, over the coordinates that the target counts."""
    parts = [(guess[start:stop] - target.gradient[start:stop]).square().sum() for start, stop in target.counted]
    return torch.stack(parts).sum()


@dataclass(frozen=True)
class Seen:
    """What a defence leaves of clients' gradients: rows, in the clients' order only under no defence, and the mean."""

    rows: Tensor | None
    mean: Tensor


def seen(defence: Defence, gradients: Tensor, module: nn.Module, coins: Coins) -> Seen:
    """What the server sees of one FedSGD step, of which `gradients` has one row a client.

    Raises: SpecError on a defence that is not known.
    """
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
    """The coordinates of each layer in a gradient; buffers such as running statistics are not part of it."""
    found: dict[str, list[Span]] = {}
    for part, start, stop in layout_of(module).spans():
        if part.role == "weight":
            found.setdefault(part.layer, []).append((start, stop))
    return {name: tuple(spans) for name, spans in found.items()}


def linked(attack: Attack, module: nn.Module, rows: Tensor, anchor: int, target: Target, coins: Coins) -> Found:
    """One client's pictures from rows whose layers were shuffled among the clients.

    The last layer of row `anchor` is whole, so it is inverted alone first. What that finds has a gradient in the layer
    before too, and the nearest piece there is taken to be the same client's; then both are inverted together, and so
    on to the first layer. Backwards, because what a layer's gradient is made of, its errors and its inputs, is what
    the layers after it already tell. The target says what is assumed of the records; its gradient is not looked at.
    """
    spans, network = layers(module), evaluation_copy(module)
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
