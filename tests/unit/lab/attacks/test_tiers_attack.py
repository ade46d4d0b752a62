"""IntraShuffler's other stages: each against what can be worked out by hand, and blind to everything but its view."""

from __future__ import annotations

import pytest
import torch
from tests.scenes import answer
from torch import Tensor

from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Directions, Wiener
from croupier.audit.attacks.traits.views import RoundView
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier_lab.attacks.tiers.denoise import TITLES, NetworkDenoiser
from croupier_lab.attacks.tiers.measures import agreement, separability
from croupier_lab.attacks.tiers.recombine import by_scale, greedy
from croupier_lab.attacks.tiers.stages import attack_bytes
from croupier_lab.processes import ask, process_pool

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


def test_the_learned_denoiser_comes_close_to_the_linear_one_where_that_is_best() -> None:
    lessons, clean = planted(3000, 1), planted(2000, 2)
    directions = Directions.of(lessons.unsqueeze(0), 3)
    levels = torch.tensor([1.0, 5.0], dtype=torch.float64)
    learned = NetworkDenoiser.trained(directions, lessons, levels, Coins.from_seed(0))
    for sigma in levels:
        noised = clean + sigma * drawn(3, *clean.shape)
        errors = [
            float((one(noised, sigma.expand(len(clean))) - clean).pow(2).sum(1).mean())
            for one in (learned, Wiener(directions))
        ]
        assert errors[0] < 1.25 * errors[1]
    with pytest.raises(RangeError, match="no noise"):
        NetworkDenoiser.trained(directions, lessons, torch.zeros(2), Coins.from_seed(0))


def test_a_straight_cut_separates_planted_classes_and_none_in_noise() -> None:
    fresh, truth = planted(60, 2), torch.arange(60) % 2
    fresh[:, 0] += 20.0 * (2 * truth - 1)
    assert separability(fresh, truth, torch.arange(60)) > 0.95
    nothing = drawn(5, 400, SIZE)
    assert abs(separability(nothing, torch.arange(400) % 2, torch.arange(400)) - 0.5) < 0.1
    assert agreement(truth, 1 - truth) == 1.0


def test_values_far_out_belong_to_the_noisier_tier() -> None:
    tiers = torch.tensor([1.0, 1.0, 10.0])
    far = by_scale(torch.tensor([[4.5], [0.1]]), torch.zeros(1), tiers)
    assert float(far[0, 0, 1]) > 0.99
    # Near the middle: 2 of density 1 against 1 of density 1/10.
    assert float(far[1, 0, 0]) == pytest.approx(2 / 2.1, abs=0.01)
    with pytest.raises(RangeError, match="without noise"):
        by_scale(torch.zeros(2, 1), torch.zeros(1), torch.tensor([0.0, 1.0]))


def test_the_greedy_attack_is_right_where_it_knows_and_guesses_where_not() -> None:
    rows = drawn(1, 5, 4000)
    order = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(i)) for i in range(4000)], 1)
    mixed = rows.gather(0, order)
    known = greedy(mixed, rows, Coins.from_seed(0))
    assert (order.gather(0, known) == torch.arange(5).unsqueeze(1)).all()
    blind = greedy(mixed, torch.zeros(5, 4000), Coins.from_seed(0))
    right = (order.gather(0, blind) == torch.arange(5).unsqueeze(1)).double().mean()
    assert float(right) == pytest.approx(1 / 5, abs=0.02)


def test_the_attack_is_given_bytes_only_and_its_linear_denoiser_is_the_audits() -> None:
    clean = planted(24, 1).reshape(2, 12, SIZE).float()
    auxiliary = AuxiliaryUpdates((0, 2), clean, {"day": torch.arange(12) % 2}, {"day": 2})
    known = {
        "auxiliary": vars(auxiliary), "levels": torch.tensor([0.5], dtype=torch.float64),
        "coins": Coins.from_seed(2).export(),
    }  # fmt: skip
    view = tuple(vars(shown(t, planted(8, 5 + t), 0.5)) for t in range(3))
    question = {"shown": {"rows": view}, "coins": Coins.from_seed(1).export()}
    told = attack_bytes(canon.dump(known), canon.dump(question))
    by = canon.load(told)["rows"]["denoisers"]
    assert tuple(sorted(by)) == tuple(sorted(TITLES))
    assert by["wiener"]["rows"].shape == (24, SIZE)
    for key, value in answer("traits", known, question)["rows"].items():
        assert canon.dump({key: value}) == canon.dump({key: by["wiener"][key]})
    # The same bytes, the same answer: nothing else goes in.
    with process_pool(1) as pool:
        assert ask(pool, attack_bytes, canon.dump(known), canon.dump(question)).result() == told
