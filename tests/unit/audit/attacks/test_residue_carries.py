"""What integer residue sums tell: the distinguisher, leaked bits against brute force and the numbers known before."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch

from croupier.audit.seen import counted, read_server
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.encode.moduli import moduli
from croupier.encode.residues import Residues
from croupier.errors import RangeError
from croupier.release.opened_sums import Ints
from croupier.release.release import Release
from croupier.systems import rns, total
from croupier_lab.attacks.residue_sums import (
    Inputs,
    candidate_shrinkage,
    counts_of,
    distinguisher_success,
    joint_chances,
    leaked,
    leaked_by_modulus,
    log_ratio,
    most_leaked,
    rounded_normal,
    view_leakage,
)

FIVE = (5, 7, 8, 9, 11)
COINS = Coins.from_seed(4)
# Uneven, and not symmetric: a mistake in a sign would show.
UNEVEN = Inputs(np.arange(-4, 4), np.array([0.05, 0.1, 0.2, 0.25, 0.15, 0.1, 0.1, 0.05]))


def values(*clients: int) -> Ints:
    """One parameter."""
    return np.array(clients)[:, None]


def test_the_carries_tell_inputs_apart_that_have_the_same_sum() -> None:
    zeros, ones = values(0, 0), values(1, -1)
    assert counts_of(zeros, FIVE).tolist() == [[0, 0, 0, 0, 0]]
    assert counts_of(ones, FIVE).tolist() == [[5, 7, 8, 9, 11]]
    assert distinguisher_success(zeros, ones, FIVE) == 1
    assert distinguisher_success(zeros, ones, FIVE, integers=False) == 0.5
    # Neither who holds which, nor values that wrap alike, are told.
    assert distinguisher_success(ones, ones[::-1], FIVE) == 0.5
    assert distinguisher_success(values(2, 2), values(1, 3), FIVE) == 0.5


def test_the_ratio_favours_what_explains_the_view() -> None:
    zeros, ones = values(0, 0), values(1, -1)
    assert log_ratio(counts_of(zeros, FIVE), zeros, ones, FIVE) == math.inf
    assert log_ratio(counts_of(ones, FIVE), zeros, ones, FIVE) == -math.inf
    assert log_ratio(counts_of(ones, FIVE, False), zeros, ones, FIVE, False) == 0
    with pytest.raises(RangeError, match="neither"):
        log_ratio(counts_of(values(1, 1), FIVE), zeros, ones, FIVE)
    with pytest.raises(RangeError, match="different sums"):
        distinguisher_success(zeros, values(1, 1), FIVE)


@pytest.mark.parametrize("release", ["bits", "counts", "mod"])
def test_the_releases_show_what_is_said_here(release: str) -> None:
    """(0, 0) against (1, -1), encoded and released as the protocol does."""
    encode, layout = Residues(clients=2, digits=2, moduli=FIVE), Layout((Slice("w", (3,)),))
    seen = []
    for pair in ((0.0, 0.0), (0.01, -0.01)):
        rows = [encode.encode(Update(torch.full((3,), x), layout), {}, COINS).vector for x in pair]
        out = Release.parse(release)(rows, layout, FIVE, COINS.child(release, str(pair)))
        body = {"present": torch.ones(2), **out}
        view = {
            "inputs": ((), ({"source": "relay", "kind": "released", "body": body},)),
            "given": {"roster": ("a", "b")},
        }
        pipeline = rns(2).model_copy(update={"encode": encode, "release": Release.parse(release)})
        assert torch.equal(_sums(view, pipeline.plain(), layout), torch.zeros(3, dtype=torch.float64))
        found = counted({"server": (view,)}, pipeline.plain(), layout)
        assert (found is None) == (release == "mod")
        seen.append(out["sums"] if found is None else found.ones)
        assert found is None or torch.equal(found.units, torch.full((3,), 0.01, dtype=torch.float64))
    told = distinguisher_success(np.zeros((2, 3), int), np.array([[1] * 3, [-1] * 3]), FIVE, release != "mod")
    assert torch.equal(*seen) == (told == 0.5)
    assert told == (0.5 if release == "mod" else 1)


def _sums(view: Mapping[str, Any], protocol: Mapping[str, Any], layout: Layout) -> torch.Tensor:
    sums = read_server(view, protocol, layout).sums
    assert sums is not None
    return sums


def test_a_sum_has_no_counts() -> None:
    assert counted({"server": ({"inputs": ()},)}, total(3).plain(), Layout((Slice("w", (3,)),))) is None


def brute(inputs: Inputs, clients: int, many: tuple[int, ...]) -> tuple[dict[tuple[int, ...], float], float]:
    """All inputs one by one."""
    chances: dict[tuple[int, ...], float] = defaultdict(float)
    sums: dict[int, float] = defaultdict(float)
    for held in product(zip(inputs.values.tolist(), inputs.chances.tolist(), strict=True), repeat=clients):
        chance = math.prod(p for _, p in held)
        key = (sum(x for x, _ in held), *(sum(x % m for x, _ in held) for m in many))
        chances[key] += chance
        sums[key[0]] += chance
    views, plain = (-sum(p * math.log2(p) for p in some) for some in (chances.values(), sums.values()))
    return chances, views - plain


@pytest.mark.parametrize(("clients", "many"), [(2, (3, 7)), (3, (2, 3, 5)), (4, (4, 7))])
def test_leaked_bits_are_those_of_brute_force(clients: int, many: tuple[int, ...]) -> None:
    rows, chances = joint_chances(UNEVEN, clients, many)
    slow, bits = brute(UNEVEN, clients, many)
    assert {tuple(row): pytest.approx(chance) for row, chance in zip(rows.tolist(), chances, strict=True)} == slow
    assert leaked(UNEVEN, clients, many) == pytest.approx(bits)
    each = [brute(UNEVEN, clients, (m,))[1] for m in many]
    assert [leaked_by_modulus(UNEVEN, clients, m) for m in many] == [pytest.approx(one, abs=1e-9) for one in each]
    assert max(each) <= bits <= most_leaked(UNEVEN, clients, many) + 1e-9


@pytest.mark.parametrize("clients", [2, 9])
def test_the_transform_agrees_with_convolution_where_it_cuts_off_what_has_no_mass(clients: int) -> None:
    inputs = rounded_normal(7.0, 99)
    assert leaked_by_modulus(inputs, clients, 5) == pytest.approx(leaked(inputs, clients, (5,)), abs=1e-7)


def test_a_rounded_normal_is_one() -> None:
    inputs = rounded_normal(3.0, 4)
    assert inputs.values.tolist() == list(range(-4, 5))
    assert inputs.chances.sum() == pytest.approx(1)
    assert inputs.chances[4] == pytest.approx(math.erf(0.5 / 3 / math.sqrt(2)))
    assert inputs.chances[0] == pytest.approx(0.5 - 0.5 * math.erf(3.5 / 3 / math.sqrt(2)))


@pytest.mark.parametrize(("clients", "known"), [(2, 2.7), (5, 5.6), (10, 9.2), (100, 18.0)])
def test_numbers_known_before_are_met(clients: int, known: float) -> None:
    """Weights of deviation 0.05, two digits, moduli of the least sum: there the older numbers come from."""
    many = moduli(clients, 2, "sum").values
    assert most_leaked(rounded_normal(5.0, 99), clients, many) == pytest.approx(known, rel=0.04)


@pytest.mark.parametrize(("digits", "known"), [(2, 6), (3, 11), (4, 16), (5, 25)])
def test_factors_known_before_are_met(digits: int, known: float) -> None:
    top = 10**digits - 1
    draws = Coins.from_seed(digits).sampler().normal(0, 0.05 * 10**digits, (2, 400))
    factor = candidate_shrinkage(np.rint(draws).astype(np.int64), top, moduli(2, digits).values)
    assert 2**factor.rate == pytest.approx(known, rel=0.2)
    assert 2**factor.low < 1.1 * known
    assert 2**factor.high > 0.9 * known


def test_a_factor_is_exact_for_one_pair() -> None:
    # Sum 0 within -2 and 2: five pairs. Modulo 3, only (0, 0) has no carry; modulo 2, (0, 0) and (2, -2) have none.
    same = np.array([[1, 1], [-1, -1]])
    assert candidate_shrinkage(same, 2, (3,)).rate == pytest.approx(math.log2(5 / 4))
    assert candidate_shrinkage(same, 2, (2, 3)).rate == pytest.approx(math.log2(5 / 2))
    assert candidate_shrinkage(0 * same, 2, (2, 3)).rate == pytest.approx(math.log2(5 / 1))


@pytest.mark.parametrize(("release", "least"), [("bits", 3), ("counts", 3), ("mod", 0)])
def test_a_view_tells_what_its_release_lets_out(release: Literal["bits", "counts", "mod"], least: float) -> None:
    """A round of three clients, as a server sees it."""
    layout, pipeline = Layout((Slice("w", (2000,)),)), rns(3, 2, release)
    draw = Coins.from_seed(3).fast()
    rows = [
        pipeline.encode.encode(Update(0.05 * torch.randn(2000, generator=draw), layout), {}, COINS).vector
        for _ in range(3)
    ]
    out = pipeline.release(rows, layout, pipeline.encode.modulus, COINS.child("told", release))
    letter = {"source": "relay", "kind": "released", "body": {"present": torch.ones(3), **out}}
    view = {"inputs": ((letter,),), "given": {"roster": ("a", "b", "c")}}
    found = view_leakage(view, pipeline.plain(), layout, COINS.child("told", "parts", release))
    exact = most_leaked(rounded_normal(5.0, 99), 3, moduli(3, 2).values)
    assert least <= found.rate < exact + 0.4
    assert (found.rate == 0) == (release == "mod")
