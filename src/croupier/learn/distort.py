"""Pictures turned, mirrored or recoloured: shadow sets that are only nearly right.

An adversary's own records, the shadow sets, are rarely quite like a client's. An audit's `--noise` names one of these;
`audit.stage` applies it to the shadow sets, and never to what clients train on.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from croupier.core.part import Part
from croupier.errors import SpecError


class Distortion(Part):
    """How the adversary's pictures differ from the clients' own."""

    verb: ClassVar[str] = "distort"

    @abstractmethod
    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Distorted inputs of the same shape. Raises: SpecError when they are no pictures."""


class Clean(Distortion, use="clean"):
    """Nothing."""

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """The inputs."""
        return inputs


class Rotate(Distortion, use="rotate"):
    """Every picture turned by the same angle, black where nothing was."""

    degrees: float = Field(30.0, description="by how much pictures are turned")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Turned pictures."""
        _pictures(self, inputs)
        angle = math.radians(self.degrees)
        turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
        grid = functional.affine_grid(turn.expand(len(inputs), 2, 3), list(inputs.shape), align_corners=False)
        return functional.grid_sample(inputs, grid, align_corners=False)


class Mirror(Distortion, use="mirror"):
    """Left and right exchanged, or top and bottom."""

    upright: bool = Field(True, description="left and right are exchanged, or top and bottom")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Mirrored pictures."""
        _pictures(self, inputs)
        return inputs.flip(-1 if self.upright else -2)


class Colour(Distortion, use="colour"):
    """Brightness, contrast and saturation each changed by a factor within 1 - x and 1 + x, hue by up to x / 10 turns.

    Drawn anew for each picture, applied in that order; values stay within 0 and 1.
    """

    x: float = Field(0.2, ge=0, le=1, description="how far brightness, contrast and saturation may be off")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Recoloured pictures. Raises: SpecError when they are not RGB with values within 0 and 1."""
        _pictures(self, inputs)
        if inputs.shape[1] != 3 or float(inputs.min()) < 0 or float(inputs.max()) > 1:
            raise SpecError(
                f"noise = {self.use!r}: needs RGB pictures with values from 0 to 1; use 'rotate' or 'mirror'"
            )
        draws = (2 * torch.rand(4, len(inputs), 1, 1, 1, generator=generator) - 1) * self.x
        out = (inputs * (1 + draws[0])).clamp(0, 1)
        out = _blend(_grey(out).mean((2, 3), keepdim=True), out, 1 + draws[1])
        out = _blend(_grey(out), out, 1 + draws[2])
        return _turn_hue(out, draws[3] / 10)


def _pictures(part: Distortion, inputs: Tensor) -> None:
    if inputs.dim() != 4:
        shape = tuple(inputs.shape[1:])
        raise SpecError(f"noise = {part.use!r}: needs pictures, but inputs have the shape {shape}; use 'clean'")


def _grey(pictures: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    return (pictures * weights).sum(1, keepdim=True)


def _blend(there: Tensor, here: Tensor, share: Tensor) -> Tensor:
    return (there + (here - there) * share).clamp(0, 1)


def _turn_hue(pictures: Tensor, turns: Tensor) -> Tensor:
    """Hue on the colour wheel: six sectors between the highest and the lowest channel."""
    high, low = pictures.amax(1), pictures.amin(1)
    spread = high - low
    red, green, blue = (pictures / spread.clamp(min=1e-12).unsqueeze(1)).unbind(1)
    sector = torch.where(
        pictures[:, 0] == high,
        (green - blue) % 6,
        torch.where(pictures[:, 1] == high, blue - red + 2, red - green + 4),
    )
    hue = (sector + 6 * turns[:, 0]) % 6
    out = [high - spread * _ramp((hue + at) % 6) for at in (5, 3, 1)]
    return torch.stack(out, 1)


def _ramp(at: Tensor) -> Tensor:
    """1 while a channel is the lowest, 0 while it is the highest, straight in between."""
    return torch.minimum(at, 4 - at).clamp(0, 1)


CLEAN = Clean()
