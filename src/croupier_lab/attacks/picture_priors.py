"""How like the true pictures a guess without any view is: the prior that a reconstruction must beat.

A likeness says nothing without one. The two priors, the mean of public pictures and randomly drawn public pictures, are
scored as an attack's result is: as many pictures, matched with the true ones in the same way. Only scorers use this,
not attacks: `papers.rns.inversion` (RNS's Figure 8) and `papers.tazza.picture_distance` (Tazza's Figure 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.learn.likeness import matched, mse, psnr, ssim


@dataclass(frozen=True)
class Likeness:
    """Squared error, peak signal-to-noise ratio in dB and structural similarity, each a mean over pictures."""

    mse: float
    psnr: float
    ssim: float


def judged(found: Tensor, true: Tensor) -> Likeness:
    """The likeness of matched pictures. What was found is first cut to values from 0 to 1, as anybody would do."""
    shown = found.nan_to_num(0.5).clamp(0, 1)
    rows, columns = matched(shown, true)
    shown, true = shown[rows.to(shown.device)], true[columns.to(true.device)]
    return Likeness(*(float(measure(shown, true).mean()) for measure in (mse, psnr, ssim)))


def mean_picture(public: Tensor, count: int) -> Tensor:
    """The cautious prior: the mean of public pictures, as often as asked."""
    return public.mean(0).expand(count, *public.shape[1:])


def some_pictures(public: Tensor, count: int, coins: Coins) -> Tensor:
    """The daring prior: as many public pictures, drawn at random, as an attack would find.

    Raises: RangeError with too few.
    """
    if count > len(public):
        raise RangeError(f"{count} pictures asked for where {len(public)} are public")
    return public[torch.randperm(len(public), generator=coins.fast())[:count].to(public.device)]


def without_view(public: Tensor, true: Tensor, count: int, draws: int, coins: Coins) -> dict[str, Likeness]:
    """The likeness of both priors, scored as an attack is; of drawn pictures it is a mean over draws."""
    bets = [judged(some_pictures(public, count, coins.child("draw", draw)), true) for draw in range(draws)]
    return {"mean picture": judged(mean_picture(public, count), true), "public pictures": _mean(bets)}


def _mean(all_of_them: list[Likeness]) -> Likeness:
    count = len(all_of_them)
    return Likeness(*(math.fsum(getattr(one, name) for one in all_of_them) / count for name in ("mse", "psnr", "ssim")))
