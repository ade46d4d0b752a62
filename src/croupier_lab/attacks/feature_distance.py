"""A perceptual distance of pictures: how far apart their features are in a CIFAR-10 classifier that is trained here.

Tazza's paper reports LPIPS, which needs a network with downloaded weights. This stands in for it, and its numbers
cannot be compared with LPIPS. Tazza's Table 2 and Figure 11 (`papers.tazza.inversion`,
`papers.tazza.inversion_targets`) and Figure 6 (`papers.tazza.augmentation`) use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.learn.data import Dataset
from croupier.learn.models import CifarCnn, ConvNet

NAME = "feature distance in a CIFAR-10 classifier trained here"
# The side of the classifier's pictures, and the batch and learning rate of its training.
SIDE, BATCH, RATE = 32, 64, 1e-3


@dataclass(frozen=True)
class Perceiver:
    """A trained classifier, and how often it is right on records it did not see: a poor one perceives little."""

    module: ConvNet = field(repr=False)
    accuracy: float

    def distance(self, found: Tensor, true: Tensor) -> Tensor:
        """The distance of each pair of pictures, from 0 (alike) to 2: unit features, squared differences, mean."""
        if found.shape != true.shape or found.dim() != 4:
            raise RangeError(f"pictures of shapes {tuple(found.shape)} and {tuple(true.shape)}: needs two sets alike")
        with torch.no_grad():
            ours, theirs = (self._features(fitted(one)) for one in (found, true))
        return torch.stack([_apart(one, two) for one, two in zip(ours, theirs, strict=True)]).mean(0)

    def _features(self, x: Tensor) -> list[Tensor]:
        """What both convolutions and the first linear layer answer, in units of their length."""
        module, out = self.module, []
        x = x if module.first is None else module.first(x)
        for conv in (module.conv1, module.conv2):
            x = torch.relu(conv(x))
            out.append(functional.normalize(x, dim=1))
            x = functional.max_pool2d(x, 2)
        out.append(functional.normalize(torch.relu(module.fc1(x.flatten(1))), dim=1))
        return out


def fitted(pictures: Tensor) -> Tensor:
    """Pictures as the classifier takes them: cut to 0 to 1, three colours, 32 x 32 pixels."""
    shown = pictures.nan_to_num(0.5).clamp(0, 1).float()
    shown = shown.expand(-1, 3, -1, -1) if shown.shape[1] == 1 else shown
    return functional.interpolate(shown, (SIDE, SIDE), mode="bilinear", antialias=True)


def perceiver(dataset: Dataset, epochs: int, coins: Coins, device: str = "cpu") -> Perceiver:
    """Train the classifier on the dataset's training records, and try it on its test records."""
    with coins.child("weights").ambient():
        module = CifarCnn(standardise=True).build(dataset).to(device)
    count, search = len(dataset.train), torch.optim.Adam(module.parameters(), RATE)
    generator = coins.child("order").fast()
    for _ in range(epochs):
        for at in torch.randperm(count, generator=generator).split(BATCH):  # type: ignore[no-untyped-call]
            x, y = (part.to(device) for part in dataset.train.batch(at))
            search.zero_grad()
            functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
            search.step()
    module.eval().requires_grad_(False)
    x, y = (part.to(device) for part in dataset.test.batch(torch.arange(len(dataset.test))))
    answers = torch.cat([module(part).argmax(1) for part in x.split(500)])  # type: ignore[no-untyped-call]
    return Perceiver(module, float((answers == y).double().mean()))


def _apart(one: Tensor, two: Tensor) -> Tensor:
    """Squared differences, summed over the channels and averaged over places."""
    return (one - two).square().sum(1).flatten(1).mean(1) if one.dim() > 2 else (one - two).square().sum(1)
