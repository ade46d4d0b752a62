"""Classifiers of every shape, as a user may write them, and records for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Arrays = tuple[Any, Any, Any, Any]
Shape = tuple[int, ...]


def _records(features: int, classes: int, count: int = 150) -> Arrays:
    draw = np.random.default_rng(0)
    y = draw.permutation(np.arange(count) % classes)
    x = draw.normal(size=(count, features)) + 2 * np.eye(features)[y]
    return x[:120], y[:120], x[120:], y[120:]


def table(folder: Path | None) -> Arrays:
    """Rows of six numbers, three classes."""
    return _records(6, 3)


def two(folder: Path | None) -> Arrays:
    """Two classes."""
    return _records(6, 2)


def one(folder: Path | None) -> Arrays:
    """One class only."""
    return _records(6, 1)


def pictures(folder: Path | None) -> Arrays:
    """One colour, eight by eight."""
    x, y, x_test, y_test = _records(64, 3)
    return 1 / (1 + np.exp(-x.reshape(-1, 1, 8, 8))), y, 1 / (1 + np.exp(-x_test.reshape(-1, 1, 8, 8))), y_test


def words(folder: Path | None) -> Arrays:
    """Numbers of words, as floats."""
    x, y, x_test, y_test = _records(6, 3)
    return np.clip(x.round() + 4, 0, 8), y, np.clip(x_test.round() + 4, 0, 8), y_test


class Made(nn.Module):
    """A forward pass as a function of the module and its inputs, over parts registered in the given order."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        """What the function gives."""
        return self.run(self, x)


def weights(*shape: int) -> nn.Parameter:
    """Weights that are no layer's."""
    return nn.Parameter(torch.randn(*shape) * 0.3)


def bare(shape: Shape, classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Linear(shape[0], classes)


def bare_unbiased(shape: Shape, classes: int) -> nn.Module:
    """The same without biases."""
    return nn.Linear(shape[0], classes, bias=False)


def head_first(shape: Shape, classes: int) -> nn.Module:
    """The head is registered before the layer that runs first; both could be either by their sizes."""
    side = shape[0]
    return Made(lambda m, x: m.head(torch.relu(m.body(x))), head=nn.Linear(side, classes), body=nn.Linear(side, side))


def unbiased(shape: Shape, classes: int) -> nn.Module:
    """No layer has biases."""
    return nn.Sequential(nn.Linear(shape[0], 8, bias=False), nn.Tanh(), nn.Linear(8, classes, bias=False))


def parameter(shape: Shape, classes: int) -> nn.Module:
    """The head is a bare matrix with a bias of its own, classes along its columns."""
    run = lambda m, x: torch.relu(m.body(x)) @ m.w + m.b  # noqa: E731
    return Made(run, w=weights(8, classes), body=nn.Linear(shape[0], 8), b=weights(classes))


def einsum(shape: Shape, classes: int) -> nn.Module:
    """The head is a matrix that only a product of tensors names; it is square where there are three classes."""
    run = lambda m, x: torch.einsum("nf,fc->nc", torch.tanh(m.body(x)), m.w)  # noqa: E731
    return Made(run, w=weights(3, classes), body=nn.Linear(shape[0], 3))


def conv(shape: Shape, classes: int) -> nn.Module:
    """Fully convolutional: one map for each class, averaged."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )  # fmt: skip


def conv_max(shape: Shape, classes: int) -> nn.Module:
    """The same with the largest value of each map, which is not linear."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, classes, 1), nn.AdaptiveMaxPool2d(1), nn.Flatten()
    )  # fmt: skip


def normed(shape: Shape, classes: int) -> nn.Module:
    """With statistics of batches."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


def log_chances(shape: Shape, classes: int) -> nn.Module:
    """Log-probabilities: cross-entropy takes them as they are."""
    return nn.Sequential(nn.Linear(shape[0], classes), nn.LogSoftmax(1))


def chances(shape: Shape, classes: int) -> nn.Module:
    """Probabilities, which cross-entropy would take for logits."""
    return nn.Sequential(nn.Linear(shape[0], classes), nn.Softmax(1))


def unused(shape: Shape, classes: int) -> nn.Module:
    """A layer that never runs is registered last."""
    return Made(lambda m, x: m.head(x), head=nn.Linear(shape[0], classes), spare=nn.Linear(5, classes))


def tied(shape: Shape, classes: int) -> nn.Module:
    """The head's weights are used earlier, too."""
    run = lambda m, x: functional.linear(torch.tanh(functional.linear(m.body(x), m.w) @ m.w), m.w)  # noqa: E731
    return Made(run, body=nn.Linear(shape[0], 8), w=weights(classes, 8))


def embedding(shape: Shape, classes: int) -> nn.Module:
    """Reads words: its outputs have no gradient in its inputs."""
    run = lambda m, x: m.head(m.table(x.long().clamp(0, 8)).mean(1))  # noqa: E731
    return Made(run, table=nn.Embedding(9, 8), head=nn.Linear(8, classes))


def wide_and_deep(shape: Shape, classes: int) -> nn.Module:
    """Two layers add up to the logits."""
    run = lambda m, x: m.wide(x) + m.deep(torch.relu(m.body(x)))  # noqa: E731
    side = shape[0]
    return Made(run, wide=nn.Linear(side, classes), body=nn.Linear(side, 8), deep=nn.Linear(8, classes))


def stepwise(shape: Shape, classes: int) -> nn.Module:
    """A linear layer that runs on every step; its answers are averaged."""
    return Made(lambda m, x: m.head(x.reshape(len(x), 2, -1)).mean(1), head=nn.Linear(shape[0] // 2, classes))


def frozen_head(shape: Shape, classes: int) -> nn.Module:
    """The last layer is not trained."""
    module = nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh(), nn.Linear(8, classes))
    module[2].requires_grad_(False)
    return module


def frozen_body(shape: Shape, classes: int) -> nn.Module:
    """Only the last layer is trained."""
    module = nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh(), nn.Linear(8, classes))
    module[0].requires_grad_(False)
    return module


def one_logit(shape: Shape, classes: int) -> nn.Module:
    """One logit for two classes."""
    return nn.Linear(shape[0], 1)


def pair(shape: Shape, classes: int) -> nn.Module:
    """Logits and something beside."""
    return Made(lambda m, x: (m.head(x), x), head=nn.Linear(shape[0], classes))


def double(shape: Shape, classes: int) -> nn.Module:
    """Twice the precision."""
    return nn.Linear(shape[0], classes).double()


def unknown(shape: Shape, classes: int) -> nn.Module:
    """An operation of which no symmetry is known."""
    return Made(lambda m, x: m.head(torch.fft.fft(x).real), head=nn.Linear(shape[0], classes))
