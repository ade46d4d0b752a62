"""Rates are measured, with the functions that a round uses."""

from __future__ import annotations

from dataclasses import asdict

from croupier.place.chain.proven_cost import rates


def test_every_rate_is_measured_and_plausible() -> None:
    found = asdict(rates())
    assert all(1e-7 < rate < 0.1 for rate in found.values()), found
    assert rates() is rates()
