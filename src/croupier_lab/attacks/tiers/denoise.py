"""The denoisers of IntraShuffler's tables beside the audit's linear one: none, and a small network.

The paper's attack takes noise off updates first (section 5, stage 1), by a network trained on pairs of clean and noised
updates whose form it does not give. So three are compared here. `attacks.tiers.stages` calls `denoisers`, and
`papers.intra.attack_tables` shows `TITLES`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from croupier.audit.attacks.traits import LINEAR
from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Denoiser, Directions, Wiener
from croupier.core.coins import Coins
from croupier.errors import RangeError

TITLES = {
    "none": "as received",
    LINEAR: "linear denoiser (optimal for the auxiliary mean and covariance)",
    "learned": "learned denoiser (network on principal directions)",
}
# Steps, batch and hidden units of the network's training.
_STEPS, _BATCH, _WIDTH = 400, 256, 128


def kept_as_is(around: Tensor, sigmas: Tensor) -> Tensor:
    """The denoiser that takes nothing off."""
    return around.double()


def denoisers(auxiliary: AuxiliaryUpdates, directions: Directions, levels: Tensor, coins: Coins) -> dict[str, Denoiser]:
    """All denoisers by name; without noise there is nothing to learn, and the linear one stands in for the network."""
    found: dict[str, Denoiser] = {"none": kept_as_is, LINEAR: Wiener(directions)}
    found["learned"] = found[LINEAR]
    if float(levels.max()) > 0:
        flat = auxiliary.centred().reshape(-1, auxiliary.updates.shape[-1])
        found["learned"] = NetworkDenoiser.trained(directions, flat, levels, coins.child("learned"))
    return found


@dataclass(frozen=True)
class NetworkDenoiser:
    """A network that maps whitened directions and the logarithm of the noise to clean directions.

    It is trained by squared error. Outside of the directions it shrinks as the linear denoiser does.
    """

    linear: Wiener
    net: nn.Module
    middle: float

    @classmethod
    def trained(cls, directions: Directions, clean: Tensor, sigmas: Tensor, coins: Coins) -> NetworkDenoiser:
        """Train it on clean centred updates, with as much noise as any of these deviations.

        Raises: RangeError without noise.
        """
        levels = torch.unique(sigmas.double())
        levels = levels[levels > 0]
        if not len(levels):
            raise RangeError("there is no noise to learn to take off")
        along, count = directions.project(clean), len(directions.spread)
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
            # Divided by one number for all directions: the squared error of the update itself, but for its scale.
            off = (made._guess(noised, noise) - one) / unit.pow(2).mean().sqrt()
            rule.zero_grad()
            off.pow(2).sum(1).mean().backward()  # type: ignore[no-untyped-call]
            rule.step()
        return made

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates, centred; a row without noise stays as it is."""
        along = self.linear.directions.project(around)
        with torch.no_grad():
            guess = self._guess(along, sigmas.clamp_min(torch.finfo(torch.float64).tiny))
        kept = torch.where(sigmas.unsqueeze(1) > 0, guess, along)
        return self.linear.completed(around, along, kept, sigmas)

    def _guess(self, along: Tensor, sigmas: Tensor) -> Tensor:
        spread = self.linear.directions.spread
        white = along / (spread + sigmas.double().pow(2).unsqueeze(1)).sqrt()
        noise = (sigmas.double().log() - self.middle).unsqueeze(1)
        out: Tensor = self.net(torch.cat([white, noise], 1).float()).double()
        return out * spread.sqrt()
