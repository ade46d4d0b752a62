"""Can hidden coordinates be put back in order? Asked of a server's views where clients permute what they send.

Asked of protocols whose clients hide coordinates (Tazza). A `Variant` plays the protocol: uploads, rules and views come
from the real loop and the real agreement. Attacks run in a process of their own (`audit.attacks.permutation`);
`audit.permutation_score` scores their answers, `audit.permutation_report` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks.permutation import Followed, ServerRound, rule_plain
from croupier.audit.bench import Answered, Bench
from croupier.audit.blind import Panel
from croupier.audit.invert import SearchRecipe
from croupier.audit.permutation_report import over_all_runs
from croupier.audit.permutation_score import PlayedVariant, Rules, SingleStepRound
from croupier.audit.permuted_run import AgreedOnce, PermutedRun
from croupier.audit.question import Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.seen import shows
from croupier.audit.setting import Depth
from croupier.audit.single import RATE
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.intervals import Rate
from croupier.core.revive import plain
from croupier.engine.state import Round
from croupier.errors import SpecError
from croupier.learn.ends import find_entrance
from croupier.learn.likeness import pictured
from croupier.pipeline import Pipeline

TOPIC = "permutation"


def with_control(pipeline: Pipeline) -> list[Pipeline]:
    """The pipeline, and its control: the same with the first model from elsewhere, in plain order or not."""
    own = pipeline.encode
    first, other = ("clients", "open") if own.clients_start else ("open", "clients")
    # What is added to the last model must lie in its order, the first one's too.
    is_anew = own.form == "weights" and pipeline.aggregate.anew
    # A round that is lost because nobody knows the last rule would show nothing.
    held = {"fetch": "anyone"} if own.every_round else {}
    encoders = [own.model_copy(update={"first": each, **held}) for each in (first, *([other] if is_anew else []))]
    return [pipeline.model_copy(update={"encode": encode}) for encode in encoders]


@dataclass(frozen=True)
class Variant:
    """A variant of the protocol, the description's `own` or its control; `whole`: records are read, too."""

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
        knowledge = setting.knowledge(made, stand_in, stand_in)
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
        return PlayedVariant(self, len(done), asked, tuple(singles), unread)

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


class Permutation(Question, use="permutation"):
    """Does the server find the order of permuted uploads, from plain order or between rounds?"""

    asks: ClassVar[str] = "Can hidden coordinates be put back in order?"
    learns: ClassVar[str] = "the hidden order"
    gains: ClassVar[str] = (
        "the permutation is recovered: of 100 permuted places, {n} more are put in order than by a random one"
    )
    titles: ClassVar[Mapping[str, str]] = {
        "plain": "plain order, by matching weights with those of the first model",
        "between": "one order for all rounds, by matching weights round after round",
        "told": "the rule, told by a client",
    }
    seeds: ClassVar[int] = 4

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Where nothing is permuted, nothing can be put back."""
        if not arm.pipeline.encode.agrees:
            return "nothing is permuted: the protocol sends coordinates in plain order"
        try:
            _ = _run(bench, arm, arm.pipeline).symmetry
        except SpecError as error:
            return str(error)
        return ""

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Who does not get single updates with the models they came of has nothing to match."""
        if "server" not in adversary.parties:
            if {"client", "clients"} & set(adversary.parties):
                return "clients know the rule: it hides coordinates from the server alone"
            return "only the server has the models and the updates that are to be brought together"
        found = shows(arm.pipeline, Adversary(("server",)))
        return "" if found.kind == "named" else found.why or "it sees no single updates that could be matched"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """The protocol and its control; of the description's own also what its records look like."""
        accounts = bench.once(("orders", arm.key), lambda: [one.play() for one in _variants(bench, arm)])

        def trials() -> Mapping[str, QuestionRun]:
            found = {"orders": [account.plain() for account in accounts]}
            alone = _trial(found, arm.own)
            return {
                who.key: alone if who.parties == ("server",) else _told(found, alone, who) for who in adversaries
            }  # fmt: skip

        return trials

    def facts(self, trials: Sequence[QuestionRun]) -> dict[str, Any]:
        """Tables over runs."""
        accounts = [one.facts["account"] for one in trials if "account" in one.facts]
        return over_all_runs(accounts) if len(accounts) > 1 else {}

    def words(self, gain: Rate, attack: str = "") -> str:
        """Which order it is that was recovered."""
        said = super().words(gain, attack)
        if not gain.low > 0 or attack == "plain":
            return said
        more = {"between": "all rounds are in one order, which itself stays unknown", "told": "a client told the rule"}
        return f"{said} ({more[attack]})" if attack in more else said


def _run(bench: Bench, arm: Arm, pipeline: Pipeline) -> PermutedRun:
    setting, encode = bench.chosen(arm), pipeline.encode
    ground = bench.once(("ground", setting), lambda: Ground(setting, bench.seed))
    drive: Drive = bench.drive
    if encode.agrees and not encode.every_round and not setting.plan.joins:
        drive = bench.once(("agreed", setting), lambda: AgreedOnce(bench.drive))
    return PermutedRun(ground, pipeline, drive)


def _variants(bench: Bench, arm: Arm) -> list[Variant]:
    depth, every = bench.setting.depth, with_control(arm.pipeline)
    return [
        Variant(_run(bench, arm, one), depth, bench.panel, number == 0, arm.own) for number, one in enumerate(every)
    ]


def _shares(order: Mapping[str, Any]) -> dict[str, Score]:
    """The share of all places that were recovered, beside that of a random order."""
    places = sum(group["size"] for group in order["groups"])
    found = {
        name: sum(group[key] * group["size"] for group in order["groups"]) / places
        for name, key in (("plain", "absolute"), ("between", "relative"))
    }
    return {name: Score(value, len(order["groups"]) / places) for name, value in found.items()}


def _trial(found: Mapping[str, Any], shown: bool) -> QuestionRun:
    """Scores of the protocol's own variant.

    Where the first model is in plain order the rule is recovered when all places are; where the clients drew it, when
    all rounds are in one order: no view is in another. The control is the same protocol with the first model known.
    """
    own = found["orders"][0]
    names = ("between", "plain") if own["first"] == "open" else ("plain", "between")
    scores = _shares(own)
    known = next((one for one in found["orders"] if one["first"] == "open" and one["kept"] == own["kept"]), own)
    facts = {"account": found} if shown else {}
    return QuestionRun({name: scores[name] for name in names}, _shares(known), facts=facts)


def _told(found: Mapping[str, Any], alone: QuestionRun, who: Adversary) -> QuestionRun:
    """A server that a client helps needs no matching."""
    if not {"client", "clients"} & set(who.parties):
        return alone
    return QuestionRun({**alone.scores, "told": Score(1.0, alone.scores["plain"].prior)}, alone.controls)
