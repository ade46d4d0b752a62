"""The questions `source` and `membership`: whose record is it, and was it trained on at all?

Both are asked of one view at a time. The attacks (`audit.attacks.source`, `audit.membership`) run once for the two of
them, in a process of their own, and are scored here. `audit.harness` plays the questions for `croupier audit`;
`audit.recorded.audited` mounts the same attacks on recorded updates, and in the laboratory
`source_inference/experiment`, `bench/leakage/disaggregation` and `bench/leakage/false_alarms` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from croupier.audit import membership
from croupier.audit.attacks import source
from croupier.audit.bench import Answered, Bench
from croupier.audit.blind import Panel
from croupier.audit.knowledge import Knowledge
from croupier.audit.question import SERVER, UNSEEN, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.seen import Kind, shows
from croupier.audit.stage import Truth
from croupier.core.coins import Coins

# Attacks on the source of records that fit what an adversary sees; the last one uses all that there is.
ATTACKS: Mapping[Kind, tuple[str, ...]] = {
    "named": ("named", "named+prior"),
    "noise": ("named", "named+prior"),
    "model": ("algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior"),
    "layer": ("algorithm3", "algorithm3-loss", "algorithm3-matched", "algorithm3+prior"),
    "parameter": ("algorithm5", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior"),
    "sum": ("tuned", "tuned+prior"),
    "counts": ("tuned", "tuned+prior", "carries", "carries+prior"),
}
# The same for attacks on membership.
MEMBERSHIP: Mapping[Kind, tuple[str, ...]] = dict.fromkeys(ATTACKS, ("loss", "lira", "spans", "gradients")) | {
    **dict.fromkeys(("named", "noise", "model"), ("loss", "rows", "lira", "gradients", "row-gradients", "spans")),
    "layer": ("loss", "lira", "gradients", "spans"),
}


@dataclass(frozen=True)
class AttackedRound:
    """One round: the truth about the records asked about, and what the prior and the attacks answer."""

    number: int
    present: tuple[str, ...]
    truth: Truth
    prior: Answered
    answer: Answered

    def answers(self, part: str) -> dict[str, Tensor]:
        """By attack, the prior among them: its `guesses` of records' clients, or its `scores` of suspects."""
        return {**self.prior.result()[part], **self.answer.result()[part]}


@dataclass(frozen=True)
class Attacked:
    """What the attacks of one adversary come to: `attacks` on the source of records, `suspects` on membership."""

    rounds: tuple[AttackedRound, ...]
    attacks: tuple[str, ...]
    suspects: tuple[str, ...]

    @property
    def last(self) -> AttackedRound:
        """The last round, whose model has learnt most of its members."""
        return self.rounds[-1]

    @property
    def chance(self) -> float:
        """How often a client is guessed by chance: as many records of each are asked about."""
        return max(1 / len(one.present) for one in self.rounds)

    def unsuited(self) -> dict[str, str]:
        """Attacks that were not run in some round, with the reason."""
        return {name: why for one in self.rounds for name, why in one.answer.result()["unsuited"].items()}

    def hits(self, who: str = "") -> dict[str, dict[int, float]]:
        """By attack and round, the share of records, or of one client's, whose client is guessed."""
        found: dict[str, dict[int, float]] = {}
        for one in [one for one in self.rounds if not who or who in one.present]:
            owners = one.truth.owners
            asked = owners == one.present.index(who) if who else owners >= 0
            for name, guesses in one.answers("guesses").items():
                found.setdefault(name, {})[one.number + 1] = float((guesses == owners)[asked].double().mean())
        return found

    def members(self, measure: Callable[[Tensor, Tensor], float], who: str = "") -> dict[str, float]:
        """By attack, a measure of how members' scores, or one client's, lie above the others' in the last round."""
        truth, scores = self.last.truth, self.last.answers("scores")
        some = truth.whose == self.last.present.index(who) if who and truth.whose is not None else truth.members >= 0
        inside, outside = truth.members & some, ~truth.members & some
        return {name: measure(score[inside], score[outside]) for name, score in scores.items()}


def attack(
    bench: Bench, arm: Arm, adversary: Adversary, attacks: Sequence[str], suspects: Sequence[str],
    control: Sequence[str] = (),
) -> Attacked:  # fmt: skip
    """Mount attacks on an adversary's views of every round.

    Those in `control` are mounted on the first round as well. Attacks on membership (`suspects`) look at the last round
    alone: its model is the one that membership is scored on.
    """
    stage, played, noise = bench.stage(arm), bench.played(arm), bench.chosen(arm).noise
    node = stage.coins.child("attack", arm.node or arm.key)
    if adversary != SERVER:
        node = node.child("adversary", adversary.key)
    views, found = played.shown_to(adversary), list[AttackedRound]()
    for at, view in views.items():
        done = played.rounds[at]
        knowledge, truth = stage.about(done.present, noise)
        mounted = SourceAttacks(bench.panel, knowledge, stage.coins, done.present)
        # Once for all who took part together.
        key = ("prior", stage.setting, noise, done.present)
        prior = bench.once(key, partial(mounted.prior, bench.membership))
        asked = {"views": view, "start": played.starts[at], "protocol": arm.pipeline.plain()}
        tried = (*attacks, *(control if not found else ()))
        answer = mounted.on_view(asked, tried, suspects if at == max(views) else (), node.child(done.number))
        found.append(AttackedRound(done.number, done.present, truth, prior, answer))
    return Attacked(tuple(found), tuple(attacks), tuple(suspects))


@dataclass(frozen=True)
class SourceAttacks:
    """Attacks on the clients of one round: what is known of them, and the processes that mount the attacks."""

    panel: Panel
    knowledge: Knowledge
    coins: Coins
    present: tuple[str, ...]

    def prior(self, membership: bool) -> Answered:
        """What knowledge answers without a view."""
        nothing: dict[str, Any] = {"views": {}, "start": None, "protocol": {}}
        return self.on_view(nothing, ("prior",), ("prior",) * membership, self.coins.child("prior", *self.present))

    def on_view(
        self, view: Mapping[str, Any], source: Sequence[str], suspects: Sequence[str], coins: Coins
    ) -> Answered:
        """What attacks on the source of records, and on membership, answer to a view."""
        known = {"knowledge": self.knowledge.plain(), "quiet": self.coins.child("study", *self.present).export()}
        asked = {**view, "source": tuple(source), "membership": tuple(suspects), "coins": coins.export()}
        return self.panel.ask("source", known, asked)


def _attacked(bench: Bench, arm: Arm, adversary: Adversary) -> Attacked:
    """What the attacks of one adversary answer, for both questions at once.

    On undefended updates all other attacks are mounted as well, to see whether they work there.
    """
    kind = shows(arm.pipeline, adversary).kind
    control: list[str] = []
    if arm == bench.undefended and adversary == SERVER:
        every = {shows(other.pipeline, who).kind for other in bench.arms for who in bench.adversaries(other)}
        known = {*ATTACKS[kind], *source.ON_COUNTS}
        control = [name for each in ATTACKS if each in every for name in ATTACKS[each] if name not in known]
    return bench.once(
        ("attacked", adversary.key),
        lambda: attack(bench, arm, adversary, ATTACKS[kind], MEMBERSHIP[kind], list(dict.fromkeys(control))),
        arm,
    )


class _OneView(Question):
    scored: ClassVar[Callable[[Attacked], QuestionRun]]

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked: records overlap, or a round has one client, whom nobody could be taken for."""
        alone = (bench.setting.plan.cohort or len(bench.stage(arm).task.enrolled)) < 2
        return "one client takes part in a round: there is no other" if alone else bench.stage(arm).unaskable

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """Attack every round, for both questions at once."""
        attacked, score = {who.key: _attacked(bench, arm, who) for who in adversaries}, type(self).scored
        return lambda: {key: score(one) for key, one in attacked.items()}


def traced(found: Attacked, who: str = "") -> QuestionRun:
    """What attacks on the source of records, or of one client's, come to: means over rounds, the prior's beside."""
    if not found.rounds:
        return QuestionRun(not_run=dict.fromkeys(found.attacks, UNSEEN))
    hits, unsuited, chance = found.hits(who), found.unsuited(), found.chance
    mean = {name: sum(by.values()) / len(by) for name, by in hits.items()}
    first = next(iter(hits["prior"].values()))
    asked = [name for name in found.attacks if name not in unsuited]
    scores = {name: Score(mean[name], mean["prior"], hits[name], chance) for name in asked}
    others = [name for name in mean if name not in (*found.attacks, "prior")]
    controls = {name: Score(mean[name], first, bar=chance) for name in others}
    not_run = {name: why for name, why in unsuited.items() if name in found.attacks}
    return QuestionRun(scores, controls, not_run, {"prior_made_of": found.last.prior.result()["carried"]})


def told_apart(found: Attacked, who: str = "") -> QuestionRun:
    """What attacks on membership, of all or of one client, come to on the last round: areas under the ROC curve.

    The prior is what tells members without a view; where that misleads, a guess at random needs no view either.
    """
    if not found.rounds:
        return QuestionRun(not_run=dict.fromkeys(found.suspects, UNSEEN))
    areas, unsuited = found.members(membership.area, who), found.unsuited()
    not_run = {name: unsuited[name] for name in found.suspects if name in unsuited}
    prior = max(0.5, areas["prior"])
    scores = {name: Score(areas[name], prior) for name in found.suspects if name not in unsuited}
    return QuestionRun(scores, {}, not_run, {"tpr_at_1_percent_fpr": found.members(membership.caught, who)})


class Source(_OneView, use="source"):
    """Which of the clients holds a record that was trained on?"""

    asks: ClassVar[str] = "Whose record is it?"
    learns: ClassVar[str] = "whose record it is"
    gains: ClassVar[str] = "of 100 records, {n} more are traced to their client than without looking"
    titles: ClassVar[Mapping[str, str]] = source.TITLES
    scored: ClassVar = traced


class Membership(_OneView, use="membership"):
    """Was a record trained on at all?"""

    asks: ClassVar[str] = "Was this record trained on?"
    learns: ClassVar[str] = "whether a record was trained on"
    gains: ClassVar[str] = (
        "of 100 pairs of a trained and an untrained record, {n} more are told apart than without looking"
    )
    titles: ClassVar[Mapping[str, str]] = membership.TITLES
    scored: ClassVar = told_apart
