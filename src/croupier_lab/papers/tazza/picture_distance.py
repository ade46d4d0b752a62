"""Tazza's Figure 4: how unlike its original a picture of permuted pixels is, and why that is no measure of secrecy.

Pixels in another order have the same values. Put in order with the help of public pictures, they show a classifier the
digit again, so a low PSNR says only that nobody can read a picture by eye. `croupier reproduce tazza/figure4` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.learn.data import Dataset
from croupier.learn.datasets import Mnist
from croupier.learn.likeness import psnr
from croupier.learn.models import Mlp
from croupier.learn.png import png
from croupier_lab.attacks.picture_priors import mean_picture
from croupier_lab.attacks.pixel_layout import by_example, laid_out
from croupier_lab.drawing.pictures import Histogram, sheet
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER
from croupier_lab.papers.tazza.parameter_search_rows import interval
from croupier_lab.papers.tazza.permuted_training import learn

Watch = Callable[[str], None]
Row = dict[str, Any]
# "Most samples exhibit low PSNR in the range of 6-8 dB."
LOW, HIGH = 6.0, 8.0
# Decibels of a bin, bins, pictures of either end that are kept, and pictures handled at a time.
STEP, BINS, EACH, PIECE = 0.5, 50, 5, 5000
PERMUTED = "pixels permuted (the paper's)"
ORDERED = "permuted, put in order by co-occurrence"
MEAN, BLACK = "no view: the mean of public pictures", "no view: a black picture"
OTHER, SORTED = "another picture of the same digit", "pixels sorted by value"
# Pictures of the training part, public pictures, and epochs of the classifier that reads digits.
SIZES: Mapping[Scale, tuple[int, int, int]] = {
    "smoke": (3000, 2000, 2), "small": (60_000, 10_000, 5), "paper": (60_000, 10_000, 20),
}  # fmt: skip


@dataclass(frozen=True)
class _Shown:
    """Pictures that stand in the place of the originals, and a classifier that reads digits from them."""

    pictures: Tensor
    reader: nn.Module


def figure4(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """PSNR against the original, whether the values are the same, and how often the digit can be read."""
    count, others, epochs = SIZES[scale]
    dataset = Mnist(train=count, test=others).load(means.folder)
    (x, y), (public, digits) = (part.batch(torch.arange(len(part))) for part in (dataset.train, dataset.test))
    inorder, tries = _sorted(x), dict[str, list[Row]]()
    samples: dict[str, list[str]] = {}
    for seed in seeds:
        coins = Coins.from_seed(seed).child("figure 4")
        drawn = None
        for name, shown in _kinds(dataset, x, y, public, digits, epochs, coins):
            found = _judged(shown, x, y, inorder)
            tries.setdefault(name, []).append(found)
            if seed == seeds[0]:
                # Of every kind the same pictures are kept: the lowest and highest PSNR in the paper's own comparison.
                drawn = _ends(found["_each"]) if drawn is None else drawn
                samples[name] = [png(shown.pictures[at]) for at in drawn]
                samples.setdefault("original", [png(x[at]) for at in drawn])
        watch(f"rule {seed}")
    prior = float((y == digits.bincount().argmax()).double().mean())
    return [_row(name, found, prior, samples[name], samples["original"], len(x)) for name, found in tries.items()]


def _kinds(
    dataset: Dataset, x: Tensor, y: Tensor, public: Tensor, digits: Tensor, epochs: int, coins: Coins
) -> Iterator[tuple[str, _Shown]]:
    reader = _reader(dataset, public, digits, epochs, coins.child("reader"))
    order = torch.from_numpy(coins.child("rule").secure().permutation(x[0].numel()))
    permuted = x.flatten(1)[:, order]
    yield PERMUTED, _Shown(permuted.view_as(x), reader)
    places = by_example(permuted, public.flatten(1), coins.child("order"))
    yield ORDERED, _Shown(laid_out(permuted, places).view_as(x), reader)
    yield MEAN, _Shown(mean_picture(public, len(x)), reader)
    yield BLACK, _Shown(torch.zeros_like(x), reader)
    yield OTHER, _Shown(x[_others(y, coins.child("others"))], reader)
    inorder = _sorted(public)
    yield SORTED, _Shown(_sorted(x), _reader(dataset, inorder, digits, epochs, coins.child("sorted")))


def _sorted(x: Tensor) -> Tensor:
    """All that is left of a picture whose pixels are permuted by a rule of its own."""
    return x.flatten(1).sort(dim=1).values.view_as(x)


def _others(y: Tensor, coins: Coins) -> Tensor:
    """For each record another one of its class."""
    out, generator = torch.arange(len(y)), coins.fast()
    for digit in range(int(y.max()) + 1):
        own = torch.nonzero(y == digit)[:, 0]
        turned = own[torch.randperm(len(own), generator=generator)]
        out[turned] = turned.roll(1)
    return out


def _reader(dataset: Dataset, x: Tensor, y: Tensor, epochs: int, coins: Coins) -> nn.Module:
    """A classifier that is trained on these pictures."""
    with coins.child("weights").ambient():
        module = Mlp(hidden=(256, 128)).build(dataset)
    for _ in learn(module, x, y, epochs, coins.child("lesson")):
        pass
    return module


def _judged(shown: _Shown, x: Tensor, y: Tensor, inorder: Tensor) -> Row:
    each, same, read = [], 0, 0
    with torch.no_grad():
        for at in range(0, len(x), PIECE):
            found, true = shown.pictures[at : at + PIECE], x[at : at + PIECE]
            each.append(psnr(found.contiguous(), true))
            same += int((_sorted(found) == inorder[at : at + PIECE]).flatten(1).all(1).sum())
            read += int((shown.reader(found).argmax(1) == y[at : at + PIECE]).sum())
    return {"_each": torch.cat(each), "same": same / len(x), "read": read / len(x)}


def _ends(each: Tensor) -> list[int]:
    """The numbers of the pictures with the lowest PSNR, then of those with the highest."""
    order = each.argsort().tolist()
    return [*order[:EACH], *order[-EACH:]]


def _row(
    name: str, found: Sequence[Row], prior: float, samples: Sequence[str], originals: Sequence[str], count: int
) -> Row:
    first = found[0]["_each"]
    within = [float(((one["_each"] >= LOW) & (one["_each"] <= HIGH)).double().mean()) for one in found]
    # Values beyond the last bin are counted in it.
    bins = (first / STEP).long().clamp(0, BINS - 1).bincount(minlength=BINS)
    level, read = cell([float(one["_each"].mean()) for one in found]), cell([one["read"] for one in found])
    return {
        "shown": name, "paper": "most in 6-8 dB" if name == PERMUTED else None, "pictures": count,
        "psnr": interval(level, 2), "in_6_to_8": interval(cell(within), 3), "least": round(float(first.min()), 1),
        "most": round(float(first.max()), 1), "same_values": float(np.mean([one["same"] for one in found])),
        "digit_read": interval(read, 3), "prior": round(prior, 3), "_psnr": level, "_within": cell(within),
        "_read": read, "_bins": [int(one) / count for one in bins], "_samples": list(samples),
        "_originals": list(originals),
    }  # fmt: skip


def draw4(rows: Sequence[Mapping[str, Any]]) -> str:
    """The picture: PSNR by shares of pictures, above the pictures with the lowest and the highest."""
    histogram = Histogram(
        {row["shown"]: row["_bins"] for row in rows if row["shown"] in (PERMUTED, MEAN, OTHER)}, 0.0, STEP,
        "PSNR against the original, dB",
    )  # fmt: skip
    at = {row["shown"]: row for row in rows}
    shown = [("original", at[PERMUTED]["_originals"])]
    for name in (PERMUTED, ORDERED, MEAN, OTHER):
        shown.append((f"{name}: {at[name]['_psnr']['mean']:.1f} dB", at[name]["_samples"]))
    title = f"Figure 4: PSNR against the original; the {EACH} lowest and the {EACH} highest of permuted pixels"
    return sheet(title, shown, histogram)


def says4(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what the printed measure does not measure."""
    at = {row["shown"]: row for row in rows}
    level = {name: row["_psnr"]["mean"] for name, row in at.items()}
    read = {name: 100 * row["_read"]["mean"] for name, row in at.items()}
    below = "below" if level[PERMUTED] < min(level[MEAN], level[BLACK]) else "not below"
    return [
        f"Permuted pixels are at {level[PERMUTED]:.1f} dB, {100 * at[PERMUTED]['_within']['mean']:.0f} % "
        f"of pictures between {LOW:g} and {HIGH:g} dB (the paper: most).",
        f"PSNR against the original measures nothing about secrecy. Without any view the mean of public pictures has "
        f"{level[MEAN]:.1f} dB and a black picture {level[BLACK]:.1f} dB; what the server holds is {below} both. "
        f"Another picture of the same digit has {level[OTHER]:.1f} dB, and its digit is read from it in "
        f"{read[OTHER]:.0f} % of cases.",
        f"{100 * at[PERMUTED]['same_values']:.0f} % of permuted pictures have the very values of the original: a "
        f"permutation is undone by putting them in order. From {at[PERMUTED]['pictures']} pictures under one rule and "
        f"public ones that takes no secret: then {level[ORDERED]:.1f} dB and {read[ORDERED]:.0f} % of digits read, "
        f"{read[PERMUTED]:.0f} % before, {100 * at[PERMUTED]['prior']:.0f} % by always saying the commonest "
        "(tazza/figure17 does so from parameters).",
        f"Were every picture permuted by a rule of its own, its sorted values would still tell {read[SORTED]:.0f} % of "
        "digits.",
    ]


READ4 = (
    "PSNR of what is shown against the original, mean over all pictures with 95 % intervals over rules; least and most "
    "are of the first rule. 'Same values': the share of pictures that have exactly the original's pixel values, in "
    "whatever order. 'Digit read': how often a perceptron that learnt from public pictures (for sorted values: sorted "
    "ones) reads the digit, beside how often the commonest public digit is right. Higher PSNR does not mean that "
    "more is known."
)
FIGURES = (
    Figure(
        "tazza/figure4", f"{PAPER}, Figure 4", "PSNR between pictures and their permuted pixels, beside no view at all",
        READ4, figure4, {"smoke": 2, "small": 3, "paper": 10},
        ("the test part stands for public pictures; all else is the paper's",), says4, draw4,
    ),
)  # fmt: skip
