"""The three-stage attack: each stage against what can be worked out by hand, and blind to everything but its view."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from tests.scenes import answer, ask
from torch import Tensor

from croupier.audit.attacks import traits
from croupier.audit.attacks.traits import candidates, link
from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Directions, TraitClassifier, Wiener, fitted, gain
from croupier.audit.attacks.traits.views import RoundView, pool_rows, row_sigmas
from croupier.audit.blind import Blind
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import RangeError

SIZE = 60


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted(count: int, seed: int) -> Tensor:
    """Updates with a few strong directions: deviations 8, 4, 2 on the first coordinates, 0.1 elsewhere."""
    deviations = torch.full((SIZE,), 0.1, dtype=torch.float64)
    deviations[:3] = torch.tensor([8.0, 4.0, 2.0])
    return drawn(seed, count, SIZE) * deviations


def shown(number: int, rows: Tensor, sigma: float, named: bool = True) -> RoundView:
    count = len(rows)
    members = tuple((f"c{i}",) for i in range(count)) if named else (tuple(f"c{i}" for i in range(count)),)
    bucket = torch.arange(count) if named else torch.zeros(count, dtype=torch.int64)
    tiers = tuple((sigma,) * len(who) for who in members)
    noise, ones = torch.full((count,), sigma, dtype=torch.float64), torch.ones(count, dtype=torch.int64)
    return RoundView(number, rows.float(), bucket, noise, ones, members, tiers, intact=True, named=named)


def test_linear_denoising_reaches_the_error_that_theory_gives() -> None:
    lessons, clean = planted(3000, 1), planted(2000, 2)
    denoise = Wiener(Directions.of(lessons.unsqueeze(0), 3))
    for sigma in (1.0, 5.0):
        noised = clean + sigma * drawn(3, *clean.shape)
        sigmas = torch.full((len(clean),), sigma, dtype=torch.float64)
        error = float((denoise(noised, sigmas) - clean).pow(2).sum(1).mean())
        variances = torch.tensor([64.0, 16.0, 4.0] + [0.01] * (SIZE - 3))
        least = float((variances * sigma**2 / (variances + sigma**2)).sum())
        assert error == pytest.approx(least, rel=0.05)
        assert error < float(clean.pow(2).sum(1).mean())
        assert error < float((noised - clean).pow(2).sum(1).mean())


def test_the_gain_is_that_of_each_rows_noise_and_nothing_is_lost_without() -> None:
    kept = gain(torch.tensor([4.0, 1.0], dtype=torch.float64), torch.tensor([0.0, 2.0]))
    assert kept.tolist() == [[1.0, 1.0], [0.5, 0.2]]
    lessons = planted(50, 1)
    around = drawn(2, 4, SIZE)
    assert torch.allclose(Wiener(Directions.of(lessons.unsqueeze(0)))(around, torch.zeros(4)), around)


def test_linkage_finds_planted_clients_and_nothing_in_noise() -> None:
    who = drawn(1, 12, SIZE)
    same = pool_rows(tuple(shown(t, who + 0.05 * drawn(10 + t, 12, SIZE), 0.05) for t in range(4)))
    found = link(same.rows, candidates(same), Coins.from_seed(0))
    assert (found[:12] == -1).all()
    assert (found[12:] % 12 == torch.arange(12).repeat(3)).all()
    hits = []
    for seed in range(20):
        noise = pool_rows(tuple(shown(t, drawn(100 * seed + t, 12, SIZE), 1.0) for t in range(4)))
        linked = link(noise.rows, candidates(noise), Coins.from_seed(seed))
        hits.append(float((linked[12:] % 12 == torch.arange(12).repeat(3)).double().mean()))
    assert sum(hits) / len(hits) == pytest.approx(1 / 12, abs=0.03)


def test_ties_are_linked_at_random_and_only_within_window_and_tier() -> None:
    alike = pool_rows(tuple(shown(t, torch.ones(8, 4), 1.0 + t % 2) for t in range(12)))
    allowed = candidates(alike)
    ago = alike.rounds.unsqueeze(1) - alike.rounds
    assert ((ago[allowed] > 0) & (ago[allowed] < 10) & (ago[allowed] % 2 == 0)).all()
    assert len(set(link(alike.rows, allowed, Coins.from_seed(0))[-8:].tolist())) > 4


def test_an_intact_row_shows_its_tier_by_its_size() -> None:
    rows = torch.cat([drawn(1, 2, 4000), 3 * drawn(2, 1, 4000)])
    one = RoundView(
        0, rows.float(), torch.zeros(3, dtype=torch.int64), torch.full((3,), 2.0), torch.ones(3, dtype=torch.int64),
        (("a", "b", "c"),), ((1.0, 1.0, 3.0),), intact=True, named=False,
    )  # fmt: skip
    assert row_sigmas(one).tolist() == [1.0, 1.0, 3.0]


def test_a_classifier_learns_a_planted_attribute_and_none_from_noise() -> None:
    labels = torch.arange(40) % 2
    clean = planted(80, 1).reshape(2, 40, SIZE)
    clean[:, :, 0] += 20.0 * (2 * labels - 1)
    clean -= clean.mean(1, keepdim=True)
    directions = Directions.of(clean)
    made = TraitClassifier.trained(
        directions, clean, labels, 2, Wiener(directions), torch.tensor([0.0, 1.0]), Coins.from_seed(0)
    )
    fresh = planted(60, 2)
    truth = torch.arange(60) % 2
    fresh[:, 0] += 20.0 * (2 * truth - 1)
    right = (made(fresh, torch.ones(60)).argmax(1) == truth).double().mean()
    assert float(right) > 0.95


def test_where_there_is_one_class_it_is_sure() -> None:
    model = fitted(drawn(1, 5, 2).numpy(), torch.full((5,), 3).numpy(), 1.0)
    assert model.classes_.tolist() == [3]
    assert model.predict_proba(drawn(2, 4, 2).numpy()).tolist() == [[1.0]] * 4


def question(rounds: int = 3) -> dict[str, Any]:
    views = tuple(vars(shown(t, planted(8, 5 + t), 0.5)) for t in range(rounds))
    return {"shown": {"rows": views}, "coins": Coins.from_seed(1).export()}


def test_the_attack_is_given_views_and_knowledge_only() -> None:
    assert list(inspect.signature(traits.mount).parameters) == ["studied", "asked"]
    clean = planted(24, 1).reshape(2, 12, SIZE).float()
    auxiliary = AuxiliaryUpdates((0, 2), clean, {"day": torch.arange(12) % 2}, {"day": 2})
    known = {
        "auxiliary": vars(auxiliary), "levels": torch.tensor([0.5], dtype=torch.float64),
        "coins": Coins.from_seed(2).export(),
    }  # fmt: skip
    asked = canon.load(canon.dump(question()))
    assert set(asked["shown"]["rows"][0]) == set(RoundView.__dataclass_fields__)
    here = answer("traits", canon.load(canon.dump(known)), asked)
    assert here["rows"]["chances"]["day"].shape == (24, 2)
    assert set(here["rows"]) == {"chances", "links", "links_centred", "allowed"}
    # The same bytes, the same answer: nothing else goes in.
    with Blind() as process:
        assert canon.dump(ask(process, "traits", known, question())) == canon.dump(here)


def test_without_auxiliary_clients_rows_are_only_linked() -> None:
    view = tuple(vars(shown(t, planted(8, 5), 0.5)) for t in range(2))
    assert traits.study({"auxiliary": None}) is None
    found = traits.mount(None, {"shown": {"rows": view}, "coins": Coins.from_seed(1).export()})["rows"]
    assert set(found) == {"links", "links_centred", "allowed"}
    assert all(found[name][8:].tolist() == list(range(8)) for name in ("links", "links_centred"))


def test_auxiliary_means_are_of_the_latest_studied_round() -> None:
    updates = torch.stack([torch.full((3, 2), 1.0), torch.full((3, 2), 5.0)])
    auxiliary = AuxiliaryUpdates((0, 5), updates, {"day": torch.tensor([1, 1, 0])}, {"day": 2})
    assert auxiliary.means(torch.tensor([0, 4, 5, 9]))[:, 0].tolist() == [1.0, 1.0, 5.0, 5.0]
    assert auxiliary.majority("day") == 1
    with pytest.raises(RangeError, match="no auxiliary updates"):
        AuxiliaryUpdates((3,), updates[:1], {}, {}).means(torch.tensor([2]))
    assert math.isfinite(float(Directions.of(updates + drawn(1, 2, 3, 2)).spread.sum()))
