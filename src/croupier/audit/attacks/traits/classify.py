"""What denoised updates tell of their clients: a classifier that is trained on auxiliary clients' updates.

Stage 2 of IntraShuffler section 5, which leaves the classifier open; here logistic regression on principal directions,
its strength chosen on auxiliary clients that it was not trained on. The topic `audit.attacks.traits` asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Denoiser, Directions
from croupier.core.coins import Coins

STRENGTHS = (1e-2, 1e-1, 1.0, 10.0)
FOLDS = 5
# Noised copies of each auxiliary update, so that a classifier does not learn one draw of the noise.
_COPIES = 3
# Groups that each auxiliary client is put into, where means of several are judged.
_GROUPS = 4
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TraitClassifier:
    """One classifier for each tier's noise: a row is judged by that of the nearest."""

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
        levels = torch.unique(levels.double())
        strength, models = None, []
        for number, sigma in enumerate(levels):
            copies = _COPIES if sigma > 0 else 1
            draw = coins.child("noise", number).fast()
            features = []
            for _ in range(copies):
                # In the whole space: the denoiser may look at all of it.
                noised = flat + float(sigma) * torch.randn(flat.shape, generator=draw)
                features.append(directions.project(denoise(noised, sigma.expand(len(flat)))))
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
        means = []
        for study in range(studies):
            for own in range(_GROUPS * clients):
                others = torch.randperm(clients, generator=draw)
                others = others[others != own % clients][: size - 1]
                means.append((clean[study, own % clients] + clean[study, others].sum(0)) / (1 + len(others)))
        grouped = torch.stack(means).reshape(studies, _GROUPS * clients, -1)
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
    # A few Newton steps: far fewer features than rows.
    return LogisticRegression(C=strength, solver="newton-cholesky").fit(x, y)
