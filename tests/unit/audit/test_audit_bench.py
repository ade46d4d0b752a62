"""A compared protocol that cannot play the task is left without answers, and it is said why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.audit.questions.test_question_permutation import Still

from croupier.audit.bench import Bench
from croupier.audit.question import Arm
from croupier.audit.setting import setting_of
from croupier.engine.local import Local
from croupier.errors import ProtocolError
from croupier.spec import load


def test_only_ones_own_protocol_must_be_able_to_play() -> None:
    small = ["task.model={use='mlp',hidden=[2]}", "task.split.clients=4", "federation.rounds=1", "task.fit.epochs=1"]
    spec = load("rain", [*small, "run.workers=1"])
    other = Arm("rain", "rain", spec.protocol)
    bench = Bench(setting_of(spec), 0, Still(), Local(), arms=(other,))
    assert bench.played(other).rounds == ()
    assert "bits of noise" in bench.played(other).lost
    with pytest.raises(ProtocolError, match="bits of noise"):
        bench.played(replace(other, own=True))


def test_what_was_made_of_an_arm_goes_when_the_next_one_comes() -> None:
    """Views and what was read in them are large: they must not pile up over a seed."""
    spec = load("digits", ["task.split.clients=4", "run.workers=1"])
    one, other = (Arm(name, name, spec.protocol) for name in ("one", "other"))
    bench, made = Bench(setting_of(spec), 0, Still(), Local(), arms=(one, other)), list[str]()

    def make(name: str) -> Callable[[], str]:
        def done() -> str:
            made.append(name)
            return name

        return done

    for arm in (one, one, other, other):
        assert bench.once("read", make(arm.key), arm) == arm.key
        bench.once("whole", make("whole"))
    assert made == ["one", "whole", "other"]
    assert bench.once("read", make("one again"), one) == "one again"
