"""The paper's experiment on small data: measures are right, the control is positive, and an audit scores the same."""

from __future__ import annotations

import math

import pytest
import torch
from tests.scenes import Here

from croupier.audit.bench import Bench
from croupier.audit.question import SERVER, Arm
from croupier.audit.questions.traits import Linkage, Traits
from croupier.audit.setting import Setting
from croupier.audit.traits.findings import tiered_case, tiered_experiment
from croupier.audit.traits.tiers import TieredSetting
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.place.direct import Direct
from croupier.privacy.tiers import Tiers
from croupier.release.rows import Rows
from croupier.systems import intra, plain
from croupier_lab.attacks.tiers.experiment import SeedResult, alike, factor_for, louder, run
from croupier_lab.attacks.tiers.measures import curve


def test_louder_noise_has_the_wished_cosine_and_tells_its_true_epsilons() -> None:
    privacy = Tiers(clip=1.0, tiers=(1.0, 8.0), wishes={"c": 8.0})
    levels, norms = torch.tensor(privacy.sigmas, dtype=torch.float64), torch.tensor([1.0, 0.5])
    factor = factor_for(norms, levels, 1000, 0.12)
    assert alike(norms, levels, 1000, factor) == pytest.approx(0.12)
    loud = louder(privacy, factor)
    assert loud.sigmas == pytest.approx((factor * levels).tolist(), rel=1e-6)
    assert loud.tier("c").epsilon == loud.tiers[1] > 8.0
    assert [privacy.tiers.index(privacy.epsilon(n)) for n in "abdef"] == [
        loud.tiers.index(loud.epsilon(n)) for n in "abdef"
    ]


def test_the_area_is_over_log_epsilon_from_nought_to_one() -> None:
    found = curve({0.5: 0.0, 1.0: 0.2, 8.0: 0.6})
    assert found["CosAUC"] == pytest.approx(0.25 * 0.1 + 0.75 * 0.4)
    assert found["delta-cos"] == pytest.approx(0.6)


@pytest.fixture(scope="module")
def seeds() -> list[SeedResult]:
    setting = Setting(
        Digits(), Dirichlet(clients=32, alpha=0.1, least=5), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=2, batch=16),
        Federation(rounds=4, cohort=12),
    )  # fmt: skip
    tiered = TieredSetting(setting, Tiers(clip=1.0), smallest=4, every=2)
    return run(tiered, [0], Local(), views=("rows", "parameter", "sums"))


def test_without_noise_and_shuffling_every_stage_beats_its_prior(seeds: list[SeedResult]) -> None:
    for seed in seeds:
        (one,) = [f for f in seed.found if (f.noise, f.view, f.denoiser) == ("no noise", "rows", "wiener")]
        assert one.measures["cosine"] == pytest.approx(1.0, abs=1e-5)
        for measure in ("cosine", "dominant: clients named right", "linked to its owner's row (centred)"):
            assert one.measures[measure] > one.prior[measure] + 0.1, measure


def test_shuffled_and_noised_views_tell_less(seeds: list[SeedResult]) -> None:
    for seed in seeds:
        by = {(f.noise, f.view): f for f in seed.found if f.denoiser == "wiener"}
        assert by["no noise", "parameter"].measures["cosine centred"] < 0.6
        assert by["tiers", "rows"].measures["cosine centred"] < 0.2
        assert abs(by["tiers", "parameter"].measures["greedy: values given to their client"] - 1 / 6) < 0.1
        # Not 1: pixels that are always dark give all members the same value.
        assert by["no noise", "parameter"].measures["greedy told the clean update (a ceiling)"] > 0.6
        assert (seed.clients, seed.auxiliary) == (24, 8)
        assert all(math.isfinite(value) for f in seed.found for value in f.measures.values())


def test_an_audit_of_noise_by_tiers_scores_what_the_papers_experiment_measures() -> None:
    own = Arm("mine", "mine", intra(smallest=4), own=True)
    none = Arm("none", "none", plain("uniform"))
    noise = Arm("noise", "noise", own.pipeline.model_copy(update={"release": Rows(), "place": Direct()}))
    setting = Setting(
        Digits(), Dirichlet(clients=16, alpha=0.1, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=2, batch=16),
        Federation(rounds=2),
    )  # fmt: skip
    one = Bench(setting, 0, Here(), Local(), arms=(own, none, noise))
    experiment = tiered_experiment(one)
    assert experiment is not None
    tiered = experiment.tiered
    assert tiered == TieredSetting(setting, own.pipeline.privacy, 4)  # type: ignore[arg-type]
    (seed,) = run(tiered, [0], Local(), ("rows", "parameter"), ("no noise", "tiers"))
    found = {(each.noise, each.view): each for each in seed.found if each.denoiser == "wiener"}
    for arm in (own, none, noise):
        described = Traits().play(one, arm, [SERVER])()["server"].scores["dominant"]
        linked = Linkage().play(one, arm, [SERVER])()["server"].scores["linked-centred"]
        each = found[tiered_case(one, arm, SERVER)]  # type: ignore[index]
        assert described.value == each.measures["dominant: clients named right"]
        assert described.prior == each.prior["dominant: clients named right"]
        assert linked.value == each.measures["linked to its owner's row (centred)"]
        assert linked.prior == each.prior["linked to its owner's row (centred)"]
