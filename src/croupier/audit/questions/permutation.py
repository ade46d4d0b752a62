"""Can hidden coordinates be put back in order? Asked of a server's views where clients permute what they send.

Asked of protocols whose clients hide coordinates (Tazza). `audit.permutation_trial` plays and asks,
`audit.permutation_score` scores, `audit.permutation_report` and `audit.permutation_words` show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.bench import Bench
from croupier.audit.permutation_report import over_all_runs
from croupier.audit.permutation_trial import Variant, variants
from croupier.audit.permuted_run import Once, PermutedRun
from croupier.audit.question import Adversary, Arm, Promise, Question, Score, Trial
from croupier.audit.score import Rate
from croupier.audit.seen import shows
from croupier.core.attempt import Drive
from croupier.encode.hidden import HiddenUnits
from croupier.errors import SpecError
from croupier.pipeline import Pipeline


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
        if not isinstance(arm.pipeline.encode, HiddenUnits):
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
        """The description's own protocol in every variant; of others what is needed for a score."""
        accounts = bench.once(("orders", arm.key), lambda: [one.play() for one in _variants(bench, arm)])

        def trials() -> Mapping[str, Trial]:
            found = {"orders": [account.plain() for account in accounts]}
            alone = _trial(found, arm.own)
            return {
                who.key: alone if who.parties == ("server",) else _told(found, alone, who) for who in adversaries
            }  # fmt: skip

        return trials

    def facts(self, trials: Sequence[Trial]) -> dict[str, Any]:
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
    if isinstance(encode, HiddenUnits) and encode.agree == "epoch" and not setting.plan.joins:
        drive = bench.once(("agreed", setting), lambda: Once(bench.drive))
    return PermutedRun(ground, pipeline, drive)


def _variants(bench: Bench, arm: Arm) -> list[Variant]:
    every, depth = variants(arm.pipeline), bench.setting.depth
    if not arm.own:
        # The protocol itself, and its control: the same rule with the first model known.
        every = every[:2]
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


def _trial(found: Mapping[str, Any], shown: bool) -> Trial:
    """Scores of the protocol's own variant.

    Where the first model is in plain order the rule is recovered when all places are; where the clients drew it, when
    all rounds are in one order: no view is in another. The control is the same protocol with the first model known.
    """
    own = found["orders"][0]
    names = ("between", "plain") if own["first"] == "open" else ("plain", "between")
    scores = _shares(own)
    known = next((one for one in found["orders"] if one["first"] == "open" and one["kept"] == own["kept"]), own)
    facts = {"account": found} if shown else {}
    return Trial({name: scores[name] for name in names}, _shares(known), facts=facts)


def _told(found: Mapping[str, Any], alone: Trial, who: Adversary) -> Trial:
    """A server that a client helps needs no matching."""
    if not {"client", "clients"} & set(who.parties):
        return alone
    return Trial({**alone.scores, "told": Score(1.0, alone.scores["plain"].prior)}, alone.controls)
