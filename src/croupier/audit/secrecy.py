"""The experiment on hidden coordinates: what the server makes of its own views of a run, against the truth.

Uploads, rules and views come from the real loop and the real agreement. Attacks are functions of the server's views
(`audit.onlooker`); only here they meet the rules and the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from croupier.audit.abreast import each
from croupier.audit.course import RATE, Course, Once, stepped
from croupier.audit.integrity import Ground, Setting
from croupier.audit.invert import Inverting, inverting
from croupier.audit.learned import Learned, learned
from croupier.audit.lies import tampered
from croupier.audit.likeness import psnr, ssim
from croupier.audit.match import after, shares
from croupier.audit.onlooker import Followed, Reader, Sight, followed
from croupier.audit.reorder import by_example, chance_neighbours, kept_neighbours, laid_out
from croupier.audit.report.pictures import png
from croupier.core.coins import Coins
from croupier.core.revive import Shelf, got, put
from croupier.core.sitting import Drive
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError
from croupier.federate import State
from croupier.learn.data import Dataset
from croupier.learn.ends import find_entrance
from croupier.pipeline import Pipeline

Watch = Callable[[str], None]
PUBLIC = 5000


@dataclass(frozen=True)
class Depth:
    """How much is tried: rounds of training, uploads matched a round, pictures to lay out.

    Records that must be searched for take long: of these a few are tried, in so many steps. `lpips` names the network
    of LPIPS to measure with as well, where it is installed.
    """

    rounds: int = 5
    uploads: int = 5
    pictures: int = 1000
    searched: int = 2
    steps: int = 100
    lpips: str = ""


FULL, FAST = Depth(), Depth(rounds=3, uploads=3, pictures=300, searched=1, steps=50)


def orders(pipeline: Pipeline) -> list[Pipeline]:
    """The description's own pipeline first, then with the first model from elsewhere, and both with one rule kept."""
    own = pipeline.encode
    if not isinstance(own, HiddenUnits):
        return [pipeline]
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


def study(
    setting: Setting, pipeline: Pipeline, seeds: Sequence[int], drive: Drive, watch: Watch, depth: Depth = FULL,
    abreast: int = 1, kept: Shelf | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One plain account for each seed; `abreast` of them at once, each in a process of its own.

    Seeds that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    jobs = {part(seed): (setting, pipeline, seed, drive, depth) for seed in seeds}

    def heard(name: str, account: dict[str, Any]) -> None:
        put(shelf, name, account)
        watch(f"seed {jobs[name][2]}: what the server makes of permuted uploads")

    each(_one, {name: job for name, job in jobs.items() if name not in shelf}, abreast, heard)
    return [got(shelf, name, dict[str, Any]) for name in jobs]


def part(seed: int) -> str:
    """What a seed's account is called among those that are kept."""
    return f"secrecy-{seed}"


def _one(job: tuple[Setting, Pipeline, int, Drive, Depth]) -> dict[str, Any]:
    setting, pipeline, seed, drive, depth = job
    ground, encode = Ground(setting, seed), pipeline.encode
    once = (
        Once(drive) if isinstance(encode, HiddenUnits) and encode.agree == "epoch" and not setting.plan.joins else drive
    )
    parts = [_Part(Course(ground, one, once), depth, number == 0) for number, one in enumerate(orders(pipeline))]
    return {"orders": [part.account() for part in parts]}


@dataclass(frozen=True)
class _Part:
    """One order of things, played and scored; only the description's own one is tampered with."""

    course: Course
    depth: Depth
    own: bool

    @property
    def coins(self) -> Coins:
        """The attacks' own."""
        encode = self.course.pipeline.encode.plain()
        return Coins.from_seed(self.course.ground.seed).child("onlooker", str(sorted(encode.items())))

    def account(self) -> dict[str, Any]:
        """Everything as plain values."""
        course, encode = self.course, self.course.pipeline.encode
        hidden = isinstance(encode, HiddenUnits)
        kept = hidden and getattr(encode, "kept", False)
        # Under one rule all rounds look alike: two of them say it.
        done = course.played(min(self.depth.rounds, course.ground.setting.plan.rounds, 2 if kept else 99))
        sights = course.sights(done)
        track = followed(sights, course.symmetry, self.coins.child("follow"), self.depth.uploads)
        told: dict[str, Any] = {
            "first": course.first, "kept": kept, "hidden": hidden, "own": self.own, "rounds": len(done),
            "groups": scored(track, course) if hidden else [], "matched": sum(one.matched for one in track.guesses),
            "inversion": [], "pictures": [], "layout": None, "tampered": [], "unread": "",
        }  # fmt: skip
        if self.own or not kept:
            try:
                told["inversion"], told["pictures"] = self._inverted(done[-1].state, track)
                told["layout"] = self._layout(sights[0])
            except SpecError as error:
                # Not every network's gradients can be read; what was matched stands all the same.
                told["unread"] = str(error)
        if self.own and hidden:
            told["tampered"] = list(tampered(course, done[-1].state, self.coins.child("tamper")))
        return told

    def _inverted(self, state: State, track: Followed) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Single steps from the first model and from the last one, by what the server knows."""
        rows: list[dict[str, Any]] = []
        shown: list[dict[str, str]] = []
        for moment, begin, known in (("first model", None, None), ("trained model", state, track.known)):
            if begin is not None and self._search() is not None:
                continue
            steps = self.course.steps(self.coins.child("records", moment))
            (done,) = self.course.played(1, begin, fit=steps)
            (seen,) = self.course.sights([done])
            found = followed([seen], self.course.symmetry, self.coins.child("last", moment), 1, known)
            truths = {name: steps.drawn[self.course.ground.made.task.shards[name]] for name in seen.uploads}
            new, pictures = self._read(moment, seen, found, truths)
            rows += new
            shown = shown or pictures
        return rows, shown

    def _read(
        self, moment: str, seen: Sight, found: Followed, truths: Mapping[str, Tensor]
    ) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        course, rows = self.course, dict[tuple[str, str], list[dict[str, float]]]()
        base, shown = course.truth(_base(found)), list[dict[str, str]]()
        mean = _mean(course.ground.made.dataset)
        names = [name for name in seen.uploads if seen.handed[name].frame in found.known]
        for name in names[: self.depth.searched] if self._search() is not None else names:
            model, upload, x = seen.handed[name], seen.uploads[name], truths[name]
            got = {
                knows: self._reader(model.vector, *rules).records(
                    [upload], self.coins.child("read", moment, name, knows)
                )
                for knows, rules in self._rules(model.frame, seen.frame, found).items()
            }
            for knows, record in {"prior": mean, **got}.items():
                rows.setdefault((knows, "as it lies"), []).append(self._like(record, x))
            if "relative" in got:
                moved = course.symmetry.permute_inputs(x, base)
                rows.setdefault(("relative", "in the unknown order"), []).append(self._like(got["relative"], moved))
            if not shown and (shape := pictured(course.ground.made.dataset)):
                shown = [{"says": says, "png": png(one.reshape(shape))} for says, one in {"true": x, **got}.items()]
        return [
            {"moment": moment, "knows": knows, "read": how, "records": len(one), "ssim": None, **_means(one)}
            for (knows, how), one in rows.items()
        ], shown

    def _rules(self, model: bytes, upload: bytes, found: Followed) -> dict[str, tuple[Rule | None, Rule | None]]:
        """What the server takes for the rules of model and upload; the last was told by a client."""
        course = self.course
        if not isinstance(course.pipeline.encode, HiddenUnits):
            return {"order": (None, None)}
        mine = "matched" if course.first == "open" else "relative"
        return {
            "nothing": (None, None),
            mine: (found.known[model], found.known[upload]),
            "told": (course.truth(model), course.truth(upload)),
        }

    def _reader(self, model: Tensor, of_model: Rule | None, of_upload: Rule | None) -> Reader:
        made = self.course.ground.made
        return Reader(
            made.module, self.course.symmetry, model, of_model, of_upload, RATE, made.dataset.shape,
            made.dataset.classes, self._search(),
        )  # fmt: skip

    @cached_property
    def _direct(self) -> bool:
        """Whether a linear layer with biases reads whole records, whichever layer that is."""
        made = self.course.ground.made
        return find_entrance(made.module, made.dataset.shape) is not None

    def _search(self) -> Any:
        """None where one record is read off the first layer."""
        made = self.course.ground.made
        if self._direct:
            return None
        boxed = pictured(made.dataset) is not None
        return inverting(Inverting(steps=self.depth.steps, variation=1e-2, labels="known", boxed=boxed))

    def _like(self, found: Tensor, true: Tensor) -> dict[str, float]:
        shape = pictured(self.course.ground.made.dataset)
        return like(found, true, shape, learned(self.depth.lpips) if self.depth.lpips else None)

    def _layout(self, seen: Sight) -> dict[str, Any] | None:
        """Pictures in the unknown order of the first model, laid out by public ones."""
        course, made = self.course, self.course.ground.made
        shape, group = pictured(made.dataset), input_group(course.symmetry)
        if course.first == "open" or shape is None or group is None or self._search() is not None:
            return None
        model, frame = seen.handed[next(iter(seen.uploads))], seen.frame
        # Clients that take single steps from the first model, one after the other, until there are enough pictures.
        rule = course.truth(frame)
        moves = course.symmetry.under(rule)
        plain, count = moves.invert(model.vector), min(self.depth.pictures, len(made.dataset.train))
        drawn = self.coins.child("pictures").sampler().permutation(len(made.dataset.train))[:count]
        x, y = made.dataset.train.batch(torch.from_numpy(drawn))
        each = zip(x.split(1), y.split(1), strict=True)  # type: ignore[no-untyped-call]
        sent = (moves.apply(stepped(made.module, made.task.layout, plain, *one)) for one in each)
        # The first model and what comes back are in one frame, so that there is nothing to match.
        still = self._reader(model.vector, None, None)
        samples = torch.cat([still.record(one, self.coins) for one in sent]).clamp(0, 1).flatten(1)
        public = made.dataset.test.batch(torch.arange(min(PUBLIC, len(made.dataset.test))))[0].flatten(1)
        places = by_example(samples, public, self.coins.child("layout"))
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


def pictured(dataset: Dataset) -> tuple[int, int, int] | None:
    """Colours, height and width of a record, where records are pictures."""
    shape = dataset.shape
    if len(shape) == 3 and shape[0] in (1, 3):
        return shape
    return (1, 8, 8) if dataset.name == "digits" and shape == (64,) else None


def input_group(symmetry: Symmetry) -> str | None:
    """The one group that all places of an input belong to, where there is one."""
    groups = {factor.group for axis in symmetry.inputs for block in axis.blocks for factor in block if factor.group}
    size = prod(axis.size for axis in symmetry.inputs)
    return next((group for group in groups if symmetry.groups[group] == size), None)


def like(found: Tensor, true: Tensor, shape: tuple[int, ...] | None, judge: Learned | None = None) -> dict[str, float]:
    """PSNR in dB; where both are pictures SSIM, and LPIPS where there is one."""
    one, two = (part.reshape(1, *(shape or (1, 1, part.numel()))) for part in (found, true))
    one = one if shape is None else one.clamp(0, 1)
    measures = {"psnr": psnr(one, two)}
    if shape is not None:
        measures["ssim"] = ssim(one, two)
    if shape is not None and judge is not None:
        measures["lpips"] = judge(one, two)
    return {name: float(value) for name, value in measures.items()}


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(line[name] for line in lines) for name in lines[0]}


def _mean(dataset: Dataset) -> Tensor:
    """The mean public record: a guess that needs no view."""
    return dataset.test.batch(torch.arange(min(1000, len(dataset.test))))[0].mean(0, keepdim=True)
