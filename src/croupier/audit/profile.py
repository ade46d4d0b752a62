"""Noise by tiers, attacked in three stages: one training of a noise serves every view, by the releases themselves.

What each view tells of clients' habits and of who is who, against no view at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit import marks, recombine
from croupier.audit.attributes import Attribute, attributes
from croupier.audit.auxiliary import Apart, Auxiliary
from croupier.audit.bench import Answered, Watch
from croupier.audit.blind import Panel
from croupier.audit.denoise import DENOISERS, Directions
from croupier.audit.glimpse import Outside
from croupier.audit.marks import Marks, Truth
from croupier.audit.setting import Setting
from croupier.audit.sights import VIEWS, Sight, View, sight
from croupier.audit.sketch import Sketch, sketched
from croupier.audit.stage import Remembered
from croupier.audit.track import Noise, Turn, factor_for, louder, track
from croupier.core.coins import Coins
from croupier.core.norm import length
from croupier.core.sitting import Drive
from croupier.federate import Task
from croupier.learn.assemble import assemble
from croupier.privacy.tiers import Tiers

# The cosine of updates as received in the paper's Table 1, which does not say at which budgets.
PAPER = 0.12
LOUD = "noise as in the paper's Table 1"
NOISES = ("no noise", LOUD, "tiers")


@dataclass(frozen=True)
class Tiered:
    """A setting, and how it is noised; `every` so many rounds the attacker trains its auxiliary clients anew."""

    setting: Setting
    privacy: Tiers
    smallest: int = 8
    every: int = 5


@dataclass(frozen=True)
class Found:
    """One seed, one noise, one view, one denoiser: marks, and those of the same knowledge without a view.

    `sketch` has what pictures show beside means.
    """

    noise: str
    view: View
    denoiser: str
    marks: Marks
    prior: Marks
    sketch: Sketch


@dataclass(frozen=True)
class Seed:
    """All that one seed gave: marks, the epsilons that each noise really has, and what colluders uncover."""

    found: tuple[Found, ...]
    epsilons: Mapping[str, tuple[float, ...]]
    attributes: Mapping[str, Attribute]
    outsiders: int
    clients: int
    uncovered: float


def run(
    tiered: Tiered, seeds: Sequence[int], drive: Drive, views: Sequence[View] = VIEWS,
    noises: Sequence[str] = NOISES, watch: Watch = lambda _: None,
) -> list[Seed]:  # fmt: skip
    """Every noise from every seed, every view of it, and all stages on each view."""
    found, waiting = list[Seed](), list[Callable[[], Seed]]()
    with Panel(1) as panel:
        for seed in seeds:
            waiting.append(_seeded(tiered, seed, drive, views, noises, panel, watch))
            # One seed is attacked while the next one is trained.
            found += [one() for one in waiting[:-1]]
            del waiting[:-1]
        return found + [one() for one in waiting]


def public_clip(tiered: Tiered, seed: int, most: int = 5) -> float:
    """A clip by a public rule: the median length of what auxiliary clients alone learn in a few rounds, without noise.

    Raises: SpecError, DataError; CroupierError when one of them cannot train.
    """
    stage = TieredStage(tiered, Coins.from_seed(seed))
    start, lengths = stage.task.first.vector, list[float]()
    for number in range(min(most, tiered.setting.plan.rounds)):
        learnt = stage.auxiliary.told({number: start}, math.inf, stage.coins.child("clip")).updates[0]
        lengths += [length(one) for one in learnt]
        start = start + learnt.double().mean(0).float()
    return median(lengths)


def _seeded(
    tiered: Tiered, seed: int, drive: Drive, views: Sequence[View], noises: Sequence[str], panel: Panel, watch: Watch
) -> Callable[[], Seed]:
    stage = TieredStage(tiered, Coins.from_seed(seed))
    known = {name: stage.noise(name) for name in noises}
    waiting = [
        stage.play(known[name], drive, views, panel, lambda said: watch(f"seed {seed}: {said}")) for name in noises
    ]

    def done() -> Seed:
        parts = [each() for each in waiting]
        return Seed(
            tuple(one for found, _ in parts for one in found),
            {name: known[name].privacy.tiers if known[name].share else () for name in noises}, stage.attributes,
            len(stage.auxiliary.names), len(stage.task.shards), min(part[1] for part in parts),
        )  # fmt: skip

    return done


class TieredStage:
    """One seed's data, model and clients, on which noises play one after another. Raises: SpecError, DataError."""

    def __init__(self, tiered: Tiered, coins: Coins) -> None:
        self.tiered, self.coins, one = tiered, coins, tiered.setting
        held = Apart(one.split)
        made = assemble(
            one.data, held, one.model, one.fit, coins, folder=one.folder, together=one.together, device=one.device,
            workers=one.workers, loss=one.loss,
        )  # fmt: skip
        everybody = replace(made.task, fit=Remembered(made.task.fit))
        clients = {who: shard for who, shard in everybody.shards.items() if who not in held.aside}
        self.task: Task = replace(everybody, shards=clients)
        self.attributes = attributes(made.dataset, held.index, held.aside)
        self.auxiliary = Auxiliary(everybody, held.aside, self.attributes)

    def noise(self, name: str) -> Noise:
        """No noise; as much as gives the paper's cosine without denoising; or the tiers as described."""
        privacy = self.tiered.privacy
        tiers = Noise("tiers", privacy)
        if name != LOUD:
            return tiers if name == "tiers" else Noise("no noise", privacy, 0.0)
        first = self.auxiliary.told({0: self.task.first.vector}, privacy.clip, self.coins).updates[0]
        norms = torch.tensor([length(one) for one in first], dtype=torch.float64)
        return Noise(LOUD, louder(privacy, factor_for(norms, tiers.levels, self.task.layout.size, PAPER)))

    def play(
        self, noise: Noise, drive: Drive, views: Sequence[View], panel: Panel, watch: Watch
    ) -> Callable[[], tuple[list[Found], float]]:
        """Train, show the views to the attacks, and mark their answers when called."""
        turns = track(self.task, self.tiered.setting.plan, noise, self.coins, drive, watch)
        watch(f"{noise.title}: auxiliary clients")
        starts = {turn.number: turn.start for turn in turns if turn.number % self.tiered.every == 0}
        outside = self.auxiliary.told(starts, noise.privacy.clip, self.coins)
        seen = {view: tuple(self._sight(view, turn, noise) for turn in turns) for view in views}
        watch(f"{noise.title}: attacks")
        node = self.coins.child("attack", noise.title)
        known = {
            "outside": outside.plain(), "levels": noise.levels, "denoisers": DENOISERS,
            "coins": node.child("study").export(),
        }  # fmt: skip
        shown = {view: tuple(one.seen.plain() for one in each) for view, each in seen.items()}
        answer = panel.ask("traits", known, {"shown": shown, "coins": node.export()})
        exact = self._uncovered(turns, seen)

        def done() -> tuple[list[Found], float]:
            # As in the attacks' process: many small problems.
            with threadpool_limits(1):
                return self._marked(noise, turns, outside, seen, answer), exact

        return done

    def _sight(self, view: View, turn: Turn, noise: Noise) -> Sight:
        coins = self.coins.child("release", noise.title, view, turn.number)
        return sight(view, turn, noise, self.tiered.smallest, self.task.layout, coins)

    def _uncovered(self, turns: Sequence[Turn], seen: Mapping[View, Sequence[Sight]]) -> float:
        """The share of clients whose noised row all other members of their bucket take out of the shuffle, exactly."""
        hits = [
            torch.equal(recombine.uncovered(one.seen.rows[one.seen.bucket == bucket], others), turn.sent[victim])
            for turn, one in zip(turns[:1], seen.get("parameter", ()), strict=False)
            for bucket, members in enumerate(one.seen.members)
            for victim in [turn.names.index(name) for name in members]
            for others in [turn.sent[[turn.names.index(name) for name in members if turn.names[victim] != name]]]
        ]
        return sum(hits) / len(hits) if hits else 1.0

    def _marked(
        self, noise: Noise, turns: Sequence[Turn], outside: Outside, seen: Mapping[View, Sequence[Sight]],
        answer: Answered,
    ) -> list[Found]:  # fmt: skip
        # Groups are by the budgets that clients declared, whatever noise is really added.
        declared = {who: self.tiered.privacy.epsilon(who) for who in self.task.shards}
        told, directions = answer.result(), Directions.of(outside.updates)
        found = []
        for view, sights in seen.items():
            truth = Truth(tuple(turns), tuple(sights), self.attributes, declared)
            node = self.coins.child("marks", noise.title, view)
            for name, stages in told[view]["denoisers"].items():
                features = self._features(stages["rows"], truth, outside, directions)
                mark, prior = self._mark(stages, told[view]["allowed"], truth, outside, features)
                if name == "wiener":
                    more, chance = marks.recombining(told[view], truth, node)
                    mark, prior = mark | more, prior | chance
                drawn = sketched(stages, told[view]["allowed"], features, truth)
                found.append(Found(noise.title, view, name, mark, prior, drawn))
        return found

    def _features(self, rows: Tensor, truth: Truth, outside: Outside, directions: Directions) -> Tensor:
        """Rows around the auxiliary mean, along the auxiliary clients' principal directions."""
        numbers = torch.tensor([one.seen.number for one in truth.sights for _ in range(len(one.seen.rows))])
        return directions.seen_in(rows.double() - outside.means(numbers).double())

    def _mark(
        self, stages: Mapping[str, Any], allowed: Tensor, truth: Truth, outside: Outside, features: Tensor
    ) -> tuple[Marks, Marks]:
        mark, prior = marks.denoising(stages["rows"], truth), marks.unseen(outside, truth)
        for key in self.attributes:
            mark |= marks.inference(key, stages["chances"][key], truth)
            mark |= marks.grouping(key, stages["clusters"][key], features, truth)
        hits, chances = marks.links(stages, allowed, truth)
        return mark | hits, prior | chances
