"""A ledger composes exactly, agrees with Google's accountant, and never mixes units."""

from __future__ import annotations

import math
from typing import Any

import pytest

from croupier.core import canon
from croupier.errors import PrivacyError, RangeError, SpecError
from croupier.learn.budget import epsilon as sampled_epsilon
from croupier.privacy import losses
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of, mu_for
from croupier.privacy.ledger import Event, Ledger
from croupier.privacy.response import Response

DELTA = 1e-5


def noised(count: int, mu: float = 0.5, first: int = 0) -> Ledger:
    return Ledger(tuple(Event(first + number, "gaussian", mu=mu) for number in range(count)))


@pytest.mark.parametrize(
    ("count", "row"),
    [
        (5, (1.21, 2.44, 5.00, 10.4, 22.2)),
        (10, (1.77, 3.62, 7.54, 16.1, 35.6)),
        (50, (4.41, 9.36, 20.8, 48.5, 119)),
    ],
)
def test_the_printed_composition(count: int, row: tuple[float, ...]) -> None:
    for epsilon, printed in zip((0.5, 1, 2, 4, 8), row, strict=True):
        found = noised(count, mu_for(epsilon, DELTA)).epsilon(DELTA)
        assert float(f"{found:.3g}") == printed


@pytest.mark.parametrize(("count", "epsilon"), [(5, 0.5), (10, 2.0), (50, 1.0)])
def test_the_two_methods_agree(count: int, epsilon: float) -> None:
    """The discretised losses are an upper bound of the exact curve, and close."""
    pytest.importorskip("dp_accounting")
    ledger = noised(count, mu_for(epsilon, DELTA))
    exact, bound = ledger.epsilon(DELTA), ledger.epsilon(DELTA, by="pld")
    assert exact * (1 - 1e-9) <= bound <= exact * (1 + 1e-3)


def test_pure_releases_add_up_and_join_noise() -> None:
    pure = Ledger((Event(0, "response", epsilon=1.0), Event(1, "response", epsilon=2.0)))
    assert pure.epsilon(0.0) == 3
    assert pure.epsilon(DELTA) == 3
    both = noised(3, first=2)
    for event in pure.events:
        both = both.add(event)
    assert both.epsilon(DELTA) == pytest.approx(3 + epsilon_of(0.5 * math.sqrt(3), DELTA))
    assert both.epsilon(0.0) == math.inf
    leaky = Ledger((Event(0, "other", epsilon=1.0, delta=1e-6), *both.events))
    assert leaky.epsilon(DELTA) == pytest.approx(4 + epsilon_of(0.5 * math.sqrt(3), DELTA - 1e-6))
    assert leaky.epsilon(1e-7) == math.inf
    pytest.importorskip("dp_accounting")
    assert pure.epsilon(0.0, by="pld") == pytest.approx(3, abs=1e-3)
    assert both.epsilon(DELTA, by="pld") <= both.epsilon(DELTA), "the losses of both together are less than added up"


def test_a_release_that_is_sent_again_is_the_same() -> None:
    first = Event(3, "gaussian", mu=0.5, model="aa")
    ledger = Ledger().add(first)
    assert ledger.add(Event(3, "gaussian", mu=0.5, model="aa")) == ledger
    assert len(ledger.add(Event(3, "gaussian", mu=0.5, model="bb")).events) == 2, "another model is another question"
    assert len(ledger.add(Event(4, "gaussian", mu=0.5, model="aa")).events) == 2
    assert Ledger().epsilon(DELTA) == 0


def test_units_never_compose() -> None:
    mixed = noised(1).add(Event(0, "dp-sgd", "record", mu=1.0, rate=0.1, steps=10))
    for by in ("gdp", "pld"):
        with pytest.raises(PrivacyError, match="different things and never compose; keep a ledger of each"):
            mixed.epsilon(DELTA, by=by)


def test_sampled_records_have_losses_only() -> None:
    ledger = Ledger(tuple(Event(number, "dp-sgd", "record", mu=1.0, rate=0.1, steps=20) for number in range(5)))
    with pytest.raises(PrivacyError, match="use by = 'pld'"):
        ledger.epsilon(DELTA)
    pytest.importorskip("dp_accounting")
    assert ledger.epsilon(DELTA, by="pld") == pytest.approx(sampled_epsilon(1.0, 0.1, 100), rel=1e-3)


def test_mechanisms_say_what_they_release() -> None:
    event = Gaussian(clip=1, sigma=4).event(2, "aa")
    assert event == Event(2, "gaussian", mu=0.5, clip=1.0, sigma=4.0, model="aa")
    assert Gaussian(clip=1, sigma=0).event(2) is None
    assert Response(coordinates=2, epsilon=1.5).event(0) == Event(0, "response", epsilon=1.5)


def test_a_ledger_can_be_kept() -> None:
    ledger = noised(3).add(Event(9, "response", epsilon=1.0, model="cc"))
    assert Ledger.read(canon.load(canon.dump(ledger.plain()))) == ledger


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"mu": 1.0, "epsilon": 1.0}, {"mu": -1.0}, {"epsilon": -1.0}, {"mu": 1.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 1.0}, {"mu": 1.0, "unit": "row"}, {"mu": 1.0, "rate": 0.0}, {"mu": 1.0, "steps": 0},
        {"epsilon": 1.0, "rate": 0.5},
    ],
)  # fmt: skip
def test_what_is_no_release_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RangeError):
        Event(0, "x", **wrong)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(RangeError, match="by = 'rdp'"):
        noised(1).epsilon(DELTA, by="rdp")  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="delta = 1"):
        noised(1).epsilon(1.0)
    assert Ledger((Event(0, "x", mu=math.inf),)).epsilon(DELTA) == math.inf


def test_without_the_accountant_there_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(SpecError, match=r"croupier\[dp\]"):
        losses.epsilon([(1.0, 1.0, 1)], [], DELTA)
