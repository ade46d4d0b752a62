"""Can hidden coordinates be put back in order? Asked of a server's views where clients permute what they send.

Asked of protocols whose clients hide coordinates (Tazza). A `Variant` plays the protocol: uploads, rules and views come
from the real loop and the real agreement. Attacks run in a process of their own (`audit.attacks.permutation`); only
here their guesses meet the rules, and `audit.permutation_report` shows them over runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks.permutation import Followed, rule_of
from croupier.audit.bench import Bench
from croupier.audit.blind import Panel
from croupier.audit.permutation_report import over_all_runs
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.question import Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.seen import shows
from croupier.audit.setting import Depth
from croupier.core.coins import Coins
from croupier.core.intervals import Rate
from croupier.core.revive import plain, revived
from croupier.errors import SpecError
from croupier.learn.axes.matching import after, shares
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


def onlooker(run: PermutedRun) -> Coins:
    """The attacks' own, and those of what is drawn for them; attacks are given single nodes of it."""
    encode = run.pipeline.encode.plain()
    return Coins.from_seed(run.ground.seed).child("onlooker", str(sorted(encode.items())))


@dataclass(frozen=True)
class Variant:
    """A variant of the protocol, the description's `own` or its control."""

    run: PermutedRun
    depth: Depth
    panel: Panel
    own: bool = True

    @property
    def kept(self) -> bool:
        """Whether one rule serves the whole epoch."""
        return self.run.pipeline.encode.keeps_rule

    def play(self) -> Callable[[], dict[str, Any]]:
        """Train, and ask for the orders of its rounds; as plain values, scored, once the attack has answered."""
        run = self.run
        # Under one rule all rounds look alike: two of them say it.
        done = run.played(min(self.depth.rounds, 2 if self.kept else 99))
        asked = {
            "rounds": plain(tuple(run.seen(done))), "most": self.depth.uploads,
            "coins": onlooker(run).child("follow").export(),
        }  # fmt: skip
        answer = self.panel.ask(TOPIC, {"symmetry": plain(run.symmetry)}, asked)
        told = {"first": run.first, "kept": self.kept, "own": self.own, "rounds": len(done)}
        return lambda: {**told, "groups": scored(revived(Followed, answer.result()), run)}


def scored(track: Followed, run: PermutedRun) -> list[dict[str, Any]]:
    """The share of each group's places that were recovered, absolutely and from the order of the first model.

    Of guesses that needed matching, where any did. Each is a mean over uploads; `least` is the worst upload's.
    """
    base = run.truth(track.base)
    guesses = [guess for guess in track.guesses if guess.matched] or list(track.guesses)
    truths = {guess.frame: run.truth(guess.frame) for guess in guesses}
    absolute = [shares(rule_of(guess.places), truths[guess.frame]) for guess in guesses]
    relative = [shares(after(base, rule_of(guess.places)), truths[guess.frame]) for guess in guesses]
    return [
        {"group": group, "size": size, "uploads": len(guesses), "absolute": fmean(one[group] for one in absolute),
         "relative": fmean(one[group] for one in relative), "least": min(one[group] for one in relative)}
        for group, size in run.symmetry.groups.items()
    ]  # fmt: skip


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
        """The protocol and its control."""
        accounts = bench.once(("orders", arm.key), lambda: [one.play() for one in _variants(bench, arm)])

        def trials() -> Mapping[str, QuestionRun]:
            found = {"orders": [account() for account in accounts]}
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
    setting = bench.chosen(arm)
    ground = bench.once(("ground", setting), lambda: Ground(setting, bench.seed))
    return PermutedRun(ground, pipeline, bench.drive)


def _variants(bench: Bench, arm: Arm) -> list[Variant]:
    depth, every = bench.setting.depth, with_control(arm.pipeline)
    return [Variant(_run(bench, arm, one), depth, bench.panel, number == 0) for number, one in enumerate(every)]


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
