"""Poisoning made to pass one robust rule: Fang et al.'s attacks on Krum, and on trimmed mean and median.

They are parts like those of `croupier.audit.poison`, and stand here because no audit's verdict rests on them. RAIN's
Figure 6 (`papers.rain.malicious_shares`) mounts them.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Generator, Tensor

from croupier.audit.poison import PoisonInputs
from croupier_lab.attacks.poisoning import Informed, squared_distances

# Where the halving of lambda ends.
_LEAST = 1e-5


class KrumAttack(Informed, use="krum"):
    """Every attacker sends minus lambda times s, the signs of the step without attack; Krum must take the result.

    After Fang et al. 2020. Lambda starts at their bound and is halved until Krum takes a crafted row, or until 1e-5.
    Where more than half of the clients attack, their bound's divisor is taken as 1. With partial knowledge the
    attackers' honest updates stand for the honest clients', and crafted rows are added to the simulation one at a time.
    """

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """The same row from all."""
        count = len(inputs.own)
        if inputs.benign is None:
            signs = inputs.own.mean(0).sign()
            length = _simulated(inputs.own, signs, count)
        else:
            signs = _taken(torch.cat([inputs.own, inputs.benign]), count).sign()
            length, _ = _largest(inputs.benign, signs, count)
        return (-length * signs).repeat(count, 1)


def _taken(rows: Tensor, bad: int) -> Tensor:
    """Krum's choice: the row with the least sum of squared distances to its nearest others."""
    return rows[int(_scores(squared_distances(rows), bad).argmin())]


def _scores(squares: Tensor, bad: int) -> Tensor:
    near = min(max(len(squares) - bad - 2, 1), len(squares) - 1)
    # The first of a row is its distance to itself.
    return squares.sort(dim=1).values[:, 1 : 1 + near].sum(1)


def _simulated(stand: Tensor, signs: Tensor, count: int) -> float:
    length = 0.0
    for crafted in range(1, count + 1):
        length, passed = _largest(stand, signs, crafted)
        if passed:
            break
    return length


def _largest(benign: Tensor, signs: Tensor, crafted: int) -> tuple[float, bool]:
    """The largest lambda that was found, and whether Krum takes it."""
    between, dots = squared_distances(benign), (benign @ signs).double()
    sizes, ones = benign.double().square().sum(1), float(signs.double().square().sum())
    length = _bound(between.sqrt(), sizes, crafted, benign.shape[1])
    while length >= _LEAST:
        if _wins(between, sizes + 2 * length * dots + length**2 * ones, crafted):
            return length, True
        length /= 2
    return length, False


def _bound(between: Tensor, sizes: Tensor, crafted: int, size: int) -> float:
    clients = len(between) + crafted
    near = min(max(clients - crafted - 2, 0), len(between) - 1)
    sums = between.sort(dim=1).values[:, 1 : 1 + near].sum(1)
    share = float(sums.min()) / max(clients - 2 * crafted - 1, 1)
    return (share + math.sqrt(float(sizes.max()))) / math.sqrt(size)


def _wins(between: Tensor, away: Tensor, crafted: int) -> bool:
    """Whether Krum takes one of the crafted rows, which are all the same; `away`: squares from there to each other."""
    honest = len(between)
    squares = torch.zeros(honest + crafted, honest + crafted, dtype=between.dtype, device=between.device)
    squares[:honest, :honest] = between
    squares[:honest, honest:] = away.clamp_min(0).unsqueeze(1)
    squares[honest:, :honest] = squares[:honest, honest:].T
    scores = _scores(squares, crafted)
    return bool(scores[honest:].min() < scores[:honest].min())


class TrimAttack(Informed, use="trim"):
    """Each coordinate at random beyond the honest extreme, on the side away from where honest clients move.

    After Fang et al. 2020, against trimmed mean and median. It works on differences, as in FLTrust and what followed
    it; theirs works on weights. With full knowledge a coordinate lies between the extreme and `reach` times it (or a
    `reach`-th of it, where that lies further out). With partial knowledge it lies 3 to 4 standard deviations from the
    mean of the attackers' own honest updates.
    """

    reach: float = Field(2.0, gt=1)

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """Independent draws for every client and coordinate."""
        if inputs.benign is None:
            middle, spread = inputs.own.mean(0), inputs.own.std(0, correction=0)
            up, near, far = middle > 0, 3 * spread, 4 * spread
            inner, outer = torch.where(up, middle - near, middle + near), torch.where(up, middle - far, middle + far)
        else:
            up = inputs.own.sum(0) + inputs.benign.sum(0) > 0
            inner = torch.where(up, inputs.benign.amin(0), inputs.benign.amax(0))
            # Outwards is down where honest clients move up: a positive minimum is divided, a negative one multiplied.
            outer = torch.where((inner > 0) == up, inner / self.reach, inner * self.reach)
        drawn = torch.rand(inputs.own.shape, generator=generator, device=inner.device, dtype=inner.dtype)
        return inner + drawn * (outer - inner)
