"""Hidden coordinates of one seed: what is played, what the attacks are asked, and how their answers are scored.

Uploads, rules and views come from the real loop and the real agreement. Attacks run in a process of their own
(`audit.attacks.permutation`); only here their guesses meet the rules and the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from croupier.audit.blind import Panel
from croupier.audit.course import Course
from croupier.audit.invert import Inverting
from croupier.audit.knowledge import Knowledge
from croupier.audit.learned import learned
from croupier.audit.lies import tampered
from croupier.audit.likeness import like, pictured
from croupier.audit.match import after, shares
from croupier.audit.onlooker import Followed, Sight, rule_plain
from croupier.audit.reorder import chance_neighbours, kept_neighbours, laid_out
from croupier.audit.report.pictures import png
from croupier.audit.setting import Depth
from croupier.audit.single import RATE, stepped
from croupier.core.coins import Coins
from croupier.core.revive import plain
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError
from croupier.federate import Round
from croupier.learn.data import Dataset
from croupier.learn.ends import find_entrance
from croupier.learn.flat import frozen_of
from croupier.pipeline import Pipeline

TOPIC = "permutation"
PUBLIC = 5000
# Uploads that are handed over at a time where there are many.
_CHUNK = 50
Rules = tuple[Rule | None, Rule | None]
Answered = Any


def orders(pipeline: Pipeline) -> list[Pipeline]:
    """The description's own pipeline first, then with the first model from elsewhere, and both with one rule kept."""
    own = pipeline.encode
    assert isinstance(own, HiddenUnits)
    other = "open" if own.first == "clients" else "clients"
    changes = [
        {"first": first, "kept": kept} for kept in (own.kept, not own.kept) for first in (own.first, other)
    ]  # fmt: skip
    # A rule of every round is not kept. What is added to the last model must lie in its order, the first one's too.
    fits = {True: own.agree == "epoch", False: is_anew(pipeline)}
    changes = [one for one in changes if fits[one["kept"] is True] and (one["first"] == own.first or is_anew(pipeline))]
    # A round that is lost because nobody knows the last rule would show nothing.
    held = {"fetch": "anyone"} if own.agree == "round" else {}
    encoders = [own.model_copy(update=change | held) for change in changes]
    return [pipeline.model_copy(update={"encode": encode}) for encode in encoders]


def is_anew(pipeline: Pipeline) -> bool:
    """Whether the next model is made of this round's uploads alone."""
    return pipeline.encode.form == "weights" and pipeline.aggregate.anew


@dataclass(frozen=True)
class Moment:
    """One more round, in which everybody takes one step on one record of its own: `truths` by client."""

    name: str
    seen: Sight
    truths: Mapping[str, Tensor] = field(repr=False)


@dataclass(frozen=True)
class Order:
    """One order of things. Only the description's `own` is tampered with; `whole`: records are read, too."""

    course: Course
    depth: Depth
    panel: Panel
    own: bool = True
    whole: bool = True

    @property
    def coins(self) -> Coins:
        """The attacks' own, and those of what is drawn for them; attacks are given single nodes of it."""
        encode = self.course.pipeline.encode.plain()
        return Coins.from_seed(self.course.ground.seed).child("onlooker", str(sorted(encode.items())))

    @cached_property
    def known(self) -> dict[str, Any]:
        """What everybody knows: the network, its symmetries, what a record looks like."""
        made, setting = self.course.ground.made, self.course.ground.setting
        stand_in = made.dataset.test.batch(torch.arange(1))
        knowledge = Knowledge(
            (), setting.model.plain(), setting.fit.plain(), made.dataset.classes, stand_in, (), stand_in,
            frozen_of(made.module), {"loss": setting.loss or made.dataset.goal},
        )  # fmt: skip
        search = None if self.search is None else asdict(self.search)
        return {"knowledge": knowledge.plain(), "symmetry": plain(self.course.symmetry), "search": search, "rate": RATE}

    @cached_property
    def search(self) -> Inverting | None:
        """How records are searched for; None where a linear layer with biases reads them, whichever layer that is."""
        made = self.course.ground.made
        if find_entrance(made.module, made.dataset.shape) is not None:
            return None
        boxed = pictured(made.dataset) is not None
        return Inverting(steps=self.depth.steps, variation=1e-2, labels="known", boxed=boxed)

    @property
    def kept(self) -> bool:
        """Whether one rule serves the whole epoch."""
        return bool(getattr(self.course.pipeline.encode, "kept", False))

    def play(self) -> Account:
        """Everything that is trained, and the first thing that attacks are asked: the orders of its rounds."""
        course = self.course
        # Under one rule all rounds look alike: two of them say it.
        done = course.played(min(self.depth.rounds, 2 if self.kept else 99))
        sights = course.sights(done)
        asked = self.matching(sights, self.coins.child("follow"), self.depth.uploads)
        moments, unread = list[Moment](), ""
        if self.whole and (self.own or not self.kept):
            try:
                moments = self._moments(done[-1])
            except SpecError as error:
                # Not every network's gradients can be read; what was matched stands all the same.
                unread = str(error)
        lies = tampered(course, done[-1].state, self.coins.child("tamper")) if self.own and self.whole else ()
        return Account(self, len(done), sights[0], asked, tuple(moments), unread, tuple(lies))

    def _moments(self, last: Round) -> list[Moment]:
        """Single steps from the first model, and from the last one where that takes no search."""
        found = []
        for name, begin in (("first model", None), ("trained model", last.state)):
            if begin is not None and self.search is not None:
                continue
            steps = self.course.steps(self.coins.child("records", name))
            (done,) = self.course.played(1, begin, fit=steps)
            (seen,) = self.course.sights([done])
            shards = self.course.ground.made.task.shards
            found.append(Moment(name, seen, {who: steps.drawn[shards[who]] for who in seen.uploads}))
        return found

    def matching(self, sights: Sequence[Sight], coins: Coins, most: int, track: Followed | None = None) -> Answered:
        """Ask for the orders of rounds; `track` is what was found of earlier ones."""
        asked = {
            "does": "match", "sights": tuple(one.plain() for one in sights), "most": most, "coins": coins.export(),
            "known": () if track is None else track.plain()["known"],
        }  # fmt: skip
        return self.panel.ask(TOPIC, self.known, asked)

    def reading(self, steps: Sequence[tuple[Tensor, Tensor, Rules, Coins]]) -> Answered:
        """Ask for the records behind uploads of single steps, each with its model and what the rules are taken for."""
        asked = tuple(
            {"model": model, "upload": upload, "coins": coins.export(),
             "of_model": None if rules[0] is None else rule_plain(rules[0]),
             "of_upload": None if rules[1] is None else rule_plain(rules[1])}
            for model, upload, rules, coins in steps
        )  # fmt: skip
        return self.panel.ask(TOPIC, self.known, {"does": "read", "steps": asked})


@dataclass(frozen=True)
class Account:
    """One order of things as it was played: it becomes an account of plain values once attacks have answered."""

    order: Order
    rounds: int
    first: Sight
    asked: Answered
    moments: tuple[Moment, ...]
    unread: str
    lies: tuple[dict[str, Any], ...]

    def plain(self) -> dict[str, Any]:
        """What the server makes of its views, scored."""
        order, course = self.order, self.order.course
        track = Followed.of(self.asked.result())
        told: dict[str, Any] = {
            "first": course.first, "kept": order.kept, "own": order.own, "rounds": self.rounds,
            "groups": scored(track, course), "matched": sum(one.matched for one in track.guesses),
            "inversion": [], "pictures": [], "layout": None, "tampered": list(self.lies), "unread": self.unread,
        }  # fmt: skip
        try:
            read = [self._read(moment, track) for moment in self.moments]
            told["inversion"] = [row for rows, _ in read for row in rows]
            told["pictures"] = next((shown for _, shown in read if shown), [])
            told["layout"] = self._layout() if self.moments else None
        except SpecError as error:
            told["unread"] = str(error)
        return told

    def _read(self, moment: Moment, track: Followed) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Single steps, by what the server knows."""
        order, course, seen = self.order, self.order.course, moment.seen
        earlier = track if moment.name == "trained model" else None
        found = Followed.of(order.matching([seen], order.coins.child("last", moment.name), 1, earlier).result())
        names = [name for name in seen.uploads if seen.handed[name].frame in found.known]
        names = names if order.search is None else names[: order.depth.searched]
        got = self._records(moment, names, found)
        rows: dict[tuple[str, str], list[dict[str, float]]] = {}
        base, shown = course.truth(_base(found)), list[dict[str, str]]()
        dataset = course.ground.made.dataset
        mean = _mean(dataset)
        for at, name in enumerate(names):
            x, own = moment.truths[name], {knows: records[at] for knows, records in got.items()}
            for knows, record in {"prior": mean, **own}.items():
                rows.setdefault((knows, "as it lies"), []).append(self._like(record, x))
            if "relative" in own:
                moved = course.symmetry.permute_inputs(x, base)
                rows.setdefault(("relative", "in the unknown order"), []).append(self._like(own["relative"], moved))
            if not shown and (shape := pictured(dataset)):
                shown = [{"says": says, "png": png(one.reshape(shape))} for says, one in {"true": x, **own}.items()]
        return [
            {"moment": moment.name, "knows": knows, "read": how, "records": len(one), "ssim": None, **_means(one)}
            for (knows, how), one in rows.items()
        ], shown

    def _records(self, moment: Moment, names: Sequence[str], found: Followed) -> dict[str, tuple[Tensor, ...]]:
        """Records by what the server takes for the rules of model and upload; the last were told by a client.

        Each is asked for by itself: who matches is not told.
        """
        order, course, seen = self.order, self.order.course, moment.seen
        mine = "matched" if course.first == "open" else "relative"

        def rules(knows: str, model: bytes) -> Rules:
            if knows == "told":
                return course.truth(model), course.truth(seen.frame)
            return (None, None) if knows == "nothing" else (found.known[model], found.known[seen.frame])

        waiting = {
            knows: order.reading([
                (seen.handed[name].vector, seen.uploads[name], rules(knows, seen.handed[name].frame),
                 order.coins.child("read", moment.name, name, knows))
                for name in names
            ])
            for knows in ("nothing", mine, "told")
        }  # fmt: skip
        return {knows: _got(answer) for knows, answer in waiting.items()}

    def _like(self, found: Tensor, true: Tensor) -> dict[str, float]:
        shape, judge = pictured(self.order.course.ground.made.dataset), self.order.depth.lpips
        return like(found, true, shape, learned(judge) if judge else None)

    def _layout(self) -> dict[str, Any] | None:
        """Pictures in the unknown order of the first model, laid out by public ones."""
        order, course = self.order, self.order.course
        made, coins = course.ground.made, order.coins
        shape, group = pictured(made.dataset), input_group(course.symmetry)
        if course.first == "open" or shape is None or group is None or order.search is not None:
            return None
        model = self.first.handed[next(iter(self.first.uploads))].vector
        # Clients that take single steps from the first model, one after the other, until there are enough pictures.
        rule = course.truth(self.first.frame)
        moves = course.symmetry.under(rule)
        start, count = moves.invert(model), min(order.depth.pictures, len(made.dataset.train))
        drawn = coins.child("pictures").sampler().permutation(len(made.dataset.train))[:count]
        x, y = made.dataset.train.batch(torch.from_numpy(drawn))
        waiting = []
        for at in range(0, count, _CHUNK):
            steps = range(at, min(at + _CHUNK, count))
            sent = [moves.apply(stepped(made.module, made.task.layout, start, x[n : n + 1], y[n : n + 1]))
                    for n in steps]  # fmt: skip
            # The first model and what comes back are in one frame, so that there is nothing to match.
            waiting.append(order.reading([(model, one, (None, None), coins.child("still")) for one in sent]))
        samples = torch.cat([one for answer in waiting for one in _got(answer)]).clamp(0, 1).flatten(1)
        public = made.dataset.test.batch(torch.arange(min(PUBLIC, len(made.dataset.test))))[0].flatten(1)
        asked = {"does": "lay out", "samples": samples, "public": public, "coins": coins.child("layout").export()}
        places = order.panel.ask(TOPIC, order.known, asked).result()["places"].numpy()
        return self._laid(samples, x, places, rule.of[group], shape)

    def _laid(self, samples: Tensor, x: Tensor, places: Any, true: Any, shape: tuple[int, ...]) -> dict[str, Any]:
        out = laid_out(samples, places).reshape(x.shape)
        means = _means([self._like(out[n : n + 1], x[n : n + 1]) for n in range(min(100, len(x)))])
        height, width = shape[-2:]
        return {
            "pictures": len(samples), "places": float((places == true).mean()), "chance": 1 / len(true),
            "neighbours": kept_neighbours(places, true, height, width),
            "chance_neighbours": chance_neighbours(height, width),
            "measures": means,
            "shown": [{"says": says, "png": png(one[0].reshape(shape))}
                      for says, one in (("the record", x), ("in the unknown order", samples), ("laid out", out))],
        }  # fmt: skip


def _got(answer: Answered) -> tuple[Tensor, ...]:
    """Records that were read. Raises: SpecError where none could be."""
    found = answer.result()
    if found["unread"]:
        raise SpecError(found["unread"])
    records: tuple[Tensor, ...] = found["records"]
    return records


def scored(track: Followed, course: Course) -> list[dict[str, Any]]:
    """The share of each group's places that were recovered, absolutely and from the order of the first model.

    Of guesses that needed matching, where any did. Each is a mean over uploads; `least` is the worst upload's.
    """
    base = course.truth(_base(track))
    guesses = [guess for guess in track.guesses if guess.matched] or list(track.guesses)
    truths = {guess.frame: course.truth(guess.frame) for guess in guesses}
    absolute = [shares(guess.rule, truths[guess.frame]) for guess in guesses]
    relative = [shares(after(base, guess.rule), truths[guess.frame]) for guess in guesses]
    return [
        {"group": group, "size": size, "uploads": len(guesses), "absolute": fmean(one[group] for one in absolute),
         "relative": fmean(one[group] for one in relative), "least": min(one[group] for one in relative)}
        for group, size in course.symmetry.groups.items()
    ]  # fmt: skip


def _base(track: Followed) -> bytes:
    """The frame of the first model."""
    return next(iter(track.known))


def input_group(symmetry: Symmetry) -> str | None:
    """The one group that all places of an input belong to, where there is one."""
    groups = {factor.group for axis in symmetry.inputs for block in axis.blocks for factor in block if factor.group}
    size = prod(axis.size for axis in symmetry.inputs)
    return next((group for group in groups if symmetry.groups[group] == size), None)


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(line[name] for line in lines) for name in lines[0]}


def _mean(dataset: Dataset) -> Tensor:
    """The mean public record: a guess that needs no view."""
    return dataset.test.batch(torch.arange(min(1000, len(dataset.test))))[0].mean(0, keepdim=True)
