"""Carries: found in counts of ones and in sums of distinct weights, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.scenes import Here, ask

from croupier.audit.bench import Bench
from croupier.audit.blind import Blind
from croupier.audit.harness import run
from croupier.audit.question import SERVER, Adversary, Arm, QuestionRun
from croupier.audit.questions.carries import Carries
from croupier.audit.setting import Setting
from croupier.audit.verdict import asked
from croupier.core.coins import Coins
from croupier.encode.moduli import moduli
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.release.counted_ones import estimate_carry_bits
from croupier.systems import plain, rain, rns, total
from croupier_lab.attacks.residue_sums import counts_of

ASK = Carries()
NONE = Arm("none", "no defence", plain("uniform"))
COUNTS = Arm("rns-counts", "counts", rns(4, release="counts"), own=True)
SETTING = Setting(
    Digits(), Dirichlet(clients=4, alpha=0.3, least=20), Mlp(hidden=(8,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=2), records=10, workers=1,
)  # fmt: skip


def bench(panel: Any) -> Bench:
    return Bench(SETTING, 0, panel, Local(), arms=(COUNTS, NONE))


def tried(arm: Arm) -> QuestionRun:
    at = bench(Here())
    assert ASK.unfit(at, arm) == ASK.unseen(at, arm, SERVER) == ""
    return ASK.play(at, arm, [SERVER])()["server"]


def scored(**fields: Any) -> Arm:
    table = rain(malicious=False).plain()
    rule = {**table["aggregate"], "output": "sign"} if fields.get("opens") == "signs" else table["aggregate"]
    changed = {**table, "release": {**table["release"], **fields}, "aggregate": rule}
    return Arm("rain", "RAIN", Pipeline.parse(changed), (("root", Root(records=50)),))


@pytest.mark.parametrize("release", ["counts", "bits"])
def test_counts_tell_more_than_the_sum(release: Any) -> None:
    found = tried(Arm("rns", release, rns(4, release=release)))
    assert 2 < found.scores["counts"].value < 20
    assert found.scores["counts"].prior == 0
    assert set(found.scores["counts"].rounds) == {1, 2}
    assert found.facts["tables"][0]["heads"] == ["clients", "moduli"]


def test_the_controls_work_where_nothing_defends() -> None:
    found = tried(NONE)
    assert found.scores == {}
    assert found.controls["counts"].value > 2
    assert found.controls["opened"].value > 5 * found.controls["opened"].prior
    assert set(found.not_run) == {"counts", "opened"}


def test_clients_that_hold_the_same_leave_no_carry_to_tell() -> None:
    many = moduli(4, 3).values
    values = np.repeat(Coins.from_seed(1).sampler().integers(-900, 900, (1, 4000)), 4, 0)
    assert estimate_carry_bits(counts_of(values, many), 4, many, Coins.from_seed(2)).rate == pytest.approx(0, abs=1e-9)


def test_weights_that_differ_open_rows_and_equal_ones_do_not() -> None:
    at = bench(Here())
    assert "the same weight" in ASK.unfit(at, scored())
    assert "only signs" in ASK.unfit(at, scored(opens="signs"))
    one = tried(scored(weights="relu", gate=False, among=1)).scores["opened"]
    assert one.value > one.prior


def test_it_says_why_it_cannot_be_asked() -> None:
    at = bench(Here())
    assert "no counts" in ASK.unfit(at, Arm("sum", "sum", total(4)))
    assert "no counts" in ASK.unfit(at, Arm("mod", "mod", rns(4)))
    assert "not shown" in ASK.unseen(at, COUNTS, Adversary(("relay",)))
    slot = COUNTS.pipeline.plain() | {
        "encode": COUNTS.pipeline.encode.model_copy(update={"weights": "slot", "cap": 500}).plain()
    }
    trial = ASK.play(at, replace(COUNTS, pipeline=Pipeline.parse(slot)), [SERVER])()["server"]
    assert "count alike" in trial.not_run["counts"]


def test_a_harness_gives_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.audit.harness.Panel", Here)
    who = {"none": (SERVER,), "rns-counts": (SERVER,)}
    answers = run(SETTING, [COUNTS, NONE], who, [ASK], range(4), Local())
    found = asked(ASK, answers["rns-counts"], answers["none"], {"server": False}, {})
    assert (found["status"], found["attack"], found["control"]["passed"]) == ("leak", "counts", True)
    assert "bits a parameter more than the sum" in found["words"]
    bare = asked(ASK, answers["none"], answers["none"], {"server": False}, {})
    assert bare["status"] == "not-run"
    assert "no counts" in bare["why"]


def test_the_attacks_process_gives_what_this_one_does() -> None:
    panel = Here()
    ASK.play(bench(panel), COUNTS, [SERVER])()
    topic, known, given, answer = panel.asked[0]
    assert set(given) == {"views", "protocol", "attack", "coins"}
    assert set(given["views"]) == {"server"}
    assert set(known) == {"layout"}
    with Blind() as blind:
        assert ask(blind, topic, known, given) == answer


def test_a_network_of_few_parameters_is_not_judged() -> None:
    small = replace(SETTING, model=Mlp(hidden=(1,)))
    trial = ASK.play(Bench(small, 0, Here(), Local(), arms=(NONE,)), COUNTS, [SERVER])()["server"]
    assert "too few" in trial.not_run["counts"]
