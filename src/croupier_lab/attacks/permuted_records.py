"""Reconstruct records from single steps under a permutation, by how much the server knows of the rule.

The audit's question `permutation` asks whether the server puts hidden coordinates in order. This shows what that order
is worth. In one more round every client takes a single step on one record of its own, which is the easiest to read. A
server that knows nothing, has matched weights, or was told the rule then reads the record off the first linear layer,
or searches for it. `bench.leakage.permuted_pictures` (`croupier bench permutation`) prints the means over runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from croupier.audit.attacks.permutation import ServerRound, Upload, follow
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.questions.reconstruction import unreadable
from croupier.audit.report.words import rate_of
from croupier.audit.setting import Depth
from croupier.core.coins import Coins
from croupier.core.intervals import over_runs
from croupier.encode.symmetry import Rule
from croupier.engine.state import Round
from croupier.errors import Unsuited
from croupier.learn.ends import find_entrance
from croupier.learn.gradient_search import SearchRecipe
from croupier.learn.gradients import gradient_from, holding
from croupier.learn.likeness import like, pictured
from croupier.learn.single import RATE, SingleSteps, single_steps
from croupier_lab.attacks.permuted_upload import record_behind

# What the server may know of the rule, as the bench prints it.
KNOWN = {
    "prior": "nothing at all: the mean public record",
    "nothing": "uploads, read as if in order",
    "matched": "the rule, by weight matching",
    "relative": "one order for all rounds, by matching",
    "told": "the rule, told by a client",
}
# The rules of the handed-out model and of the upload, as the server believes them; None: it reads them as they lie.
Rules = tuple[Rule | None, Rule | None]
# The moments of the extra round: from the first model, or after the rounds before.
FIRST, TRAINED = "first model", "trained model"


@dataclass(frozen=True)
class SingleStepRound:
    """One more round, in which everybody takes one step on one record of its own: `truths` by client."""

    name: str
    seen: ServerRound
    truths: Mapping[str, Tensor] = field(repr=False)


def steps_of(run: PermutedRun, coins: Coins) -> SingleSteps:
    """Clients that take one step each. Raises: Unsuited where their records are not shown, or cannot be found."""
    if why := unreadable(run.ground.made):
        raise Unsuited(why)
    return single_steps(run.ground.made, coins)


@dataclass(frozen=True)
class PermutedReader:
    """An attacker's view of one run (one seed and variant of the protocol), with the coins of the attacks on it."""

    run: PermutedRun
    depth: Depth
    coins: Coins

    @cached_property
    def search(self) -> SearchRecipe | None:
        """How records are searched for; None where a linear layer with biases, which they enter whole, tells."""
        made = self.run.ground.made
        if find_entrance(made.module, made.dataset.shape) is not None:
            return None
        return SearchRecipe(steps=self.depth.steps, variation=1e-2, boxed=pictured(made.dataset) is not None)

    def lines(self) -> list[dict[str, Any]]:
        """By moment and by what the server knows, how like the records are what was read.

        Raises: SpecError where the network's gradients cannot be read.
        """
        kept = self.run.pipeline.encode.keeps_rule
        # Under one rule all rounds look alike, so that two are enough; 99 is no limit. As in
        # `audit.questions.permutation`.
        done = self.run.played(min(self.depth.rounds, 2 if kept else 99))
        _, found = follow(self.run.seen(done), self.run.symmetry, self.coins.child("follow"), self.depth.uploads)
        return [line for single in self._single_steps(done[-1]) for line in self._read(single, found)]

    def _single_steps(self, last: Round) -> Iterator[SingleStepRound]:
        """Single steps from the first model, and from the last one where that takes no search."""
        shards = self.run.ground.made.task.shards
        for name, begin in ((FIRST, None), (TRAINED, last.state)):
            if begin is not None and self.search is not None:
                continue
            steps = steps_of(self.run, self.coins.child("records", name))
            (seen,) = self.run.seen(self.run.played(1, begin, fit=steps))
            yield SingleStepRound(name, seen, {one.client: steps.drawn[shards[one.client]] for one in seen.uploads})

    def _read(self, single: SingleStepRound, before: Mapping[bytes, Rule]) -> list[dict[str, Any]]:
        run, seen = self.run, single.seen
        # From a trained model, with what was found of the rounds before it.
        known = {} if single.name == FIRST else before
        _, rules = follow([seen], run.symmetry, self.coins.child("last", single.name), 1, known)
        uploads = [one for one in seen.uploads if one.model_frame in rules]
        uploads = uploads if self.search is None else uploads[: self.depth.searched]
        base, dataset = run.truth(next(iter(rules))), run.ground.made.dataset
        # The mean public record: a guess that needs no view.
        mean = dataset.test.batch(torch.arange(min(1000, len(dataset.test))))[0].mean(0, keepdim=True)
        rows: dict[tuple[str, str], list[dict[str, float]]] = {}
        for upload in uploads:
            x, own = single.truths[upload.client], self._records(single, upload, rules)
            for knows, record in {"prior": mean, **own}.items():
                rows.setdefault((knows, "as it lies"), []).append(self._like(record, x))
            if "relative" in own:
                moved = run.symmetry.permute_inputs(x, base)
                rows.setdefault(("relative", "in the unknown order"), []).append(self._like(own["relative"], moved))
        return [
            {"moment": single.name, "knows": knows, "read": how, "records": len(one), "ssim": None, **_means(one)}
            for (knows, how), one in rows.items()
        ]

    def _records(
        self, single: SingleStepRound, upload: Upload, found: Mapping[bytes, Rule]
    ) -> dict[str, Tensor]:  # fmt: skip
        """An upload's record, once for each thing the server may know of the rules of model and upload."""
        run, frame, model = self.run, single.seen.frame, upload.model_frame
        rules: dict[str, Rules] = {
            "nothing": (None, None),
            "matched" if run.first == "open" else "relative": (found[model], found[frame]),
            "told": (run.truth(model), run.truth(frame)),
        }
        node = self.coins.child("read", single.name, upload.client)
        return {
            knows: self.record(upload.model, upload.vector, each, node.child(knows)) for knows, each in rules.items()
        }

    def record(self, model: Tensor, upload: Tensor, rules: Rules, coins: Coins) -> Tensor:
        """The record behind an upload, after model and upload are put in order by their rules."""
        made, symmetry = self.run.ground.made, self.run.symmetry
        start, end = (
            one if rule is None else symmetry.invert(one, rule)
            for one, rule in zip((model, upload), rules, strict=True)
        )
        size = sum(part.numel() for part in made.module.parameters() if part.requires_grad)
        gradient = gradient_from(end[:size], start[:size], RATE)
        network = holding(made.module, start, symmetry.layout).eval()
        shape, classes = made.dataset.shape, made.dataset.classes
        found = record_behind(gradient, network, shape, classes, coins.child(0), self.search)
        return found.detach().nan_to_num(0.5)

    def _like(self, found: Tensor, true: Tensor) -> dict[str, float]:
        return like(found, true, pictured(self.run.ground.made.dataset))


def over_all_runs(found: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Join the lines of all runs that have the same moment, knowledge and way of reading.

    A run in which nobody could be read lacks some lines.
    """
    together: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in (line for lines in found for line in lines):
        together.setdefault((line["moment"], line["knows"], line["read"]), []).append(line)
    return [
        {"moment": moment, "knows": knows, "read": read, "records": sum(line["records"] for line in lines),
         **{key: rate_of([line[key] for line in lines], over_runs) for key in ("psnr", "ssim")}}
        for (moment, knows, read), lines in together.items()
    ]  # fmt: skip


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(line[name] for line in lines) for name in lines[0]}
