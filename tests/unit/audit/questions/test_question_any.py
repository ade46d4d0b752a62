"""Hidden coordinates and malicious clients on classifiers of every shape: what cannot be is named, the rest is."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import zoo
from tests.unit.audit.questions.test_question_permutation import Still

from croupier.audit.bench import Bench
from croupier.audit.question import MALICIOUS, SERVER, Arm
from croupier.audit.questions.permutation import Permutation
from croupier.audit.questions.poisoning import Poisoning
from croupier.audit.setting import Depth, setting_of
from croupier.engine.local import Local
from croupier.spec import load

NUMBERS = count()
DEPTH = Depth(rounds=1, uploads=1, searched=1, steps=2)
MODELS = ("bare_unbiased", "head_first", "unbiased", "conv", "conv_max", "normed", "unused", "embedding", "frozen_head")
DATA = {"bare_unbiased": "two", "conv": "pictures", "conv_max": "pictures", "unused": "two", "embedding": "words"}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The networks as the user's own module in the current directory; its name is new: modules are imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"zoo{next(NUMBERS)}"
    shutil.copy(zoo.__file__, f"{name}.py")
    return name


def scene(module: str, model: str, clients: int, *more: str, seed: int = 0) -> tuple[Bench, Arm]:
    spec = load("tazza", [
        f'task.data={{use="own",make="{module}:{DATA.get(model, "table")}"}}',
        f'task.model={{use="own",make="{module}:{model}"}}', f'task.split={{use="iid",clients={clients}}}',
        f"federation.cohort={clients}", "task.fit.epochs=1", "federation.rounds=1", "run.workers=1", *more,
    ])  # fmt: skip
    arm = Arm("mine", "mine", spec.protocol, own=True)
    return Bench(replace(setting_of(spec), depth=DEPTH), seed, Still(), Local(), arms=(arm,)), arm


@pytest.mark.parametrize("model", MODELS)
def test_permutation(model: str, mine: str) -> None:
    bench, arm = scene(mine, model, 4)
    assert Permutation().unfit(bench, arm) == ""
    (own, *_) = Permutation().play(bench, arm, (SERVER,))()["server"].facts["orders"]
    assert own["groups"]


@pytest.mark.parametrize(
    ("model", "why"),
    [("frozen_body", "nothing that clients send of this network can be permuted"), ("unknown", "no rule is known for")],
)
def test_networks_of_which_nothing_can_be_permuted(model: str, why: str, mine: str) -> None:
    assert why in Permutation().unfit(*scene(mine, model, 4))


@pytest.mark.parametrize("model", ["conv_max", "unknown"])
def test_poisoning(model: str, mine: str) -> None:
    """With uploads in plain order no symmetry is needed."""
    more = ('protocol.encode={use="floats",weights="uniform"}', "task.root.records=20")
    runs = []
    for seed in (0, 1):
        bench, arm = scene(mine, model, 5, *more, seed=seed)
        assert Poisoning().unfit(bench, arm) == ""
        runs.append(Poisoning().play(bench, arm, (MALICIOUS,))()[MALICIOUS.key])
    facts: dict[str, Any] = Poisoning().facts(runs)
    drawn = "4 x 4 pixels" if model == "conv_max" else "a 1 in every fourth feature"
    assert any(drawn in said for said in facts["sentences"])
