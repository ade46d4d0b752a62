"""Taking known noise off updates, by what auxiliary clients' updates are like.

Stage 1 of IntraShuffler section 5: linear shrinking along the directions that auxiliary clients' updates span, as much
as a row's noise asks for. The paper trains a network, whose form it does not name; the laboratory has one for its
tables, and here the best linear estimate is the one that verdicts look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from croupier.errors import RangeError

DIRECTIONS = 64


@dataclass(frozen=True)
class AuxiliaryUpdates:
    """What clients that are never among those attacked learn from the same models, and their labels.

    `updates` has a side for the studied rounds (`numbers`), one for the clients and one for the coordinates; they are
    clipped as the mechanism says and not noised. `labels` names each attribute, with one class a client.
    """

    numbers: tuple[int, ...]
    updates: Tensor
    labels: Mapping[str, Tensor]
    classes: Mapping[str, int]

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def at(self, number: int) -> int:
        """The place of the latest studied round that is not after this one."""
        known = [place for place, studied in enumerate(self.numbers) if studied <= number]
        if not known:
            raise RangeError(f"round {number}: no auxiliary updates from its start or an earlier one")
        return known[-1]

    def means(self, numbers: Tensor) -> Tensor:
        """The auxiliary clients' mean update for each of these rounds: what is known of a client without any view."""
        averages = self.updates.double().mean(1).float()
        return averages[torch.tensor([self.at(int(number)) for number in numbers])]

    def centred(self) -> Tensor:
        """Each update around the mean of its round."""
        return self.updates.double() - self.updates.double().mean(1, keepdim=True)

    def majority(self, attribute: str) -> int:
        """The commonest class among the auxiliary clients; the lowest of several."""
        return int(torch.bincount(self.labels[attribute], minlength=self.classes[attribute]).argmax())


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

    def project(self, around: Tensor) -> Tensor:
        """The coordinates of centred rows along the directions."""
        return around.double() @ self.basis


class Denoiser(Protocol):
    """Centred rows and the deviation of their noise to centred estimates."""

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates."""


@dataclass(frozen=True)
class Wiener:
    """The best linear estimate for the auxiliary spread: each direction is kept by spread / (spread + noise variance).

    The same gain is best for a mean of n rows: signal and noise of a client both count 1/n in it.
    """

    directions: Directions

    def __call__(self, around: Tensor, sigmas: Tensor) -> Tensor:
        """The estimates, centred; a row without noise stays as it is."""
        along = self.directions.project(around)
        return self.completed(around, along, along * gain(self.directions.spread, sigmas), sigmas)

    def completed(self, around: Tensor, along: Tensor, kept: Tensor, sigmas: Tensor) -> Tensor:
        """Estimates along the directions (`kept`) with the other directions of the rows, shrunk."""
        basis = self.directions.basis
        off = around.double() - along @ basis.T
        rest = torch.tensor([self.directions.rest], dtype=torch.float64)
        return kept @ basis.T + off * gain(rest, sigmas)


def gain(spread: Tensor, sigmas: Tensor) -> Tensor:
    """How much of each direction (columns) is kept at each noise (rows); everything without noise."""
    noise = sigmas.double().pow(2).unsqueeze(1)
    return torch.where(noise > 0, spread / (spread + noise).clamp_min(1e-300), 1.0)
