"""What runs of a defence came to: rates with intervals over runs, and gains against the prior run by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from croupier.audit.score import LEVEL, Rate, over_runs


@dataclass(frozen=True)
class Run:
    """One run under one defence: success of each attack by round, and what membership attacks came to at the end."""

    chance: float
    asked: int
    accuracy: Mapping[int, float]
    bytes: float
    hits: Mapping[str, Mapping[int, float]]
    areas: Mapping[str, float]
    caught: Mapping[str, float]


@dataclass(frozen=True)
class Member:
    """Membership inference on the joint model of the last round: the area under the curve, against the prior's."""

    auc: Rate
    prior: Rate
    leak: Rate
    caught: Rate


@dataclass(frozen=True)
class Outcome:
    """One defence in all runs: how good the model is, what it costs, and how each attack does.

    `success` is by round, `overall` the mean over rounds; a single round is never shown alone. `gains` is, run by run,
    success minus the prior: the two share their records, so the difference is sharper than either. `asked` is the
    fewest and the most records of a client that a run asked about.
    """

    name: str
    chance: float
    asked: tuple[int, int]
    accuracy: Mapping[int, Rate]
    bytes_per_client: float
    success: Mapping[str, Mapping[int, Rate]]
    overall: Mapping[str, Rate]
    gains: Mapping[str, Sequence[float]]
    membership: Mapping[str, Member]

    def leak(self, attack: str, doubt: float = 1 - LEVEL) -> Rate:
        """What the view adds to the prior."""
        return over_runs(self.gains[attack], doubt)

    def best(self, attack: str) -> tuple[int, Rate]:
        """The round in which an attack did best: it overstates."""
        return max(self.success[attack].items(), key=lambda item: item[1].rate)


def outcome(name: str, runs: Sequence[Run]) -> Outcome:
    """All runs of a defence together."""
    attacks, first = runs[0].hits, runs[0]
    return Outcome(
        name,
        first.chance,
        (min(run.asked for run in runs), max(run.asked for run in runs)),
        {r: over_runs([run.accuracy[r] for run in runs]) for r in first.accuracy},
        sum(run.bytes for run in runs) / len(runs),
        {a: {r: over_runs([run.hits[a][r] for run in runs]) for r in attacks[a]} for a in attacks},
        {a: over_runs([_mean(run, a) for run in runs]) for a in attacks},
        {a: [_mean(run, a) - _mean(run, "prior") for run in runs] for a in attacks},
        {a: _member(a, runs) for a in first.areas if a != "prior"},
    )


def _member(attack: str, runs: Sequence[Run]) -> Member:
    return Member(
        over_runs([run.areas[attack] for run in runs]),
        over_runs([run.areas["prior"] for run in runs]),
        over_runs([run.areas[attack] - run.areas["prior"] for run in runs]),
        over_runs([run.caught[attack] for run in runs]),
    )


def _mean(run: Run, attack: str) -> float:
    return sum(run.hits[attack].values()) / len(run.hits[attack])
