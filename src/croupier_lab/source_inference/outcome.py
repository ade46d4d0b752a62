"""What runs of a defence came to: rates with intervals over runs, and gains against the prior run by run.

A single run or round says little, and the best round overstates, so a `SourceOutcome` joins all runs of a defence.
`experiment.run` gives these values, and `table.rows` makes rows of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from croupier.core.intervals import LEVEL, Rate, gain, over_runs, share, smooth


@dataclass(frozen=True)
class SourceRun:
    """One run under one defence: success of each attack by round, and what membership attacks came to at the end.

    `unsuited` are attacks that were not run in some round, each with the reason; `carried` is what the prior was made
    of in the last round. `accuracy` is whatever `measure` names: of quantities it is the root mean squared error.
    """

    chance: float
    asked: int
    accuracy: Mapping[int, float]
    bytes: float
    hits: Mapping[str, Mapping[int, float]]
    areas: Mapping[str, float]
    caught: Mapping[str, float]
    unsuited: Mapping[str, str] = field(default_factory=dict)
    carried: str = ""
    measure: str = "accuracy"


@dataclass(frozen=True)
class MembershipOutcome:
    """Membership inference on the joint model of the last round: the area under the curve, against the prior's.

    `caught` is the share of members told at one per cent of false alarms.
    """

    auc: Rate
    prior: Rate
    leak: Rate
    caught: Rate


@dataclass(frozen=True)
class SourceOutcome:
    """One defence in all runs: how good the model is, what it costs, and how each attack does.

    `success` is by round, `overall` the mean over rounds. `gains` is, run by run,
    success minus the prior: the two share their records, so the difference is sharper than either. `asked` is the
    fewest and the most records of a client that a run asked about. `carried` is what the prior was made of, run by run.
    """

    name: str
    chance: float
    asked: tuple[int, int]
    accuracy: Mapping[int, Rate]
    bytes_per_client: float
    success: Mapping[str, Mapping[int, Rate]]
    overall: Mapping[str, Rate]
    gains: Mapping[str, Sequence[float]]
    membership: Mapping[str, MembershipOutcome]
    unsuited: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[str, ...] = ()
    measure: str = "accuracy"

    def leak(self, attack: str, doubt: float = 1 - LEVEL) -> Rate:
        """What the view adds to the prior."""
        return gain(self.gains[attack], doubt)

    def best(self, attack: str) -> tuple[int, Rate]:
        """The round in which an attack did best, and its rate there; a best round overstates."""
        return max(self.success[attack].items(), key=lambda item: item[1].rate)


def outcome(name: str, runs: Sequence[SourceRun]) -> SourceOutcome:
    """Join all runs of a defence."""
    first = runs[0]
    unsuited = {name: why for run in runs for name, why in run.unsuited.items()}
    # An attack that was not run everywhere is left out: a mean over the rest would be of another setting.
    attacks = {name: by for name, by in first.hits.items() if name not in unsuited}
    return SourceOutcome(
        name,
        first.chance,
        (min(run.asked for run in runs), max(run.asked for run in runs)),
        # An error is no share, and has no upper end.
        {
            r: (smooth if first.measure == "accuracy" else over_runs)([run.accuracy[r] for run in runs])
            for r in first.accuracy
        },
        sum(run.bytes for run in runs) / len(runs),
        {a: {r: share([run.hits[a][r] for run in runs]) for r in attacks[a]} for a in attacks},
        {a: share([_mean(run, a) for run in runs]) for a in attacks},
        {a: [_mean(run, a) - _mean(run, "prior") for run in runs] for a in attacks},
        {a: _member(a, runs) for a in first.areas if a != "prior"},
        unsuited,
        tuple(run.carried for run in runs),
        first.measure,
    )


def _member(attack: str, runs: Sequence[SourceRun]) -> MembershipOutcome:
    return MembershipOutcome(
        share([run.areas[attack] for run in runs]),
        share([run.areas["prior"] for run in runs]),
        gain([run.areas[attack] - run.areas["prior"] for run in runs]),
        share([run.caught[attack] for run in runs]),
    )


def _mean(run: SourceRun, attack: str) -> float:
    return sum(run.hits[attack].values()) / len(run.hits[attack])
