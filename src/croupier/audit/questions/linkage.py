"""Is this the same client as before? Updates of one client, found again among those of earlier rounds.

Both this and `traits` are answered from one look at all rounds (`audit.traits.findings`); here are only the words, and
which of its measures are scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from croupier.audit.bench import Bench
from croupier.audit.question import Adversary, Arm, Promise, Question, Score, Trial
from croupier.audit.questions.traits import LINKS
from croupier.audit.seen import shows
from croupier.audit.traits.findings import Findings, findings
from croupier.audit.traits.scores import BUCKET, CENTRED, ROW
from croupier.release.bucketed import BucketSums

ATTACKS: Mapping[str, str] = {"linked": ROW, "linked-centred": CENTRED.format(ROW)}
BUCKETS: Mapping[str, str] = {"bucket": BUCKET, "bucket-centred": CENTRED.format(BUCKET)}


class Linkage(Question, use="linkage"):
    """Which update of an earlier round is the same client's?

    From: IntraShuffler section 5, stage 3.
    """

    asks: ClassVar[str] = "Is this the same client as before?"
    learns: ClassVar[str] = "which updates are one client's"
    gains: ClassVar[str] = "of 100 updates, {n} more are linked to an earlier one of their client than without looking"
    titles: ClassVar[Mapping[str, str]] = {
        "linked": "the most alike update of the nine rounds before, by values",
        "linked-centred": "the same around what is common to all clients",
        "bucket": "the most alike sum of a bucket in the nine rounds before: is the client in it?",
        "bucket-centred": "the same around what is common to all clients",
        "name": "by name: updates come with their senders'",
    }

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """One round has none before it."""
        if bench.setting.plan.rounds > 1:
            return ""
        return "federation.rounds = 1: a client is linked from one round to another; set federation.rounds to 2 or more"

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Sums of everybody have no rows, and names alone carry no update."""
        found = shows(arm.pipeline, adversary)
        if found.kind == "nothing":
            return found.why
        if found.kind == "noise":
            return "it sees who took part by name, and nothing that updates decide"
        summed = found.kind in ("sum", "counts") and not isinstance(arm.pipeline.release, BucketSums)
        return "a sum of everybody has no rows to link" if summed else ""

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On all rounds together; the prior is a candidate picked at random."""
        found = {who.key: findings(bench, arm, who) for who in adversaries}
        return lambda: {key: _trial(one()) for key, one in found.items()}


def _trial(found: Findings) -> Trial:
    measures, prior = found.measures, found.prior
    scores = {key: Score(measures[name], prior[name]) for key, name in ATTACKS.items() if name in measures}
    buckets = {key: Score(measures[name], prior[name]) for key, name in BUCKETS.items() if name in measures}
    if not scores and not buckets:
        return Trial(not_run=dict.fromkeys(ATTACKS, "it saw no client twice within ten rounds"))
    if found.named:
        scores["name"] = Score(1.0, prior[ROW])
    wanted = [name for name in measures if name.startswith(LINKS)]
    facts = {"tables": found.table("What links the rounds", wanted), "sentences": found.sentences}
    return Trial(scores or buckets, buckets if scores else {}, facts=facts)
