"""The limit of a sum: its bytes are those that a sum sends and draws, and its seconds follow from rates."""

from __future__ import annotations

from typing import Any

import pytest

from croupier.core.coins import Coins, Stream
from croupier.core.envelope import Link
from croupier.systems import sum_servers
from croupier_lab.bench.speed import sum_limit
from croupier_lab.bench.speed.secure_sum import drawn, one_sum


def test_a_sum_draws_and_seals_what_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    params, clients, servers = 3000, 4, 3
    taken, sealed = list[int](), list[int]()
    honest, seal = Stream.packed, Link.seal

    def counted(self: Stream, bits: int) -> Any:
        taken.append(params * bits // 8)
        return honest(self, bits)

    def weighed(self: Link, envelope: Any) -> Any:
        sealed.append(len(envelope.body))
        return seal(self, envelope)

    monkeypatch.setattr(Stream, "packed", counted)
    monkeypatch.setattr(Link, "seal", weighed)
    pipeline = sum_servers(clients, 5, servers)
    one_sum(pipeline, drawn(params, clients, Coins.from_seed(1)), Coins.from_seed(2), Coins.from_seed(3))
    needed = sum_limit.must(params, clients, servers, getattr(pipeline.encode, "bits", 0))
    assert needed["drawn"] == sum(taken)
    # Sealed and opened; seeds, tags and who is present are a few bytes more.
    assert needed["sealed"] <= 2 * sum(sealed) < needed["sealed"] + 2000


def test_seconds_are_bytes_over_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_limit, "rates", lambda _: {"drawn": 1e9, "sealed": 2e9, "moved": 4e9})
    found = sum_limit.limit(1_000_000, 10, 3, 21, 1)
    assert found["limit"]["drawn"]["bytes"] == 40 * 2_625_000
    assert found["limit"]["sealed"]["bytes"] == 46 * 2_625_000
    assert found["limit"]["moved"]["bytes"] == 40_000_000 + 37 * 2_625_000 + 8_000_000
    assert found["limit_s"] == pytest.approx(0.105 + 0.120750 / 2 + 0.145125 / 4)


def test_rates_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_limit, "_BYTES", 1 << 20)
    monkeypatch.setattr(sum_limit, "_LARGE", 1 << 18)
    found = sum_limit.rates(1)
    assert set(found) == {"drawn", "sealed", "moved", "moved in memory"}
    assert all(rate > 1e6 for rate in found.values())
