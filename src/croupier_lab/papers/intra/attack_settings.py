"""Where IntraShuffler's attacks are run again: London's households, people's activities, pictures of ten classes.

A setting is data, model, clients and scales; `croupier_lab.attacks.tiers` runs the experiment on it. `audited` runs all
seeds once and brings what was found into one shape, for `attack_tables` and `attack_figures` alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from croupier.audit.setting import Setting
from croupier.audit.traits.tiers import TieredSetting, View
from croupier.core.intervals import gain, over_runs, share
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.data import Data
from croupier.learn.datasets import Activity, Cifar10, Digits, Households
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.learn.models import Lstm, Mlp, Network
from croupier.learn.split import Dirichlet, Iid, Natural, Split
from croupier.privacy.tiers import Tiers
from croupier_lab.attacks.tiers.experiment import NOISES, TITLES, VIEWS, SeedResult, ViewResult, public_clip, run
from croupier_lab.papers.intra.protocols import DELTA, SMALLEST, TIERS
from croupier_lab.papers.shared.figure import Means, Scale
from croupier_lab.papers.shared.trainings import in_processes

Watch = Callable[[str], None]
# Clients with pictures differ in their mix of classes by so much (Dirichlet's alpha).
ALPHA = 0.1
FEWER: tuple[View, ...] = ("rows", "model", "parameter")
LINKED = "linked to its owner's row"
ROW = f"{LINKED} (centred)"


@dataclass(frozen=True)
class AttackSize:
    """How much of everything a scale takes; `others` are auxiliary clients.

    Windows of a household begin `stride` readings apart, and `pictures` is how many CIFAR-10 pictures are trained on.
    """

    clients: int
    others: int
    cohort: int
    rounds: int
    stride: int = 1
    pictures: int | None = None


LONDON: Mapping[Scale, AttackSize] = {
    "smoke": AttackSize(24, 8, 16, 3, 211), "small": AttackSize(100, 35, 20, 12, 61),
    "paper": AttackSize(200, 69, 20, 50, 25),
}  # fmt: skip
PEOPLE: Mapping[Scale, AttackSize] = {
    "smoke": AttackSize(16, 5, 16, 2), "small": AttackSize(16, 5, 16, 6), "paper": AttackSize(16, 5, 16, 20),
}  # fmt: skip
# A quarter of the clients of a split train no model: they are the auxiliary ones.
PICTURES: Mapping[Scale, AttackSize] = {
    "smoke": AttackSize(24, 8, 16, 3), "small": AttackSize(60, 20, 20, 10, pictures=4000),
    "paper": AttackSize(200, 66, 20, 50, pictures=10_000),
}  # fmt: skip


@dataclass(frozen=True)
class AttackSetting:
    """Data and model by name, how to set it up at a scale, and which views are compared."""

    data: str
    model: str
    tiered: Callable[[Scale], TieredSetting]
    views: tuple[View, ...] = VIEWS

    def named(self, scale: Scale) -> tuple[str, str]:
        """Data and model as they are at this scale; at smoke scale digits stand for CIFAR-10."""
        digits = scale == "smoke" and self.data.startswith("CIFAR-10")
        return (self.data.replace("CIFAR-10", "digits (for CIFAR-10)") if digits else self.data), self.model


@dataclass(frozen=True)
class Audited:
    """A setting audited over seeds: the clip, all results, and each noise and view joined over seeds."""

    scene: AttackSetting
    named: tuple[str, str]
    clip: float
    seeds: tuple[SeedResult, ...]
    arms: tuple[Mapping[str, Any], ...]

    def arm(self, noise: str, view: View) -> Mapping[str, Any]:
        """The measures of one noise and view, by denoiser."""
        return next(one for one in self.arms if (one["noise"], one["view"]) == (noise, view))


def _london(scale: Scale) -> TieredSetting:
    size = LONDON[scale]
    data = Households(households=size.clients + size.others, stride=size.stride)
    return _tiered(size, data, Natural(clients=size.clients), Lstm(hidden=32), Adam(lr=0.003, epochs=2, batch=128))


def _people(scale: Scale) -> TieredSetting:
    size = PEOPLE[scale]
    fit = Sgd(lr=0.03, momentum=0.9, epochs=2, batch=32)
    return _tiered(size, Activity(), Natural(clients=size.clients), Mlp(hidden=(16,)), fit)


def _pictures(skewed: bool) -> Callable[[Scale], TieredSetting]:
    def tiered(scale: Scale) -> TieredSetting:
        size = PICTURES[scale]
        everybody = size.clients + size.others
        data: Data = Digits() if scale == "smoke" else Cifar10(train=size.pictures, test=100)
        split: Split = Dirichlet(clients=everybody, alpha=ALPHA, least=5) if skewed else Iid(clients=everybody)
        return _tiered(size, data, split, Mlp(hidden=(8,)), Sgd(lr=0.05, epochs=2, batch=16))

    return tiered


def _tiered(size: AttackSize, data: Data, split: Split, model: Network, fit: Fit) -> TieredSetting:
    # This clip is replaced by that of the public rule, in `_audited`.
    setting = Setting(data, split, model, fit, Federation(rounds=size.rounds, cohort=size.cohort))
    return TieredSetting(setting, Tiers(clip=1.0, delta=DELTA, tiers=TIERS), SMALLEST)


HOUSEHOLDS = AttackSetting("London households", "LSTM", _london)
ACTIVITY = AttackSetting("activity (for ComStock)", "MLP", _people, FEWER)
EVEN = AttackSetting("CIFAR-10, IID", "MLP", _pictures(False), FEWER)
SKEWED = AttackSetting("CIFAR-10, non-IID", "MLP", _pictures(True), FEWER)

Key = tuple[AttackSetting, Scale, tuple[int, ...], Means]
# Several tables and figures read one audit, so each is run once in a process.
_KEPT: dict[Key, Audited] = {}


def audited(scene: AttackSetting, scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> Audited:
    """All noises and views of a scene from every seed, `means.processes` trainings at a time."""
    key = (scene, scale, tuple(seeds), means)
    if key not in _KEPT:
        _KEPT[key] = _audited(*key, watch)
    return _KEPT[key]


def _audited(scene: AttackSetting, scale: Scale, seeds: tuple[int, ...], means: Means, watch: Watch) -> Audited:
    workers = means.workers if means.processes < 2 else 1
    tiered, named = scene.tiered(scale), scene.named(scale)
    tiered = replace(tiered, setting=replace(tiered.setting, folder=means.folder, workers=workers))
    watch(f"{named[0]}: the clip, from auxiliary clients")
    # One clip for all seeds, from the first seed's auxiliary clients and first model.
    clip = public_clip(tiered, seeds[0])
    tiered = replace(tiered, privacy=tiered.privacy.model_copy(update={"clip": clip}))
    watch(f"{named[0]}: {len(seeds) * len(NOISES)} trainings and the attacks on them")
    if means.processes < 2:
        found = tuple(run(tiered, seeds, Local(), scene.views, watch=lambda said: watch(f"{named[0]}: {said}")))
    else:
        done = in_processes(
            _one, [(tiered, seed, noise, scene.views) for seed in seeds for noise in NOISES], means.processes
        )
        each = len(NOISES)
        found = tuple(joined(done[at * each : (at + 1) * each]) for at in range(len(seeds)))
    return Audited(scene, named, clip, found, tuple(arms(found)))


def _one(job: tuple[TieredSetting, int, str, tuple[View, ...]]) -> SeedResult:
    tiered, seed, noise, views = job
    return run(tiered, [seed], Local(), views=views, noises=[noise])[0]


def joined(parts: Sequence[SeedResult]) -> SeedResult:
    """The results of one seed's noises, which were run in processes of their own, as one result."""
    return replace(
        parts[0], found=tuple(one for part in parts for one in part.found),
        epsilons={name: given for part in parts for name, given in part.epsilons.items()},
    )  # fmt: skip


def arms(found: Sequence[SeedResult]) -> list[dict[str, Any]]:
    """One object for each noise and view, with every denoiser's measures.

    Each measure is told whether its control passed: the same measure without noise and shuffling.
    """
    keys = list(dict.fromkeys((one.noise, one.view) for one in found[0].found))
    made = [_arm(noise, view, found) for noise, view in keys]
    control = next((arm for arm in made if (arm["noise"], arm["view"]) == ("no noise", "rows")), None)
    for arm in made:
        for name, measures in arm["denoisers"].items():
            for measure, mark in measures.items():
                mark["control"] = _control(control, name, measure)
    return made


def _arm(noise: str, view: View, found: Sequence[SeedResult]) -> dict[str, Any]:
    by = [{one.denoiser: one for one in seed.found if (one.noise, one.view) == (noise, view)} for seed in found]
    marks = {
        name: {measure: _mark([each[name] for each in by], measure) for measure in one.measures}
        for name, one in by[0].items()
    }
    return {"noise": noise, "view": view, "title": TITLES[view], "denoisers": marks}


def _mark(runs: Sequence[ViewResult], measure: str) -> dict[str, Any]:
    known = [run for run in runs if measure in run.measures]
    if len(known) < 2:
        return {"rate": None}
    values = [run.measures[measure] for run in known]
    # Shares of clients or values that are named right tie often; cosines vary smoothly.
    ties = any(word in measure for word in ("named right", "linked", "given to"))
    said: dict[str, Any] = asdict((share if ties else over_runs)(values))
    if all(measure in run.prior for run in known):
        priors = [run.prior[measure] for run in known]
        said["prior"] = math.fsum(priors) / len(priors)
        above = [value - prior for value, prior in zip(values, priors, strict=True)]
        said["above"] = asdict((gain if ties else over_runs)(above))
    return said


def headline(measure: str) -> str:
    """The measure whose control stands for this one, because groups and tiers are parts of a whole."""
    if measure.startswith(("cosine at", "CosAUC", "delta-cos", "cosine best")):
        return "cosine"
    return measure.split(", ")[0] if ": clients named right" in measure else measure


def _control(arm: Mapping[str, Any] | None, denoiser: str, measure: str) -> bool | None:
    """Whether a measure lies above its prior without noise and shuffling; None where it was not measured there."""
    mark = (arm or {"denoisers": {}})["denoisers"].get(denoiser, {}).get(headline(measure))
    return None if mark is None or "above" not in mark else mark["above"]["low"] > 0
