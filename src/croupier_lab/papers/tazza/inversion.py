"""Tazza's Table 2 and Figure 11: what a server inverts from one upload under each defence, and with the rule.

The paper's server reads permuted uploads as they lie. Beside it stands one that knows the first model and matches
weights, which finds the rule, and with it the record. `croupier reproduce tazza/table2` and `tazza/figure11` run it,
and `combined_defences` (Figures 10 and 12) calls `measured` with fewer records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.learn.data import Data, Dataset, Records, TensorRecords
from croupier.learn.datasets import Cifar10, Ecg, Mnist
from croupier.learn.models import DlgLeNet, Mixer, Mlp, Network, Rnn, Vit
from croupier_lab.attacks.feature_distance import NAME, Perceiver, perceiver
from croupier_lab.attacks.gradient_search import Dlg, Inverting
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.confidentiality_defences import BATCH, CLIP, MATCHED, NONE, SHIELDS, UNKNOWN, Shield
from croupier_lab.papers.tazza.inversion_targets import RATE as RATE
from croupier_lab.papers.tazza.inversion_targets import tries

Watch = Callable[[str], None]
PAPER = "Tazza (2025)"
# Average and best PSNR that Table 2 prints.
PRINTED: Mapping[tuple[str, str], tuple[float, float]] = {
    ("MNIST / MLP", "FedAvg"): (47.08, 61.28), ("MNIST / MLP", "pruning 90%"): (4.92, 6.34),
    ("MNIST / MLP", "DP-SGD M"): (6.88, 14.77), ("MNIST / MLP", "Tazza, rule unknown"): (4.95, 5.31),
    ("CIFAR-10 / Mixer", "FedAvg"): (18.11, 30.46), ("CIFAR-10 / Mixer", "pruning 90%"): (13.17, 20.47),
    ("CIFAR-10 / Mixer", "DP-SGD M"): (15.60, 24.33), ("CIFAR-10 / Mixer", "Tazza, rule unknown"): (11.74, 21.12),
    ("CIFAR-10 / ViT", "FedAvg"): (12.21, 21.32), ("CIFAR-10 / ViT", "pruning 90%"): (10.23, 15.15),
    ("CIFAR-10 / ViT", "DP-SGD M"): (12.14, 20.08), ("CIFAR-10 / ViT", "Tazza, rule unknown"): (9.91, 16.18),
    ("ECG / RNN", "FedAvg"): (23.56, 35.35), ("ECG / RNN", "pruning 90%"): (-7.37, 0.08),
    ("ECG / RNN", "DP-SGD M"): (19.33, 32.34), ("ECG / RNN", "Tazza, rule unknown"): (17.01, 22.69),
}  # fmt: skip
# The control shows that a search works; more records than `ENOUGH` would show no more.
CONTROL, ENOUGH = "control: LeNet, untrained", 30


@dataclass(frozen=True)
class InversionCase:
    """A dataset and a network, the search, and how many records are tried; without a search the first layer is read."""

    label: str
    data: Data
    network: Network
    recipe: Inverting | Dlg | None
    targets: int
    shields: tuple[Shield, ...] = SHIELDS
    side: int | None = None

    def load(self, folder: Path | None) -> Dataset:
        """The records; with a `side`, pictures are averaged down to so many pixels a side."""
        dataset = self.data.load(folder)
        if self.side is None:
            return dataset
        train, test = (_shrunk(part, self.side) for part in (dataset.train, dataset.test))
        return replace(dataset, train=train, test=test)


def _shrunk(records: Records, side: int) -> TensorRecords:
    x, y = records.batch(torch.arange(len(records)))
    return TensorRecords(functional.adaptive_avg_pool2d(x, side), y)


def _pictures(steps: int) -> Inverting:
    return Inverting(steps=steps, variation=1e-2, labels="known")


def _beats(steps: int) -> Inverting:
    """A search for heart beats, which starts where public ones lie; they are no pixels between 0 and 1."""
    return Inverting(steps=steps, variation=1e-4, labels="known", boxed=False, mean=-0.3, deviation=0.2)


def _cases(targets: int, few: int, steps: int, loops: int) -> tuple[InversionCase, ...]:
    pictures, mnist, beats = Cifar10(train=1000, test=1000), Mnist(train=1000, test=1000), Ecg()
    bare = (NONE, UNKNOWN, MATCHED)
    return (
        InversionCase("MNIST / MLP", mnist, Mlp(hidden=(256, 128)), None, targets),
        InversionCase("CIFAR-10 / Mixer", pictures, Mixer(), _pictures(steps), few),
        InversionCase("CIFAR-10 / ViT", pictures, Vit(), _pictures(steps), few),
        InversionCase("ECG / RNN", beats, Rnn(), _beats(steps), few),
        InversionCase(
            CONTROL, pictures, DlgLeNet(), Dlg(steps=loops, restarts=4, enough=3e-5), min(few, ENOUGH), bare, 16
        ),
    )


CASES: Mapping[Scale, tuple[InversionCase, ...]] = {
    "smoke": _cases(4, 2, 4, 20),
    "small": _cases(50, 3, 120, 100),
    "paper": _cases(100, 100, 1000, 300),
}
# Records and epochs of the classifier that measures perceptual distance, by scale.
TRAINED = {"smoke": (500, 1), "small": (5000, 2), "paper": (50_000, 10)}
# Pictures of a row that a result keeps.
PICTURES = 2


def confidential(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    """A row for each dataset and defence, over the targets of all seeds."""
    return measured(CASES[scale], scale, means, seeds, watch)


def measured(
    cases: Sequence[InversionCase], scale: Scale, means: Means, seeds: Sequence[int], watch: Watch
) -> list[dict[str, Any]]:
    """The same for these cases."""
    records, epochs = TRAINED[scale]
    eye = perceiver(
        Cifar10(train=records, test=1000).load(means.folder), epochs, Coins.from_seed(0).child("eye"), means.device
    )
    watch(f"the classifier that perceives is right on {eye.accuracy:.0%}")
    rows = []
    for case in cases:
        dataset = case.load(means.folder)
        found = [one for seed in seeds for one in tries(case, dataset, eye, means, seed, watch)]
        rows += [_row(case, shield, [one for one in found if one["shield"] == shield.label], eye)
                 for shield in case.shields]  # fmt: skip
    return rows


def _row(case: InversionCase, shield: Shield, tries: Sequence[Mapping[str, Any]], eye: Perceiver) -> dict[str, Any]:
    def over(key: str) -> dict[str, Any] | None:
        values = [one[key] for one in tries if one[key] is not None and math.isfinite(one[key])]
        return cell(values) if len(values) > 1 else None

    found, far = over("psnr"), over("distance")
    gain = cell([one["psnr"] - one["prior"] for one in tries])
    paper = PRINTED.get((case.label, shield.label), (None, None))
    return {
        "setting": case.label, "defence": shield.label, "paper_psnr": paper[0], "psnr": _shown(found),
        "paper_best": paper[1], "best_psnr": round(max(one["psnr"] for one in tries), 1),
        "prior_psnr": _shown(over("prior")), "above_prior": _shown(gain), "ssim": _shown(over("ssim"), 3),
        "feature_distance": _shown(far, 3),
        "least_distance": None if far is None else round(min(far["runs"]), 3),
        "prior_distance": _shown(over("prior_distance"), 3),
        "rule_recovered": _shown(over("recovered"), 3), "records": len(tries),
        "_psnr": found, "_distance": far, "_gain": gain, "_eye": eye.accuracy, "_case": case.label,
        "_shield": shield.label,
        "_pictures": [{"true": one["true"], "found": one["found"]} for one in tries[:PICTURES]],
    }  # fmt: skip


def _shown(found: Mapping[str, Any] | None, places: int = 1) -> str | None:
    if found is None or found["mean"] is None:
        return None
    return f"{found['mean']:.{places}f} [{found['low']:.{places}f}, {found['high']:.{places}f}]"


def says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what matching does to the defence."""
    out = [f"The {NAME} is right on {rows[0]['_eye']:.0%} of new pictures; it is no LPIPS."]
    at = {(row["_case"], row["_shield"]): row["_psnr"]["mean"] for row in rows if row["_psnr"]}
    for case in dict.fromkeys(row["_case"] for row in rows):
        bare, blind, told = (at.get((case, name)) for name in ("FedAvg", "Tazza, rule unknown", "Tazza, rule matched"))
        if bare is not None and blind is not None and told is not None:
            out.append(
                f"{case}: {bare:.1f} dB undefended, {blind:.1f} dB under a rule the server does not look for, "
                f"{told:.1f} dB once it matches weights."
            )
    if (control := at.get((CONTROL, "FedAvg"))) is not None:
        passed = "passed" if control > 20 else "failed at this scale"
        out.append(
            f"Control: an untrained LeNet and one record give {control:.1f} dB undefended (20 wanted): {passed}."
        )
    out.append(
        "Weight permutation is obfuscation, not encryption. For confidentiality from the server use sum servers."
    )
    return out


SUBSTITUTIONS = (
    "CIFAR-10 / ViT for STL-10 / ViT, and a perceptual distance trained here for LPIPS",
    "ECG: 30 steps of 20 samples; PSNR takes 1 for the peak, values are not cut",
    "each record is one step of SGD on fresh weights, batch of one; on the MLP it is read off the first layer, which "
    "is stronger than the paper's search",
    f"DP-SGD: gradients clipped to {CLIP:g}, noise of multiplier 2, 4, 8 times the clip over {BATCH} a coordinate, as "
    f"a batch of {BATCH} has; the paper names small, medium and large only",
    "the mean of public pictures stands beside every PSNR, and any PSNR below it is no success",
)
READING = (
    "PSNR in dB (higher: more is given away), SSIM and the perceptual distance (lower: more is given away), means with "
    "95 % intervals over records; 'best' is the record that came out best. 'Rule unknown' is the paper's server, which "
    "reads a permuted upload as if it were not; 'rule matched' is the same server after weight matching against the "
    "model it handed out; 'rule leaked' after one client told it."
)
FIGURES = tuple(
    Figure(f"tazza/{name}", f"{PAPER}, {source}", title, READING + tail, confidential,
          {"smoke": 1, "small": 1, "paper": 1}, SUBSTITUTIONS, says)
    for name, source, title, tail in (
        ("table2", "Table 2", "inverted uploads by defence: average and best", ""),
        ("figure11", "Figure 11", "inverted uploads by defence, as pictures", " The file holds the first pictures."),
    )
)  # fmt: skip
