"""Poisoning that is computed: rows that are made to pass a given rule, or to look like what honest clients send."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from croupier.audit.poison import Knows, LabelFlip, Poison, Scene, normal
from croupier.learn.data import Rows

_LEAST = 1e-5


class Informed(Poison):
    """An attack that comes with full knowledge (`knows` all), or makes do with its own clients' honest updates."""

    knows: Knows = "all"

    @property
    def knowledge(self) -> Knows:
        """As chosen."""
        return self.knows


class KrumAttack(Informed, use="krum"):
    """Every attacker sends - lambda s, s the signs of the step without attack, lambda as large as Krum lets pass.

    From: Fang et al. 2020. Lambda starts at their bound and is halved until Krum takes a crafted row, or until 1e-5;
    where more than half attack, their bound's divisor is taken as 1. With partial knowledge the attackers' honest
    updates stand for the honest clients', and crafted rows are added to the simulation one at a time.
    """

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """The same row from all."""
        count = len(scene.own)
        if scene.benign is None:
            signs = scene.own.mean(0).sign()
            length = _simulated(scene.own, signs, count)
        else:
            signs = _taken(torch.cat([scene.own, scene.benign]), count).sign()
            length, _ = _largest(scene.benign, signs, count)
        return (-length * signs).repeat(count, 1)


def _taken(rows: Tensor, bad: int) -> Tensor:
    """Krum's choice: the row with the least sum of squared distances to its nearest others."""
    return rows[int(_scores(_squares(rows), bad).argmin())]


def _squares(rows: Tensor) -> Tensor:
    """Squared distances, from products in float64: in float32 rows that are alike would cancel to noise."""
    fine = rows.double()
    products = fine @ fine.T
    sizes = products.diagonal()
    return (sizes + sizes.unsqueeze(1) - 2 * products).clamp_min(0).fill_diagonal_(0)


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
    between, dots = _squares(benign), (benign @ signs).double()
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
    """Each coordinate beyond the honest extreme, on the side away from where honest clients move, at random.

    From: Fang et al. 2020, against trimmed mean and median, on differences as FLTrust's line has it (theirs is on
    weights). Full knowledge: between the extreme and `reach` times it (or a `reach`-th, where that lies further out);
    partial: 3 to 4 standard deviations from the mean of the attackers' own honest updates.
    """

    reach: float = Field(2.0, gt=1)

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """Independent draws for every client and coordinate."""
        if scene.benign is None:
            middle, spread = scene.own.mean(0), scene.own.std(0, correction=0)
            up, near, far = middle > 0, 3 * spread, 4 * spread
            inner, outer = torch.where(up, middle - near, middle + near), torch.where(up, middle - far, middle + far)
        else:
            up = scene.own.sum(0) + scene.benign.sum(0) > 0
            inner = torch.where(up, scene.benign.amin(0), scene.benign.amax(0))
            # Outwards is down where honest clients move up: a positive minimum is divided, a negative one multiplied.
            outer = torch.where((inner > 0) == up, inner / self.reach, inner * self.reach)
        drawn = torch.rand(scene.own.shape, generator=generator, device=inner.device, dtype=inner.dtype)
        return inner + drawn * (outer - inner)


class Dpfl(Poison, use="attack-dpfl"):
    """A label-flipped update, not noised, as long as a noised one: ||clip(G) + noise|| / ||G|| times G.

    From: Qi et al. 2024, as RAIN's equation 23 restates it; the poisoning behind G is label flipping here. Where only
    signs are sent the length has no effect: what remains is label flipping without noise.
    """

    def change(self, records: Rows, classes: int, generator: Generator) -> Rows:
        """Mirrored labels."""
        return LabelFlip().change(records, classes, generator)

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """The same direction at another length."""
        lengths = scene.own.norm(dim=1, keepdim=True).clamp_min(torch.finfo(scene.own.dtype).tiny)
        looks = scene.own * (scene.clip / lengths).clamp_max(1)
        if scene.sigma:
            looks = looks + scene.sigma * normal(scene.own.shape, scene.own, generator)
        out: Tensor = scene.own * (looks.norm(dim=1, keepdim=True) / lengths)
        return out


class Mimic(Poison, use="mimic"):
    """Everybody sends the honest update that stands out most along the direction in which honest ones differ most.

    From: Karimireddy et al. 2022, with the direction of this round alone.
    """

    @property
    def knowledge(self) -> Knows:
        """It copies another client."""
        return "all"

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """Copies."""
        benign = _honest(scene)
        apart = benign - benign.mean(0)
        # The rows' shares in the first singular direction, without the direction itself.
        _, vectors = torch.linalg.eigh((apart @ apart.T).double())
        return benign[int(vectors[:, -1].abs().argmax())].repeat(len(scene.own), 1)


class _Bounded(Informed):
    """The honest mean, moved against itself as far as honest updates differ from each other.

    `along`: the `mean`'s own direction, its `sign`, or the coordinates' standard deviations (`std`).
    """

    along: Literal["mean", "sign", "std"] = "mean"

    def craft(self, scene: Scene, generator: Generator) -> Tensor:
        """The same row from all; the largest move is a root of a quadratic, so nothing is searched."""
        honest = _honest(scene)
        mean, way = honest.mean(0), self._way(honest)
        off = mean - honest
        move = self._farthest(off.double().square().sum(1), (off @ way).double(), way, _squares(honest))
        return (mean - move * way).repeat(len(scene.own), 1)

    def _way(self, honest: Tensor) -> Tensor:
        way = {"mean": lambda: honest.mean(0), "sign": lambda: honest.mean(0).sign(), "std": lambda: honest.std(0)}
        return torch.nan_to_num(torch.nn.functional.normalize(way[self.along](), dim=0))

    @abstractmethod
    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        """How far along the way the bound lets the update go."""


class MinMax(_Bounded, use="min-max"):
    """No farther from any honest update than two honest ones are from each other.

    From: Shejwalkar and Houmansadr 2021.
    """

    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        return float(_root(offs - squares.max(), dots, float(way @ way)).min())


class MinSum(_Bounded, use="min-sum"):
    """Squared distances to all honest updates that add up to no more than those of the most central honest one.

    From: Shejwalkar and Houmansadr 2021; the least sum, as in the authors' code.
    """

    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        room = offs.sum() - squares.sum(1).min()
        return float(_root(room, dots.sum(), len(offs) * float(way @ way)))


def _root(constant: Tensor, half: Tensor, square: float) -> Tensor:
    """The larger root of square t² - 2 half t + constant, whose constant is not above 0; 0 where it does not move."""
    if not square:
        return torch.zeros_like(constant)
    return (half + (half.square() - square * constant.clamp_max(0)).sqrt()) / square


def _honest(scene: Scene) -> Tensor:
    return scene.own if scene.benign is None else scene.benign
