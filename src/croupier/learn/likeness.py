"""How like two pictures are: squared error, PSNR, SSIM, and LPIPS where there is one.

`audit.questions.reconstruction` and the papers' figures of inversion score by it: an attack never sees the truth that
its pictures are compared with.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from croupier.errors import RangeError
from croupier.learn.data import Dataset
from croupier.learn.lpips import Learned

WINDOW, SIGMA, K1, K2 = 11, 1.5, 0.01, 0.03
# Equal pictures would have an infinite ratio, and a mean over pictures none at all.
BEST = 100.0


def mse(found: Tensor, true: Tensor) -> Tensor:
    """The mean squared error of each picture. Raises: RangeError unless both have one shape of pictures."""
    _check(found, true)
    return (found.double() - true.double()).square().flatten(1).mean(1)


def psnr(found: Tensor, true: Tensor) -> Tensor:
    """10 log10(1 / MSE) of each picture with values from 0 to 1, at most 100 dB."""
    return -10 * torch.log10(mse(found, true).clamp(min=10 ** (-BEST / 10)))


def window_for(height: int, width: int) -> int:
    """The side of the window: 11, or the largest odd number that fits into a smaller picture."""
    side = min(WINDOW, height, width)
    return side if side % 2 else side - 1


def ssim(found: Tensor, true: Tensor) -> Tensor:
    """Structural similarity of each picture (Wang et al. 2004) with values from 0 to 1.

    Gaussian window with deviation 1.5, only where it lies within the picture, means over places and channels.
    """
    _check(found, true)
    side = window_for(*found.shape[2:])
    at = torch.arange(side, dtype=torch.float64, device=found.device) - side // 2
    bell = torch.exp(-at.square() / (2 * SIGMA**2))
    bell = bell / bell.sum()

    def blurred(values: Tensor) -> Tensor:
        flat = values.flatten(0, 1).unsqueeze(1)
        return functional.conv2d(functional.conv2d(flat, bell.view(1, 1, -1, 1)), bell.view(1, 1, 1, -1))

    one, two = found.double(), true.double()
    mean1, mean2 = blurred(one), blurred(two)
    var1, var2 = blurred(one * one) - mean1**2, blurred(two * two) - mean2**2
    shared = blurred(one * two) - mean1 * mean2
    c1, c2 = K1**2, K2**2
    each = (2 * mean1 * mean2 + c1) * (2 * shared + c2) / ((mean1**2 + mean2**2 + c1) * (var1 + var2 + c2))
    return each.reshape(len(found), -1).mean(1)


def matched(found: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """Which found picture stands for which true one: pairs of numbers with the highest sum of PSNR.

    Without names any pairing is as good to the adversary, so the scorer takes its best one; where one side has more
    pictures, the rest of them stays alone.
    """
    from scipy.optimize import linear_sum_assignment

    count, others = len(found), len(true)
    ratios = psnr(found.repeat_interleave(others, 0), true.repeat(count, 1, 1, 1)).reshape(count, others)
    rows, columns = linear_sum_assignment(ratios.cpu().numpy(), maximize=True)
    return torch.from_numpy(np.asarray(rows)), torch.from_numpy(np.asarray(columns))


def pictured(dataset: Dataset) -> tuple[int, int, int] | None:
    """Colours, height and width of a record, where records are pictures (the rows of `digits` are); else None."""
    shape = dataset.shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape
    return (1, 8, 8) if dataset.name == "digits" and shape == (64,) else None


def like(found: Tensor, true: Tensor, shape: tuple[int, ...] | None, judge: Learned | None = None) -> dict[str, float]:
    """PSNR in dB; where both are pictures SSIM, and LPIPS where there is one."""
    one, two = (part.reshape(1, *(shape or (1, 1, part.numel()))) for part in (found, true))
    one = one if shape is None else one.clamp(0, 1)
    measures = {"psnr": psnr(one, two)}
    if shape is not None:
        measures["ssim"] = ssim(one, two)
    if shape is not None and judge is not None:
        measures["lpips"] = judge(one, two)
    return {name: float(value) for name, value in measures.items()}


def _check(found: Tensor, true: Tensor) -> None:
    if found.dim() != 4 or found.shape != true.shape:
        shapes = f"{tuple(found.shape)} and {tuple(true.shape)}"
        raise RangeError(f"pictures have the shape (number, channels, height, width), and two sets one: not {shapes}")
