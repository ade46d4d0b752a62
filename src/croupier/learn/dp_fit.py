"""Local training with noise: records' own gradients, clipped and noised, before an optimiser's step (DP-SGD, DP-Adam).

`task.fit` of a description names one of these. Here is what each is: its sampling, its noise and its step.
`learn.private` plays the steps on a network, `learn.apart` tries whether the guarantee holds for that network, and
`learn.budget` accounts for what a run of them costs a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Choices
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.privacy.ledger import ADJACENCY

# What an encoder with scale 1 carries: noised weights are kept within it.
BOUND = 1.0
# Random whole numbers below this are compared with a rate, or stand for a number between 0 and 1.
_FINE = 1 << 53


class Private(Fit):
    """Training on records' own gradients: each is clipped to the norm `clip`, their sum noised, and a step made by it.

    The noise of a step is a Gaussian of `noise` times `clip` in every coordinate; the sum is divided by the expected
    size of a batch, because the real one is a secret. Each step takes each record with the same chance, independently:
    the sampling that `learn.budget` accounts for. The optimiser touches only what is noised already. How many records a
    client has is public: what is guaranteed is that a record counts for next to nothing among that many.

    `tail` is what happens beyond the encoder's range at scale 1: nothing (`plain`), or weights are `clamped` to it
    after each step, which costs no privacy, because it is done to what is noised already.

    `engine` is what gives each record's gradient: torch's own `vmap`, or `opacus`, which needs the extra of that name.
    Clipping, sampling and noise are the same in both.

    Noise is in floating point, as everywhere in training: an idealised Gaussian is what is accounted for.
    The method is Algorithm 1 of Abadi et al. 2016.
    """

    stacks: ClassVar[bool] = False
    title: ClassVar[str] = ""

    clip: float = Field(1.0, gt=0, description="the norm that a record's gradient has at most")
    noise: float = Field(1.0, ge=0, description="deviation of the noise, in units of `clip`")
    tail: Literal["plain", "clamped", "truncated"] = Field(
        "plain",
        description="noise as it is (`plain`), weights `clamped` to [-1, 1] after each step, or noise `truncated` to "
        "that",
    )
    engine: Literal["vmap", "opacus"] = Field(
        "vmap",
        description="each record's gradient by torch's own `vmap`, or by `opacus` (croupier[opacus]), quicker for "
        "`lstm`",
    )

    @property
    def private(self) -> Private:
        """Itself: this fit clips and noises."""
        return self

    @property
    def claimed(self) -> bool:
        """Whether anything is guaranteed: not without noise, nor with truncated noise."""
        return self.noise > 0 and self.tail != "truncated"

    def claims(self) -> str:
        """What the noise is. Epsilon depends on each client's records and steps: `learn.budget` computes it."""
        said = (
            f"clients train by {self.title}: each record's gradient clipped to {self.clip:g}, noise {self.noise:g} "
            "times it"
        )
        if not self.claimed:
            return f"{said}, {self.tail}: no guarantee is printed for this"
        return (
            f"{said} at every step. The unit is a record; adjacency: {ADJACENCY['record']}. Not covered: that number, "
            "and what was made of all records before training (scales, vocabularies). Epsilon depends on a client's "
            "number of records and steps (a run prints it every round). Noise counts as real numbers, without their "
            "rounding. Nothing is claimed for clients as a whole"
        )

    def rate(self, count: int) -> float:
        """The chance of a record to be in a batch."""
        return min(1.0, self.batch / count)

    def samples(self, count: int, choices: Choices) -> Iterator[Tensor]:
        """Record numbers of each step: each record is drawn with the same chance by itself; a batch may be empty.

        Who is in a batch must stay hidden, so that `choices` come from secure coins.
        """
        limit = round(self.rate(count) * _FINE)
        for _ in range(self.steps(count)):
            yield torch.from_numpy(np.flatnonzero(choices.below(_FINE, count) < limit))

    def noised(
        self, weights: Tensor, total: Tensor, expected: float, state: dict[str, Tensor], number: int, choices: Choices
    ) -> None:
        """One noised step in place: `total` is a sum of clipped gradients, `expected` a batch's expected size."""
        grads = total.clone()
        if deviation := self.noise * self.clip:
            grads.add_(self._drawn(weights, total, expected, state, number, choices), alpha=deviation)
        self.step(weights, self.left(grads.div_(expected)), state, number)
        if self.tail != "plain":
            weights.clamp_(-BOUND, BOUND)

    def _drawn(
        self, weights: Tensor, total: Tensor, expected: float, state: dict[str, Tensor], number: int, choices: Choices
    ) -> Tensor:
        return choices.gaussian(len(weights), weights.device).to(weights)


class DpSgd(Private, Sgd, use="dp-sgd"):
    """DP-SGD: stochastic gradient descent on clipped gradients of records, noised.

    `tail` may also be `truncated`: noise that keeps the weight inside the range, as the source-inference paper has it,
    and then no guarantee is printed.
    """

    title: ClassVar[str] = "DP-SGD"

    def _drawn(
        self, weights: Tensor, total: Tensor, expected: float, state: dict[str, Tensor], number: int, choices: Choices
    ) -> Tensor:
        if self.tail != "truncated":
            return super()._drawn(weights, total, expected, state, number, choices)
        return torch.from_numpy(self._truncated(weights, total, expected, state, number, choices)).to(weights)

    def _truncated(
        self, weights: Tensor, total: Tensor, expected: float, state: dict[str, Tensor], number: int, choices: Choices
    ) -> npt.NDArray[np.float64]:
        """Noise between the two values that would bring a weight to the ends of the range."""
        middle = weights.clone()
        self.step(middle, total / expected, {name: held.clone() for name, held in state.items()}, number)
        # A step moves against its gradient: more noise, smaller weight.
        reach = self.lr * self.noise * self.clip / expected
        at = middle.double().cpu().numpy()
        return truncated((at - BOUND) / reach, (at + BOUND) / reach, choices)


def truncated(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], choices: Choices) -> npt.NDArray[np.float64]:
    """A standard normal between each pair of ends, by the inverse of its distribution.

    In logarithms, and from the side where the ends lie: far out a plain probability has no digits left.
    """
    from scipy.special import log_ndtr, ndtri_exp

    turned = low + high > 0
    least, most = np.where(turned, -high, low), np.where(turned, -low, high)
    share = (choices.below(_FINE, len(low)) + 0.5) / _FINE
    bottom, top = log_ndtr(least), log_ndtr(most)
    inside = ndtri_exp(np.minimum(top + np.log(share + (1 - share) * np.exp(bottom - top)), 0.0))
    found: npt.NDArray[np.float64] = np.clip(inside, least, most)
    return np.where(turned, -found, found)


class DpAdam(Private, Adam, use="dp-adam"):
    """DP-SGD's noised sums of clipped gradients, followed by Adam; `keep` prunes what is noised already."""

    title: ClassVar[str] = "DP-Adam"

    tail: Literal["plain", "clamped"] = Field(
        "plain", description="weights as they are (`plain`), or `clamped` to [-1, 1] after each step"
    )
