"""The clone bound against its definition in exact arithmetic, printed tables and known answers."""

from __future__ import annotations

import time
from fractions import Fraction
from math import comb, exp, log

import pytest

from croupier.errors import RangeError
from croupier.privacy.amplify import ShuffleGuarantee, amplified, claim, closed_form, shuffled_delta


def by_definition(honest: int, local: float, epsilon: float) -> tuple[float, float]:
    """The hockey-stick divergence over all (C, A), in both directions, as fractions."""
    p, q, grown = Fraction(exp(-local)), Fraction(1 / (1 + exp(-local))), Fraction(exp(epsilon))
    there = back = Fraction(0)
    for c in range(honest):
        some = comb(honest - 1, c) * p**c * (1 - p) ** (honest - 1 - c)
        for a in range(c + 2):
            up, stay = Fraction(comb(c, a - 1) if a else 0, 2**c), Fraction(comb(c, a), 2**c)
            one, two = q * up + (1 - q) * stay, (1 - q) * up + q * stay
            there += some * max(Fraction(0), one - grown * two)
            back += some * max(Fraction(0), two - grown * one)
    return float(there), float(back)


@pytest.mark.parametrize(("honest", "local"), [(1, 1.0), (2, 0.5), (8, 2.0), (20, 1.0), (40, 3.0)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_delta_is_the_definition_in_both_directions(honest: int, local: float, share: float) -> None:
    there, back = by_definition(honest, local, share * local)
    assert there == pytest.approx(back, abs=1e-12)
    found = shuffled_delta(honest, local, share * local)
    assert there <= found <= there + 1e-12


def test_the_bound_is_from_above_and_close() -> None:
    found = amplified(50, 1.0, 1e-5)
    assert by_definition(50, 1.0, found)[0] <= 1e-5 < by_definition(50, 1.0, found * (1 - 1e-5))[0]


PRINTED = {
    8: (0.50, 1.00, 2.00, 4, 8),
    20: (0.48, 1.00, 2.00, 4, 8),
    50: (0.30, 0.83, 2.00, 4, 8),
    100: (0.21, 0.55, 1.99, 4, 8),
    1000: (0.06, 0.15, 0.47, 3.90, 8),
}
# Printed 0.01 too large; the first is held against the definition above.
LESS: dict[tuple[int, float], float] = {(50, 1): 0.82, (1000, 4): 3.89}


@pytest.mark.parametrize("honest", PRINTED)
def test_the_printed_table(honest: int) -> None:
    for local, printed in zip((0.5, 1, 2, 4, 8), PRINTED[honest], strict=True):
        assert round(amplified(honest, local, 1e-5), 2) == LESS.get((honest, local), printed)


def test_the_known_answer_of_a_hundred_thousand_in_seconds() -> None:
    start = time.perf_counter()
    found = amplified(10**5, 4.0, 1e-6)
    assert abs(found - 0.16977) < 1e-4
    assert 0.16754 < found < 0.17279
    assert amplified(10**5, 0.5, 1e-6) < 0.01
    assert time.perf_counter() - start < 20
    assert round(closed_form(10**5, 4.0, 1e-6), 4) == 0.5346
    assert abs(closed_form(10**5, 4.0, 1e-6) - 0.53780) > 0.003, "that is the other closed form"


def test_the_closed_form_refuses_outside_its_condition() -> None:
    for local in (0.01, 1.0, 4.0):
        with pytest.raises(RangeError, match="the theorem holds up to"):
            closed_form(100, local, 1e-5)
    for honest, most in ((1000, 1.63), (10_000, 3.94)):
        assert round(log(honest / (16 * log(2 / 1e-5))), 2) == most
        assert closed_form(honest, most - 0.01, 1e-5) > amplified(honest, most - 0.01, 1e-5)
        with pytest.raises(RangeError, match=f"up to {most}"):
            closed_form(honest, most + 0.01, 1e-5)


def test_more_clients_and_less_local_epsilon_give_less() -> None:
    by_clients = [amplified(n, 1.0, 1e-5) for n in (1, 10, 100, 1000)]
    assert by_clients == sorted(by_clients, reverse=True)
    assert by_clients[0] == pytest.approx(1.0, abs=1e-4)
    assert amplified(1000, 0.001, 1e-3) == 0


def test_a_claim_or_a_reason() -> None:
    found = claim(1000, 1.0, 1e-5)
    assert isinstance(found, ShuffleGuarantee)
    assert found.epsilon == amplified(1000, 1.0, 1e-5)
    assert "Feldman" in found.says()
    assert "honest and tell nobody which row is theirs" in found.says()
    for reason, given in {
        "too large for 1000 clients": (1000, 91.8, 1e-5, 1e-5),
        "not computed here": (1000, 2.0, 1e-5, 1e-6),
        "too few": (8, 2.0, 1e-5, 0.0),
    }.items():
        said = claim(*given)
        assert isinstance(said, str)
        assert said.startswith("no amplification claimed: ")
        assert reason in said


@pytest.mark.parametrize("given", [(0, 1.0, 1e-5), (5, 0.0, 1e-5), (5, float("inf"), 1e-5), (5, 1.0, 0.0)])
def test_what_is_no_number_of_clients_or_guarantee_is_refused(given: tuple[int, float, float]) -> None:
    with pytest.raises(RangeError, match=f"honest = {given[0]}"):
        amplified(*given)
