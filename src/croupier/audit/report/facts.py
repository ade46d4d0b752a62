"""The findings read once, so that what is missing is missing in one place only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.audit.report.words import Rate, number

PRIOR = "prior"


@dataclass(frozen=True)
class Moment:
    """A rate in one round."""

    round: int
    rate: Rate


@dataclass(frozen=True)
class Attack:
    """One attack on one defence, or the prior that it is measured against; `carried` is what a prior is made of."""

    title: str
    rate: Rate | None
    leak: Rate | None
    best: Moment | None
    rounds: tuple[Moment, ...]
    control: Rate | None
    passed: bool | None
    scored: bool
    prior: float | None
    # Why it was not run, where it was not.
    not_run: str = ""
    carried: str = ""


@dataclass(frozen=True)
class Membership:
    """One membership attack: its AUC, what that adds to the prior's, and true positives at 1 % false ones."""

    title: str
    auc: Rate | None
    leak: Rate | None
    hits: Rate | None


@dataclass(frozen=True)
class Row:
    """One defence."""

    name: str
    learns: str
    leaks: str
    sentence: str
    accuracy: Rate | None
    rounds: tuple[Moment, ...]
    sent: float | None
    prior: Attack | None
    attacks: tuple[Attack, ...]
    membership: tuple[Membership, ...]
    chance: float | None

    @property
    def ran(self) -> tuple[Attack, ...]:
        """The attacks without those that need another network or other records."""
        return tuple(attack for attack in self.attacks if not attack.not_run)

    @property
    def strongest(self) -> Attack | None:
        """The scored attack with the highest mean success."""
        able = [attack for attack in self.attacks if attack.scored and attack.rate]
        return max(able, key=lambda attack: attack.rate.rate if attack.rate else 0.0, default=None)


def rows(findings: Mapping[str, Any]) -> list[Row]:
    """Every defence of the findings."""
    chance = number(findings.get("chance"))
    return [_row(part(row), chance) for row in findings.get("rows") or ()]


def part(value: object) -> Mapping[str, Any]:
    """A mapping, empty where there is none."""
    return value if isinstance(value, Mapping) else {}


def several(value: object) -> Sequence[Any]:
    """A sequence, empty where there is none."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text(value: object) -> str:
    """A text, empty where there is none."""
    return "" if value is None else str(value)


def rate(value: object, key: str = "rate", low: str = "low", high: str = "high") -> Rate | None:
    """A rate with its interval, or None."""
    found = part(value)
    middle = number(found.get(key))
    return None if middle is None else Rate(middle, number(found.get(low)), number(found.get(high)))


def _row(row: Mapping[str, Any], chance: float | None) -> Row:
    attacks = {str(key): _attack(str(key), part(value)) for key, value in part(row.get("attacks")).items()}
    verdict = part(row.get("verdict"))
    chances = [number(part(value).get("chance")) for value in part(row.get("attacks")).values()]
    return Row(
        name=text(row.get("defence")) or "unnamed",
        learns=text(row.get("server_learns")),
        leaks=text(verdict.get("leaks")),
        sentence=text(verdict.get("sentence")),
        accuracy=rate(row, "accuracy", "accuracy_low", "accuracy_high"),
        rounds=_moments(row.get("accuracy_by_round")),
        sent=number(row.get("bytes_per_client")),
        prior=attacks.pop(PRIOR, None),
        attacks=tuple(attacks.values()),
        membership=tuple(_member(str(key), part(value)) for key, value in part(row.get("membership")).items()),
        chance=next((known for known in chances if known is not None), chance),
    )


def _attack(key: str, value: Mapping[str, Any]) -> Attack:
    passed = part(value.get("control")).get("passed")
    # An attack that says nothing of its control is scored; one that failed it never is.
    scored = value.get("scored")
    return Attack(
        title=text(value.get("title")) or key,
        rate=rate(value),
        leak=rate(value.get("leak")),
        best=_moment(part(value.get("best_round"))),
        rounds=_moments(value.get("by_round")),
        control=rate(value.get("control")),
        passed=None if passed is None else bool(passed),
        scored=passed is not False if scored is None else bool(scored),
        prior=number(value.get("prior")),
        not_run=text(value.get("not_run")),
        carried=text(value.get("carried")),
    )


def _member(key: str, value: Mapping[str, Any]) -> Membership:
    title = text(value.get("title")) or key
    return Membership(title, rate(value), rate(value.get("leak")), rate(value.get("tpr_at_1_percent_fpr")))


def _moments(value: object) -> tuple[Moment, ...]:
    found = [_moment(part(moment)) for moment in several(value)]
    return tuple(sorted((moment for moment in found if moment), key=lambda moment: moment.round))


def _moment(value: Mapping[str, Any]) -> Moment | None:
    when, what = number(value.get("round")), rate(value)
    return None if when is None or what is None else Moment(int(when), what)
