"""Poisoning attacks from papers: rows that look like honest ones, or that go as far away as honest ones differ.

They are parts like those of `croupier.audit.poison`, and stand here because no audit's verdict rests on them. RAIN's
figures use `Dpfl` and `Copy` (`papers.rain.robustness`, `papers.rain.malicious_shares`), Tazza's sweep of clusters uses
`MinMax` (`papers.tazza.cluster_sweep`). The others are for scripts (docs/description.md, "Poisoning it") and tests.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from croupier.audit.poison import Knows, LabelFlip, Poison, PoisonInputs
from croupier.learn.data import TensorRecords


class Informed(Poison):
    """An attack that knows all honest updates (`knows` is all), or makes do with its own clients' honest updates."""

    knows: Knows = "all"

    @property
    def knowledge(self) -> Knows:
        """As chosen."""
        return self.knows


class Dpfl(Poison, use="attack-dpfl"):
    """A label-flipped update G without noise, as long as a noised one: ||clip(G) + noise|| / ||G|| times G.

    After Qi et al. 2024, as RAIN's equation 23 restates it; the poisoning behind G is label flipping here. Where only
    signs are sent the length has no effect, so that label flipping without noise remains.
    """

    def change(self, records: TensorRecords, classes: int, generator: Generator) -> TensorRecords:
        """Mirrored labels."""
        return LabelFlip().change(records, classes, generator)

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """The same direction at another length."""
        lengths = inputs.own.norm(dim=1, keepdim=True).clamp_min(torch.finfo(inputs.own.dtype).tiny)
        looks = inputs.own * (inputs.clip / lengths).clamp_max(1)
        if inputs.sigma:
            looks = looks + inputs.sigma * torch.empty_like(inputs.own).normal_(generator=generator)
        out: Tensor = inputs.own * (looks.norm(dim=1, keepdim=True) / lengths)
        return out


class Mimic(Poison, use="mimic"):
    """Everybody sends the honest update that stands out most along the direction in which honest ones differ most.

    After Karimireddy et al. 2022, with the direction of this round alone.
    """

    @property
    def knowledge(self) -> Knows:
        """It copies another client."""
        return "all"

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """Copies."""
        benign = _honest(inputs)
        apart = benign - benign.mean(0)
        # How much each row has of the first singular direction; the direction itself is not needed.
        _, vectors = torch.linalg.eigh((apart @ apart.T).double())
        return benign[int(vectors[:, -1].abs().argmax())].repeat(len(inputs.own), 1)


class _Bounded(Informed):
    """The honest mean, moved against itself as far as a bound on distances to honest updates allows.

    `along` is the direction of the move: the `mean`'s own, its `sign`, or the coordinates' standard deviations (`std`).
    """

    along: Literal["mean", "sign", "std"] = "mean"

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """The same row from all; the largest move is a root of a quadratic, so nothing is searched."""
        honest = _honest(inputs)
        mean, way = honest.mean(0), self._way(honest)
        off = mean - honest
        move = self._farthest(off.double().square().sum(1), (off @ way).double(), way, squared_distances(honest))
        return (mean - move * way).repeat(len(inputs.own), 1)

    def _way(self, honest: Tensor) -> Tensor:
        way = {"mean": lambda: honest.mean(0), "sign": lambda: honest.mean(0).sign(), "std": lambda: honest.std(0)}
        return torch.nan_to_num(torch.nn.functional.normalize(way[self.along](), dim=0))

    @abstractmethod
    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        """How far along the way the bound lets the update go."""


class MinMax(_Bounded, use="min-max"):
    """No farther from any honest update than two honest ones are from each other.

    After Shejwalkar and Houmansadr 2021.
    """

    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        return float(_root(offs - squares.max(), dots, float(way @ way)).min())


class MinSum(_Bounded, use="min-sum"):
    """Squared distances to all honest updates that add up to no more than those of the most central honest one.

    After Shejwalkar and Houmansadr 2021, with the least sum, as in the authors' code.
    """

    def _farthest(self, offs: Tensor, dots: Tensor, way: Tensor, squares: Tensor) -> float:
        room = offs.sum() - squares.sum(1).min()
        return float(_root(room, dots.sum(), len(offs) * float(way @ way)))


def _root(constant: Tensor, half: Tensor, square: float) -> Tensor:
    """The larger root of square t² - 2 half t + constant, whose constant is not above 0; 0 where it does not move."""
    if not square:
        return torch.zeros_like(constant)
    return (half + (half.square() - square * constant.clamp_max(0)).sqrt()) / square


def _honest(inputs: PoisonInputs) -> Tensor:
    return inputs.own if inputs.benign is None else inputs.benign


class SignFlip(Poison, use="sign-flip"):
    """The honest update, turned round and `factor` times as long."""

    factor: float = Field(1.0, gt=0)

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """The opposite."""
        return -self.factor * inputs.own


class RandomSigns(Poison, use="random-signs"):
    """Random signs, as long as the honest update."""

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """Every coordinate alike in size."""
        return lengthened(coins(inputs.own.shape, inputs.own, generator), inputs.own)


class Copy(Poison, use="copy-reference"):
    """The reference's own signs, wrong on a `wrong` share of coordinates, as long as the honest update.

    `choice`: wrong where the honest update is `largest`, or at `random`. `alike` sends the same row from all. Where no
    reference is shown, the signs of the attackers' mean honest update stand for it. A reference of an earlier round is
    used as it is. RAIN's threat model allows this adaptive attack, and its evaluation leaves it out.
    """

    sees_reference: ClassVar[bool] = True

    wrong: float = Field(0.1, ge=0, le=1)
    choice: Literal["largest", "random"] = "largest"
    alike: bool = False

    def craft(self, inputs: PoisonInputs, generator: Generator) -> Tensor:
        """Near enough to be trusted, and wrong where it hurts."""
        guess = inputs.own.mean(0) if inputs.reference is None else inputs.reference
        signs = torch.where(guess >= 0, 1.0, -1.0).to(inputs.own.dtype)
        leading = inputs.own.mean(0, keepdim=True) if self.alike else inputs.own
        rank = leading.abs() if self.choice == "largest" else torch.rand(
            leading.shape, generator=generator, device=inputs.own.device
        )  # fmt: skip
        count = round(self.wrong * leading.shape[1])
        rows = signs.repeat(len(leading), 1)
        rows.scatter_(1, rank.topk(count, dim=1).indices, -1.0, reduce="multiply")
        return lengthened(rows.expand_as(inputs.own), inputs.own)


def lengthened(rows: Tensor, like: Tensor) -> Tensor:
    """Rows, each as long as the row of `like` beside it."""
    lengths = rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    out: Tensor = rows * (like.norm(dim=1, keepdim=True) / lengths)
    return out


def coins(shape: tuple[int, ...], like: Tensor, generator: Generator) -> Tensor:
    """Fair random signs of this shape."""
    return torch.randint(0, 2, shape, generator=generator, device=like.device).to(like.dtype) * 2 - 1


def squared_distances(rows: Tensor) -> Tensor:
    """Squared distances between rows, in float64: the products of rows that are alike cancel to noise in float32."""
    fine = rows.double()
    products = fine @ fine.T
    sizes = products.diagonal()
    return (sizes + sizes.unsqueeze(1) - 2 * products).clamp_min(0).fill_diagonal_(0)
