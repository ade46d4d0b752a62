"""The question `poisoning`: what do malicious clients break in the protocol as it is, under an honest server?

Unlike the other questions it asks about damage and not about learning: a share of the clients attack the training, and
the models that honest clients would get are measured. The attacks are those of `audit.poison`, and
`audit.attacked_training` trains under them. `audit.harness` plays the question for `croupier audit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from croupier.audit.attacked_training import SeededTask, TrainingOutcome
from croupier.audit.bench import Bench
from croupier.audit.poison import FLIP, NOISE, NONE, REPLACE, TRIGGER, audit_attacks, backdoor
from croupier.audit.question import MALICIOUS, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.report.words import interval, rate_of, table
from croupier.core.intervals import Rate, over_runs
from croupier.errors import SpecError
from croupier.learn.root import Root

# What is kept of a training: fields of `TrainingOutcome`.
SHOWN = ("received", "success", "models", "lost", "accepted")
KEYS: Mapping[str, str] = {"noise": NOISE, "label-flip": FLIP, "backdoor": TRIGGER, "replacement": REPLACE}
BACKDOORS = ("backdoor", "replacement")
# Who attacks, and what it can do.
THREAT = (
    "drawn anew for each run, and work together. They choose what they train on and what they send; they see the "
    "models that they are handed and nothing of what others send. The server is honest here, and does not know who "
    "they are. No claim is made for what they do otherwise: none of these attacks tries to pass as honest."
)
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
        """Why nothing can be measured: records have no classes, or there are too few clients for a malicious one."""
        try:
            malicious = _seeded(bench, arm).malicious
        except SpecError as error:
            return str(error)
        return "" if malicious or not bench.setting.share else "there are too few clients for a malicious one"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """Train without attack and under each."""
        seeded, not_run = _seeded(bench, arm), dict[str, str]()
        made, attacks = seeded.made, audit_attacks(seeded.setting, seeded.made.dataset.shape)
        # What words stand for cannot be marked.
        mark = None if made.task.answers is None else backdoor(seeded.setting)
        bench.watch(f"seed {bench.seed}: {arm.title}: {NONE}")
        # Runs without attack say how often a mark works of itself.
        ended = {NONE: seeded.train(arm.pipeline, bench.drive, trigger=mark)}
        tried = {key: title for key, title in KEYS.items() if key in (seeded.setting.depth.poisons or KEYS)}
        for key, title in KEYS.items():
            if key not in tried:
                not_run[key] = "--fast leaves it out where the data are large"
                continue
            if mark is None and key in BACKDOORS:
                not_run[key] = "records that are no quantities cannot be marked"
                continue
            bench.watch(f"seed {bench.seed}: {arm.title}: {title}")
            try:
                ended[title] = seeded.train(arm.pipeline, bench.drive, attacks[title][0])
            except SpecError as error:
                not_run[key] = str(error)
        scores = {key: _score(ended[NONE], ended[title], key) for key, title in KEYS.items() if title in ended}
        facts = {
            "rows": [{"attack": title, **{name: getattr(one, name) for name in SHOWN}} for title, one in ended.items()],
            "malicious": len(seeded.malicious), "clients": len(made.task.enrolled),
            "attacks": {title: does for title, (_, does) in attacks.items() if title in (NONE, *tried.values())},
        }  # fmt: skip
        trial = QuestionRun(scores, not_run=not_run, facts=facts)
        return lambda: {who.key: trial for who in adversaries}

    def facts(self, trials: Sequence[QuestionRun]) -> dict[str, Any]:
        """Tables over runs."""
        return summarise([one.facts for one in trials]) if len(trials) > 1 else {}

    def words(self, gain: Rate, attack: str = "") -> str:
        """Damage in wrong answers, or the success of a planted trigger."""
        if not gain.low > 0:
            return f"no damage found; if there is any, it is at most {self.shown(gain.high)} of 100 records (95 %)"
        if attack in BACKDOORS:
            taken = f"of 100 records that carry it, {self.shown(gain.rate)} more are taken"
            return f"a hidden trigger can be planted; {taken} for the class that the attackers want"
        return self.gains.format(n=self.shown(gain.rate))


def _seeded(bench: Bench, arm: Arm) -> SeededTask:
    """The task for all arms alike: records that one arm's server needs for itself are kept back in all."""
    setting = bench.chosen(arm)
    rules = [one.pipeline.aggregate for one in bench.arms]
    if not setting.root.records and any({"answers", "root"} & rule.asks for rule in rules):
        setting = replace(setting, root=Root(records=100))
    return bench.once(("attacked", setting), lambda: SeededTask(setting, bench.seed))


def _score(quiet: TrainingOutcome, hit: TrainingOutcome, key: str) -> Score:
    """Wrong answers with and without the attack; for a backdoor, how often its trigger works."""
    if key in BACKDOORS:
        return Score(hit.success or 0.0, quiet.success or 0.0)
    return Score(1 - hit.received, 1 - quiet.received)


def summarise(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of every run's facts: sentences and a table, and the `numbers` behind them."""
    first, taken = found[0], Counter[str]()
    for row in (row for one in found for row in one["rows"]):
        taken[row["attack"]] += row["accepted"]
    rows = [
        {"attack": lines[0]["attack"], **{name: rate_of([line[name] for line in lines]) for name in SHOWN[:2]},
         "models": rate_of([line["models"] for line in lines], over_runs),
         "lost": [line["lost"] for line in lines if line["lost"]]}
        for lines in zip(*(one["rows"] for one in found), strict=True)
    ]  # fmt: skip
    heads = ("Attack", "Accuracy received, %", "Backdoor success, %", "Models")
    shown = [
        (row["attack"], *(interval(row[name], 100) for name in SHOWN[:2]), f"{row['models']['rate']:.1f}")
        for row in rows
    ]  # fmt: skip
    return {
        "sentences": [
            f"{first['malicious']} of {first['clients']} clients are malicious, {THREAT}",
            *(f"{title.capitalize()}: {does}." for title, does in first["attacks"].items() if title != NONE),
            *dict.fromkeys(f"{row['attack']}: {why}" for row in rows for why in row["lost"]),
            # What is never averaged breaks nothing.
            *(f"{title.capitalize()}: {many} of {taken[NONE]} updates of the malicious were taken; the others were "
              "refused." for title, many in taken.items() if many < taken[NONE]),
            *NOTES,
        ],
        "tables": table("What honest clients receive", heads, shown),
        "numbers": {"rows": rows, "malicious": first["malicious"], "clients": first["clients"]},
    }  # fmt: skip
