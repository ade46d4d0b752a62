"""LPIPS, where the user has it: the package `lpips` with its networks' weights, which are not part of Croupier.

`audit.questions.reconstruction` makes a `Learned` where `croupier audit --lpips` names a network, and `learn.likeness`
then measures pictures by it beside PSNR and SSIM. Nothing else is ever called LPIPS: the distance that needs no weights
from elsewhere is the laboratory's (`croupier_lab.attacks.feature_distance`).
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from croupier.errors import SpecError, option

NETWORKS = ("alex", "vgg", "squeeze")
# Its networks halve pictures about five times: sides that are smaller than this are enlarged to it first.
SIDE = 64


class Learned:
    """The LPIPS of Zhang et al. 2018 by one network, as the package computes it: lower is more alike."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, found: Tensor, true: Tensor) -> Tensor:
        """The distance of each pair of pictures with values from 0 to 1; small ones are enlarged first."""
        with torch.no_grad():
            apart: Tensor = self.module(_fitted(found), _fitted(true))
        return apart.reshape(len(found), -1).mean(1)


@lru_cache(maxsize=len(NETWORKS))
def learned(network: str) -> Learned:
    """LPIPS by a network that the package knows. Raises: SpecError without the package or the network's weights."""
    if network not in NETWORKS:
        raise SpecError(f"{option('lpips')} = {network!r}: the package has networks {', '.join(NETWORKS)}")
    try:
        package = import_module("lpips")
    except ImportError:
        raise SpecError(
            f"{option('lpips')} = {network!r}: LPIPS is not installed; pip install 'croupier[lpips]', or leave it out "
            "and use PSNR and SSIM"
        ) from None
    try:
        return Learned(package.LPIPS(net=network, verbose=False).eval())
    except (OSError, RuntimeError) as error:
        raise SpecError(
            f"{option('lpips')} = {network!r}: torchvision's weights of the network cannot be had ({error}); the "
            "package brings only those on top of it. Put them into torch's folder of checkpoints, or leave "
            f"{option('lpips')} out"
        ) from None


def _fitted(pictures: Tensor) -> Tensor:
    """Pictures as the networks take them: three colours, from -1 to 1, large enough."""
    shown = pictures.clamp(0, 1).float()
    shown = shown.expand(-1, 3, -1, -1) if shown.shape[1] == 1 else shown
    if min(shown.shape[-2:]) < SIDE:
        shown = functional.interpolate(shown, (SIDE, SIDE), mode="bilinear")
    return 2 * shown - 1
