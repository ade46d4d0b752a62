"""False accusations are counted as an audit would make them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from croupier.audit.question import QuestionRun, Score
from croupier_lab.bench.leakage import false_alarms
from croupier_lab.source_inference.table import controlled

RUNS, PRIOR, CHANCE = 4, 0.5, 0.25


def scores(names: Sequence[str], value: float) -> dict[str, Score]:
    return {name: Score(value, PRIOR, {1: value}, CHANCE) for name in names}


def played(attack: float, control: float = 0.9) -> list[list[QuestionRun]]:
    """Audits whose prior names half, whose attacks name this many, and whose control comes to that."""
    first, *others = controlled(false_alarms.defences())
    bare = QuestionRun(scores(first.attacks, control), scores(first.control, control))
    return [[bare, *(QuestionRun(scores(one.attacks, attack)) for one in others)] for _ in range(RUNS)]


@pytest.mark.parametrize(("attack", "said"), [(0.5, "none-found"), (0.25, "none-found"), (0.99, "leak")])
def test_verdicts_are_those_of_an_audit(attack: float, said: str) -> None:
    found = false_alarms._verdicts(false_alarms.defences(), played(attack))
    assert set(found) == {"named, drowned", "model shuffle", "layer shuffle", "parameter shuffle"}
    assert set(found.values()) == {said}


def test_attacks_that_fail_their_control_judge_nothing() -> None:
    assert set(false_alarms._verdicts(false_alarms.defences(), played(0.99, control=CHANCE)).values()) == {"not-run"}


def test_audits_that_judge_nothing_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = iter(played(0.99, control=CHANCE))
    monkeypatch.setattr(false_alarms, "_trials", lambda *_: next(blind))
    found = false_alarms.measure(false_alarms.FalseAlarmsSize(audits=1), 3)
    assert (found["verdicts"], found["judged"], found["accused"]) == (4, 0, 0)
    false_alarms.show(found)
    assert "0 of 0 verdicts accuse, in 0 audits (0.0%)" in capsys.readouterr().out


def test_everything_but_the_control_is_drowned() -> None:
    control, *others = false_alarms.defences()
    assert control.pipeline.privacy.use == "none"
    assert all(defence.pipeline.privacy == false_alarms.DROWNED for defence in others)
