"""The questions `traits` and `linkage`: what is a client like, and is it the same client as before?

Both read what `audit.traits.findings` finds in all rounds together, so that its attack runs once for the two of them.
`audit.harness` plays them for `croupier audit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from croupier.audit.bench import Bench
from croupier.audit.question import NO_ROWS, UNSEEN, Adversary, Arm, Promise, Question, QuestionRun, Score
from croupier.audit.seen import shows
from croupier.audit.traits.findings import Findings, auxiliary, findings, tiered_case
from croupier.audit.traits.scores import BUCKET, CENTRED, RIGHT, ROW
from croupier.errors import SpecError

# How the names of measures of links begin.
LINKS = "linked"
ATTACKS: Mapping[str, str] = {"linked": ROW, "linked-centred": CENTRED.format(ROW)}
BUCKETS: Mapping[str, str] = {"bucket": BUCKET, "bucket-centred": CENTRED.format(BUCKET)}


class _AllRounds(Question):
    scored: ClassVar[Callable[[Findings], QuestionRun]]

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On all rounds together, for both questions at once."""
        found, score = {who.key: findings(bench, arm, who) for who in adversaries}, type(self).scored
        return lambda: {key: score(one()) for key, one in found.items()}


def _described(found: Findings) -> QuestionRun:
    """The score of each attribute of clients, as means over rounds and clients."""
    measures, prior = found.measures, found.prior
    named = {key: RIGHT.format(key) for key in found.attributes}
    if not measures:
        return QuestionRun(not_run=dict.fromkeys(named or ("dominant",), UNSEEN))
    scores = {key: Score(measures[name], prior[name]) for key, name in named.items()}
    wanted = [name for name in measures if not name.startswith(LINKS)]
    tables = found.table("What updates tell of clients", wanted)
    return QuestionRun(scores, facts={"tables": tables, "sentences": found.sentences})


def _linked(found: Findings) -> QuestionRun:
    """The scores of links; their prior is a candidate picked at random."""
    measures, prior = found.measures, found.prior
    scores = {key: Score(measures[name], prior[name]) for key, name in ATTACKS.items() if name in measures}
    buckets = {key: Score(measures[name], prior[name]) for key, name in BUCKETS.items() if name in measures}
    if not scores and not buckets:
        return QuestionRun(not_run=dict.fromkeys(ATTACKS, "it saw no client twice within ten rounds"))
    if found.named:
        scores["name"] = Score(1.0, prior[ROW])
    wanted = [name for name in measures if name.startswith(LINKS)]
    facts = {"tables": found.table("What links the rounds", wanted), "sentences": found.sentences}
    return QuestionRun(scores or buckets, buckets if scores else {}, facts=facts)


class Traits(_AllRounds, use="traits"):
    """What is a client like: when and how much it uses electricity, or which class most of its records have?

    The attack has the first two stages of that in IntraShuffler's section 5.
    """

    asks: ClassVar[str] = "What is this client like?"
    learns: ClassVar[str] = "what clients are like"
    gains: ClassVar[str] = "of 100 clients, {n} more are described right than without looking"
    titles: ClassVar[Mapping[str, str]] = {
        "day": "day- or night-active, by a classifier that auxiliary clients' updates were the lessons for",
        "evening": "its load on the evening peak, by such a classifier",
        "use": "how much electricity it uses, by such a classifier",
        "dominant": "the class most of its records have, by such a classifier",
    }

    blank: ClassVar = ("nothing", "noise")
    scored: ClassVar = _described

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked: no attribute of clients is known, or there is nobody to learn it from."""
        if all(tiered_case(bench, arm, who) for who in bench.adversaries(arm)):
            return ""
        found = auxiliary(bench, arm)
        return str(found) if isinstance(found, SpecError) else ""


class Linkage(_AllRounds, use="linkage"):
    """Which update of an earlier round is the same client's?

    The attack is the third stage of that in IntraShuffler's section 5.
    """

    asks: ClassVar[str] = "Is this the same client as before?"
    learns: ClassVar[str] = "which updates are one client's"
    gains: ClassVar[str] = "of 100 updates, {n} more are linked to an earlier one of their client than without looking"
    titles: ClassVar[Mapping[str, str]] = {
        "linked": "the most alike update of the rounds before (nine at most), by values",
        "linked-centred": "the same around what is common to all clients",
        "bucket": "the most alike sum of a bucket in the rounds before (nine at most): is the client in it?",
        "bucket-centred": "the same around what is common to all clients",
        "name": "by name: updates come with their senders'",
    }
    scored: ClassVar = _linked

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Why it cannot be asked: there is one round alone, with none before it."""
        if bench.setting.plan.rounds > 1:
            return ""
        return "federation.rounds = 1: a client is linked from one round to another; set federation.rounds to 2 or more"

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Why there is nothing to link: only sums of everybody are seen, or names without updates."""
        kind, release = shows(arm.pipeline, adversary).kind, arm.pipeline.release
        if kind == "noise":
            return "it sees who took part by name, and nothing that updates decide"
        if kind in ("sum", "counts") and not (release.tiered and release.grouped):
            return NO_ROWS
        return super().unseen(bench, arm, adversary)
