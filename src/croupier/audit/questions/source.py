"""Whose record is it, and was it trained on at all? Two questions, asked of one view at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from croupier.audit import membership, source
from croupier.audit.bench import Answered, Bench
from croupier.audit.knowledge import Knowledge
from croupier.audit.outcome import Run
from croupier.audit.question import SERVER, Adversary, Arm, Promise, Question, Score, Trial
from croupier.audit.score import area, caught
from croupier.audit.seen import Kind, shows
from croupier.audit.stage import Stage, Truth
from croupier.core.revive import plain
from croupier.federate import Round
from croupier.release.shuffle import Grain

# By what an adversary sees: the attacks that fit, the one that uses all it has last.
ATTACKS: Mapping[Kind, tuple[str, ...]] = {
    "named": ("named", "named+prior"),
    "noise": ("named", "named+prior"),
    "model": ("algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior"),
    "layer": ("algorithm3", "algorithm3-loss", "algorithm3-matched", "algorithm3+prior"),
    "parameter": ("algorithm5", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior"),
    "sum": ("tuned", "tuned+prior"),
    "counts": ("tuned", "tuned+prior", "carries", "carries+prior"),
}
UNSHUFFLING: Mapping[Grain, tuple[str, ...]] = {
    "model": ATTACKS["model"],
    "layer": ATTACKS["layer"],
    "parameter": ATTACKS["parameter"],
}
MEMBERSHIP: Mapping[Kind, tuple[str, ...]] = dict.fromkeys(ATTACKS, ("loss", "lira")) | dict.fromkeys(
    ("named", "noise", "model"), ("loss", "rows", "lira")
)


@dataclass(frozen=True)
class Look:
    """What the attacks of one adversary answer, round by round, and what the prior answers to the same."""

    stage: Stage
    heard: tuple[tuple[Round, Truth, Answered, Answered], ...]
    attacks: tuple[str, ...]
    suspects: tuple[str, ...]

    def run(self) -> Run:
        """All of it, scored."""
        hits: dict[str, dict[int, float]] = {}
        unsuited = {name: why for _, _, _, answer in self.heard for name, why in answer.result()["unsuited"].items()}
        for done, truth, prior, answer in self.heard:
            for name, guesses in {**prior.result()["guesses"], **answer.result()["guesses"]}.items():
                rate = float((guesses == truth.owners).double().mean())
                hits.setdefault(name, {})[done.number + 1] = rate
        last, truth, prior, answer = self.heard[-1]
        scores = {**prior.result()["scores"], **answer.result()["scores"]}
        split = {name: (score[truth.members], score[~truth.members]) for name, score in scores.items()}
        sent = [done.traffic.sent[client] for done, *_ in self.heard for client in done.present]
        measure = self.stage.measure
        return Run(
            1 / len(last.present), len(truth.owners) // len(last.present),
            {done.number + 1: done.metrics[measure] for done, *_ in self.heard}, sum(sent) / len(sent), hits,
            {name: area(*pair) for name, pair in split.items()}, {name: caught(*pair) for name, pair in split.items()},
            unsuited, prior.result()["carried"], measure,
        )  # fmt: skip


def look(
    bench: Bench, arm: Arm, adversary: Adversary, attacks: Sequence[str], suspects: Sequence[str],
    control: Sequence[str] = (),
) -> Look:  # fmt: skip
    """Mount attacks on an adversary's views of every round, and `control` on the first as well."""
    stage, played, noise = bench.stage(arm), bench.played(arm), bench.chosen(arm).noise
    node = stage.coins.child("attack", arm.node or arm.key)
    if adversary != SERVER:
        node = node.child("adversary", adversary.key)
    heard: list[tuple[Round, Truth, Answered, Answered]] = []
    for at, done in enumerate(played.rounds):
        views = played.seen_by(adversary, at)
        if not all(views.values()) or (adversary.parties == ("client",) and len(*views.values()) < 2):
            # What came of the last round a client is never handed.
            continue
        knowledge, truth = stage.about(done.present, noise)
        known = _known(knowledge, stage, done)
        asked = {
            "views": views, "start": played.starts[at], "protocol": arm.pipeline.plain(),
            "source": (*attacks, *(control if not heard else ())), "membership": tuple(suspects),
            "coins": node.child(done.number).export(),
        }  # fmt: skip
        heard.append((done, truth, _prior(bench, stage, noise, done, known), bench.panel.ask("source", known, asked)))
    return Look(stage, tuple(heard), tuple(attacks), tuple(suspects))


def _known(knowledge: Knowledge, stage: Stage, done: Round) -> dict[str, object]:
    return {"knowledge": knowledge.plain(), "quiet": stage.quiet(done.present).export()}


def _prior(bench: Bench, stage: Stage, noise: object, done: Round, known: Mapping[str, object]) -> Answered:
    """What the same knowledge answers without a view: once for all who took part together."""
    asked: dict[str, object] = {
        "views": {}, "start": None, "protocol": {}, "source": ("prior",),
        "membership": ("prior",) * bench.membership,
        "coins": stage.coins.child("prior", *done.present).export(),
    }  # fmt: skip
    key = ("prior", stage.setting, noise, done.present)
    return bench.once(key, lambda: bench.panel.ask("source", known, asked))


def _looked(bench: Bench, arm: Arm, adversary: Adversary) -> Look:
    """For both questions at once."""
    kind = shows(arm.pipeline, adversary).kind
    control: list[str] = []
    if arm == bench.undefended and adversary == SERVER:
        every = {shows(other.pipeline, who).kind for other in bench.arms for who in bench.adversaries(other)}
        known = {*ATTACKS[kind], *source.ON_COUNTS}
        control = [name for each in ATTACKS if each in every for name in ATTACKS[each] if name not in known]
    return bench.once(
        ("look", arm.key, adversary.key),
        lambda: look(bench, arm, adversary, ATTACKS[kind], MEMBERSHIP[kind], list(dict.fromkeys(control))),
    )


class _OneView(Question):
    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Records of series overlap, and of one client there is nobody to tell it from."""
        alone = (bench.setting.plan.cohort or len(bench.stage(arm).task.enrolled)) < 2
        return "one client takes part in a round: there is no other" if alone else bench.stage(arm).unaskable

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Who sees nothing of updates has no view to attack."""
        found = shows(arm.pipeline, adversary)
        return found.why if found.kind == "nothing" else ""


class Source(_OneView, use="source"):
    """Which of the clients holds a record that was trained on?"""

    asks: ClassVar[str] = "Whose record is it?"
    learns: ClassVar[str] = "whose record it is"
    gains: ClassVar[str] = "of 100 records, {n} more are traced to their client than without looking"
    titles: ClassVar[Mapping[str, str]] = source.TITLES

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On every round, and the mean over rounds."""
        looks = {who.key: _looked(bench, arm, who) for who in adversaries}
        return lambda: {key: _source(one) for key, one in looks.items()}


def _source(found: Look) -> Trial:
    if not found.heard:
        return Trial(not_run=dict.fromkeys(found.attacks, "it sees nothing of a round before the next one"))
    run = found.run()
    mean = {name: sum(by.values()) / len(by) for name, by in run.hits.items()}
    scores = {name: Score(mean[name], mean["prior"], run.hits[name], run.chance) for name in mean}
    attacks = {name: scores[name] for name in found.attacks if name not in run.unsuited}
    first = next(iter(run.hits["prior"].values()))
    controls = {
        name: Score(mean[name], first, bar=run.chance) for name in mean if name not in (*found.attacks, "prior")
    }
    unsuited = {name: why for name, why in run.unsuited.items() if name in found.attacks}
    return Trial(attacks, controls, unsuited, {"run": plain(run)})


class Membership(_OneView, use="membership"):
    """Was a record trained on at all?"""

    asks: ClassVar[str] = "Was this record trained on?"
    learns: ClassVar[str] = "whether a record was trained on"
    gains: ClassVar[str] = (
        "of 100 pairs of a trained and an untrained record, {n} more are told apart than without looking"
    )
    titles: ClassVar[Mapping[str, str]] = membership.TITLES

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On the last round's model; the value is the area under the ROC curve."""
        looks = {who.key: _looked(bench, arm, who) for who in adversaries}
        return lambda: {key: _membership(one) for key, one in looks.items()}


def _membership(found: Look) -> Trial:
    if not found.heard:
        return Trial(not_run={"lira": "it sees nothing of a round before the next one"})
    run = found.run()
    scores = {name: Score(run.areas[name], run.areas["prior"]) for name in found.suspects}
    return Trial(scores, facts={"tpr_at_1_percent_fpr": dict(run.caught)})
