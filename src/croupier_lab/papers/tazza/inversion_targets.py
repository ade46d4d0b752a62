"""Tazza's Table 2, record by record: what a server sees of one step, what it inverts, and how like the truth that is.

A target is one record that some client trains one step on. What is seen is computed on the CPU, several targets at a
time in processes of their own; searches are made there too, or stacked on a device. `inversion` calls `tries` for Table
2 and Figure 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.symmetry import Rule
from croupier.learn.axes import symmetry_of
from croupier.learn.axes.matching import shares
from croupier.learn.data import Dataset
from croupier.learn.flat import layout_of
from croupier.learn.gradients import gradient_of
from croupier.learn.layer_gradients import label_of
from croupier.learn.likeness import psnr, ssim
from croupier.learn.png import png
from croupier_lab.attacks.feature_distance import Perceiver
from croupier_lab.attacks.gradient_search import Attack, Dlg, Inverting, dlg, inverting
from croupier_lab.attacks.permuted_upload import read_upload, record_of
from croupier_lab.attacks.stacked_search import inverting_stacked
from croupier_lab.papers.shared.figure import Means
from croupier_lab.processes import ask, process_pool

if TYPE_CHECKING:
    from croupier_lab.papers.tazza.inversion import InversionCase

Watch = Callable[[str], None]
# The learning rate of the one step of plain SGD that is inverted.
RATE = 0.1
# Targets whose searches, one for each of ten defences, are stacked on a device: they take about 20 GiB there.
STACKED = 100
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SeenUpload:
    """One target as the server has it under each defence: gradients as rows, classes as it reads them.

    `found` is what the server inverted, None where a device still has to search. `right` is the share of the rule that
    it has right.
    """

    handed: Floats
    gradients: Floats
    labels: tuple[int, ...]
    right: tuple[float | None, ...]
    found: Floats | None


@dataclass(frozen=True)
class _Job:
    case: InversionCase
    folder: Path | None
    seed: int
    number: int
    searches: bool

    @property
    def coins(self) -> Coins:
        return _coins(self.case, self.seed).child("target", self.number)


def tries(
    case: InversionCase, dataset: Dataset, eye: Perceiver, means: Means, seed: int, watch: Watch
) -> Iterator[dict[str, Any]]:
    """Every target under every defence: defended, sent, inverted, and only then compared with the record."""
    stacks = means.device != "cpu" and isinstance(case.recipe, Inverting)
    jobs = [_Job(case, means.folder, seed, number, not stacks) for number in range(case.targets)]
    x, _ = _records(case, dataset, seed)
    public = dataset.train.batch(torch.arange(min(1000, len(dataset.train))))[0].mean(0, keepdim=True)
    step = STACKED if stacks else 1
    done = _every(jobs, means.processes)
    for at in range(0, case.targets, step):
        some = list(islice(done, step))
        if stacks:
            found = _searched(case, dataset, jobs[at : at + step], some, means.device)
        else:
            found = torch.stack([torch.from_numpy(one.found) for one in some])
        yield from _scored(case, found, x[at : at + step], public, eye, some)
        watch(f"{case.label}: record {at + len(some)} of {case.targets}")


def _coins(case: InversionCase, seed: int) -> Coins:
    return Coins.from_seed(seed).child("table 2", case.label)


def _records(case: InversionCase, dataset: Dataset, seed: int) -> tuple[Tensor, Tensor]:
    generator = _coins(case, seed).child("records").fast()
    return dataset.test.batch(torch.randperm(len(dataset.test), generator=generator)[: case.targets])


def _every(jobs: Sequence[_Job], processes: int) -> Iterator[SeenUpload]:
    """All targets in order, `processes` at once, each process with one thread."""
    if processes == 1 or len(jobs) == 1:
        yield from map(_seen, jobs)
        return
    with process_pool(min(processes, len(jobs))) as pool:
        for done in [ask(pool, _seen, job) for job in jobs]:
            yield done.result()


@lru_cache(maxsize=1)
def _loaded(case: InversionCase, folder: Path | None) -> Dataset:
    return case.load(folder)


def _seen(job: _Job) -> SeenUpload:
    """Defend, send and read one target. Here the truth is at hand; the inversion is given only what the server has."""
    case, dataset = job.case, _loaded(job.case, job.folder)
    x, y = (part[job.number : job.number + 1] for part in _records(case, dataset, job.seed))
    module = _fresh(job, dataset)
    symmetry = symmetry_of(module, dataset.test.batch(torch.arange(2))[0])
    held = dict(module.named_parameters()) | dict(module.named_buffers())
    handed = layout_of(module).flatten(held).detach().clone()
    plain = gradient_of(module, x, y)
    views, right = [], []
    for shield in case.shields:
        coins = job.coins.child(shield.label)
        gradient = shield.done(plain, coins.child("defence"))
        upload = handed.clone()
        upload[: len(gradient)] -= RATE * gradient
        rule = symmetry.draw(coins.child("rule"), 0) if shield.kind == "permuted" else None
        sent = upload if rule is None else symmetry.apply(upload, rule)
        views.append(read_upload(shield.knows, module, handed, sent, symmetry, RATE, coins.child("match"), rule))
        right.append(_share(views[-1].rule, rule))
    found = None
    if job.searches:
        # The same coins for all searches, so that only the defence can make a difference between them.
        attack, search = _attack(case), job.coins.child("invert")
        every = [record_of(view, x.shape[1:], dataset.classes, search, attack) for view in views]
        found = torch.cat(every).detach().numpy()
    labels = tuple(int(label_of(view.gradient, view.network, dataset.shape)) for view in views)
    gradients = torch.stack([view.gradient for view in views]).numpy()
    return SeenUpload(handed.numpy(), gradients, labels, tuple(right), found)


def _fresh(job: _Job, dataset: Dataset) -> nn.Module:
    with job.coins.child("weights").ambient():
        return job.case.network.build(dataset).eval()


def _attack(case: InversionCase) -> Attack | None:
    recipe = case.recipe
    return None if recipe is None else dlg(recipe) if isinstance(recipe, Dlg) else inverting(recipe)


def _searched(
    case: InversionCase, dataset: Dataset, jobs: Sequence[_Job], seen: Sequence[SeenUpload], device: str
) -> Tensor:
    """All searches of several targets stacked: (targets, defences, *shape)."""
    assert isinstance(case.recipe, Inverting)
    count = len(case.shields)
    handed = torch.from_numpy(np.stack([one.handed for one in seen])).to(device).repeat_interleave(count, 0)
    gradients = torch.from_numpy(np.concatenate([one.gradients for one in seen])).to(device)
    labels = torch.tensor([label for one in seen for label in one.labels], device=device)
    coins = [job.coins.child("invert") for job in jobs for _ in range(count)]
    module = _fresh(jobs[0], dataset)
    found = inverting_stacked(case.recipe, module, handed, gradients, labels, dataset.shape, coins)
    return found.cpu().view(len(seen), count, *dataset.shape)


def _share(found: Rule | None, true: Rule | None) -> float | None:
    """The share of all places that a found rule has right; None where there was no rule or none was found."""
    if found is None or true is None:
        return None
    right = shares(found, true)
    sizes = {group: len(order) for group, order in true.of.items()}
    return sum(right[group] * size for group, size in sizes.items()) / sum(sizes.values())


def _scored(
    case: InversionCase, found: Tensor, true: Tensor, public: Tensor, eye: Perceiver, seen: Sequence[SeenUpload]
) -> Iterator[dict[str, Any]]:
    """One entry a target and a defence; the mean public record stands beside each as the prior."""
    records = _as_pictures(true)
    series = true.dim() == 3
    prior = _likeness(_as_pictures(public).expand_as(records), records, series, eye)
    for number, shield in enumerate(case.shields):
        shown = _as_pictures(found[:, number]).nan_to_num(0.5)
        shown = shown if series else shown.clamp(0, 1)
        like = _likeness(shown, records, series, eye)
        for at, one in enumerate(seen):
            yield {
                "shield": shield.label, **{name: values[at] for name, values in like.items()},
                "prior": prior["psnr"][at], "prior_distance": prior["distance"][at],
                "found": png(_small(shown)[at]), "true": png(_small(records)[at]), "recovered": one.right[number],
            }  # fmt: skip


def _likeness(shown: Tensor, true: Tensor, series: bool, eye: Perceiver) -> Mapping[str, list[Any]]:
    """PSNR, and of pictures SSIM and the perceptual distance."""
    found: dict[str, list[Any]] = {"psnr": psnr(shown, true).tolist()}
    if series:
        return found | {"ssim": [None] * len(true), "distance": [None] * len(true)}
    place = next(eye.module.parameters()).device
    return found | {
        "ssim": ssim(shown, true).tolist(),
        "distance": eye.distance(shown.to(place), true.to(place)).tolist(),
    }


def _as_pictures(values: Tensor) -> Tensor:
    """Sequences as pictures of one channel, so that they can be compared alike."""
    return values if values.dim() == 4 else values.unsqueeze(1)


def _small(pictures: Tensor) -> Tensor:
    return pictures[:, :3].clamp(0, 1)
