"""Whose record is it? Controls both ways: traced in bare updates, and not under noise that drowns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.scenes import Here

from croupier.audit.harness import ArmAnswers, run
from croupier.audit.question import Arm
from croupier.audit.questions.source import Source
from croupier.audit.setting import Setting
from croupier.audit.verdict import asked
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.privacy.gaussian import Gaussian
from croupier.systems import plain

# Clients alike, with few records that are taken many times over: nothing but memory tells them apart.
SETTING = Setting(
    Digits(), Iid(clients=40), Mlp(hidden=(32,)), Sgd(lr=0.1, momentum=0.9, epochs=20, batch=8),
    Federation(rounds=1, cohort=4), records=10,
)  # fmt: skip
BARE = plain("uniform")
NOISY = {"privacy": Gaussian(clip=1.0, sigma=1000.0), "encode": Floats(form="delta", weights="uniform")}
ARMS = (
    Arm("none", "no defence", BARE),
    Arm("drowned", "noise that leaves nothing", BARE.model_copy(update=NOISY)),
)
ASK = Source()


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, list[ArmAnswers]]]:
    """Four runs of every arm; without a view labels alone are looked at, which say nothing here."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("croupier.audit.harness.Panel", Here)
        changed.setattr("croupier.audit.records.LEARNERS", {})
        changed.setattr("croupier.audit.questions.source.MEMBERSHIP", {"named": ()})
        yield run(SETTING, ARMS, {}, [ASK], range(4), Local())


def found(answers: dict[str, list[ArmAnswers]], arm: str) -> dict[str, Any]:
    return asked(ASK, answers[arm], answers["none"], {"server": False}, {})


def test_undefended_updates_tell_whose_a_record_is(answers: dict[str, list[ArmAnswers]]) -> None:
    """The positive control: models remember their records."""
    got = found(answers, "none")
    assert got["status"] == "leak"
    assert got["control"]["passed"]
    assert got["gain"]["rate"] > 0.1


def test_drowned_updates_tell_of_no_record(answers: dict[str, list[ArmAnswers]]) -> None:
    """The negative control: the same attacks, which did work on bare updates."""
    got = found(answers, "drowned")
    assert got["adversaries"]["server"]["attacks"]["named"]["scored"]
    assert got["status"] == "none-found"
    assert abs(got["gain"]["rate"]) < 0.1
