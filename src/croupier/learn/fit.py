"""Local training: optimisers as formulas on flat weights, used alike for one client or for many stacked ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.part import Part


class Fit(Part):
    """How a client trains: epochs of shuffled batches and an optimiser's step."""

    verb: ClassVar[str] = "fit"

    lr: float = Field(0.01, gt=0)
    epochs: int = Field(1, ge=1)
    batch: int = Field(64, ge=1)
    weight_decay: float = Field(0.0, ge=0)

    def orders(self, count: int, generator: torch.Generator) -> list[Tensor]:
        """Record numbers in a fresh order for every epoch."""
        return [torch.randperm(count, generator=generator) for _ in range(self.epochs)]

    def batches(self, count: int, generator: torch.Generator, least: int = 1) -> Iterator[Tensor]:
        """Record numbers of each batch; the last one of an epoch may be short, or join the one before it."""
        last = count - self.batch if 0 < count % self.batch < least else count
        starts = range(0, max(1, last), self.batch)
        for order in self.orders(count, generator):
            yield from (order[at : None if at == starts[-1] else at + self.batch] for at in starts)

    def steps(self, count: int) -> int:
        """How many batches a client with this many records trains on."""
        return self.epochs * -(-count // self.batch)

    @abstractmethod
    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """The optimiser's state for fresh weights."""

    @abstractmethod
    def step(self, weights: Tensor, grads: Tensor, state: dict[str, Tensor], number: int) -> None:
        """One step in place; all tensors have the shape of the weights, `number` counts from 1."""


class Sgd(Fit, use="sgd"):
    """Stochastic gradient descent with momentum.

    `proximal` (the mu of FedProx) draws the weights back to where the client started from. One epoch without momentum
    and with a batch that holds every client's records is FedSGD.
    """

    momentum: float = Field(0.9, ge=0, lt=1)
    proximal: float = Field(0.0, ge=0)

    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """No speed, and the start itself where it is drawn back to."""
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
    """Adam, with its usual constants."""

    lr: float = Field(0.001, gt=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.999, ge=0, lt=1)
    epsilon: float = Field(1e-8, gt=0)

    def start(self, weights: Tensor) -> dict[str, Tensor]:
        """No moments."""
        return {"first": torch.zeros_like(weights), "second": torch.zeros_like(weights)}

    def step(self, weights: Tensor, grads: Tensor, state: dict[str, Tensor], number: int) -> None:
        """By the bias-corrected moments."""
        if self.weight_decay:
            grads.add_(weights, alpha=self.weight_decay)
        first = state["first"].mul_(self.beta1).add_(grads, alpha=1 - self.beta1)
        second = state["second"].mul_(self.beta2).addcmul_(grads, grads, value=1 - self.beta2)
        root = second.div(1 - self.beta2**number).sqrt_().add_(self.epsilon)
        weights.addcdiv_(first, root, value=-self.lr / (1 - self.beta1**number))
