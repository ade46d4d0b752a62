"""Tiers: who is in which, what it costs, and when a client has had enough."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.errors import Overspent, PrivacyError, SpecError
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of, participations_for, sigma_for
from croupier.privacy.ledger import Ledger
from croupier.privacy.local import LocalPrivacy
from croupier.privacy.tiers import Tiers

DELTA = 1e-5


def afforded(privacy: LocalPrivacy, name: str) -> tuple[int, str]:
    """How often a client takes part, and what it says in the end."""
    ledger, number = Ledger(), 0
    while True:
        event = privacy.of(name).event(number)
        assert event is not None
        try:
            ledger = privacy.admit(name, ledger, event)
        except Overspent as error:
            return number, str(error)
        number += 1


def test_noise_is_calibrated_tier_by_tier() -> None:
    tiers = Tiers(clip=0.5)
    printed = {0.5: 7.032, 1.0: 3.731, 2.0: 1.994, 4.0: 1.081, 8.0: 0.600}
    names = {tiers.epsilon(f"c{i}"): f"c{i}" for i in range(100)}
    assert set(names) == set(printed)
    for epsilon, sigma in printed.items():
        one = tiers.of(names[epsilon])
        assert one.sigma == pytest.approx(sigma, abs=0.0006)
        assert one.sigma == tiers.tier(names[epsilon]).sigma == sigma_for(epsilon, DELTA, 0.5)
        assert epsilon_of(one.mu, DELTA) == pytest.approx(epsilon, rel=1e-12)


def test_a_wish_is_rounded_down_and_others_are_dealt_evenly() -> None:
    tiers = Tiers(clip=1, wishes={"a": 3.9, "b": 100.0, "c": 0.5})
    assert [tiers.epsilon(name) for name in "abc"] == [2.0, 8.0, 0.5]
    dealt = [tiers.epsilon(f"client {i}") for i in range(5000)]
    assert all(900 < dealt.count(tier) < 1100 for tier in tiers.tiers)


@pytest.mark.parametrize("budget", [8.0, 8.5, 20.0, 60.0])
def test_a_client_takes_part_as_often_as_its_total_allows(budget: float) -> None:
    tiers = Tiers(clip=1, wishes={"a": 8.0}, budgets=(budget,))
    count, said = afforded(tiers, "a")
    assert count == participations_for(budget, DELTA, 1, tiers.of("a").sigma) >= 1
    mu = tiers.of("a").mu
    assert (
        epsilon_of(mu * math.sqrt(count), DELTA) <= budget * (1 + 1e-9) < epsilon_of(mu * math.sqrt(count + 1), DELTA)
    )
    for part in ("a (tier 8) takes no part", f"round {count + 1} would make", f"its total is {budget:g}", "nothing of"):
        assert part in said
    assert "Remedy: raise protocol.privacy.budgets" in said


def test_the_smaller_total_holds_and_is_named() -> None:
    tiers = Tiers(
        clip=1, tiers=(1.0, 4.0), wishes={"a": 4, "b": 4, "c": 1}, budgets=(5.0, 20.0), totals={"a": 7, "b": 30}
    )
    assert [tiers.limit(name) for name in "abc"] == [7, 20, 5]
    assert "raise protocol.privacy.totals.a" in afforded(tiers, "a")[1]
    assert "raise protocol.privacy.budgets" in afforded(tiers, "b")[1]
    free = Tiers(clip=1, totals={"a": 9})
    assert free.limit("z") is None


def test_the_same_release_again_is_never_refused() -> None:
    tiers = Tiers(clip=1, wishes={"a": 8}, budgets=(8.0,))
    event = tiers.of("a").event(0, "aa")
    assert event is not None
    ledger = tiers.admit("a", Ledger(), event)
    assert tiers.admit("a", ledger, event) == ledger
    other = tiers.of("a").event(0, "bb")
    assert other is not None
    with pytest.raises(Overspent, match="one participation cost it epsilon 8 so far"):
        tiers.admit("a", ledger, other)


def test_plain_noise_has_a_budget_too() -> None:
    noise = Gaussian(clip=1, sigma=4, budget=5)
    count, said = afforded(noise, "c1")
    assert count == participations_for(5, DELTA, 1, 4) == 5
    assert "raise protocol.privacy.budget, or let it rest" in said
    assert "stops before all of them cost more than 5" in noise.claims(9)
    with pytest.raises(SpecError, match=r"budget = 1: one participation costs epsilon 1\.994; raise it, or sigma"):
        Gaussian(clip=1, sigma=4, budget=1)
    with pytest.raises(SpecError, match="there is no noise"):
        Gaussian(clip=1, sigma=0, budget=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tiers": ()}, "tiers = "),
        ({"tiers": (2.0, 1.0)}, "each once, rising"),
        ({"tiers": (1.0, math.inf)}, "Tiers(tiers[1]=inf)"),
        ({"wishes": {"a": 0.1}}, "wishes.a = 0.1: below the lowest tier"),
        ({"wishes": {"a": math.nan}}, "Tiers(wishes['a']=nan)"),
        ({"budgets": (1.0, 2.0)}, "one for each of the 5 tiers"),
        ({"budgets": (4.0,)}, "one participation in tier 8 costs 8, so 4 is no total"),
        ({"budgets": (0.4, 1.0, 2.0, 4.0, 8.0)}, "in tier 0.5 costs 0.5"),
        ({"budgets": (math.nan,)}, "Tiers(budgets[0]=nan)"),
        ({"wishes": {"a": 4}, "totals": {"a": 3}}, "totals.a = 3: one participation in its tier costs 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_built(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        Tiers(clip=1, **wrong)
    assert said in str(raised.value)


def test_claims_are_whole() -> None:
    said = Tiers(clip=1, budgets=(1.5, 3.0, 6.0, 12.0, 24.0)).claims(50)
    for part in (
        "unit: a client; adjacency: its update of a round is replaced by any other", "C = 1", "sensitivity 2C",
        "tier 0.5: sigma = 14.06", "a total of 1.5 allows 7 participations", "(1.454, 1e-05) for 7 participations",
        "the classical formula is not used", "amplifies nothing",
    ):  # fmt: skip
        assert part in said
    free = Tiers(clip=1).claims(50)
    for printed in ("(4.406, 1e-05)", "(9.36, 1e-05)", "(20.77, 1e-05), too large", "(48.52, 1e-05)"):
        assert printed in free, free
    assert "50 participations" not in Tiers(clip=1).claims(1)


def test_the_weakest_tier_speaks_for_all() -> None:
    tiers = Tiers(clip=1)
    local = tiers.guarantee()
    assert (local.epsilon, local.delta) == (8.0, 1e-5)
    assert tiers.entropy(1000) == Gaussian(clip=1, sigma=sigma_for(8.0, DELTA, 1)).entropy(1000)
    layout = Layout((Slice("w", (2,)),))
    with pytest.raises(PrivacyError, match="ask of"):
        tiers(Update(torch.zeros(2), layout, {}, form="delta"), Coins.from_seed(1))


def test_the_composition_table() -> None:
    table = Tiers(clip=3).composition((5, 10, 50))
    assert [float(f"{table[tier]['10']:.3g}") for tier in ("0.5", "1", "2", "4", "8")] == [1.77, 3.62, 7.54, 16.1, 35.6]
