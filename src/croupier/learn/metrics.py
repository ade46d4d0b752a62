"""Metrics by name, or a function of the user's own: how good outputs are, for the targets of records not trained on.

`task.metrics` names them; `learn.evaluate` and `learn.clients` compute them. A metric that has no value for these
records (the AUC of one class) is `Undefined` with the reason, and is shown as such: a made-up zero would look like a
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import PlainValidator
from torch import Tensor, nn

from croupier.errors import SpecError, nearest
from croupier.learn.data import Dataset
from croupier.learn.own import call
from croupier.learn.own_names import as_named


class Undefined(Exception):  # noqa: N818 - reads as what it is
    """A metric that has no value for these records; says why."""


def _accuracy(outputs: Tensor, labels: Tensor) -> float:
    return float((outputs.argmax(1) == labels).double().mean())


def _need_all(outputs: Tensor, labels: Tensor) -> None:
    """Raises: Undefined unless every class occurs among the records; there are two at least."""
    found, classes = len(set(labels.tolist())), max(outputs.shape[1], 2)
    if found < classes:
        raise Undefined(f"{found} of {classes} classes are there")


def _auc(outputs: Tensor, labels: Tensor) -> float:
    """The area under the ROC curve of class 1; of more classes, the mean over each against the rest."""
    from sklearn.metrics import roc_auc_score

    _need_all(outputs, labels)
    said, held = outputs.double(), labels.numpy()
    if outputs.shape[1] == 2:
        return float(roc_auc_score(held, (said[:, 1] - said[:, 0]).numpy()))
    return float(roc_auc_score(held, nn.functional.softmax(said, 1).numpy(), multi_class="ovr"))


def _by_class(name: str) -> Callable[[Tensor, Tensor], float]:
    """A score of scikit-learn's for class 1; of more classes, the mean over all of them."""

    def measure(outputs: Tensor, labels: Tensor) -> float:
        from sklearn import metrics

        average = "binary" if outputs.shape[1] <= 2 else "macro"
        if average == "macro":
            _need_all(outputs, labels)
        elif not bool((labels == 1).any()):
            raise Undefined("no record is of class 1")
        # A class that is there and never guessed scores 0: a model that does not learn it is no error.
        guesses = outputs.argmax(1).numpy()
        return float(getattr(metrics, name)(labels.numpy(), guesses, average=average, zero_division=0.0))

    return measure


def _balanced(outputs: Tensor, labels: Tensor) -> float:
    """The mean over all classes of the share of their records that is found."""
    _need_all(outputs, labels)
    right = outputs.argmax(1) == labels
    return float(np.mean([float(right[labels == label].double().mean()) for label in sorted(set(labels.tolist()))]))


def _rmse(outputs: Tensor, targets: Tensor) -> float:
    return math.sqrt(float((outputs.double() - targets.double()).square().mean()))


def _mae(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.double() - targets.double()).abs().mean())


def _r2(outputs: Tensor, targets: Tensor) -> float:
    """The share of the targets' variance that is explained; of several targets the mean."""
    from sklearn.metrics import r2_score

    if len(targets) < 2 or bool((targets == targets[0]).all(0).any()):
        raise Undefined("the targets do not vary")
    return float(r2_score(targets.double().numpy(), outputs.double().numpy()))


Measure = Callable[[Tensor, Tensor], float]
OF_CLASSES: Mapping[str, Measure] = {
    "accuracy": _accuracy,
    "auc": _auc,
    "balanced_accuracy": _balanced,
    "f1": _by_class("f1_score"),
    "precision": _by_class("precision_score"),
    "recall": _by_class("recall_score"),
}
OF_QUANTITIES: Mapping[str, Measure] = {"mae": _mae, "r2": _r2, "rmse": _rmse}
# In the unit of the targets.
IN_UNITS = ("mae", "rmse")


def _known(name: Any) -> str:
    if not isinstance(name, str) or ":" in name:
        return as_named(name)
    known = [*OF_CLASSES, *OF_QUANTITIES]
    if name not in known:
        raise ValueError(f"no metric has that name; {nearest(name, known)}, or write module:function")
    return name


MetricName = Annotated[str, PlainValidator(_known)]


@dataclass(frozen=True)
class Metric:
    """One metric of a task: a known name, or where the user's own function is."""

    path: str
    unit: float = 1.0

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self.path.rpartition(":")[2]

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """Measure outputs on the CPU. Raises: Undefined, or SpecError when the user's function fails."""
        if ":" in self.path:
            return self._checked(self._called(outputs, targets))
        scale = self.unit if self.path in IN_UNITS else 1.0
        return {**OF_CLASSES, **OF_QUANTITIES}[self.path](outputs, targets) * scale

    def _called(self, outputs: Tensor, targets: Tensor) -> Any:
        # Copies: what a function writes into them is its own affair.
        return call("task.metrics", self.path, outputs.clone(), targets.clone(), takes="outputs, targets")

    def _checked(self, value: Any) -> float:
        try:
            found = float(value)
        except (TypeError, ValueError):
            remedy = "return one number"
            raise SpecError(f"task.metrics = {self.path!r}: it gave {type(value).__name__}; {remedy}") from None
        if math.isnan(found):
            raise Undefined("its function gave NaN")
        return found


def metrics_of(asked: tuple[str, ...], dataset: Dataset) -> tuple[Metric, ...]:
    """The metrics that are asked for, checked against the data. Raises: SpecError when one does not fit them."""
    fits, other = (OF_CLASSES, OF_QUANTITIES) if dataset.classes else (OF_QUANTITIES, OF_CLASSES)
    if wrong := [name for name in asked if name in other]:
        what = "classes" if dataset.classes else "quantities"
        raise SpecError(f"task.metrics = {wrong[0]!r}: {dataset.name!r} has {what} to learn; use {', '.join(fits)}")
    found = tuple(Metric(path, dataset.unit) for path in asked)
    names = [metric.name for metric in found]
    if twice := [name for at, name in enumerate(names) if name in names[:at] or (name in TAKEN and ":" in asked[at])]:
        raise SpecError(f"task.metrics: {twice[0]!r} would name two results; rename the function, or leave one out")
    return found


# What a round's line holds already: names that a function of the user's own may not have.
TAKEN = {
    "accuracy", "attempt", "bytes", "bytes_down_per_client", "bytes_up_per_client", "clusters", "invited", "largest",
    "loss", "lost", "messages", "model", "overspent", "present", "record", "refused", "rmse", "round", "spent",
    "strangers",
}  # fmt: skip
