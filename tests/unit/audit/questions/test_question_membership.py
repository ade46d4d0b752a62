"""Was a record trained on? Controls both ways: found in bare updates and sums, and not under noise that drowns them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from croupier.learn.split import Dirichlet, Iid
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


def quickly(setting: Setting, arms: Sequence[Arm]) -> Iterator[dict[str, list[ArmAnswers]]]:
    """Four runs in this process; nobody asks whose a record is, and a guess without a view needs few models."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("croupier.audit.harness.Panel", Here)
        changed.setattr("croupier.audit.records.LEARNERS", {})
        changed.setattr(membership, "STEPS", 20)
        changed.setattr(membership, "MODELS", 4)
        yield run(setting, arms, {}, [ASK], range(4), Local())


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, list[ArmAnswers]]]:
    """Every arm."""
    yield from quickly(SETTING, ARMS)


@pytest.fixture(scope="module")
def long() -> Iterator[dict[str, list[ArmAnswers]]]:
    """As `digits-small` trains: few records, taken many times over."""
    split, fit = Dirichlet(clients=20, alpha=1.0, least=40), Sgd(lr=0.1, momentum=0.9, epochs=20, batch=16)
    setting = Setting(Digits(), split, Mlp(hidden=(64,)), fit, Federation(rounds=1, cohort=COHORT))
    shuffled = [Arm(grain, f"{grain} shuffle", naive(grain)) for grain in ("model", "layer")]
    yield from quickly(setting, (ARMS[0], *shuffled, ARMS[-1]))


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


def test_clients_that_train_for_long_are_told_by_what_their_updates_span(long: dict[str, list[ArmAnswers]]) -> None:
    """The positive control on digits: losses say nothing there, and each client's update spans its own records."""
    got = found(long, "none")
    assert got["status"] == "leak"
    assert got["control"]["passed"]
    spans = got["adversaries"]["server"]["attacks"]["spans"]
    assert spans["scored"]
    assert spans["low"] > 0.65
    assert found(long, "model")["adversaries"]["server"]["attacks"]["spans"]["value"] == spans["value"]
    assert found(long, "layer")["adversaries"]["server"]["attacks"]["spans"]["low"] > 0.65


def test_of_clients_that_train_for_long_drowned_updates_tell_nothing(long: dict[str, list[ArmAnswers]]) -> None:
    got = found(long, "drowned")
    assert got["status"] == "none-found"
    spans = got["adversaries"]["server"]["attacks"]["spans"]
    assert spans["scored"]
    assert spans["low"] <= 0.5 <= spans["high"]


def test_no_prior_lies_below_a_toss(answers: dict[str, list[ArmAnswers]]) -> None:
    """Where what is known misleads, a guess at random needs no view either."""
    scores = [
        s for each in answers.values() for one in each for s in one.trials["membership"]["server"].scores.values()
    ]
    assert scores
    assert min(one.prior for one in scores) >= 0.5


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
