"""The question `carries`: does a view tell more than the sum, by counts of bits or by an opened sum of weighted rows?

Some releases let out more numbers than a plain sum: counts of ones in residues, or a sum whose weights can be known.
This question says in bits how much more they tell. The attack is `audit.attacks.carries`, in a process of its own.
`audit.harness` plays the question for `croupier audit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from croupier.aggregate.mean import Scaled
from croupier.audit.bench import Answered, Bench
from croupier.audit.question import SERVER, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.questions.separation import known
from croupier.audit.seen import Views, shows
from croupier.encode.residues import Residues
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.opened_sums import row_leakage, sum_leakage
from croupier.release.release import Release

NO_COUNTS = "no counts of ones are shown, and no sum of weighted rows"
# What is shown beside, by attack: keys of its answer, and what they are called.
HEADS: Mapping[str, Mapping[str, str]] = {
    "counts": {"clients": "clients", "moduli": "moduli"},
    "opened": {"rows": "rows that count", "unique_columns": "share of parameters of which every row is open"},
}
# So many rows has the planted sum of the control, in which every row has a weight of its own.
ROWS = 8


class Carries(Question, use="carries"):
    """Bits a parameter beyond the sum: of counts of ones in residues, and of weights that are known."""

    asks: ClassVar[str] = "Do counts of bits tell more than the sum?"
    learns: ClassVar[str] = "more than the sum from counted bits"
    gains: ClassVar[str] = "the view tells up to {n} a parameter more than the sum"
    unit: ClassVar = "bits"
    titles: ClassVar[Mapping[str, str]] = {
        "counts": "carries of counted ones, given the sum (plug-in entropy, an upper bound)",
        "opened": "the row whose weight in the opened sum tells most of it, against a plain sum (exact)",
    }
    seeds: ClassVar[int] = 8

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked: the release shows neither counts of ones nor a sum of weighted rows."""
        release = arm.pipeline.release
        if arm == bench.undefended or release.counts_ones or release.weighs:
            return ""
        if release.shape != "scored":
            return NO_COUNTS
        if release.signs_only:
            return "of the weighted sum only signs are opened, from which no weight follows"
        return "all rows that count have the same weight, so that what is opened is a plain sum"

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Why this adversary has nothing to attack with: only who is shown the release can be asked."""
        if arm == bench.undefended or adversary == SERVER:
            return "" if adversary == SERVER else NO_COUNTS
        found = shows(arm.pipeline, adversary)
        if found.kind == "counts":
            return ""
        return found.why or f"it is not shown what the server is: it sees {'a sum' if found.kind == 'sum' else 'rows'}"

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On every round's counts, or the opened sum of a first round; where nothing defends, on planted controls."""
        if arm == bench.undefended:
            clients = max(2, *(len(done.present) for done in bench.played(arm).rounds))
            encode, release = Residues(clients=clients), Release.parse("counts")
            counting = Pipeline(encode=encode, release=release, aggregate=Scaled(), place=Relay())
            control = _elsewhere(bench, arm, counting, "counts")
            return lambda: {
                SERVER.key: QuestionRun({}, _controls(control.result()), dict.fromkeys(self.titles, NO_COUNTS))
            }
        answers = {one.key: _asked(bench, arm, one) for one in adversaries}
        return lambda: {key: _trial(*found) for key, found in answers.items()}


def _asked(bench: Bench, arm: Arm, adversary: Adversary) -> tuple[str, dict[int, Answered]]:
    played = bench.played(arm)
    if arm.pipeline.release.shape == "scored":
        # The same distances as two servers open, as whoever computes the release in the clear lets them out.
        clear = arm.pipeline.model_copy(update={"place": Relay()})
        return "opened", {1: _elsewhere(bench, arm, clear, "opened")}
    return "counts", {
        done.number + 1: _ask(bench, arm, arm.pipeline, "counts", played.seen_by(adversary, at), done.number)
        for at, done in enumerate(played.rounds)
    }


def _ask(bench: Bench, arm: Arm, pipeline: Pipeline, attack: str, views: Views, number: int) -> Answered:
    node = bench.coins.child("carries", arm.node or arm.key, number)
    asked = {"views": views, "protocol": pipeline.plain(), "attack": attack, "coins": node.export()}
    return bench.panel.ask("carries", known(bench.stage(arm).task.layout), asked)


def _trial(attack: str, answers: Mapping[int, Answered]) -> QuestionRun:
    found = {number: one.result() for number, one in answers.items()}
    if unsuited := [one["unsuited"] for one in found.values() if one["unsuited"]]:
        return QuestionRun(not_run={attack: unsuited[0]})
    mean = {key: sum(one[key] for one in found.values()) / len(found) for key in ("bits", "plain")}
    score = Score(mean["bits"], mean["plain"], {number: one["bits"] for number, one in found.items()})
    first = next(iter(found.values()))
    shown = [", ".join(map(str, one)) if isinstance(one := first[key], tuple) else one for key in HEADS[attack]]
    table = {"title": "What is opened", "heads": list(HEADS[attack].values()), "rows": [shown]}
    return QuestionRun({attack: score}, facts={"tables": [table]})


def _controls(answer: Mapping[str, Any]) -> dict[str, Score]:
    """What attacks come to where they must find something: counts of the same updates, and rows of distinct weights."""
    exact = sum_leakage([2**at for at in range(ROWS)], 0.25).best_row.bits
    planted = {"opened": Score(exact, row_leakage([1] * ROWS, [0.75] * ROWS, 0).bits)}
    return planted | ({} if answer["unsuited"] else {"counts": Score(answer["bits"], answer["plain"])})


def _elsewhere(bench: Bench, arm: Arm, pipeline: Pipeline, attack: str) -> Answered:
    """An attack on a server's view of the first round under another protocol; clients train the same."""
    played = bench.play(replace(arm, pipeline=pipeline), bench.stage(arm).task.fit, 1)
    return _ask(bench, arm, pipeline, attack, {"server": (played.views[0]["server"],)}, 0)
