"""Separation: named updates are found, sums of changing clients where they can be, and nothing in sums of noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.scenes import Here, ask

from croupier.audit.bench import Bench
from croupier.audit.blind import Blind
from croupier.audit.harness import run
from croupier.audit.question import SERVER, Adversary, Arm, QuestionRun
from croupier.audit.questions.separation import Separation, look, named_view
from croupier.audit.setting import Setting
from croupier.audit.verdict import asked
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.errors import CroupierError
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.privacy.gaussian import Gaussian
from croupier.systems import intra, naive, plain, tazza, total

ASK = Separation()
NONE, SUM = Arm("none", "no defence", plain("uniform")), Arm("sum", "the sum", total(5), own=True)
SETTING = Setting(
    Digits(), Dirichlet(clients=5, alpha=0.3, least=20), Mlp(hidden=(8,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=8, cohort=3), records=10, workers=1,
)  # fmt: skip
COLLUDE = Adversary(("server", "clients"), forbidden=True)


def bench(panel: Any, plan: Federation = SETTING.plan, seed: int = 0) -> Bench:
    return Bench(replace(SETTING, plan=plan), seed, panel, Local(), arms=(NONE, SUM))


def tried(arm: Arm, adversary: Adversary = SERVER, plan: Federation = SETTING.plan, seed: int = 0) -> QuestionRun:
    at = bench(Here(), plan, seed)
    assert ASK.unfit(at, arm) == ASK.unseen(at, arm, adversary) == ""
    return ASK.play(at, arm, [adversary])()[adversary.key]


def noisy(pipeline: Pipeline) -> Pipeline:
    drowned = pipeline.encode.model_copy(update={"form": "delta"})
    return Pipeline.parse(
        pipeline.plain() | {"privacy": Gaussian(clip=1.0, sigma=50.0).plain(), "encode": drowned.plain()}
    )


def test_named_updates_are_found_and_the_planted_sums_are_solved() -> None:
    found = tried(NONE)
    assert found.scores["named"].value == pytest.approx(1, abs=1e-5)
    assert found.scores["named"].prior < 0.95
    assert found.controls["sums"].value == pytest.approx(1, abs=1e-3)
    assert found.controls["sums"].prior < 0.95


def test_changing_cohorts_tell_more_than_the_mean() -> None:
    gains = [(one := tried(SUM, seed=seed).scores["sums"]).value - one.prior for seed in range(3)]
    assert sum(gains) / len(gains) > 0.02
    ((sums, clients, rank, alone, exact, stays),) = tried(SUM).facts["tables"][0]["rows"]
    assert sums == 8
    assert 2 < rank <= clients == 5
    assert alone <= clients
    assert exact == 0
    assert stays in ("updates", "models")


def test_updates_that_are_drowned_in_noise_are_not_found() -> None:
    plan = Federation(rounds=6, cohort=3)
    for pipeline, attack in ((noisy(plain("uniform")), "named"), (noisy(naive("parameter")), "sums")):
        one = tried(Arm("noise", "noise", pipeline), plan=plan).scores[attack]
        assert one.value - one.prior < 0.02
        assert abs(one.value) < 0.1


def test_all_but_one_colluding_leave_that_one() -> None:
    fixed = Federation(rounds=1)
    one = tried(SUM, COLLUDE, fixed).scores["sums"]
    assert one.value > 0.999 > one.prior


def test_buckets_are_sums_of_fewer() -> None:
    arm = Arm("intra", "buckets", intra(clip=1e3, tiers=(1e6, 2e6), smallest=2))
    ((sums, *_),) = tried(arm, plan=Federation(rounds=1)).facts["tables"][0]["rows"]
    assert sums == 2


def test_it_says_why_it_cannot_be_asked() -> None:
    at = bench(Here(), Federation(rounds=3))
    assert ASK.unseen(at, SUM, SERVER).startswith("not tested: the same clients take part in every round")
    assert ASK.unseen(at, NONE, SERVER) == ""
    assert "one round" in ASK.unseen(bench(Here(), Federation(rounds=1, cohort=3)), SUM, SERVER)
    assert "coordinates" in ASK.unfit(at, Arm("tazza", "hidden", tazza()))


def test_one_client_colludes_in_all_rounds() -> None:
    panel = Here()
    arm = Arm("shuffle", "rows", naive("model"))
    ASK.play(bench(panel, Federation(rounds=4, cohort=4)), arm, [Adversary(("server", "client"))])()
    ((_, _, given, answer),) = panel.asked
    names = {who for one in given["rounds"] for who in one["views"]}
    assert len(names) == 2
    assert "server" in names
    assert not set(answer["sums"]["clients"]) & names


def test_the_prior_of_whoever_sees_names_beside_a_client_is_the_mean_of_the_others() -> None:
    """The client is handed the model, and takes its own update out of the mean that this shows."""
    at, arm = bench(Here(), Federation(rounds=1)), Arm("shuffle", "rows", naive("model"))
    for party, others in ((("relay", "client"), 4), (("relay",), 5)):
        found = look(at, arm, Adversary(party), "named")
        assert found is not None
        got = found.answer.result()["named"]
        assert len(got["clients"]) == others
        true = torch.stack([found.truth[who, got["when"][0]] for who in got["clients"]]).mean(0)
        assert torch.allclose(got["means"], true.double(), atol=1e-5)


def test_a_client_that_subtracts_itself_has_found_nobody() -> None:
    """Two clients beside it: it knows their sum by the model that it is handed, and nothing more."""
    one = tried(SUM, Adversary(("client",)), Federation(rounds=2, cohort=3)).scores["sums"]
    assert one.value == pytest.approx(one.prior, abs=0.02)


def test_a_harness_gives_a_leak_of_named_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.audit.harness.Panel", Here)
    who = {"none": (SERVER,), "sum": (SERVER,)}
    short = replace(SETTING, plan=Federation(rounds=2))
    answers = run(short, [SUM, NONE], who, [ASK], range(4), Local())
    bare = asked(ASK, answers["none"], answers["none"], {"server": False}, {})
    assert (bare["status"], bare["attack"]) == ("leak", "named")
    assert "nearer to the true ones" in bare["words"]
    fixed = asked(ASK, answers["sum"], answers["none"], {"server": False}, {})
    assert fixed["status"] == "not-run"
    assert "same clients" in fixed["why"]


def test_the_attacks_process_gives_what_this_one_does_and_refuses_what_it_does_not_know() -> None:
    panel = Here()
    ASK.play(bench(panel, Federation(rounds=3, cohort=3)), SUM, [SERVER])()
    ((topic, known, given, answer),) = panel.asked
    assert topic == "separation"
    assert set(given) == {"rounds", "protocol", "attacks", "less_own"}
    assert all(set(one["views"]) == {"server"} for one in given["rounds"])
    with Blind() as blind:
        far = ask(blind, topic, known, given)
        assert torch.allclose(far["sums"]["updates"], answer["sums"]["updates"], atol=1e-9)
        assert far["sums"]["clients"] == answer["sums"]["clients"]
        with pytest.raises(CroupierError, match="no attack is called 'guess'"):
            ask(blind, topic, known, {**given, "attacks": ("guess",)})
        with pytest.raises(CroupierError, match="senders' names"):
            ask(blind, topic, known, {**given, "attacks": ("named",)})


def test_a_view_of_named_models() -> None:
    view = named_view({"a": torch.zeros(2), "b": torch.ones(2)})
    assert view["given"]["roster"] == ("a", "b")
