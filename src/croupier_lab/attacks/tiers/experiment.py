"""Run IntraShuffler's attack on noise by tiers as its tables measure it: every noise, every view, all stages.

Training, releases and auxiliary clients are those of the audit's own experiment (`croupier.audit.traits.tiers`). Added
are the noise level of the paper's Table 1, the truth of what clients learnt before noise, and the measures that only
the paper's tables show. `papers.intra.attack_settings` calls `run` and `public_clip` for IntraShuffler's tables and
figures; the attack itself runs in another process that is sent bytes (`attacks.tiers.stages`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit.attacks.traits import LINEAR
from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Directions
from croupier.audit.bench import Watch
from croupier.audit.traits.auxiliary import clipped
from croupier.audit.traits.scores import AttackInput, Measures, score
from croupier.audit.traits.tiers import QUIET, PlayedRound, TieredExperiment, TieredSetting, View
from croupier.core import canon
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.norm import length
from croupier.core.update import Update
from croupier.errors import CroupierError
from croupier.learn.attributes import Attribute
from croupier.privacy.gdp import epsilon_of, mu_of
from croupier.privacy.tiers import Tiers
from croupier_lab.attacks.tiers import measures as more
from croupier_lab.attacks.tiers.measures import CleanTruth
from croupier_lab.attacks.tiers.sketch import Sketch, sketched
from croupier_lab.attacks.tiers.stages import attack_bytes
from croupier_lab.processes import ask, process_pool

VIEWS: tuple[View, ...] = ("rows", "model", "layer", "parameter", "sums")
TITLES: dict[View, str] = {
    "rows": "no shuffling",
    "model": "row shuffling (Shuffle-DP, in buckets)",
    "layer": "layer-wise shuffling",
    "parameter": "IntraShuffler (parameter shuffling)",
    "sums": "bucket sums",
}
# The mean cosine of noised with clean updates in the paper's Table 1, which does not say at which budgets.
PAPER = 0.12
LOUD = "noise as in the paper's Table 1"
# Without noise, with as much as the paper seems to have, and with the tiers as described.
NOISES = (QUIET, LOUD, "tiers")


@dataclass(frozen=True)
class ViewResult:
    """The result for one seed, noise, view and denoiser: its measures, and those of the same knowledge without a view.

    `sketch` has what pictures show beside means.
    """

    noise: str
    view: View
    denoiser: str
    measures: Measures
    prior: Measures
    sketch: Sketch


@dataclass(frozen=True)
class SeedResult:
    """All that one seed gave: measures, and the epsilons that each noise really has.

    `clients` and `auxiliary` are numbers of clients.
    """

    found: tuple[ViewResult, ...]
    epsilons: Mapping[str, tuple[float, ...]]
    attributes: Mapping[str, Attribute]
    auxiliary: int
    clients: int


def run(
    tiered: TieredSetting, seeds: Sequence[int], drive: Drive, views: Sequence[View] = VIEWS,
    noises: Sequence[str] = NOISES, watch: Watch = lambda _: None,
) -> list[SeedResult]:  # fmt: skip
    """Every noise from every seed, every view of it, and all stages on each view."""
    found, waiting = list[SeedResult](), list[Callable[[], SeedResult]]()
    with process_pool(1) as pool:
        for seed in seeds:
            waiting.append(_seeded(tiered, seed, drive, views, noises, pool, watch))
            # One seed is attacked while the next one is trained.
            found += [one() for one in waiting[:-1]]
            del waiting[:-1]
        return found + [one() for one in waiting]


def public_clip(tiered: TieredSetting, seed: int, most: int = 5) -> float:
    """A clip by a public rule: the median length of what auxiliary clients alone learn in a few rounds, without noise.

    Raises: SpecError, DataError; CroupierError when one of them cannot train.
    """
    one = TieredExperiment(tiered, Coins.from_seed(seed))
    start, lengths = one.task.first.vector, list[float]()
    for number in range(min(most, tiered.setting.plan.rounds)):
        learnt = one.auxiliary.learn_from({number: start}, math.inf, one.coins.child("clip")).updates[0]
        lengths += [length(update) for update in learnt]
        start = start + learnt.double().mean(0).float()
    return median(lengths)


def _seeded(
    tiered: TieredSetting, seed: int, drive: Drive, views: Sequence[View], noises: Sequence[str],
    pool: ProcessPoolExecutor, watch: Watch,
) -> Callable[[], SeedResult]:  # fmt: skip
    one = PaperExperiment(tiered, Coins.from_seed(seed))
    waiting = [one.play(name, drive, views, pool, lambda said: watch(f"seed {seed}: {said}")) for name in noises]

    def done() -> SeedResult:
        parts = [each() for each in waiting]
        return SeedResult(
            tuple(each for found in parts for each in found),
            {name: () if name == QUIET else one.privacy(name).tiers for name in noises}, one.attributes,
            len(one.auxiliary.names), len(one.task.shards),
        )  # fmt: skip

    return done


class PaperExperiment(TieredExperiment):
    """The audit's experiment, with the paper's noise, all denoisers and all measures."""

    def privacy(self, noise: str) -> Tiers:
        """The tiers as described, or with their noise scaled to that of the paper's Table 1."""
        return self.loud if noise == LOUD else self.tiered.privacy

    @cached_property
    def loud(self) -> Tiers:
        """The tiers with their noise scaled, up or down, so that updates keep the paper's cosine with clean ones."""
        privacy = self.tiered.privacy
        first = self.auxiliary.learn_from({0: self.task.first.vector}, privacy.clip, self.coins).updates[0]
        norms = torch.tensor([length(one) for one in first], dtype=torch.float64)
        levels = torch.tensor(privacy.sigmas, dtype=torch.float64)
        return louder(privacy, factor_for(norms, levels, self.task.layout.size, PAPER))

    def play(
        self, noise: str, drive: Drive, views: Sequence[View], pool: ProcessPoolExecutor, watch: Watch
    ) -> Callable[[], list[ViewResult]]:
        """Train, show the views to the attacks in a fresh process, and score their answers when called."""
        played, learnt = self._trained(noise, drive, watch)
        given = self.attack_input(noise, played, views, watch)
        answer = ask(pool, attack_bytes, canon.dump(dict(given.known)), canon.dump(dict(given.asked)))

        def done() -> list[ViewResult]:
            # As in the attacks' process: many small problems.
            with threadpool_limits(1):
                return self._scored(noise, views, learnt, given, answer.result())

        return done

    def _trained(
        self, noise: str, drive: Drive, watch: Watch
    ) -> tuple[tuple[PlayedRound, ...], tuple[Tensor, ...]]:  # fmt: skip
        """The rounds, and what each client had learnt in them, clipped and without noise: no attack is given it."""
        last: dict[str, Tensor] = {}

        def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
            done = self.task.fit(jobs)
            last.update({job[1]: made.vector for job, made in zip(jobs, done, strict=True) if isinstance(made, Update)})
            return done

        played, learnt = [], []
        clip = self.tiered.privacy.clip
        for start, one in self.rounds(replace(self.task, fit=fit), noise, drive, watch):
            clean = [clipped(last[self.task.shards[who]] - start, clip) for who in one.names]
            played.append((start, one))
            learnt.append(torch.stack(clean))
        return tuple(played), tuple(learnt)

    def _scored(
        self, noise: str, views: Sequence[View], learnt: tuple[Tensor, ...], given: AttackInput, answer: bytes
    ) -> list[ViewResult]:
        # Groups are by the budgets that clients declared, whatever noise is really added.
        declared = {who: self.tiered.privacy.epsilon(who) for who in self.task.shards}
        auxiliary, answers = AuxiliaryUpdates(**given.known["auxiliary"]), canon.load(answer)
        directions, found = Directions.of(auxiliary.updates), []
        for view in views:
            truth = given.truths[view]
            known = CleanTruth(truth, learnt, declared)
            blind = more.without_view(auxiliary, known)
            for name, stages in answers[view]["denoisers"].items():
                numbers = torch.tensor([one.view.number for one in truth.rounds for _ in range(len(one.view.rows))])
                # Around the auxiliary mean, along the auxiliary clients' principal directions.
                features = directions.project(stages["rows"].double() - auxiliary.means(numbers).double())
                measures, chances = _measured(stages, features, known, given)
                if name == LINEAR:
                    node = self.coins.child("marks", noise, view)
                    hits, guessed = more.recombining(answers[view], known, node)
                    measures, chances = measures | hits, chances | guessed
                drawn = sketched(stages, features, known)
                found.append(ViewResult(noise, view, name, measures, chances | blind, drawn))
        return found


def _measured(
    stages: Mapping[str, Any], features: Tensor, known: CleanTruth, given: AttackInput
) -> tuple[Measures, Measures]:  # fmt: skip
    measures, chances = score(stages, known.truth, given.guesses)
    measures |= more.denoising(stages["rows"], known)
    for key in known.truth.attributes:
        measures |= more.by_budget(key, stages["chances"][key], known)
        measures |= more.grouping(key, stages["clusters"][key], features, known.truth)
    return measures, chances


def louder(privacy: Tiers, factor: float) -> Tiers:
    """The same clients in the same order of tiers, each deviation times a factor, with the epsilons that this gives."""
    found = tuple(epsilon_of(mu_of(privacy.clip, factor * sigma), privacy.delta) for sigma in privacy.sigmas)
    by = dict(zip(privacy.tiers, found, strict=True))
    wishes = {who: by[max(one for one in privacy.tiers if one <= wish)] for who, wish in privacy.wishes.items()}
    return privacy.model_copy(update={"tiers": found, "wishes": wishes})


def alike(norms: Tensor, levels: Tensor, size: int, factor: float) -> float:
    """The expected cosine of an update with itself after noise of `factor` times each level, as a mean over all.

    `norms` are the updates' lengths, `levels` the tiers' deviations.
    """
    noise = (factor * levels.double()).pow(2) * size
    signal = norms.double().pow(2).unsqueeze(1)
    return float((signal / (signal + noise)).sqrt().mean())


def factor_for(norms: Tensor, levels: Tensor, size: int, cosine: float) -> float:
    """The factor on all tiers' deviations at which updates as received have this mean cosine with the clean ones."""
    low, high = 0.0, 1.0
    while alike(norms, levels, size, high) > cosine:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if alike(norms, levels, size, middle) > cosine else (low, middle)
    return high
