"""Taking known noise off updates: linear shrinking along the directions that auxiliary clients' updates span, or a
small network trained on pairs of clean and noised updates; both are told how much noise a row bears.

From: IntraShuffler section 5, stage 1, which names the network's training but not its form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.errors import RangeError

DIRECTIONS = 64
DENOISERS = ("none", "wiener", "learned")
TITLES = {
    "none": "as received",
    "wiener": "linear denoiser (optimal for the auxiliary mean and covariance)",
    "learned": "learned denoiser (network on principal directions)",
}
# Of the learned denoiser's training.
_STEPS, _BATCH, _WIDTH = 400, 256, 128


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

    def seen_in(self, around: Tensor) -> Tensor:
        """The coordinates of centred rows along the directions."""
        return around.double() @ self.basis


class Denoiser(Protocol):
    """Centred rows and the deviation of their noise to centred estimates."""

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates."""


def kept_as_is(around: Tensor, sigmas: Tensor) -> Tensor:
    """No denoising."""
    return around.double()


@dataclass(frozen=True)
class Wiener:
    """The best linear estimate for the auxiliary spread: each direction is kept by spread / (spread + noise variance).

    The same gain is best for a mean of n rows: signal and noise of a client both count 1/n in it.
    """

    directions: Directions

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates, centred; a row without noise stays as it is."""
        along = self.directions.seen_in(around)
        return self._joined(around, along, along * gain(self.directions.spread, sigmas), sigmas)

    def _joined(self, around: Tensor, along: Tensor, kept: Tensor, sigmas: Tensor) -> Tensor:
        basis = self.directions.basis
        off = around.double() - along @ basis.T
        rest = torch.tensor([self.directions.rest], dtype=torch.float64)
        return kept @ basis.T + off * gain(rest, sigmas)


def gain(spread: Tensor, sigmas: Tensor) -> Tensor:
    """How much of each direction (columns) is kept at each noise (rows); everything without noise."""
    noise = sigmas.double().pow(2).unsqueeze(1)
    return torch.where(noise > 0, spread / (spread + noise).clamp_min(1e-300), 1.0)


@dataclass(frozen=True)
class Learned:
    """A network from whitened directions and the logarithm of the noise to clean directions, trained by squared error.

    Outside of the directions it shrinks as the linear one does.
    """

    linear: Wiener
    net: nn.Module
    middle: float

    @classmethod
    def trained(cls, directions: Directions, clean: Tensor, sigmas: Tensor, coins: Coins) -> Learned:
        """From clean centred updates, on as much noise as any of these deviations. Raises: RangeError without noise."""
        levels = torch.unique(sigmas.double())
        levels = levels[levels > 0]
        if not len(levels):
            raise RangeError("there is no noise to learn to take off")
        along, count = directions.seen_in(clean), len(directions.spread)
        with coins.child("start").ambient():
            net = nn.Sequential(
                nn.Linear(count + 1, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, count)
            )
        made = cls(Wiener(directions), net, float(levels.log().mean()))
        draw = coins.child("pairs").fast()
        rule = torch.optim.Adam(net.parameters(), lr=2e-3)
        unit = directions.spread.sqrt()
        for _ in range(_STEPS):
            one = along[torch.randint(len(along), (_BATCH,), generator=draw)]
            noise = levels[torch.randint(len(levels), (_BATCH,), generator=draw)]
            noised = one + noise.unsqueeze(1) * torch.randn(one.shape, generator=draw, dtype=torch.float64)
            # In units of each direction's spread, weighted by the spread: the squared error of the update itself.
            off = (made._guess(noised, noise) - one) / unit.pow(2).mean().sqrt()
            rule.zero_grad()
            off.pow(2).sum(1).mean().backward()  # type: ignore[no-untyped-call]
            rule.step()
        return made

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates, centred; a row without noise stays as it is."""
        along = self.linear.directions.seen_in(around)
        with torch.no_grad():
            guess = self._guess(along, sigmas.clamp_min(torch.finfo(torch.float64).tiny))
        kept = torch.where(sigmas.unsqueeze(1) > 0, guess, along)
        return self.linear._joined(around, along, kept, sigmas)

    def _guess(self, along: Tensor, sigmas: Tensor) -> Tensor:
        spread = self.linear.directions.spread
        white = along / (spread + sigmas.double().pow(2).unsqueeze(1)).sqrt()
        told = (sigmas.double().log() - self.middle).unsqueeze(1)
        out: Tensor = self.net(torch.cat([white, told], 1).float()).double()
        return out * spread.sqrt()
