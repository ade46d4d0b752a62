"""What all rounds that an adversary saw tell of clients' habits, and of who is who: the truth meets the guesses here.

Noise by tiers has an experiment of its own (`profile`); of any other protocol the real views are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit import marks
from croupier.audit.attacks.traits import SEEN, differences, glimpses
from croupier.audit.auxiliary import Auxiliary, auxiliary_of, whole
from croupier.audit.bench import Bench, Played, is_undefended
from croupier.audit.denoise import TITLES as DENOISERS
from croupier.audit.glimpse import Glimpse, Outside
from croupier.audit.marks import Marks, Truth
from croupier.audit.profile import Found, Tiered, TieredStage
from croupier.audit.question import SERVER, Adversary, Arm
from croupier.audit.seen import seen, shows
from croupier.audit.sights import Sight, View
from croupier.audit.track import Turn
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.bucketed import Tiered as TieredRelease

# The denoiser that verdicts look at, named in advance.
FIRST = "wiener"
# From the starts of so many rounds, evenly, auxiliary clients train.
_STUDIED = 4
# Links go nine rounds back: of longer runs the first rounds are enough, and fit into memory.
_LOOKED = 12
_NOTHING = torch.zeros(0)


@dataclass(frozen=True)
class Told:
    """What one adversary was told in one run: by denoiser the marks, and those of the same knowledge without a view.

    `named` says that rows came with names; `says` who the auxiliary clients were.
    """

    by: Mapping[str, tuple[Marks, Marks]]
    attributes: Sequence[str]
    named: bool
    says: tuple[str, ...]

    @property
    def first(self) -> tuple[Marks, Marks]:
        """By the denoiser that was named in advance; as received where there are no auxiliary clients."""
        return self.by[FIRST if FIRST in self.by else "none"]

    def table(self, title: str, measures: Sequence[str]) -> list[dict[str, Any]]:
        """The marks of these measures, to show."""
        prior = {name: value for _, known in self.by.values() for name, value in known.items()}
        by = {DENOISERS[name]: self.by[name][0] for name in DENOISERS if name in self.by}
        rows = [
            [name, *(_shown(mark.get(name)) for mark in by.values()), _shown(prior.get(name))] for name in measures
        ]  # fmt: skip
        return [{"title": f"{title}, first run", "heads": ["measure", *by, "without a view"], "rows": rows}]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def told(bench: Bench, arm: Arm, adversary: Adversary) -> Callable[[], Told]:
    """What an adversary is told by all rounds, for both questions at once."""
    way, stage = tiered_way(bench, arm, adversary), _tiered(bench)

    def make() -> Callable[[], Told]:
        return cache(_tiers(bench, stage, *way) if way and stage else _read(bench, arm, adversary))

    return bench.once(("told", arm.key, adversary), make)


def tiered_way(bench: Bench, arm: Arm, adversary: Adversary) -> tuple[str, View] | None:
    """The noise and view of the tiers' own experiment that an arm is; None where its real views are read."""
    stage = None if arm.changes else _tiered(bench)
    if stage is None:
        return None
    pipeline, kind = arm.pipeline, shows(arm.pipeline, adversary).kind
    if is_undefended(arm):
        return "no noise", "rows"
    if pipeline.privacy != stage.tiered.privacy:
        return None
    if kind == "named":
        return "tiers", "rows"
    if isinstance(pipeline.release, Buckets) and kind == pipeline.release.grain:
        return "tiers", pipeline.release.grain
    summed = isinstance(pipeline.release, BucketSums) and adversary == SERVER
    return ("tiers", "sums") if summed else None


def tiered_of(bench: Bench) -> Tiered | None:
    """The own protocol's tiers, where it has any; households that are no clients are the attacker's."""
    own = next((one.pipeline for one in bench.arms if one.own), None)
    if own is None or not isinstance(own.privacy, Tiers):
        return None
    data, split = whole(bench.setting.data, bench.setting.split)
    smallest = own.release.smallest if isinstance(own.release, TieredRelease) else 8
    return Tiered(replace(bench.setting, data=data, split=split), own.privacy, smallest)


def _tiered(bench: Bench) -> TieredStage | None:
    """Its experiment; None where it is another protocol, or too few clients are left to learn from."""

    def make() -> TieredStage | None:
        found = tiered_of(bench)
        try:
            return TieredStage(found, bench.coins) if found else None
        except SpecError:
            return None

    return bench.once("tiers", make)


def _tiers(bench: Bench, stage: TieredStage, noise: str, view: View) -> Callable[[], Told]:
    played = bench.once(("tiers", noise), lambda: cache(_played(bench, stage, noise)))

    def done() -> Told:
        found, uncovered = played()
        by = {one.denoiser: (one.marks, one.prior) for one in found if one.view == view}
        said = _says(len(stage.auxiliary.names), f"none of the {len(stage.task.shards)} attacked", stage.tiered.every)
        if view == "parameter":
            said += (
                f"All other members of a bucket, with the server, take their own values out of the shuffle: "
                f"{uncovered:.0%} of the rows tried came out bit for bit.",
            )
        return Told(by, tuple(stage.attributes), view == "rows", said)

    return done


def _played(bench: Bench, stage: TieredStage, noise: str) -> Callable[[], tuple[list[Found], float]]:
    """One training for all arms of a noise."""
    ways = [tiered_way(bench, arm, who) for arm in bench.arms for who in bench.adversaries(arm)]
    views = list(dict.fromkeys(way[1] for way in ways if way and way[0] == noise))

    def watch(said: str) -> None:
        bench.watch(f"seed {bench.seed}: {said}")

    done = stage.play(stage.noise(noise), bench.drive, views, bench.panel, watch)
    return lambda: done()[:2]


def _says(count: int, who: str, every: int) -> tuple[str, ...]:
    return (
        f"The adversary holds the records of {count} auxiliary clients, {who}, and trains them itself from the models "
        f"of one in {every} rounds.",
    )


def auxiliary(bench: Bench, arm: Arm) -> Auxiliary | SpecError:
    """Auxiliary clients of an arm's task, or why there are none."""
    stage = bench.stage(arm)

    def make() -> Auxiliary | SpecError:
        try:
            return auxiliary_of(stage)
        except SpecError as error:
            return error

    return bench.once(("auxiliary", stage.setting), make)


def _read(bench: Bench, arm: Arm, adversary: Adversary) -> Callable[[], Told]:
    stage, played = bench.stage(arm), bench.played(arm)
    looked = range(min(_LOOKED, len(played.rounds)))
    shown = {at: views for at in looked if (views := _views(played, adversary, at))}
    turns = tuple(
        Turn(played.rounds[at].number, played.starts[at], played.rounds[at].present, _NOTHING, _NOTHING) for at in shown
    )
    if not turns:
        return lambda: Told({"none": ({}, {})}, (), False, ())
    every = math.ceil(len(turns) / _STUDIED)
    outside, aux = None, auxiliary(bench, arm)
    if isinstance(aux, Auxiliary):
        starts = {turn.number: turn.start for turn in turns[::every]}
        clip = getattr(arm.pipeline.privacy, "clip", math.inf)
        outside = aux.told(starts, clip, stage.coins.child("auxiliary"))
    node = stage.coins.child("traits", arm.node or arm.key, adversary.key)
    asked = {
        "rounds": tuple(
            {"number": turn.number, "views": views, "start": turn.start}
            for turn, views in zip(turns, shown.values(), strict=True)
        ),
        "protocol": arm.pipeline.plain(), "layout": _layout(stage.task.layout.slices), "coins": node.export(),
    }  # fmt: skip
    answer = bench.panel.ask("traits", _known(outside, arm.pipeline, turns, stage.coins.child("traits study")), asked)
    ties = node.child("ties")
    sights = tuple(
        _sight(one, arm.pipeline, played, at, stage.task.layout, ties)
        for one, at in zip(glimpses(asked), shown, strict=True)
    )

    def done() -> Told:
        known = aux.attributes if isinstance(aux, Auxiliary) else {}
        truth = Truth(turns, sights, known)
        with threadpool_limits(1):
            by = _marked(answer.result()[SEEN], truth)
            if outside is not None and isinstance(aux, Auxiliary):
                prior = marks.guessing(outside, truth, aux.common)
                by = {name: (mark, chance | prior) for name, (mark, chance) in by.items()}
        says = _says(len(aux.names), "none of those attacked", every) if isinstance(aux, Auxiliary) else ()
        return Told(by, tuple(known), all(one.seen.named for one in sights), says)

    return done


def _views(played: Played, adversary: Adversary, at: int) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Its views of a round; none where it sees nothing of it before the next one, and there is none."""
    views = played.seen_by(adversary, at)
    if not all(views.values()) or (adversary.parties == ("client",) and len(next(iter(views.values()))) < 2):
        return {}
    return views


def _layout(slices: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    return tuple({"name": one.name, "shape": one.shape, "role": one.role} for one in slices)


def _known(outside: Outside | None, pipeline: Pipeline, turns: Sequence[Turn], coins: Coins) -> dict[str, Any]:
    """Auxiliary clients, and all deviations of noise that there may be."""
    tiers = [pipeline.privacy.tier(who) for turn in turns for who in turn.names]
    levels = torch.unique(torch.tensor([one.sigma if one else 0.0 for one in tiers], dtype=torch.float64))
    return {
        "outside": outside.plain() if outside else None, "levels": levels, "denoisers": (FIRST,),
        "coins": coins.export(),
    }  # fmt: skip


def _sight(view: Glimpse, pipeline: Pipeline, played: Played, at: int, layout: Layout, coins: Coins) -> Sight:
    """The glimpse with the truth beside it: whose each coordinate is."""
    count, size = view.rows.shape
    if view.named:
        return Sight(view, torch.arange(count).unsqueeze(1).expand(count, size))
    if bool((view.counts > 1).any()):
        return Sight(view, None)
    # Who shuffles knows what it was sent by whom.
    relay, start = played.seen_by(Adversary(("relay",)), at), played.starts[at]
    got = seen(relay, pipeline.plain(), layout, start)
    sent = dict(zip(got.ids or (), differences(got, start), strict=True))
    sources, names = torch.empty((count, size), dtype=torch.int64), played.rounds[at].present
    for bucket, members in enumerate(view.members):
        inside = view.bucket == bucket
        own = torch.stack([sent[who] for who in members])
        numbers = torch.tensor([names.index(who) for who in members])
        sources[inside] = numbers[matched(view.rows[inside], own, coins.child(at, bucket))]
    return Sight(view, sources)


def matched(rows: Tensor, sent: Tensor, coins: Coins) -> Tensor:
    """Which row was sent as each shuffled value, by rank, coordinate by coordinate; of equal ones any, at random."""
    mixed = torch.rand(sent.shape, generator=coins.fast()).argsort(0)
    order = mixed.gather(0, sent.gather(0, mixed).argsort(dim=0, stable=True))
    return torch.empty_like(order).scatter_(0, rows.argsort(0), order)


def _marked(answer: Mapping[str, Any], truth: Truth) -> dict[str, tuple[Marks, Marks]]:
    found = {}
    for name, stages in answer["denoisers"].items():
        mark, prior = marks.links(stages, answer["allowed"], truth)
        for key in truth.attributes:
            mark |= marks.inference(key, stages["chances"][key], truth)
        found[name] = mark, prior
    return found
