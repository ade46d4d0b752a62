"""What is done to pictures before they are learned from: once for all, or anew for every batch.

A description names one under `task.augment`; `learn.train` asks it for every batch, and `learn.assemble` once before
training where pictures are changed for good (InstaHide). Draws for a batch come from the client's own coins, and
those that are made once from the task's, so that a repeated attempt trains on the very same pictures.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from croupier.core.coins import Coins, Stream
from croupier.core.part import Part
from croupier.errors import SpecError
from croupier.learn.data import Data, Dataset, Records, TensorRecords
from croupier.learn.datasets.fashion import Fashion

# No picture may count for more (InstaHide's c1).
CEILING = 0.65
# So many pictures are blended at a time.
PIECE = 4096


class Augment(Part):
    """What is done to inputs."""

    verb = "augment"
    # Whether calling it changes a batch: then clients train one by one, each with its own draws.
    fresh: ClassVar[bool] = False

    def mixes(self, data: Data) -> bool:
        """Whether what is made of one record of these data may hold others of them."""
        return False

    def prepare(self, dataset: Dataset, folder: Path | None, coins: Coins) -> Dataset:
        """The dataset that is split and learned from, made once. Raises: SpecError on a misfit, DataError."""
        return dataset

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """The inputs of one batch of training, drawn anew each time."""
        return inputs


class NoAugment(Augment, use="none"):
    """Inputs as they are."""


AS_IS = NoAugment()


class Crop(Augment, use="crop"):
    """Cuts a window of `side` pixels from each picture, at random every time, and stretches it to the full size.

    With `flip` each is also mirrored, left for right, by a fair coin.
    """

    fresh: ClassVar[bool] = True

    side: PositiveInt = Field(
        description="a window of so many pixels, cut anew for every batch and stretched to the full size"
    )
    flip: bool = Field(False, description="mirror by a fair coin too")

    def prepare(self, dataset: Dataset, folder: Path | None, coins: Coins) -> Dataset:
        """The dataset as it is. Raises: SpecError unless it has square pictures of at least that side."""
        shape = dataset.shape
        if len(shape) != 3 or shape[1] != shape[2]:
            given = f"needs square pictures, but {dataset.name!r} has inputs of shape {shape}"
            raise SpecError(f"task.augment = 'crop': {given}; use data of pictures or task.augment = \"none\"")
        if self.side > shape[2]:
            raise SpecError(f"task.augment.side = {self.side}: the pictures have {shape[2]} pixels; use at most that")
        return dataset

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Windows of the pictures, bilinear."""
        count, colours, full, _ = inputs.shape
        corner = torch.randint(full - self.side + 1, (count, 2, 1), generator=generator)
        down, across = (corner + torch.arange(self.side)).to(inputs.device).unbind(1)
        picture = torch.arange(count, device=inputs.device)[:, None, None, None]
        colour = torch.arange(colours, device=inputs.device)[:, None, None]
        window = inputs[picture, colour, down[:, None, :, None], across[:, None, None, :]]
        cut = functional.interpolate(window, size=(full, full), mode="bilinear", align_corners=False)
        if not self.flip:
            return cut
        tossed = torch.randint(2, (count, 1, 1, 1), generator=generator).bool().to(inputs.device)
        return torch.where(tossed, cut.flip(3), cut)


class InstaHide(Augment, use="instahide"):
    """Every record once and for all blended with k - 1 public pictures, and the sign of every pixel flipped at random.

    A defence against reconstruction by Huang et al. 2020, kept as a target for audits: it gives no guarantee, and has
    been broken. In their paper pixels lie in [-1, 1]; here they are not negative, so a flip hides no sign that was
    there. Labels are kept as they are.
    """

    k: int = Field(4, ge=1, description="pictures in a blend")
    public: Data = Field(Fashion(), description="the data that the other pictures come from")

    def mixes(self, data: Data) -> bool:
        """Where the pictures that it blends in come from the same data."""
        return self.k > 1 and (self.public.use, self.public.own_function) == (data.use, data.own_function)

    def prepare(self, dataset: Dataset, folder: Path | None, coins: Coins) -> Dataset:
        """All records, encoded. Raises: SpecError unless the public pictures have the shape of the private ones."""
        if dataset.goal != "classify" or dataset.worded:
            remedy = 'use data of pictures or task.augment = "none"'
            raise SpecError(f"task.augment = 'instahide': {dataset.name!r} has no pictures; {remedy}")
        public = self._pictures(dataset, folder) if self.k > 1 else torch.zeros(1, *dataset.shape)
        train = self._encode(dataset.train, public, coins.child("train").secure())
        test = self._encode(dataset.test, public, coins.child("test").secure())
        return replace(dataset, train=train, test=test)

    def _pictures(self, dataset: Dataset, folder: Path | None) -> Tensor:
        public = self.public.load(folder)
        if public.shape != dataset.shape:
            shapes = f"its pictures have the shape {public.shape}, those of {dataset.name!r} {dataset.shape}"
            raise SpecError(f"task.augment.public = {self.public.use!r}: {shapes}; use public data of that shape")
        return public.train.batch(torch.arange(len(public.train)))[0]

    def _encode(self, records: Records, public: Tensor, choices: Stream) -> TensorRecords:
        x, y = records.batch(torch.arange(len(records)))
        # Piece by piece: the choices for all pixels at once would be larger than the pictures.
        pieces = [self._blend(x[at : at + PIECE], public, choices) for at in range(0, len(x), PIECE)]
        return TensorRecords(torch.cat(pieces), y)

    def _blend(self, private: Tensor, public: Tensor, choices: Stream) -> Tensor:
        count = len(private)
        share = torch.from_numpy(weights(count, self.k, choices)).float()
        share = share.reshape(count, self.k, *[1] * (private.dim() - 1))
        blend = share[:, 0] * private
        for other in range(1, self.k):
            blend += share[:, other] * public[torch.from_numpy(choices.below(len(public), count))]
        return torch.where(_flips(blend.numel(), choices).reshape(blend.shape), -blend, blend)


def weights(count: int, k: int, choices: Stream) -> npt.NDArray[np.float64]:
    """For each record k shares, the largest first: uniform among those that add up to 1 with none above the ceiling.

    With k = 1 nothing is blended in, and the one share is 1.
    """
    if k == 1:
        return np.ones((count, 1))
    shares = np.zeros((count, k))
    left = np.arange(count)
    while len(left):
        # The gaps between uniform points are uniform shares, by exact operations only.
        points = np.sort(choices.below(1 << 53, len(left) * (k - 1)).reshape(len(left), k - 1) / (1 << 53), axis=1)
        shares[left] = -np.sort(-np.diff(points, axis=1, prepend=0.0, append=1.0), axis=1)
        left = left[shares[left, 0] > CEILING]
    return shares


def _flips(count: int, choices: Stream) -> Tensor:
    """Whether the sign of each pixel is flipped: each with chance one half."""
    octets = choices.below(256, -(-count // 8)).astype(np.uint8)
    return torch.from_numpy(np.unpackbits(octets, count=count)).bool()
