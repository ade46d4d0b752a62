"""The profile experiment: what each view tells of clients' habits and of who is who, against no view at all.

The only place where the truth of a profile audit and its guesses meet. Attacks run in processes of their own that are
sent canonical bytes of views and declared knowledge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit import marks, profiler, recombine
from croupier.audit.abreast import ask, hands
from croupier.audit.attributes import Attribute, attributes
from croupier.audit.denoise import Directions
from croupier.audit.experiment import Remembered
from croupier.audit.glimpse import Outside
from croupier.audit.marks import Marks, Truth
from croupier.audit.sights import VIEWS, Sight, View, sight
from croupier.audit.sketch import Sketch, sketched
from croupier.audit.track import Noise, Turn, factor_for, lessons, louder, track
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.norm import length
from croupier.core.revive import Shelf, got, put
from croupier.core.sitting import Drive
from croupier.errors import SpecError
from croupier.federate import Task
from croupier.federation import Federation
from croupier.learn.assemble import Assembled, assemble
from croupier.learn.data import Data, Dataset
from croupier.learn.fit import Fit
from croupier.learn.models import Network
from croupier.learn.split import Split
from croupier.privacy.tiers import Tiers

# The cosine of updates as received in the paper's Table 1, which does not say at which budgets.
PAPER = 0.12
LOUD = "noise as in the paper's Table 1"
NOISES = ("no noise", LOUD, "tiers")
Watch = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What is learned and how it is noised; `every` so many rounds the attacker trains its auxiliary clients anew."""

    data: Data
    split: Split
    model: Network
    fit: Fit
    plan: Federation
    privacy: Tiers
    smallest: int = 8
    every: int = 5
    together: int = 64
    folder: Path | None = None
    device: str = "cpu"
    workers: int = 1
    loss: str | None = None


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
    buckets: tuple[int, ...]


@dataclass
class _Outsiders:
    """A split that has everybody; the attacker's are the owners that are no clients, else the last quarter."""

    split: Split
    index: Mapping[str, Tensor] = field(default_factory=dict)
    aside: tuple[str, ...] = ()

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        found = dict(self.split(dataset, coins))
        others = [name for name in dataset.owners if name not in found]
        if others and dataset.owner is not None and set(found) <= set(dataset.owners):
            places = {name: at for at, name in enumerate(dataset.owners)}
            found |= {name: (dataset.owner == places[name]).nonzero()[:, 0] for name in others}
            self.aside = tuple(others)
        else:
            self.aside = tuple(sorted(found)[-(len(found) // 4) :])
        if len(self.aside) < 4:
            raise SpecError(
                f"task.split: {len(self.aside)} clients are left for the attacker's auxiliary data, and it needs 4 or "
                "more; use more clients"
            )
        self.index = found
        return found


def run(
    setting: Setting, seeds: Sequence[int], drive: Drive, views: Sequence[View] = VIEWS,
    noises: Sequence[str] = NOISES, watch: Watch = lambda _: None, kept: Shelf | None = None,
) -> list[Seed]:  # fmt: skip
    """Every noise from every seed, every view of it, and all stages on each view.

    Seeds that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    waiting: dict[str, Callable[[], Seed]] = {}
    with hands(1) as pool:
        for seed in (seed for seed in seeds if part(seed) not in shelf):
            begun = _seeded(setting, seed, drive, views, noises, pool, watch)
            # One seed is attacked while the next one is trained.
            _settle(waiting, shelf)
            waiting[part(seed)] = begun
        _settle(waiting, shelf)
    return [got(shelf, part(seed), Seed) for seed in seeds]


def part(seed: int) -> str:
    """What a seed's result is called among those that are kept."""
    return f"seed-{seed}"


def _settle(waiting: dict[str, Callable[[], Seed]], shelf: Shelf) -> None:
    while waiting:
        name, done = waiting.popitem()
        put(shelf, name, done())


def public_clip(setting: Setting, seed: int, most: int = 5) -> float:
    """A clip by a public rule: the median length of what auxiliary clients alone learn in a few rounds, without noise.

    Raises: SpecError, DataError; CroupierError when one of them cannot train.
    """
    stage = _Stage(setting, Coins.from_seed(seed))
    start, lengths = stage.task.first.vector, list[float]()
    for number in range(min(most, setting.plan.rounds)):
        turn = Turn(number, start, (), torch.zeros(0), torch.zeros(0))
        _, learnt = lessons(stage.everybody, stage.held.aside, [turn], 1, math.inf, stage.coins.child("clip"))
        lengths += [length(one) for one in learnt[0]]
        start = start + learnt[0].double().mean(0).float()
    return median(lengths)


def _seeded(
    setting: Setting, seed: int, drive: Drive, views: Sequence[View], noises: Sequence[str],
    pool: ProcessPoolExecutor, watch: Watch,
) -> Callable[[], Seed]:  # fmt: skip
    stage = _Stage(setting, Coins.from_seed(seed))
    known = stage.noises()
    waiting = [
        stage.play(known[name], drive, views, pool, lambda said: watch(f"seed {seed}: {said}")) for name in noises
    ]

    def done() -> Seed:
        parts = [each() for each in waiting]
        return Seed(
            tuple(one for found, _, _ in parts for one in found),
            {name: known[name].privacy.tiers if known[name].share else () for name in noises}, stage.attributes,
            len(stage.held.aside), len(stage.task.shards), min(part[1] for part in parts), parts[-1][2],
        )  # fmt: skip

    return done


class _Stage:
    """One seed's data, model and clients, on which noises play one after another."""

    def __init__(self, setting: Setting, coins: Coins) -> None:
        self.setting, self.coins = setting, coins
        self.held = _Outsiders(setting.split)
        self.made = self._assembled()
        everybody = replace(self.made.task, fit=Remembered(self.made.task.fit))
        self.everybody = everybody
        clients = {who: shard for who, shard in everybody.shards.items() if who not in self.held.aside}
        self.task: Task = replace(everybody, shards=clients)
        self.attributes = attributes(self.made.dataset, self.held.index, self.held.aside)

    def _assembled(self) -> Assembled:
        one = self.setting
        return assemble(
            one.data, self.held, one.model, one.fit, self.coins, folder=one.folder, together=one.together,
            device=one.device, workers=one.workers, loss=one.loss,
        )  # fmt: skip

    def noises(self) -> dict[str, Noise]:
        """No noise; as much as gives the paper's cosine without denoising; and the tiers as described."""
        privacy = self.setting.privacy
        tiers = Noise("tiers", privacy)
        empty = Turn(0, self.task.first.vector, (), torch.zeros(0), torch.zeros(0))
        _, first = lessons(self.everybody, self.held.aside, [empty], 1, privacy.clip, self.coins)
        norms = torch.tensor([length(one) for one in first[0]], dtype=torch.float64)
        factor = factor_for(norms, tiers.levels, self.task.layout.size, PAPER)
        return {
            "no noise": Noise("no noise", privacy, 0.0),
            LOUD: Noise(LOUD, louder(privacy, factor)),
            "tiers": tiers,
        }

    def play(
        self, noise: Noise, drive: Drive, views: Sequence[View], pool: ProcessPoolExecutor, watch: Watch
    ) -> Callable[[], tuple[list[Found], float, tuple[int, ...]]]:
        """Train, show the views to the attacks, and mark their answers when called."""
        turns = track(self.task, self.setting.plan, noise, self.coins, drive, watch)
        watch(f"{noise.title}: auxiliary clients")
        clip, every = noise.privacy.clip, self.setting.every
        numbers, updates = lessons(self.everybody, self.held.aside, turns, every, clip, self.coins)
        outside = Outside(
            numbers, updates, {key: one.of(self.held.aside) for key, one in self.attributes.items()},
            {key: len(one.classes) for key, one in self.attributes.items()},
        )  # fmt: skip
        seen = {view: tuple(self._sight(view, turn, noise) for turn in turns) for view in views}
        question = profiler.asked(
            outside, noise.levels, {view: tuple(one.seen for one in each) for view, each in seen.items()},
            self.coins.child("attack", noise.title),
        )  # fmt: skip
        watch(f"{noise.title}: attacks")
        answer = ask(pool, profiler.answered, question)
        exact = self._uncovered(turns, seen)
        sizes = tuple(len(who) for one in next(iter(seen.values())) for who in one.seen.members)
        if "parameter" in seen:
            sizes = tuple(len(who) for one in seen["parameter"] for who in one.seen.members)

        def done() -> tuple[list[Found], float, tuple[int, ...]]:
            # As in the attacks' process: many small problems.
            with threadpool_limits(1):
                return self._marked(noise, turns, outside, seen, answer), exact, sizes

        return done

    def _sight(self, view: View, turn: Turn, noise: Noise) -> Sight:
        coins = self.coins.child("release", noise.title, view, turn.number)
        return sight(view, turn, noise, self.setting.smallest, self.task.layout, coins)

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
        answer: Future[bytes],
    ) -> list[Found]:  # fmt: skip
        # Groups are by the budgets that clients declared, whatever noise is really added.
        declared = {who: self.setting.privacy.epsilon(who) for who in self.task.shards}
        told, directions = canon.load(answer.result()), Directions.of(outside.updates)
        found = []
        for view, sights in seen.items():
            truth = Truth(tuple(turns), tuple(sights), declared, self.attributes)
            node = self.coins.child("marks", noise.title, view)
            for name, stages in told[view]["denoisers"].items():
                features = self._features(stages["rows"], truth, outside, directions)
                mark, prior = self._mark(stages, told[view], truth, outside, features)
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
        self, stages: Mapping[str, Any], told: Mapping[str, Any], truth: Truth, outside: Outside, features: Tensor
    ) -> tuple[Marks, Marks]:
        mark = marks.denoising(stages["rows"], truth)
        prior = marks.unseen(outside, truth)
        for key in self.attributes:
            mark |= marks.inference(key, stages["chances"][key], truth)
            mark |= marks.grouping(key, stages["clusters"][key], features, truth)
        for links, suffix in (("links", ""), ("links_centred", " (centred)")):
            hits, chance = marks.linking(stages[links], told["allowed"], truth)
            mark |= {name + suffix: value for name, value in hits.items()}
            prior |= {name + suffix: value for name, value in chance.items()}
        return mark, prior
