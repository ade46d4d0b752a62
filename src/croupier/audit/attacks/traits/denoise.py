"""Auxiliary clients' updates, and what is learnt of them: to take known noise off updates, and to tell clients' traits.

These are stages 1 and 2 of IntraShuffler's section 5. Denoising is linear shrinking along the directions that auxiliary
updates span; the paper trains a network, whose form it does not name. The classifier, which the paper leaves open, is
logistic regression on those directions, its strength chosen on auxiliary clients that it was not trained on.

`audit.attacks.traits` puts the stages together, `audit.traits.auxiliary` makes the `AuxiliaryUpdates`, and the
laboratory's `attacks/tiers` tries other denoisers in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import RangeError

# So many directions at most; and the strengths of regression that are tried, in so many folds.
DIRECTIONS = 64
STRENGTHS = (1e-2, 1e-1, 1.0, 10.0)
FOLDS = 5
# Noised copies of each auxiliary update, so that a classifier does not learn one draw of the noise.
_COPIES = 3
# Groups that each auxiliary client is put into, where means of several are judged.
_GROUPS = 4
# Numbers that are denoised at once: rows of large networks would not fit into memory together.
_AT_ONCE = 1 << 25
Floats = npt.NDArray[np.float64]
# From centred rows, and the deviation of the noise in each, to centred estimates.
Denoiser = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class AuxiliaryUpdates:
    """What clients that are never among those attacked learn from the same models, and their labels.

    `updates` has sides for the studied rounds (`numbers`), the clients and the coordinates; they are clipped, and not
    noised. `labels` has each attribute, with one class a client.
    """

    numbers: tuple[int, ...]
    updates: Tensor
    labels: Mapping[str, Tensor]
    classes: Mapping[str, int]

    def means(self, numbers: Tensor) -> Tensor:
        """The auxiliary clients' mean update for each of these rounds, or for the latest studied one before it."""
        places = torch.searchsorted(torch.tensor(self.numbers), numbers, right=True) - 1
        if bool((places < 0).any()):
            raise RangeError(f"round {int(numbers.min())}: no auxiliary updates from its start or an earlier one")
        return self.updates.double().mean(1).float()[places]

    def centred(self) -> Tensor:
        """Each update around the mean of its round."""
        return self.updates.double() - self.updates.double().mean(1, keepdim=True)

    def majority(self, attribute: str) -> int:
        """The commonest class among the auxiliary clients; the lowest of several."""
        return int(torch.bincount(self.labels[attribute], minlength=self.classes[attribute]).argmax())


@dataclass(frozen=True)
class Directions:
    """Principal directions of auxiliary updates around their mean: `basis` has one a column, `spread` its variance.

    `rest` is the variance of each of the other directions, taken as alike.
    """

    basis: Tensor
    spread: Tensor
    rest: float

    @classmethod
    def of(cls, updates: Tensor, most: int = DIRECTIONS) -> Directions:
        """From updates with sides for rounds, clients and coordinates, each round around its own mean."""
        studies, clients, size = updates.shape
        if clients < 2:
            raise RangeError(f"{clients} auxiliary client: a spread takes at least 2")
        around = (updates.double() - updates.double().mean(1, keepdim=True)).reshape(-1, size)
        free = studies * (clients - 1)
        # Far fewer updates than coordinates: their inner products have the same spectrum.
        values, vectors = torch.linalg.eigh(around @ around.T)
        kept = min(most, free, size)
        found = values.flip(0)[:kept].clamp_min(0)
        some = int((found > 1e-12 * float(found[0].clamp_min(1e-300))).sum())
        found = found[:some]
        basis = around.T @ vectors.flip(1)[:, :some] / found.sqrt()
        left = max(0.0, float(values.clamp_min(0).sum() - found.sum()))
        rest = left / free / (size - some) if size > some else 0.0
        return cls(basis, found / free, rest)

    def project(self, around: Tensor) -> Tensor:
        """The coordinates of centred rows along the directions."""
        return around.double() @ self.basis


@dataclass(frozen=True)
class Wiener:
    """The best linear estimate for the auxiliary spread: each direction is kept by spread / (spread + noise variance).

    The same gain is best for a mean of n rows: signal and noise of a client both count 1/n in it.
    """

    directions: Directions

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates, centred; a row without noise stays as it is."""
        along = self.directions.project(around)
        return self.completed(around, along, along * gain(self.directions.spread, sigmas), sigmas)

    def completed(self, around: Tensor, along: Tensor, kept: Tensor, sigmas: Tensor) -> Tensor:
        """Estimates along the directions (`kept`) with the other directions of the rows, shrunk."""
        basis = self.directions.basis
        off = around.double() - along @ basis.T
        rest = torch.tensor([self.directions.rest], dtype=torch.float64)
        return kept @ basis.T + off * gain(rest, sigmas)


def gain(spread: Tensor, sigmas: Tensor) -> Tensor:
    """How much of each direction (columns) is kept at each noise (rows); everything without noise."""
    noise = sigmas.double().pow(2).unsqueeze(1)
    return torch.where(noise > 0, spread / (spread + noise).clamp_min(1e-300), 1.0)


@dataclass(frozen=True)
class TraitClassifier:
    """Tells a client's class from its denoised row.

    There is one classifier for each level of noise; a row is judged by that of the nearest level.
    """

    directions: Directions
    levels: Tensor
    models: tuple[Any, ...]
    unit: float
    classes: int

    @classmethod
    def trained(
        cls, directions: Directions, clean: Tensor, labels: Tensor, classes: int, denoise: Denoiser,
        levels: Tensor, coins: Coins,
    ) -> TraitClassifier:  # fmt: skip
        """From centred clean updates (rounds, clients, coordinates) and their clients' labels."""
        studies, clients, size = clean.shape
        flat, repeated = clean.reshape(-1, size), labels.repeat(studies)
        who = np.tile(np.arange(clients), studies)
        unit = float(directions.spread.sum().sqrt()) or 1.0
        levels, rows = torch.unique(levels.double()), max(1, _AT_ONCE // size)
        strength, models = None, []
        for number, sigma in enumerate(levels):
            copies = _COPIES if sigma > 0 else 1
            draw = coins.child("noise", number).fast()
            features = []
            for _ in range(copies):
                # In the whole space: the denoiser may look at all of it.
                noise = torch.randn(flat.shape, generator=draw)
                for at in range(0, len(flat), rows):
                    noised = flat[at : at + rows] + float(sigma) * noise[at : at + rows]
                    features.append(directions.project(denoise(noised, sigma.expand(len(noised)))))
            x = (torch.cat(features) / unit).numpy()
            y, group = repeated.repeat(copies).numpy(), np.tile(who, copies)
            if strength is None:
                # Chosen once, where noise is least.
                strength = _strength(x, y, group)
            models.append(fitted(x, y, strength))
        return cls(directions, levels, tuple(models), unit, classes)

    @classmethod
    def of_means(
        cls, auxiliary: AuxiliaryUpdates, key: str, directions: Directions, denoise: Denoiser, sigmas: Tensor,
        size: int, coins: Coins,
    ) -> TraitClassifier:  # fmt: skip
        """For rows that are means of `size` clients: from means of as many auxiliary ones, named by one of them."""
        clean = auxiliary.centred()
        studies, clients, _ = clean.shape
        draw, labels = coins.child("groups").fast(), auxiliary.labels[key]
        grouped = clean.new_empty(studies, _GROUPS * clients, clean.shape[2])
        for study in range(studies):
            for own in range(_GROUPS * clients):
                others = torch.randperm(clients, generator=draw)
                others = others[others != own % clients][: size - 1]
                grouped[study, own] = (clean[study, own % clients] + clean[study, others].sum(0)) / (1 + len(others))
        levels = torch.quantile(sigmas.double(), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))
        named, classes = labels.repeat(_GROUPS), auxiliary.classes[key]
        return cls.trained(directions, grouped, named, classes, denoise, levels, coins.child("noise"))

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The chance of each class (columns) for each denoised, centred row."""
        x = (self.directions.project(around) / self.unit).numpy()
        out = torch.zeros(len(x), self.classes, dtype=torch.float64)
        floor = self.levels.clamp_min(1e-300).log()
        which = (sigmas.double().clamp_min(1e-300).log().unsqueeze(1) - floor).abs().argmin(1)
        for number, model in enumerate(self.models):
            rows = which == number
            if bool(rows.any()):
                chances = torch.from_numpy(model.predict_proba(x[rows.numpy()]))
                out[rows.nonzero(), torch.from_numpy(model.classes_)] = chances
        return out


def _strength(x: Floats, y: npt.NDArray[Any], group: npt.NDArray[Any]) -> float:
    from sklearn.model_selection import GroupKFold

    folds = list(GroupKFold(min(FOLDS, len(np.unique(group)))).split(x, y, group))

    def right(strength: float) -> float:
        return float(np.mean([np.mean(fitted(x[a], y[a], strength).predict(x[b]) == y[b]) for a, b in folds]))

    return max(STRENGTHS, key=right)


def fitted(x: Floats, y: npt.NDArray[Any], strength: float) -> Any:
    """A linear classifier of these rows."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(y)) < 2:
        return DummyClassifier(strategy="most_frequent").fit(x, y)
    # Steps that never lay out how all weights of all classes bear on each other: that would be most of the time.
    return LogisticRegression(C=strength, solver="newton-cg", tol=1e-6, max_iter=1000).fit(x, y)
