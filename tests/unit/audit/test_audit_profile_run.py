"""The profile experiment on small data: views are what releases give, marks are right, and the control is positive."""

from __future__ import annotations

import math

import pytest
import torch

from croupier.audit import profile
from croupier.audit.attributes import attributes
from croupier.audit.marks import _curve
from croupier.audit.setting import Setting
from croupier.audit.sights import VIEWS, sight
from croupier.audit.track import Noise, Turn, alike, factor_for, louder
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.errors import SpecError
from croupier.federation import Federation
from croupier.learn.data import Dataset, Windows
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.privacy.tiers import Tiers
from croupier.runtime.local import Local

LAYOUT = Layout((Slice("a.weight", (30,)), Slice("b.weight", (10,))))


def turn(count: int = 12) -> tuple[Turn, Noise]:
    drawn = torch.randn(count, 40, generator=torch.Generator().manual_seed(1))
    noise = Noise("tiers", Tiers(clip=1.0, tiers=(1.0, 8.0)))
    return Turn(0, torch.zeros(40), tuple(f"c{i:02}" for i in range(count)), drawn, drawn / 2), noise


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_what_the_release_gives_and_the_truth_beside_it_fits(view: str) -> None:
    one, noise = turn()
    found = sight(view, one, noise, 4, LAYOUT, Coins.from_seed(0))  # type: ignore[arg-type]
    seen = found.seen
    assert sorted(name for who in seen.members for name in who) == list(one.names)
    if found.sources is None:
        for row, who in zip(seen.rows, seen.members, strict=True):
            mean = one.sent[[one.names.index(name) for name in who]].double().mean(0)
            assert torch.allclose(row.double(), mean, atol=1e-6)
        return
    assert torch.equal(one.sent.gather(0, found.sources), seen.rows)
    for row in range(len(seen.rows)):
        inside = {one.names.index(name) for name in seen.members[int(seen.bucket[row])]}
        assert set(found.sources[row].tolist()) <= inside
    whole = {"rows": 1, "model": 1, "layer": 2, "parameter": 40}[view]
    assert max(len(set(row.tolist())) for row in found.sources) <= whole
    assert seen.intact == (view in ("rows", "model"))
    assert seen.named == (view == "rows")


def test_louder_noise_has_the_wished_cosine_and_tells_its_true_epsilons() -> None:
    privacy = Tiers(clip=1.0, tiers=(1.0, 8.0), wishes={"c": 8.0})
    levels, norms = Noise("", privacy).levels, torch.tensor([1.0, 0.5])
    factor = factor_for(norms, levels, 1000, 0.12)
    assert alike(norms, levels, 1000, factor) == pytest.approx(0.12)
    loud = louder(privacy, factor)
    assert torch.allclose(Noise("", loud).levels, factor * levels, rtol=1e-6)
    assert loud.tier("c").epsilon == loud.tiers[1] > 8.0
    assert [privacy.tiers.index(privacy.epsilon(n)) for n in "abdef"] == [
        loud.tiers.index(loud.epsilon(n)) for n in "abdef"
    ]


def test_the_area_is_over_log_epsilon_from_nought_to_one() -> None:
    found = _curve({0.5: 0.0, 1.0: 0.2, 8.0: 0.6})
    assert found["CosAUC"] == pytest.approx(0.25 * 0.1 + 0.75 * 0.4)
    assert found["delta-cos"] == pytest.approx(0.6)


def test_households_are_cut_by_the_outsiders_alone() -> None:
    days = torch.full((4, 3, 48), 0.1)
    days[1, :, 16:40] = 0.5
    days[3, :, :16] = 0.5
    series = days.reshape(-1)
    starts = torch.cat([torch.arange(0, 144 - 48) + 144 * at for at in range(4)])
    train = Windows(series, starts, 47)
    owner = torch.arange(4).repeat_interleave(96)
    data = Dataset("households", "forecast", 0, train, train, "", "", owner=owner, owners=("a", "b", "c", "d"))
    index = {name: (owner == at).nonzero()[:, 0] for at, name in enumerate("abcd")}
    found = attributes(data, index, ["c", "d"])
    assert found["day"].labels["b"] == 1
    assert found["day"].labels["d"] == 0
    assert found["use"].labels["b"] == 2
    with pytest.raises(SpecError, match="no attribute"):
        attributes(Dataset("else", "forecast", 0, train, train, "", ""), index, ["a"])


@pytest.fixture(scope="module")
def seeds() -> list[profile.Seed]:
    setting = Setting(
        Digits(), Dirichlet(clients=32, alpha=0.1, least=5), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=2, batch=16),
        Federation(rounds=4, cohort=12),
    )  # fmt: skip
    tiered = profile.Tiered(setting, Tiers(clip=1.0), smallest=4, every=2)
    return profile.run(tiered, [0, 1], Local(), views=("rows", "parameter", "sums"))


def test_without_noise_and_shuffling_every_stage_beats_its_prior(seeds: list[profile.Seed]) -> None:
    for seed in seeds:
        (one,) = [f for f in seed.found if (f.noise, f.view, f.denoiser) == ("no noise", "rows", "wiener")]
        assert one.marks["cosine"] == pytest.approx(1.0, abs=1e-5)
        for measure in ("cosine", "dominant: clients named right", "linked to its owner's row (centred)"):
            assert one.marks[measure] > one.prior[measure] + 0.1, measure


def test_shuffled_and_noised_views_tell_less_and_colluders_uncover_all(seeds: list[profile.Seed]) -> None:
    for seed in seeds:
        by = {(f.noise, f.view): f for f in seed.found if f.denoiser == "wiener"}
        assert by["no noise", "parameter"].marks["cosine centred"] < 0.6
        assert by["tiers", "rows"].marks["cosine centred"] < 0.2
        assert abs(by["tiers", "parameter"].marks["greedy: values given to their client"] - 1 / 6) < 0.1
        # Not 1: pixels that are always dark give all members the same value.
        assert by["no noise", "parameter"].marks["greedy told the clean update (a ceiling)"] > 0.6
        assert seed.uncovered == 1.0
        assert (seed.clients, seed.outsiders) == (24, 8)
        assert all(math.isfinite(value) for f in seed.found for value in f.marks.values())
