"""The question of permutations from one seed: what is played, and what attacks are asked.

Uploads, rules and views come from the real loop and the real agreement. Attacks run in a process of their own
(`audit.attacks.permutation`); their answers are scored in `audit.permutation_score`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from croupier.audit.attacks.permutation import Followed, ServerRound, rule_plain
from croupier.audit.bench import Answered
from croupier.audit.blind import Panel
from croupier.audit.broken_rule import tampered
from croupier.audit.invert import SearchRecipe
from croupier.audit.knowledge import Knowledge
from croupier.audit.permutation_score import PlayedVariant, Rules, SingleStepRound
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.setting import Depth
from croupier.audit.single import RATE
from croupier.core.coins import Coins
from croupier.core.revive import plain
from croupier.engine.state import Round
from croupier.errors import SpecError
from croupier.learn.ends import find_entrance
from croupier.learn.flat import frozen_of
from croupier.learn.likeness import pictured
from croupier.pipeline import Pipeline

TOPIC = "permutation"


def variants(pipeline: Pipeline) -> list[Pipeline]:
    """The description's own pipeline first, then with the first model from elsewhere, and both with one rule kept."""
    own = pipeline.encode
    first, other = ("clients", "open") if own.clients_start else ("open", "clients")
    changes = [
        {"first": each, "kept": kept} for kept in (own.keeps_rule, not own.keeps_rule) for each in (first, other)
    ]  # fmt: skip
    # A rule of every round is not kept. What is added to the last model must lie in its order, the first one's too.
    fits = {True: not own.every_round, False: is_anew(pipeline)}
    changes = [one for one in changes if fits[one["kept"] is True] and (one["first"] == first or is_anew(pipeline))]
    # A round that is lost because nobody knows the last rule would show nothing.
    held = {"fetch": "anyone"} if own.every_round else {}
    encoders = [own.model_copy(update=change | held) for change in changes]
    return [pipeline.model_copy(update={"encode": encode}) for encode in encoders]


def is_anew(pipeline: Pipeline) -> bool:
    """Whether the next model is made of this round's uploads alone."""
    return pipeline.encode.form == "weights" and pipeline.aggregate.anew


@dataclass(frozen=True)
class Variant:
    """A variant of the protocol: who draws the first model, and whether one rule is kept.

    Only the description's `own` is tampered with; `whole`: records are read, too.
    """

    run: PermutedRun
    depth: Depth
    panel: Panel
    own: bool = True
    whole: bool = True

    @property
    def coins(self) -> Coins:
        """The attacks' own, and those of what is drawn for them; attacks are given single nodes of it."""
        encode = self.run.pipeline.encode.plain()
        return Coins.from_seed(self.run.ground.seed).child("onlooker", str(sorted(encode.items())))

    @cached_property
    def known(self) -> dict[str, Any]:
        """What everybody knows: the network, its symmetries, what a record looks like."""
        made, setting = self.run.ground.made, self.run.ground.setting
        stand_in = made.dataset.test.batch(torch.arange(1))
        knowledge = Knowledge(
            (), setting.model.plain(), setting.fit.plain(), made.dataset.classes, stand_in, (), stand_in,
            frozen_of(made.module), {"loss": setting.loss or made.dataset.goal},
        )  # fmt: skip
        search = None if self.search is None else asdict(self.search)
        return {"knowledge": knowledge.plain(), "symmetry": plain(self.run.symmetry), "search": search, "rate": RATE}

    @cached_property
    def search(self) -> SearchRecipe | None:
        """How records are searched for; None where a linear layer with biases reads them, whichever layer that is."""
        made = self.run.ground.made
        if find_entrance(made.module, made.dataset.shape) is not None:
            return None
        boxed = pictured(made.dataset) is not None
        return SearchRecipe(steps=self.depth.steps, variation=1e-2, boxed=boxed)

    @property
    def kept(self) -> bool:
        """Whether one rule serves the whole epoch."""
        return self.run.pipeline.encode.keeps_rule

    def play(self) -> PlayedVariant:
        """Everything that is trained, and the first thing that attacks are asked: the orders of its rounds."""
        run = self.run
        # Under one rule all rounds look alike: two of them say it.
        done = run.played(min(self.depth.rounds, 2 if self.kept else 99))
        seen = run.seen(done)
        asked = self.matching(seen, self.coins.child("follow"), self.depth.uploads)
        singles, unread = list[SingleStepRound](), ""
        if self.whole and (self.own or not self.kept):
            try:
                singles = self._single_steps(done[-1])
            except SpecError as error:
                # Not every network's gradients can be read; what was matched stands all the same.
                unread = str(error)
        lies = tampered(run, done[-1].state, self.coins.child("tamper")) if self.own and self.whole else ()
        return PlayedVariant(self, len(done), seen[0], asked, tuple(singles), unread, tuple(lies))

    def _single_steps(self, last: Round) -> list[SingleStepRound]:
        """Single steps from the first model, and from the last one where that takes no search."""
        found = []
        for name, begin in (("first model", None), ("trained model", last.state)):
            if begin is not None and self.search is not None:
                continue
            steps = self.run.steps(self.coins.child("records", name))
            (done,) = self.run.played(1, begin, fit=steps)
            (seen,) = self.run.seen([done])
            shards = self.run.ground.made.task.shards
            found.append(
                SingleStepRound(name, seen, {one.client: steps.drawn[shards[one.client]] for one in seen.uploads})
            )
        return found

    def ask(self, asked: Mapping[str, Any]) -> Answered:
        """Ask the attacks, in a process of their own."""
        return self.panel.ask(TOPIC, self.known, asked)

    def matching(
        self, rounds: Sequence[ServerRound], coins: Coins, most: int, track: Followed | None = None
    ) -> Answered:
        """Ask for the orders of rounds; `track` is what was found of earlier ones."""
        asked = {
            "does": "match", "rounds": plain(tuple(rounds)), "most": most, "coins": coins.export(),
            "frames": () if track is None else track.frames,
        }  # fmt: skip
        return self.ask(asked)

    def reading(self, steps: Sequence[tuple[Tensor, Tensor, Rules, Coins]]) -> Answered:
        """Ask for the records behind uploads of single steps, each with its model and what the rules are taken for."""
        asked = tuple(
            {"model": model, "upload": upload, "coins": coins.export(),
             "of_model": None if rules[0] is None else rule_plain(rules[0]),
             "of_upload": None if rules[1] is None else rule_plain(rules[1])}
            for model, upload, rules, coins in steps
        )  # fmt: skip
        return self.ask({"does": "read", "steps": asked})
