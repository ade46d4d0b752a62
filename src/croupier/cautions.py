"""Warnings of what is legal and probably not meant: one client, one class, a loss that runs away.

Each is said once, with a remedy, and the run goes on. What cannot work at all is an error, and not decided here.
`at_reading` is asked by `engine.job.run` and by commands (`cli.options`), `at_start` and `Course` by `engine.job.job`.
At a shell they are lines on standard error, in Python warnings (`CroupierWarning`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from croupier.errors import either, setting
from croupier.learn.assemble import Assembled
from croupier.learn.constant import targets
from croupier.learn.data import Dataset
from croupier.spec import Source, Spec, is_empty
from croupier.toml_read import Sets

# A loss of more than so many times that of the untrained model is more than one bad round.
FAR = 3.0
# What is better when it is smaller, by the names that metrics have.
LOSSES = ("loss", "rmse")
# So many labels are named.
NAMED = 5
START = ("croupier run digits --print-config", "croupier.load('digits').plain()")


def at_reading(source: Source, sets: Sets = ()) -> list[str]:
    """What to warn of in a description by itself: that it says nothing, so that all of it is defaults."""
    if sets or not is_empty(source):
        return []
    spec = Spec()
    return [
        f"the description is empty, so that all of it is defaults: data {spec.task.data.use}, model "
        f"{spec.task.model.use}, {getattr(spec.task.split, 'clients', '')} clients ({spec.task.split.use}), "
        f"{spec.federation.rounds} rounds, plain averaging, where the server sees every update; "
        f"for one to start from: {either(*START)}"
    ]


def at_start(spec: Spec, made: Assembled) -> list[str]:
    """What to warn of in clients and labels, before the first round."""
    return [*_alone(spec, made), *_labels(made.dataset)]


def _alone(spec: Spec, made: Assembled) -> list[str]:
    key, many = "task.split.clients", len(made.task.enrolled)
    if many > 1 and spec.federation.cohort == 1:
        key, many = "federation.cohort", 1
    if many > 1:
        return []
    who = "one client is enrolled" if key != "federation.cohort" else "one client is invited to a round"
    return [
        f"{who}: there is nobody to hide among, and whatever the protocol, the server gets that client's own update; "
        f"raise {key} ({setting(key, '10')})"
    ]


def _labels(dataset: Dataset) -> list[str]:
    if dataset.goal != "classify" or dataset.labels is None:
        return []
    known, asked = set(dataset.labels.tolist()), targets(dataset.test)
    said = []
    if len(known) == 1:
        said.append(
            f"every training record of {dataset.name!r} has the label {known.pop()}: a model that always answers that "
            "is never wrong in training; check the labels"
        )
    elif strange := sorted(set(asked.tolist()) - known):
        count = int(torch.isin(asked, torch.tensor(strange)).sum())
        names = ", ".join(map(str, strange[:NAMED])) + (" and more" if len(strange) > NAMED else "")
        said.append(
            f"{count} of {len(asked)} test records of {dataset.name!r} have labels that no training record has "
            f"({names}): no model can learn them, and accuracy is at most {1 - count / len(asked):.1%}; "
            "count labels alike in both parts, or leave those records out"
        )
    return said


@dataclass
class Course:
    """Follows the loss over the rounds; warns once when it is not finite, or far above that of the untrained model."""

    first: Mapping[str, float]
    warned: bool = field(default=False)

    @classmethod
    def of(cls, made: Assembled) -> Course:
        """Measure the untrained model of a task."""
        return cls(dict(made.task.evaluate(made.task.first)))

    def after(self, line: Mapping[str, Any]) -> list[str]:
        """What there is to say of a round's metrics."""
        name = next((name for name in LOSSES if name in self.first and name in line), None)
        if name is None or self.warned:
            return []
        before, now = self.first[name], float(line[name])
        if math.isfinite(now) and not now > FAR * before:
            return []
        self.warned = True
        return [
            f"round {line['round']}: the {name} is {now:.3g}, and was {before:.3g} before training: it diverges; lower "
            "task.fit.lr, or the noise that protocol.privacy adds"
        ]
