"""RNS's Figure 8: gradient inversion against what each defence lets a server see.

Experiments of source inference ask whose a record is. This asks how like the true picture an inverted one is, though
the server was never shown it. `croupier reproduce rns/figure8` runs it, with the attacks of `attacks.gradient_search`
and the trials of `inversion_trials`.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.canon import tensor_bytes
from croupier.core.coins import Coins
from croupier.core.intervals import over_runs
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Cifar10
from croupier.learn.ends import last_layer
from croupier.learn.gradient_search import Target
from croupier.learn.gradients import gradient_of
from croupier.learn.likeness import matched, mse, window_for
from croupier.learn.png import png as png
from croupier_lab.attacks.gradient_search import (
    Defence,
    Dlg,
    Found,
    Seen,
    layers,
    linked,
    seen,
)
from croupier_lab.attacks.picture_priors import Likeness, judged, without_view
from croupier_lab.papers.rns.inversion_trials import (
    ATTEMPTS,
    DRAWS,
    PRINTED,
    PUBLIC,
    READING,
    SUBSTITUTIONS,
    InversionTrial,
)
from croupier_lab.papers.rns.source_inference_settings import PAPER
from croupier_lab.papers.shared.figure import SCALES, Figure, Means, Scale

Watch = Callable[[str], None]
# Below this squared error a picture counts as recovered, as is usual for this attack.
RECOVERED = 1e-3
ONE = "sum, one record assumed"
# At most so many pictures of a case are kept in the result.
PICTURES = 8


def figure8(
    scale: Scale, folder: Path | None, device: str = "cpu", seed: int = 0, watch: Watch = lambda _: None
) -> dict[str, Any]:
    """Invert gradients under every defence, as plain data. Raises: DataError when CIFAR-10 is not there."""
    dataset = Cifar10(train=PUBLIC, test=PUBLIC).load(folder)
    coins = Coins.from_seed(seed)
    cases = [_case(trial, dataset, device, coins.child("figure8", trial.label), watch) for trial in ATTEMPTS[scale]]
    return {
        "kind": "croupier inversion",
        "entry": "rns/figure8",
        "source": f"{PAPER}, Figure 8",
        "title": "gradient inversion of one FedSGD step, CIFAR-10, batch size 1",
        "reading": READING,
        "scale": scale,
        "scale_means": SCALES[scale],
        "seed": seed,
        "device": device,
        "substitutions": list(SUBSTITUTIONS),
        "cases": cases,
    }


def _case(trial: InversionTrial, dataset: Dataset, device: str, coins: Coins, watch: Watch) -> dict[str, Any]:
    public, hidden = (_shrunk(_rows(part), trial.side, device) for part in (dataset.train, dataset.test))
    each = trial.clients * trial.batch
    order = torch.randperm(len(hidden), generator=coins.child("records").fast())
    steps = []
    for number in range(trial.targets):
        records = hidden.take(order[number * each : (number + 1) * each].to(device))
        here = coins.child("step", number)
        steps.append(_Step(trial, _fresh(trial, dataset, public, device, here), records, public.x, here).run())
        watch(f"{trial.label}: target {number + 1} of {trial.targets}")
    side = window_for(trial.side, trial.side)
    return {
        "label": trial.label,
        "network": trial.network.plain(),
        "attack": {"use": type(trial.recipe).__name__.lower(), **asdict(trial.recipe)},
        "targets": trial.targets,
        "clients": trial.clients,
        "batch": trial.batch,
        "side": trial.side,
        "scaling": "" if trial.side == 32 else f"pictures are means over squares, {trial.side} pixels a side",
        "ssim_window": side,
        "rows": [_row(name, trial, [step[name] for step in steps]) for name in steps[0]],
        "pictures": _shown(steps[0]),
    }


@dataclass(frozen=True)
class _Result:
    """What was found in one step under one defence, and what the scorer made of it."""

    found: Found
    true: Tensor
    likeness: Likeness
    raw: float
    prior: Mapping[str, Likeness]
    numbers: int


@dataclass(frozen=True)
class _Step:
    """One FedSGD step: the server's network, everybody's records, and what the server sees of their gradients.

    The first client is the target; the scorer points at its row or piece also where the server could not, so that all
    defences are compared on one picture.
    """

    trial: InversionTrial
    module: nn.Module
    records: TensorRecords
    public: Tensor
    coins: Coins

    def run(self) -> dict[str, _Result]:
        """What was found under each defence, by name."""
        size = self.trial.batch
        batches = [self.records.take(part) for part in torch.split(torch.arange(len(self.records)), size)]
        rows = torch.stack([gradient_of(self.module, part.x, part.y) for part in batches])
        memory: dict[bytes, Found] = {}
        out: dict[str, _Result] = {}
        for defence in self.trial.defences:
            view = seen(defence, rows, self.module, self.coins.child("seen", defence))
            found = self._inverted(defence, view, rows[0], memory)
            out[defence] = self._result(found, batches[0].x if defence == "none" else self.records.x)
        if "sum" in self.trial.defences:
            out[ONE] = self._result(self._mount(rows.double().mean(0).float(), size, memory), self.records.x)
        return out

    def _inverted(self, defence: Defence, view: Seen, own: Tensor, memory: dict[bytes, Found]) -> Found:
        if view.rows is None or defence == "parameter shuffle":
            return self._mount(view.mean, len(self.records), memory)
        if defence == "layer shuffle":
            start, stop = layers(self.module)[last_layer(self.module, self.public.shape[1:])][0]
            anchor = _where(view.rows[:, start:stop], own[start:stop])
            coins = self.coins.child("linked")
            target = self._target(view.rows[anchor], self.trial.batch)
            return linked(self.trial.attack, self.module, view.rows, anchor, target, coins)
        return self._mount(view.rows[_where(view.rows, own)], self.trial.batch, memory)

    def _mount(self, gradient: Tensor, records: int, memory: dict[bytes, Found]) -> Found:
        """Mount the attack; the same gradient gives the same pictures, found once, since its coins follow from it."""
        name = hashlib.blake2b(tensor_bytes(gradient.cpu()), digest_size=16).digest() + records.to_bytes(4, "big")
        if name not in memory:
            coins = self.coins.child("attack", name)
            memory[name] = self.trial.attack(self.module, self._target(gradient, records), coins)
        return memory[name]

    def _target(self, gradient: Tensor, records: int) -> Target:
        labels = self.records.y[:records] if getattr(self.trial.recipe, "labels", "") == "known" else None
        return Target(gradient, records, tuple(self.public.shape[1:]), 10, labels)

    def _result(self, found: Found, true: Tensor) -> _Result:
        rows, columns = matched(found.pictures.nan_to_num(0.5).clamp(0, 1), true)
        raw = float(mse(found.pictures[rows.to(true.device)], true[columns.to(true.device)]).mean())
        prior = without_view(self.public, true, len(found.pictures), DRAWS, self.coins.child("prior"))
        numbers = sum(part.numel() for part in self.module.parameters())
        return _Result(found, true, judged(found.pictures, true), raw, prior, numbers)


def _where(rows: Tensor, own: Tensor) -> int:
    return int((rows == own).all(1).nonzero()[0, 0])


def _rows(records: Any) -> TensorRecords:
    return TensorRecords(*records.batch(torch.arange(len(records))))


def _shrunk(rows: TensorRecords, side: int, device: str) -> TensorRecords:
    times = rows.x.shape[-1] // side
    return TensorRecords(functional.avg_pool2d(rows.x, times) if times > 1 else rows.x, rows.y).to(device)


def _fresh(trial: InversionTrial, dataset: Dataset, public: TensorRecords, device: str, coins: Coins) -> nn.Module:
    with coins.child("weights").ambient():
        return trial.network.build(replace(dataset, train=public.to("cpu"))).to(device).eval()


def _row(name: str, trial: InversionTrial, results: Sequence[_Result]) -> dict[str, Any]:
    gains = {prior: _over([one.likeness.psnr - one.prior[prior].psnr for one in results]) for prior in results[0].prior}
    return {
        "defence": name,
        "records_assumed": len(results[0].found.pictures),
        "pixels_sought": results[0].found.pictures.numel(),
        "numbers_seen": results[0].numbers,
        "named": 1.0 if name == "none" else 1 / trial.clients,
        **_measures([one.likeness for one in results]),
        "recovered": sum(one.likeness.mse < RECOVERED for one in results) / len(results),
        "raw_mse_median": _median([one.raw for one in results]),
        "attack_loss_median": _median([one.found.loss for one in results]),
        "prior": {prior: _measures([one.prior[prior] for one in results]) for prior in results[0].prior},
        "psnr_above_prior": gains,
        "printed": PRINTED.get(name) if isinstance(trial.recipe, Dlg) else None,
    }


def _measures(likenesses: Sequence[Likeness]) -> dict[str, Any]:
    return {name: _over([getattr(one, name) for one in likenesses]) for name in ("mse", "psnr", "ssim")}


def _over(values: Sequence[float]) -> dict[str, float]:
    got = over_runs(values)
    return {"mean": got.rate, "low": got.low, "high": got.high}


def _median(values: Sequence[float]) -> float | None:
    """The median; None where most searches ran off to infinity, which a result on disk cannot hold."""
    middle = statistics.median(value if math.isfinite(value) else math.inf for value in values)
    return middle if math.isfinite(middle) else None


def _shown(step: Mapping[str, _Result]) -> list[dict[str, str]]:
    """The first target's pictures: the truth, and what was found of it under each defence, or else the first found."""
    true = next(iter(step.values())).true[:1]
    out = [{"what": "true", "png": png(true[0])}]
    for name, result in step.items():
        pictures = result.found.pictures.nan_to_num(0.5).clamp(0, 1)
        rows, columns = matched(pictures, result.true)
        of_target = rows[columns == 0]
        out.append({"what": name, "png": png(pictures[int(of_target[0]) if len(of_target) else 0])})
    return out[:PICTURES]


def _figure8_rows(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    """One row an attack, a defence and a seed, with the priors beside it."""
    out = []
    for seed in seeds:
        for case in figure8(scale, means.folder, means.device, seed, watch)["cases"]:
            shown = {picture["what"]: picture["png"] for picture in case["pictures"]}
            for row in case["rows"]:
                out.append(
                    {
                        "attack": case["label"], "seed": seed, "defence": row["defence"],
                        "paper": None if row["printed"] is None else row["printed"]["loss"],
                        "records_sought": row["records_assumed"], "mse": round(row["mse"]["mean"], 5),
                        "psnr": round(row["psnr"]["mean"], 1), "psnr_low": round(row["psnr"]["low"], 1),
                        "psnr_high": round(row["psnr"]["high"], 1), "ssim": round(row["ssim"]["mean"], 3),
                        **{f"psnr_of_{name}": round(one["psnr"]["mean"], 1) for name, one in row["prior"].items()},
                        "_true": shown.get("true"), "_png": shown.get(row["defence"]),
                    }
                )  # fmt: skip
    return out


FIGURES = (
    Figure(
        "rns/figure8", f"{PAPER}, Figure 8 and Appendix F.3",
        "gradient inversion of one FedSGD step, CIFAR-10, batch size 1",
        READING + " Intervals are over targets. The file holds the first target's pictures.",
        _figure8_rows, {"smoke": 1, "small": 1, "paper": 1}, SUBSTITUTIONS,
    ),
)  # fmt: skip
