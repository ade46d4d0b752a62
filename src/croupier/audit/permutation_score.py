"""The question of permutations from one seed, scored: only here guesses of attacks meet the rules and the records.

What was played, and what attacks are asked, is a `Variant`'s (`audit.questions.permutation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from croupier.audit.attacks.permutation import Followed, ServerRound, Upload, rule_of
from croupier.audit.bench import Answered
from croupier.audit.permuted_run import PermutedRun
from croupier.core.revive import revived
from croupier.encode.symmetry import Rule
from croupier.errors import SpecError
from croupier.learn.axes.matching import after, shares
from croupier.learn.likeness import like, pictured
from croupier.learn.lpips import learned
from croupier.learn.png import png

if TYPE_CHECKING:
    from croupier.audit.questions.permutation import Variant

Rules = tuple[Rule | None, Rule | None]


@dataclass(frozen=True)
class SingleStepRound:
    """One more round, in which everybody takes one step on one record of its own: `truths` by client."""

    name: str
    seen: ServerRound
    truths: Mapping[str, Tensor] = field(repr=False)


@dataclass(frozen=True)
class PlayedVariant:
    """A variant of the protocol as it was played: scored, as plain values, once attacks have answered."""

    variant: Variant
    rounds: int
    asked: Answered
    singles: tuple[SingleStepRound, ...]
    unread: str

    def plain(self) -> dict[str, Any]:
        """What the server makes of its views, scored."""
        variant, run = self.variant, self.variant.run
        track = revived(Followed, self.asked.result())
        told: dict[str, Any] = {
            "first": run.first, "kept": variant.kept, "own": variant.own, "rounds": self.rounds,
            "groups": scored(track, run), "inversion": [], "pictures": [], "unread": self.unread,
        }  # fmt: skip
        try:
            read = [self._read(single, track) for single in self.singles]
            told["inversion"] = [row for rows, _ in read for row in rows]
            told["pictures"] = next((shown for _, shown in read if shown), [])
        except SpecError as error:
            told["unread"] = str(error)
        return told

    def _read(self, single: SingleStepRound, track: Followed) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Single steps, by what the server knows."""
        variant, run, seen = self.variant, self.variant.run, single.seen
        earlier = track if single.name == "trained model" else None
        asked = variant.matching([seen], variant.coins.child("last", single.name), 1, earlier)
        found = revived(Followed, asked.result())
        uploads = [one for one in seen.uploads if one.model_frame in found.known]
        uploads = uploads if variant.search is None else uploads[: variant.depth.searched]
        got = self._records(single, uploads, found)
        rows: dict[tuple[str, str], list[dict[str, float]]] = {}
        base, shown = run.truth(_base(found)), list[dict[str, str]]()
        dataset = run.ground.made.dataset
        # The mean public record: a guess that needs no view.
        mean = dataset.test.batch(torch.arange(min(1000, len(dataset.test))))[0].mean(0, keepdim=True)
        for at, upload in enumerate(uploads):
            x, own = single.truths[upload.client], {knows: records[at] for knows, records in got.items()}
            for knows, record in {"prior": mean, **own}.items():
                rows.setdefault((knows, "as it lies"), []).append(self._like(record, x))
            if "relative" in own:
                moved = run.symmetry.permute_inputs(x, base)
                rows.setdefault(("relative", "in the unknown order"), []).append(self._like(own["relative"], moved))
            if not shown and (shape := pictured(dataset)):
                shown = [{"says": says, "png": png(one.reshape(shape))} for says, one in {"true": x, **own}.items()]
        return [
            {"moment": single.name, "knows": knows, "read": how, "records": len(one), "ssim": None, **_means(one)}
            for (knows, how), one in rows.items()
        ], shown

    def _records(
        self, single: SingleStepRound, uploads: Sequence[Upload], found: Followed
    ) -> dict[str, tuple[Tensor, ...]]:
        """Records by what the server takes for the rules of model and upload; the last were told by a client.

        Each is asked for by itself: who matches is not told.
        """
        variant, run, seen = self.variant, self.variant.run, single.seen
        mine = "matched" if run.first == "open" else "relative"

        def rules(knows: str, model: bytes) -> Rules:
            if knows == "told":
                return run.truth(model), run.truth(seen.frame)
            return (None, None) if knows == "nothing" else (found.known[model], found.known[seen.frame])

        waiting = {
            knows: variant.reading([
                (one.model, one.vector, rules(knows, one.model_frame),
                 variant.coins.child("read", single.name, one.client, knows))
                for one in uploads
            ])
            for knows in ("nothing", mine, "told")
        }  # fmt: skip
        return {knows: records_of(answer) for knows, answer in waiting.items()}

    def _like(self, found: Tensor, true: Tensor) -> dict[str, float]:
        shape, judge = pictured(self.variant.run.ground.made.dataset), self.variant.depth.lpips
        return like(found, true, shape, learned(judge) if judge else None)


def records_of(answer: Answered) -> tuple[Tensor, ...]:
    """Records that were read. Raises: SpecError where none could be."""
    found = answer.result()
    if found["unread"]:
        raise SpecError(found["unread"])
    records: tuple[Tensor, ...] = found["records"]
    return records


def scored(track: Followed, run: PermutedRun) -> list[dict[str, Any]]:
    """The share of each group's places that were recovered, absolutely and from the order of the first model.

    Of guesses that needed matching, where any did. Each is a mean over uploads; `least` is the worst upload's.
    """
    base = run.truth(_base(track))
    guesses = [guess for guess in track.guesses if guess.matched] or list(track.guesses)
    truths = {guess.frame: run.truth(guess.frame) for guess in guesses}
    absolute = [shares(rule_of(guess.places), truths[guess.frame]) for guess in guesses]
    relative = [shares(after(base, rule_of(guess.places)), truths[guess.frame]) for guess in guesses]
    return [
        {"group": group, "size": size, "uploads": len(guesses), "absolute": fmean(one[group] for one in absolute),
         "relative": fmean(one[group] for one in relative), "least": min(one[group] for one in relative)}
        for group, size in run.symmetry.groups.items()
    ]  # fmt: skip


def _base(track: Followed) -> bytes:
    """The frame of the first model."""
    return next(iter(track.known))


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(line[name] for line in lines) for name in lines[0]}
