"""What do malicious clients break? A share of the clients attack the protocol as it is, under an honest server.

`audit.attacked_training` trains with and without each attack; here are scores, the table of what honest clients
receive, and the words. How clusters compare with other rules is the laboratory's `bench clusters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from croupier.audit.attacked_training import SeededTask, TrainingOutcome
from croupier.audit.bench import Bench
from croupier.audit.poison import FLIP, NOISE, NONE, REPLACE, TRIGGER, Poison, audit_attacks, backdoor
from croupier.audit.question import MALICIOUS, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.report.words import interval, rate_of, table
from croupier.core.intervals import Rate, over_runs
from croupier.errors import SpecError
from croupier.learn.root import Root

MEASURES = ("received", "success", "models")
KEYS: Mapping[str, str] = {"noise": NOISE, "label-flip": FLIP, "backdoor": TRIGGER, "replacement": REPLACE}
NOTES = (
    "Accuracy received: on the test records, by the model that each honest client would be handed next, mean over all "
    "of them; who has no cluster yet gets the largest one's.",
    "Backdoor: the share of triggered test records of other classes that the model takes for the target, mean over "
    "honest clients. A model without backdoor has some, too: its own mistakes.",
    "Attacks that fail prove nothing: an attacker who knows the rule can do better than these.",
)


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

    def trial(self) -> QuestionRun:
        """What each attack comes to."""
        whole = {NONE: self._train(NONE)}
        not_run: dict[str, str] = {}
        for key, title in KEYS.items():
            if self.mark is None and title in (TRIGGER, REPLACE):
                not_run[key] = "records that are no quantities cannot be marked"
                continue
            try:
                whole[title] = self._train(title, self.attacks[title][0])
            except SpecError as error:
                not_run[key] = str(error)
        scores = {key: _score(whole[NONE], whole[title], key) for key, title in KEYS.items() if title in whole}
        facts = {
            "rows": [
                {"attack": title, **{name: getattr(one, name) for name in (*MEASURES, "lost", "accepted")}}
                for title, one in whole.items()
            ],
            "malicious": len(whole[NONE].malicious), "clients": whole[NONE].enrolled,
            "attacks": {title: does for title, (_, does) in self.attacks.items()},
        }  # fmt: skip
        return QuestionRun(scores, not_run=not_run, facts=facts)

    def _train(self, title: str, attack: Poison | None = None) -> TrainingOutcome:
        self.bench.watch(f"seed {self.bench.seed}: {self.arm.title}: {title}")
        # Runs without attack say how often a mark works of itself.
        return self.seeded.train(self.arm.pipeline, self.bench.drive, attack, None if attack else self.mark)


def _score(quiet: TrainingOutcome, hit: TrainingOutcome, key: str) -> Score:
    """Wrong answers with and without attack; of backdoors what the trigger does."""
    if key in ("backdoor", "replacement"):
        return Score(hit.success or 0.0, quiet.success or 0.0)
    return Score(1 - hit.received, 1 - quiet.received)


def summarise(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of every run's facts: sentences and a table, and the `numbers` behind them."""
    first = found[0]
    rows = [_row(lines) for lines in zip(*(one["rows"] for one in found), strict=True)]
    says = [f"{title.capitalize()}: {does}." for title, does in first["attacks"].items() if title != NONE]
    says += dict.fromkeys(f"{row['attack']}: {why}" for row in rows for why in row["lost"])
    heads = ("Attack", "Accuracy received, %", "Backdoor success, %", "Models")
    shown = [
        (row["attack"], *(interval(row[name], 100) for name in ("received", "success")), f"{row['models']['rate']:.1f}")
        for row in rows
    ]
    return {
        "sentences": [_threat(first["malicious"], first["clients"]), *says, *_refused(found), *NOTES],
        "tables": table("What honest clients receive", heads, shown),
        "numbers": {"rows": rows, "malicious": first["malicious"], "clients": first["clients"]},
    }


def _row(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One attack over runs."""
    return {
        "attack": lines[0]["attack"], **{name: rate_of([line[name] for line in lines]) for name in MEASURES[:2]},
        "models": rate_of([line["models"] for line in lines], over_runs),
        "lost": [line["lost"] for line in lines if line["lost"]],
    }  # fmt: skip


def _refused(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attacks whose updates did not all come through: what is never averaged breaks nothing."""
    taken = dict[str, int]()
    for row in (row for one in found for row in one["rows"]):
        taken[row["attack"]] = taken.get(row["attack"], 0) + row["accepted"]
    return [
        f"{title.capitalize()}: {many} of {taken[NONE]} updates of the malicious were taken; the others were refused."
        for title, many in taken.items()
        if many < taken[NONE]
    ]


def _threat(bad: int, clients: int) -> str:
    """Who attacks, and what it can do."""
    return (
        f"{bad} of {clients} clients are malicious, drawn anew for each run, and work together. They choose what they "
        "train on and what they send; they see the models that they are handed and nothing of what others send. The "
        "server is honest here, and does not know who they are. No claim is made for what they do otherwise: none of "
        "these attacks tries to pass as honest."
    )
