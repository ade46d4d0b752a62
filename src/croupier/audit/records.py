"""Learners that name a record's client from the records of the shadow sets, without any view.

People differ, so a record alone may show whose it is, and a leak must be more than that. `audit.prior` therefore asks
these learners (forests, logistic regression, nearest neighbours) what they foretell of shadow records left out of their
learning, and takes the best of them into the prior.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge, Sample
from croupier.core.coins import Coins
from croupier.errors import RangeError

Floats = npt.NDArray[np.float64]
Features = Callable[[Tensor], Tensor]

TREES = 80
NEIGHBOURS = 5
FOLDS = 4
# Beyond these a learner takes minutes and learns little more: shadow records in all, and numbers of one record.
MOST_RECORDS = 2000
MOST_VALUES = 1024
# The share of doubt in every learner's word: a forest that says 0 has only not seen it.
DOUBT = 0.02
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
# Buckets that codes of words are counted in.
_BUCKETS = 512


@dataclass(frozen=True)
class Foretold:
    """What one learner says, as log-probabilities: of shadow records left out of its learning, and of asked ones.

    Both have a row for each client.
    """

    title: str
    left_out: Tensor
    asked: Tensor


@dataclass(frozen=True)
class _Lesson:
    """Shadow records as numbers, whose they are and in which fold, and the records asked about as numbers."""

    known: Floats
    owners: npt.NDArray[np.int64]
    folds: npt.NDArray[np.int64]
    asked: Floats
    clients: int


def values(inputs: Tensor) -> Tensor:
    """The numbers themselves; neighbours averaged where there are very many."""
    flat = inputs.reshape(len(inputs), -1).double()
    if flat.shape[1] <= MOST_VALUES:
        return flat
    return torch.nn.functional.adaptive_avg_pool1d(flat.unsqueeze(1), MOST_VALUES).squeeze(1)


def summaries(inputs: Tensor) -> Tensor:
    """Of each channel: mean, spread, quantiles, and how fast it changes; where it happens does not matter."""
    channels = inputs.reshape(len(inputs), inputs.shape[1], -1).double()
    steps = channels.diff(dim=2)
    some = torch.quantile(channels, torch.tensor(_QUANTILES, dtype=torch.float64), dim=2)
    return torch.cat([channels.mean(2), channels.std(2), *some, steps.abs().mean(2), steps.std(2)], 1)


def tokens(inputs: Tensor) -> Tensor:
    """How often each code occurs, wherever it does."""
    buckets = inputs.reshape(len(inputs), -1).long().remainder(_BUCKETS)
    ones = torch.ones_like(buckets, dtype=torch.float64)
    return torch.zeros(len(inputs), _BUCKETS, dtype=torch.float64).scatter_add_(1, buckets, ones)


def features(inputs: Tensor) -> Mapping[str, Features]:
    """The ways to look at such records, by what they are called."""
    found: dict[str, Features] = {"records": values}
    if not inputs.is_floating_point():
        found["the words of records"] = tokens
    elif inputs.ndim > 2 and inputs[0, 0].numel() > 2:
        found["summaries of records"] = summaries
    return found


def choose(shadows: tuple[Sample, ...], coins: Coins) -> list[Tensor]:
    """Which records of each shadow set are learnt from: all, or as many of each client as there is room for."""
    room = max(FOLDS, MOST_RECORDS // len(shadows))
    order = [torch.from_numpy(coins.child(at).sampler().permutation(len(y))) for at, (_, y) in enumerate(shadows)]
    return [some[:room].sort().values for some in order]


def learn(known: Knowledge, coins: Coins) -> Iterator[Foretold]:
    """What each learner says; the shadow records are those that `choose` keeps for the same coins, client by client.

    Raises: RangeError where records cannot be learnt from: without a prior there is no verdict.
    """
    from threadpoolctl import threadpool_limits

    kept = choose(known.shadows, coins.child("kept"))
    shadows = [(x[some], y[some]) for (x, y), some in zip(known.shadows, kept, strict=True)]
    if not all(bool(x.double().isfinite().all()) for x, _ in (*shadows, known.records)):
        raise RangeError("records hold numbers that are not finite: no prior can be learnt, so no verdict; mend them")
    state = int(coins.child("learners").sampler().integers(2**31))
    for word, measure in features(known.records[0]).items():
        lesson = _lesson(shadows, known.records, known.classes, measure)
        for title, learner in LEARNERS.items():
            # One thread: the sums must not depend on how many there are. Learners may warn that they are not sure of
            # themselves; how good they are is measured.
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                left_out, asked = learner(lesson, state)
            yield Foretold(f"{word}, by {title}", _doubted(left_out), _doubted(asked))


def _lesson(shadows: list[Sample], asked: Sample, classes: int, measure: Features) -> _Lesson:
    def numbers(sample: Sample) -> Floats:
        inputs, labels = sample
        # Quantities stand for themselves.
        hot = torch.nn.functional.one_hot(labels, classes).double() if classes else labels.double()
        found: Floats = torch.cat([measure(inputs), hot], 1).numpy()
        return found

    sizes, known = [len(y) for _, y in shadows], np.concatenate([numbers(one) for one in shadows])
    owners, folds = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) % FOLDS for size in sizes])
    return _Lesson(known, owners, folds, numbers(asked), len(sizes))


def _doubted(chances: Floats) -> Tensor:
    """Log-probabilities, a row for each client; who was told nothing of a record holds all clients for alike."""
    clients = chances.shape[1]
    whole = chances.sum(1, keepdims=True)
    even = np.where(whole > 0, chances / np.where(whole > 0, whole, 1), 1 / clients)
    return torch.from_numpy(np.log((1 - DOUBT) * even + DOUBT / clients).T.copy())


def _forest(kind: str, lesson: _Lesson, state: int) -> tuple[Floats, Floats]:
    """Each tree learns from a random draw of the records; of a left-out record those trees speak that never saw it."""
    from sklearn import ensemble

    more = {"class_weight": "balanced", "bootstrap": True, "oob_score": True, "random_state": state}
    model = getattr(ensemble, kind)(TREES, **more).fit(lesson.known, lesson.owners)
    left_out = np.nan_to_num(model.oob_decision_function_, nan=0.0)
    return _placed(left_out, model.classes_, lesson), _placed(model.predict_proba(lesson.asked), model.classes_, lesson)


def _placed(chances: Floats, classes: npt.NDArray[np.int64], lesson: _Lesson) -> Floats:
    """A column for each client, also for one that a fold left without any record."""
    out = np.zeros((len(chances), lesson.clients))
    out[:, classes] = chances
    return out


def _in_folds(steps: Callable[[int, int], list[Any]], lesson: _Lesson, state: int) -> tuple[Floats, Floats]:
    """A learner that leaves nothing out by itself: one fold after another is left out."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fitted(rows: npt.NDArray[Any]) -> tuple[Any, npt.NDArray[np.int64]]:
        known, owners = lesson.known[rows], lesson.owners[rows]
        return make_pipeline(StandardScaler(), *steps(len(owners), known.shape[1])).fit(known, owners), owners

    left_out = np.zeros((len(lesson.owners), lesson.clients))
    for at in range(FOLDS):
        out = lesson.folds == at
        if out.any() and len(np.unique(lesson.owners[~out])) > 1:
            left_out[out] = _even(lesson, lesson.known[out], *fitted(~out))
    return left_out, _even(lesson, lesson.asked, *fitted(lesson.folds >= 0))


def _even(lesson: _Lesson, asked: Floats, model: Any, owners: npt.NDArray[np.int64]) -> Floats:
    """As though every client had as many shadow records: as many are asked about of each."""
    placed = _placed(model.predict_proba(asked), model.classes_, lesson)
    return placed / np.maximum(np.bincount(owners, minlength=lesson.clients), 1)


def _logistic(records: int, values: int) -> list[Any]:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression

    axes = PCA(min(50, records - 1, values), svd_solver="full")
    return [axes, LogisticRegression(C=0.1, max_iter=200)]


def _neighbours(records: int, values: int) -> list[Any]:
    from sklearn.neighbors import KNeighborsClassifier

    return [KNeighborsClassifier(min(NEIGHBOURS, records), weights="distance")]


LEARNERS: Mapping[str, Callable[[_Lesson, int], tuple[Floats, Floats]]] = {
    "a random forest": partial(_forest, "RandomForestClassifier"),
    "extremely random trees": partial(_forest, "ExtraTreesClassifier"),
    "logistic regression": partial(_in_folds, _logistic),
    "the nearest neighbours": partial(_in_folds, _neighbours),
}
