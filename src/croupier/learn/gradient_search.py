"""Gradient inversion: records searched for by a gradient, where `learn.layer_gradients` cannot read them off.

The search is that of Geiping et al. 2020 (Inverting Gradients). It is given the public network with the weights handed
out, a gradient, and what it assumes; it never sees the truth. `audit.attacks.reconstruction` uses it, and so do
attacks of the laboratory (`croupier_lab.attacks.gradient_search`, `croupier_lab.attacks.permuted_upload`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import SpecError, Unsuited
from croupier.learn.gradients import Loss, evaluation_copy, gradient_of

Span = tuple[int, int]


@dataclass(frozen=True)
class Target:
    """A gradient, one vector over all weights that are learnt, and what is assumed of the records behind it.

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
class SearchRecipe:
    """How Inverting Gradients searches: the command line's defaults as published.

    `variation` weighs total variation: results of two settings with different weights cannot be compared. The search
    runs in pixels less `mean`, in units of `deviation`, and stays within pixels of 0 to 1 where it is `boxed`.
    """

    steps: int = 24_000
    lr: float = 0.1
    variation: float = 1e-4
    signed: bool = True
    boxed: bool = True
    mean: float = 0.5
    deviation: float = 0.5


def search_records(
    recipe: SearchRecipe, module: nn.Module, target: Target, coins: Coins, by: Loss = functional.cross_entropy,
    begin: Tensor | None = None,
) -> tuple[Tensor, float]:  # fmt: skip
    """Records with the target's gradient and declared labels, and how far theirs is from it: one less the cosine.

    One cosine over all weights plus total variation, by Adam on signs. It begins at noise, as published, or at records
    that are given to `begin` with, which takes far fewer steps. Raises: Unsuited where the network's gradient cannot be
    differentiated; SpecError unless there is one label for each record.
    """
    if target.labels is None or len(target.labels) != target.records:
        raise SpecError(f"a search needs labels: declare one for each of {target.records} records")
    network, labels = evaluation_copy(module), target.labels.to(target.gradient.device)
    drawn = torch.randn((target.records, *target.shape), generator=coins.fast())
    search = (drawn if begin is None else (begin - recipe.mean) / recipe.deviation).to(target.gradient)
    search.requires_grad_()

    def objective() -> Tensor:
        guess = gradient_of(network, search * recipe.deviation + recipe.mean, labels, True, by)
        return cosine_distance(guess, target) + recipe.variation * variation(search)

    try:
        descend(recipe, search, objective)
    except RuntimeError as error:
        # torch has no second derivative for some layers, and says so only when it is asked for.
        if "derivative" not in str(error):
            raise
        why = str(error).partition("\n")[0]
        raise Unsuited(f"a search differentiates the network's gradient, which cannot be done here ({why})") from error
    records = search.detach() * recipe.deviation + recipe.mean
    return records, float(cosine_distance(gradient_of(network, records, labels, loss=by), target))


def descend(recipe: SearchRecipe, search: Tensor, objective: Callable[[], Tensor]) -> None:
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


def cosine_distance(guess: Tensor, target: Target) -> Tensor:
    """One less the cosine between a guess and the target, over the coordinates that count."""
    ours = torch.cat([guess[start:stop] for start, stop in target.counted])
    theirs = torch.cat([target.gradient[start:stop] for start, stop in target.counted])
    return 1 - functional.cosine_similarity(ours, theirs, dim=0)
