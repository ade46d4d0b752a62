"""Streamed protocols give what whole ones give, notice what is wrong, and hold no more than strips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import IntegrityError
from croupier.kernels import packed
from croupier.privacy.tiers import Tiers
from croupier.systems import sum_servers
from croupier_lab.bench.speed import large_models, streamed
from croupier_lab.bench.speed.rns_chunks import draw, flat
from croupier_lab.bench.speed.secure_sum import one_sum
from croupier_lab.bench.speed.streamed import bucketed, strips, summed


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several strips of few parameters."""
    monkeypatch.setattr(streamed, "STRIP", 1 << 12)


def kept(parts: list[Any]) -> Any:
    """A server that puts strips together."""
    return lambda start, mean: parts.append((start, mean))


def updates(coins: Coins, params: int, clients: int, whole: int) -> list[Any]:
    """The updates that are drawn by the strip."""
    return [
        np.concatenate([draw(coins.child("update", number).child(c), b - a) for number, a, b in strips(params, whole)])
        for c in range(clients)
    ]


def test_a_streamed_sum_is_the_whole_one() -> None:
    coins, params, clients = Coins.from_seed(1), 10_000, 4
    parts: list[Any] = []
    wire = summed(params, clients, 3, 4, coins, kept(parts))
    assert [start for start, _ in parts] == [a for _, a, _ in strips(params, packed.block(17))]
    assert len(parts) > 2
    one = {"weight": torch.ones(1, dtype=torch.float64)}
    rows = updates(coins, params, clients, packed.block(17))
    whole = {f"c{c}": Update(torch.from_numpy(row), flat(params), one) for c, row in enumerate(rows)}
    _, total = one_sum(sum_servers(clients, 4), whole, Coins.from_seed(2), Coins.from_seed(3))
    assert total is not None
    assert torch.equal(torch.cat([mean for _, mean in parts]), total / clients)
    # Each client's long share and what it is published; each server's sum.
    assert wire.sent >= (2 * clients + 3) * packed.size(params, 17)


def test_a_wrong_strip_is_noticed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = streamed.Wire.send

    def altered(self: Any, source: str, target: str, number: int, body: Any) -> Any:
        if source == "sum1" and number == 1:
            body = body.copy()
            body[7] ^= 1
        return honest(self, source, target, number, body)

    monkeypatch.setattr(streamed.Wire, "send", altered)
    with pytest.raises(IntegrityError, match="does not fit its tag"):
        summed(10_000, 3, 3, 4, Coins.from_seed(1), lambda *_: None)


def test_streamed_buckets_average_clipped_and_noised_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "BLOCK", 1 << 10)
    coins, params, clients = Coins.from_seed(1), 9_000, 8
    parts: list[Any] = []
    wire = bucketed(params, clients, 4, coins, kept(parts))
    mean = torch.cat([part for _, part in parts]).numpy()
    rows = updates(coins, params, clients, 1 << 10)
    clipped = np.mean([row * 0.1 / np.linalg.norm(row) for row in rows], 0)
    privacy = Tiers(clip=0.1, tiers=(0.5, 1, 2, 4, 8))
    spread = sum(privacy.of(f"c{c}").sigma ** 2 for c in range(clients)) ** 0.5 / clients
    assert abs(np.std(mean - clipped) / spread - 1) < 0.05
    # Every row to the relay, and from there to the server.
    assert wire.sent >= 2 * clients * 4 * params


def test_the_command_says_seconds_memory_and_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(large_models, "apart", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(large_models, "rates", lambda _: {"moved in memory": 1e9})
    monkeypatch.setattr(large_models, "keep_freed", lambda: True)
    found = Shell(monkeypatch, capsys).json("bench", "large", "--params", "9000", "--clients", "4")
    assert [row["protocol"] for row in found["rows"]] == ["rns-servers", "intra"]
    assert all(row["seconds"] > 0 and row["peak_bytes"] > 0 and row["copy_s"] > 0 for row in found["rows"])
    large_models.show(found)
    assert "9000 parameters each, streamed" in capsys.readouterr().out
