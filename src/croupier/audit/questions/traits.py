"""What is a client like? Traits that updates tell, beyond what is common among auxiliary clients.

The smallest question, and a good one to read first. The attack is `audit.attacks.traits`; the truth meets its answers
in `audit.traits.findings`, which `linkage` shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from croupier.audit.bench import Bench
from croupier.audit.question import Adversary, Arm, Promise, Question, Score, Trial
from croupier.audit.seen import shows
from croupier.audit.traits.findings import Findings, auxiliary, findings, tiered_case
from croupier.audit.traits.scores import RIGHT
from croupier.errors import SpecError

# How measures of links begin.
LINKS = "linked"


class Traits(Question, use="traits"):
    """What is a client like: when and how much it uses electricity, or which class most of its records have?

    From: IntraShuffler section 5, stages 1 and 2.
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

    def unfit(self, bench: Bench, arm: Arm) -> str:
        """Without an attribute, or anybody to learn it from, nothing can be asked."""
        if all(tiered_case(bench, arm, who) for who in bench.adversaries(arm)):
            return ""
        found = auxiliary(bench, arm)
        return str(found) if isinstance(found, SpecError) else ""

    def unseen(self, bench: Bench, arm: Arm, adversary: Adversary) -> str:
        """Who sees nothing of updates, or noise, has no view to attack."""
        found = shows(arm.pipeline, adversary)
        return found.why if found.kind in ("nothing", "noise") else ""

    def play(self, bench: Bench, arm: Arm, adversaries: Sequence[Adversary]) -> Promise:
        """On all rounds together; the value is the mean over rounds and clients."""
        found = {who.key: findings(bench, arm, who) for who in adversaries}
        return lambda: {key: _trial(one()) for key, one in found.items()}


def _trial(found: Findings) -> Trial:
    measures, prior = found.measures, found.prior
    named = {key: RIGHT.format(key) for key in found.attributes}
    if not measures:
        return Trial(not_run=dict.fromkeys(named or ("dominant",), "it sees nothing of a round before the next one"))
    scores = {key: Score(measures[name], prior[name]) for key, name in named.items()}
    wanted = [name for name in measures if not name.startswith(LINKS)]
    tables = found.table("What updates tell of clients", wanted)
    return Trial(scores, facts={"tables": tables, "sentences": found.sentences})
