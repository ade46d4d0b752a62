"""Local training: optimisers as formulas on flat weights, used alike for one client or for many stacked ones.

torch's own optimisers hold one model each; these take a step on any tensor of weights, so that `learn.batch` can train
many clients at once by the same formula as `learn.train` trains one. A description names one under `task.fit`; the
private ones are in `learn.dp_fit`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.part import Part

if TYPE_CHECKING:
    from croupier.learn.dp_fit import Private


class Fit(Part):
    """How a client trains: epochs of shuffled batches and an optimiser's step."""

    verb: ClassVar[str] = "fit"
    lies_in: ClassVar[str] = "croupier.learn.dp_fit"
    # Whether many clients can be trained as one stacked model: not where each record's own gradient is needed.
    stacks: ClassVar[bool] = True

    lr: float = Field(0.01, gt=0, description="the learning rate")
    epochs: int = Field(1, ge=1, description="how often a client goes through its records in a round")
    batch: int = Field(64, ge=1, description="records in a step")
    weight_decay: float = Field(0.0, ge=0, description="the pull of weights towards zero")

    def claims(self) -> str:
        """What training says of noise that it adds; nothing where it adds none."""
        return ""

    @property
    def private(self) -> Private | None:
        """How records' own gradients are clipped and noised; None where they are not."""
        return None

    def orders(self, count: int, generator: torch.Generator) -> list[Tensor]:
        """Record numbers in a fresh order for every epoch."""
        return [torch.randperm(count, generator=generator) for _ in range(self.epochs)]

    def batches(self, count: int, generator: torch.Generator, least: int = 1) -> Iterator[Tensor]:
        """Record numbers of each batch; the last one of an epoch may be short, or join the one before it."""
        last = count - self.batch if 0 < count % self.batch < least else count
        starts = range(0, max(1, last), self.batch)
        for order in self.orders(count, generator):
            yield from (order[at : None if at == starts[-1] else at + self.batch] for at in starts)

    def steps(self, count: int, least: int = 1) -> int:
        """How many `batches` of at least so many a client with this many records trains on."""
        joined = count > self.batch and 0 < count % self.batch < least
        return self.epochs * (-(-count // self.batch) - joined)

    @property
    def whole(self) -> bool:
        """Whether a step uses all of a gradient, so that `left` need not be asked."""
        return True

    def left(self, grads: Tensor) -> Tensor:
        """What of a gradient, or of each row's, a step uses; all of it unless it is pruned."""
        return grads

    @abstractmethod
    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """The optimiser's state for fresh weights."""

    @abstractmethod
    def step(self, weights: Tensor, grads: Tensor, state: dict[str, Tensor], number: int) -> None:
        """One step in place; all tensors have the shape of the weights, `number` counts from 1."""


class Sgd(Fit, use="sgd"):
    """Stochastic gradient descent with momentum.

    `proximal` (the mu of FedProx) draws the weights back to where the client started from. One epoch without momentum
    and with a batch at least as large as any client's records is FedSGD.
    """

    momentum: float = Field(0.9, ge=0, lt=1, description="what earlier steps count for")
    proximal: float = Field(0.0, ge=0, description="the pull towards the model that was handed out (FedProx)")

    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """The state at the start: no speed yet, and the start itself where weights are drawn back to it."""
        speed = {"speed": torch.zeros_like(weights)} if self.momentum else {}
        return speed | ({"start": weights.clone()} if self.proximal else {})

    def step(self, weights: Tensor, grads: Tensor, state: dict[str, Tensor], number: int) -> None:
        """Against the gradient."""
        if self.weight_decay:
            grads.add_(weights, alpha=self.weight_decay)
        if self.proximal:
            grads.add_(weights - state["start"], alpha=self.proximal)
        move = grads
        if self.momentum:
            move = torch.add(grads, state["speed"], alpha=self.momentum, out=state["speed"])
        weights.sub_(move, alpha=self.lr)


class Adam(Fit, use="adam"):
    """Adam, with its usual constants. `proximal` draws the weights back to the client's start, as in `sgd`.

    `keep` is gradient pruning: at every step only that share of the gradient's values is left, the largest first, over
    the whole network; all others are taken for zero.
    """

    lr: float = Field(0.001, gt=0, description="the learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="what the mean of earlier gradients counts for")
    beta2: float = Field(0.999, ge=0, lt=1, description="what the squares of earlier gradients count for")
    epsilon: float = Field(1e-8, gt=0, description="keeps steps finite where gradients vanish")
    proximal: float = Field(0.0, ge=0, description="the pull towards the model that was handed out (FedProx)")
    keep: float = Field(
        1.0,
        gt=0,
        le=1,
        description="gradient pruning: the share of a step's gradient that is left, its largest values over the whole "
        "network",
    )

    @property
    def whole(self) -> bool:
        """Whether nothing is pruned."""
        return self.keep == 1

    def left(self, grads: Tensor) -> Tensor:
        """The largest values, and zeros."""
        return grads if self.whole else prune(grads, self.keep)

    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """The state at the start: no moments yet, and the start itself where weights are drawn back to it."""
        moments = {"first": torch.zeros_like(weights), "second": torch.zeros_like(weights)}
        return moments | ({"start": weights.clone()} if self.proximal else {})

    def step(self, weights: Tensor, grads: Tensor, state: dict[str, Tensor], number: int) -> None:
        """By the bias-corrected moments."""
        if self.weight_decay:
            grads.add_(weights, alpha=self.weight_decay)
        if self.proximal:
            grads.add_(weights - state["start"], alpha=self.proximal)
        first = state["first"].mul_(self.beta1).add_(grads, alpha=1 - self.beta1)
        second = state["second"].mul_(self.beta2).addcmul_(grads, grads, value=1 - self.beta2)
        root = second.div(1 - self.beta2**number).sqrt_().add_(self.epsilon)
        weights.addcdiv_(first, root, value=-self.lr / (1 - self.beta1**number))


def prune(grads: Tensor, keep: float) -> Tensor:
    """Only the largest values of a gradient, or of each row's, by size; all others become zero.

    Exactly the share is kept, to the nearest number and at least one: of values that tie, only some may be.
    This is the gradient pruning that Zhu et al. 2019 propose against their own attack (section 5.2).
    """
    count = max(1, round(keep * grads.shape[-1]))
    places = torch.topk(grads.abs(), count, -1, sorted=False).indices
    return torch.zeros_like(grads).scatter_(-1, places, grads.gather(-1, places))
