"""Inverting Gradients on many uploads at once, for a GPU that a single search leaves mostly idle.

The searches are independent: the objectives are added up, and the gradient of that sum by one record is the gradient of
that record's own objective. Tazza's Table 2 (`papers.tazza.inversion_targets`) uses it where a device is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.learn.flat import layout_of
from croupier.learn.gradient_search import descend
from croupier.learn.gradients import twice
from croupier_lab.attacks.gradient_search import Inverting


def inverting_stacked(
    recipe: Inverting,
    module: nn.Module,
    models: Tensor,
    gradients: Tensor,
    labels: Tensor,
    shape: Sequence[int],
    coins: Sequence[Coins],
) -> Tensor:
    """The one record behind each gradient: rows of `models`, `gradients`, `labels` and `coins` belong together.

    They are the same searches as `inverting` makes one by one, from the same starts, up to rounding. Raises: SpecError
    when a recipe asks for labels to be recovered or for no start at all, or when the numbers of rows differ.
    """
    if recipe.labels != "known":
        raise SpecError(f"labels = {recipe.labels!r}: stacked searches take declared labels; use 'known'")
    if len({len(models), len(gradients), len(labels), len(coins)}) != 1:
        counts = f"{len(models)} models, {len(gradients)} gradients, {len(labels)} labels, {len(coins)} coins"
        raise SpecError(f"{counts}: stacked searches need as many of each")
    gradient = _gradients(module, models)
    best: tuple[Tensor, Tensor] | None = None
    for number in range(recipe.restarts):
        starts = [torch.randn((1, *shape), generator=one.child(number).fast()) for one in coins]
        search = torch.stack(starts).to(gradients).requires_grad_()
        descend(recipe, search, partial(_objective, recipe, gradient, search, gradients, labels))
        found = (search.detach() * recipe.deviation + recipe.mean)[:, 0]
        with torch.no_grad():
            losses = _turned(gradient(found.unsqueeze(1), labels), gradients).nan_to_num(torch.inf)
        if best is not None:
            better = (losses < best[1]).view(-1, *(1 for _ in shape))
            found, losses = torch.where(better, found, best[0]), torch.minimum(losses, best[1])
        best = found, losses
    if best is None:
        raise SpecError(f"restarts = {recipe.restarts}: an attack starts at least once")
    return best[0]


def _gradients(module: nn.Module, models: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from records and labels to every model's gradient on its own record, as rows."""
    network = module.to(models.device).eval()
    parts = {
        part.name: (part.role, models[:, start:stop].view(len(models), *part.shape))
        for part, start, stop in layout_of(network).spans()
    }
    weights = {name: values for name, (role, values) in parts.items() if role == "weight"}
    still = {name: values for name, (role, values) in parts.items() if role != "weight"}

    def loss(own: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(network, own | rest, (inputs,)), labels)

    every = vmap(grad(loss))

    def rows(inputs: Tensor, labels: Tensor) -> Tensor:
        with twice(network):
            found = every(weights, still, inputs, labels.unsqueeze(1))
        return torch.cat([found[name].flatten(1) for name in weights], 1)

    return rows


def _objective(
    recipe: Inverting, gradient: Callable[[Tensor, Tensor], Tensor], search: Tensor, gradients: Tensor, labels: Tensor
) -> Tensor:
    """The sum of all searches' own objectives; each record occurs in one of them only."""
    apart = _turned(gradient(search * recipe.deviation + recipe.mean, labels), gradients)
    rough = sum(search.diff(dim=side).abs().flatten(1).mean(1) for side in (-1, -2))
    return (apart + recipe.variation * rough).sum()


def _turned(ours: Tensor, theirs: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(ours, theirs, dim=1)
