"""Was a record trained on? Controls both ways: found in bare updates and sums, and not under noise that drowns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.scenes import Here

from croupier.audit import membership
from croupier.audit.harness import ArmAnswers, run
from croupier.audit.question import Arm
from croupier.audit.questions.source import Membership
from croupier.audit.setting import Setting
from croupier.audit.verdict import asked
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.pipeline import Pipeline
from croupier.privacy.gaussian import Gaussian
from croupier.systems import naive, plain, total

COHORT = 8
# Few records a client, of which as many are withheld as are trained on.
SETTING = Setting(
    Digits(), Iid(clients=40), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=1, batch=8),
    Federation(rounds=1, cohort=COHORT), records=10, fresh=0.4,
)  # fmt: skip
BARE = plain("uniform")
DROWNED = Pipeline(
    privacy=Gaussian(clip=1.0, sigma=1000.0), encode=Floats(form="delta", weights="uniform"), release=BARE.release,
    aggregate=BARE.aggregate, place=BARE.place,
)  # fmt: skip
ARMS = (
    Arm("none", "no defence", BARE),
    Arm("shuffle", "single parameters shuffled", naive("parameter")),
    Arm("sum", "the sum only", total(COHORT)),
    Arm("drowned", "noise that leaves nothing", DROWNED),
)
ASK = Membership()


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, list[ArmAnswers]]]:
    """Four runs of every arm; what is guessed without a view needs no well-trained models here."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("croupier.audit.harness.Panel", Here)
        changed.setattr(membership, "STEPS", 20)
        yield run(SETTING, ARMS, {}, [ASK], range(4), Local())


def found(answers: dict[str, list[ArmAnswers]], arm: str) -> dict[str, Any]:
    return asked(ASK, answers[arm], answers["none"], {"server": False}, {})


def test_undefended_updates_tell_who_was_trained_on(answers: dict[str, list[ArmAnswers]]) -> None:
    """The positive control: without it no finding of this question means anything."""
    got = found(answers, "none")
    assert (got["status"], got["attack"]) == ("leak", "row-gradients")
    assert got["control"]["passed"]
    assert got["value"] > 0.95
    assert 0.3 < got["prior"] < 0.6


@pytest.mark.parametrize("arm", ["shuffle", "sum"])
def test_the_joint_model_of_few_records_tells_it_too(answers: dict[str, list[ArmAnswers]], arm: str) -> None:
    """A sum of so few gradients comes apart: neither a sum nor a shuffle of parameters hides members by itself."""
    got = found(answers, arm)
    assert (got["status"], got["attack"]) == ("leak", "gradients")
    assert got["value"] > 0.8


def test_drowned_updates_tell_nothing(answers: dict[str, list[ArmAnswers]]) -> None:
    """The negative control: the same attacks, which did work on bare updates, where nothing is left to find."""
    got = found(answers, "drowned")
    attacks = got["adversaries"]["server"]["attacks"]
    assert attacks["row-gradients"]["scored"]
    assert attacks["gradients"]["scored"]
    assert got["status"] == "none-found"
    for name in ("gradients", "row-gradients"):
        assert attacks[name]["low"] <= 0.5 <= attacks[name]["high"]
        assert attacks[name]["gain"]["low"] <= 0
