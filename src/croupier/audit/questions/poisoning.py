"""What do malicious clients break? A share of the clients attack the protocol as it is, under an honest server.

Where the description's own protocol clusters its clients, the usual robust rules stand beside it on clear updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.geometry import MultiKrum, TrimmedMean
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.aggregate.reference import FLTrust
from croupier.audit.attacked_training import SeededTask, TrainingOutcome
from croupier.audit.bench import Bench
from croupier.audit.poison import FLIP, NOISE, NONE, REPLACE, TRIGGER, Poison, audit_attacks, backdoor
from croupier.audit.poisoning_tables import WHOLE, rows_of, summarise
from croupier.audit.question import MALICIOUS, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.core.intervals import Rate
from croupier.encode.floats import Floats
from croupier.errors import SpecError
from croupier.learn.root import Root
from croupier.pipeline import Pipeline

KEYS: Mapping[str, str] = {"noise": NOISE, "label-flip": FLIP, "backdoor": TRIGGER, "replacement": REPLACE}
# What rules that assume a number of liars are told.
SHARE = 0.25


class Poisoning(Question, use="poisoning"):
    """How much worse are the models that honest clients get, and do backdoors work in them?"""

    asks: ClassVar[str] = "What do malicious clients break?"
    learns: ClassVar[str] = "what is learnt"
    gains: ClassVar[str] = "of 100 test records, {n} more are answered wrongly"
    titles: ClassVar[Mapping[str, str]] = KEYS
    failed: ClassVar[str] = "no attack passed its control: none breaks even a plain mean here; ask for more rounds"
    by: ClassVar[Adversary | None] = MALICIOUS
    seeds: ClassVar[int] = 4

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Damage is measured by classes; nobody is malicious where a quarter of the clients is none."""
        try:
            malicious = _seeded(bench, arm).malicious
        except SpecError as error:
            return str(error)
        return "" if malicious or not bench.setting.share else "there are too few clients for a malicious one"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """Train without attack and under each."""
        trial = _ArmUnderAttack(bench, arm).trial()
        return lambda: {who.key: trial for who in adversaries}

    def facts(self, trials: Sequence[QuestionRun]) -> dict[str, Any]:
        """Tables over runs."""
        return summarise([one.facts for one in trials]) if len(trials) > 1 else {}

    def words(self, gain: Rate, attack: str = "") -> str:
        """Wrong answers more, or triggers that work."""
        if not gain.low > 0:
            return f"no damage is sure: {self.shown(gain.rate)} of 100 records, and at most {self.shown(gain.high)}"
        if attack in ("backdoor", "replacement"):
            return f"of 100 triggered records, {self.shown(gain.rate)} more are taken for the target"
        return self.gains.format(n=self.shown(gain.rate))


def _seeded(bench: Bench, arm: Arm) -> SeededTask:
    """The task for all arms alike: the server's records are kept back whether a rule looks at them or not."""
    setting = bench.chosen(arm)
    rules = [one.pipeline.aggregate for one in bench.arms]
    if not setting.root.records and any({"answers", "root"} & rule.asks for rule in rules):
        setting = replace(setting, root=Root(records=100))
    return bench.once(("attacked", setting), lambda: SeededTask(setting, bench.seed))


class _ArmUnderAttack:
    """One arm from one seed under every attack."""

    def __init__(self, bench: Bench, arm: Arm) -> None:
        self.bench, self.arm, self.seeded = bench, arm, _seeded(bench, arm)
        setting, made = self.seeded.setting, self.seeded.made
        self.attacks = audit_attacks(setting, made.dataset.shape)
        # What words stand for cannot be marked.
        self.mark = backdoor(setting) if made.task.answers is not None else None
        self.cohort = setting.plan.cohort or len(made.task.enrolled)
        self.clustered = arm.own and "answers" in arm.pipeline.aggregate.asks

    def trial(self) -> QuestionRun:
        """Scores of the protocol itself; rules on clear updates stand beside clusters of one's own."""
        whole = {NONE: self._train(NONE, self.arm.pipeline)}
        not_run: dict[str, str] = {}
        for key, title in KEYS.items():
            if self.mark is None and title in (TRIGGER, REPLACE):
                not_run[key] = "records that are no quantities cannot be marked"
                continue
            try:
                whole[title] = self._train(title, self.arm.pipeline, self.attacks[title][0])
            except SpecError as error:
                not_run[key] = str(error)
        scores = {key: _score(whole[NONE], whole[title], key) for key, title in KEYS.items() if title in whole}
        found = {(title, WHOLE): outcome for title, outcome in whole.items()} | self._other_rules()
        facts = {
            "rows": rows_of(found), "malicious": len(whole[NONE].malicious), "clients": whole[NONE].enrolled,
            "attacks": {title: does for title, (_, does) in self.attacks.items()},
            "unfit": unfit_baselines(self.cohort) if self.clustered else {},
        }  # fmt: skip
        return QuestionRun(scores, not_run=not_run, facts=facts)

    def _train(self, title: str, pipeline: Pipeline, attack: Poison | None = None) -> TrainingOutcome:
        self.bench.watch(f"seed {self.bench.seed}: {self.arm.title}: {title}")
        # The protocol's own runs without attack say how often a mark works of itself.
        trigger = self.mark if pipeline is self.arm.pipeline else None
        return self.seeded.train(pipeline, self.bench.drive, attack, None if attack else trigger)

    def _other_rules(self) -> dict[tuple[str, str], TrainingOutcome]:
        """The description's clusters and other rules, on clear updates."""
        if not self.clustered or not self.arm.pipeline.privacy.noiseless:
            return {}
        rules = {"Clusters": self.arm.pipeline.aggregate} | baselines(self.cohort)
        return {
            (title, rule): self._train(title, on_clear_updates(part), attack)
            for title, (attack, _) in self.attacks.items()
            for rule, part in rules.items()
        }


def _score(quiet: TrainingOutcome, hit: TrainingOutcome, key: str) -> Score:
    """Wrong answers with and without attack; of backdoors what the trigger does."""
    if key in ("backdoor", "replacement"):
        return Score(hit.success or 0.0, quiet.success or 0.0)
    return Score(1 - hit.received, 1 - quiet.received)


def on_clear_updates(rule: Aggregator) -> Pipeline:
    """A rule on whole updates, in the form it takes."""
    form = "delta" if "delta" in rule.forms else "weights"
    return Pipeline(encode=Floats(form=form, weights="uniform"), aggregate=rule)


def baselines(cohort: int) -> dict[str, Aggregator]:
    """The rules that fit so many clients, told a quarter of liars."""
    few, unfit = liars(cohort), unfit_baselines(cohort)
    every: dict[str, Aggregator] = {
        "FedAvg": Mean(), "Median": Median(), "Trimmed Mean": TrimmedMean(b=few), "Multi-Krum": MultiKrum(f=few),
        "FLTrust": FLTrust(),
    }  # fmt: skip
    return {name: part for name, part in every.items() if name not in unfit}


def liars(cohort: int) -> int:
    """How many of those invited the baselines are told to be lying."""
    return max(1, math.ceil(SHARE * cohort))


def unfit_baselines(cohort: int) -> dict[str, str]:
    """Baselines that need more clients a round, each with how many; the others run."""
    few = liars(cohort)
    least = {"Trimmed Mean": 2 * few + 1, "Multi-Krum": 2 * few + 3}
    return {
        name: f"told of {few} liars it needs {many} clients a round, and {cohort} are invited"
        for name, many in least.items()
        if cohort < many
    }
