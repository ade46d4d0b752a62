"""What do malicious clients break? A share of the clients attack the protocol as it is, under an honest server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from croupier.audit.bench import Bench
from croupier.audit.damage import WHOLE, rows_of, shown
from croupier.audit.integrity import Arm as Bout
from croupier.audit.integrity import Ended, Ground
from croupier.audit.onslaught import FLIP, NOISE, NONE, REPLACE, TRIGGER, attacks_of, mark_of, rules_of, unfit_of
from croupier.audit.question import MALICIOUS, Adversary, Arm, Promise, Question, Score, Trial
from croupier.audit.score import Rate
from croupier.audit.setting import Setting
from croupier.errors import SpecError
from croupier.learn.root import Root

# Enough for arms that differ only in what the server sees to train once.
ROOM = 1 << 30
KEYS: Mapping[str, str] = {"noise": NOISE, "label-flip": FLIP, "backdoor": TRIGGER, "replacement": REPLACE}


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
            ground = _ground(bench, arm)
            return (
                "" if ground.malicious or not bench.setting.share else "there are too few clients for a malicious one"
            )
        except SpecError as error:
            return str(error)

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """Train without attack and under each."""
        trial = _Field(bench, arm, _ground(bench, arm)).trial()
        return lambda: {who.key: trial for who in adversaries}

    def facts(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Tables over runs."""
        return shown([one.facts for one in trials]) if len(trials) > 1 else {}

    def words(self, gain: Rate, attack: str = "") -> str:
        """Wrong answers more, or triggers that work."""
        if not gain.low > 0:
            return f"no damage is sure: {self.shown(gain.rate)} of 100 records, and at most {self.shown(gain.high)}"
        if attack in ("backdoor", "replacement"):
            return f"of 100 triggered records, {self.shown(gain.rate)} more are taken for the target"
        return self.gains.format(n=self.shown(gain.rate))


def _ground(bench: Bench, arm: Arm) -> Ground:
    """The task for all arms alike: the server's records are kept back whether a rule looks at them or not."""
    setting = bench.chosen(arm)
    rules = [one.pipeline.aggregate for one in bench.arms]
    if not setting.root.records and any(rule.use == "clusters" or "root" in rule.asks for rule in rules):
        setting = replace(setting, root=Root(records=100))
    return bench.once(("attacked", setting), lambda: _made(setting, bench.seed))


def _made(setting: Setting, seed: int) -> Ground:
    ground = Ground(setting, seed, ROOM)
    _ = ground.made
    return ground


class _Field:
    """One arm from one seed under every attack."""

    def __init__(self, bench: Bench, arm: Arm, ground: Ground) -> None:
        self.bench, self.arm, self.ground = bench, arm, ground
        self.attacks = attacks_of(ground.setting, ground.made.dataset.shape)
        # What words stand for cannot be marked.
        self.mark = mark_of(ground.setting) if ground.made.task.answers is not None else None

    def trial(self) -> Trial:
        """Scores of the protocol itself; rules on clear updates stand beside clusters of one's own."""
        whole = {NONE: self._play(Bout(WHOLE, self.arm.pipeline.aggregate, protocol=self.arm.pipeline,
                                       trigger=self.mark))}  # fmt: skip
        not_run: dict[str, str] = {}
        for key, title in KEYS.items():
            try:
                whole[title] = self._play(self._bout(WHOLE, title))
            except SpecError as error:
                not_run[key] = str(error)
        scores = {key: _score(whole[NONE], whole[title], key) for key, title in KEYS.items() if title in whole}
        found = {(title, WHOLE): ended for title, ended in whole.items()} | self._beside()
        says = {title: said for title, (_, said) in self.attacks.items()}
        first = whole[NONE]
        facts = {
            "rows": rows_of(found), "malicious": len(first.malicious), "clients": first.enrolled, "attacks": says,
            "unfit": unfit_of(self._cohort) if self._clustered else {},
        }  # fmt: skip
        return Trial(scores, not_run=not_run, facts=facts)

    @property
    def _clustered(self) -> bool:
        return self.arm.own and self.arm.pipeline.aggregate.use == "clusters"

    @property
    def _cohort(self) -> int:
        return self.ground.setting.plan.cohort or len(self.ground.made.task.enrolled)

    def _bout(self, rule: str, title: str) -> Bout:
        attack, _ = self.attacks[title]
        if title in (TRIGGER, REPLACE) and self.mark is None:
            raise SpecError("records that are no quantities cannot be marked")
        return Bout(rule, self.arm.pipeline.aggregate, attack, title, protocol=self.arm.pipeline)

    def _play(self, bout: Bout) -> Ended:
        self.bench.watch(f"seed {self.bench.seed}: {self.arm.title}: {bout.title}")
        return self.ground.play(bout, self.bench.drive)

    def _beside(self) -> dict[tuple[str, str], Ended]:
        """The description's clusters and other rules, on clear updates."""
        if not self._clustered or self.arm.pipeline.privacy.use != "none":
            return {}
        rules = rules_of(self.arm.pipeline.aggregate, self._cohort)
        return {
            (title, rule): self._play(Bout(rule, part, attack, title))
            for title, (attack, _) in self.attacks.items()
            for rule, part in rules.items()
        }


def _score(quiet: Ended, hit: Ended, key: str) -> Score:
    """Wrong answers with and without attack; of backdoors what the trigger does."""
    if key in ("backdoor", "replacement"):
        return Score(hit.success or 0.0, quiet.success or 0.0)
    return Score(1 - hit.received, 1 - quiet.received)
