"""The bench of two servers: what it says is there, counted, and equal to the rule in the clear."""

from __future__ import annotations

import pytest
import torch

from croupier.errors import ProtocolError
from croupier_lab.bench.speed import rain_round, rain_servers
from croupier_lab.bench.speed.rain_inputs import Mode, RainRoundSize
from croupier_lab.bench.speed.rain_round import measure

KEYS = {
    "clients", "params", "mode", "streamed", "repeats", "clear_s", "mean_s", "client_bytes", "client_s", "online_s",
    "offline_s", "rounds", "server_bytes", "dealt_bytes", "peak_bytes", "peak_growth_bytes",
    "equal_to_clear",
}  # fmt: skip


# Of every message.
HEADER = 148


@pytest.mark.parametrize(("mode", "streamed"), [("semi-honest", False), ("malicious", False), ("malicious", True)])
def test_a_round_of_two_servers_is_measured_whole(mode: Mode, streamed: bool) -> None:
    found = measure(RainRoundSize(clients=5, params=256, mode=mode, streamed=streamed, repeats=1), 1)
    assert set(found) == KEYS
    assert found["equal_to_clear"] is True
    assert all(found[name] > 0 for name in ("clear_s", "mean_s", "client_s", "online_s", "offline_s", "peak_bytes"))
    honest = mode == "semi-honest"
    # To each server a hidden row, and a signature with what was handed out where servers may cheat.
    assert found["client_bytes"] == 2 * (HEADER + 32 + (0 if honest else 64 + 32))
    # Shares of 4 bytes, or of 8 with tags; and for the check 9 triples, a random element and two hashes a row.
    assert found["dealt_bytes"] == 5 * 256 * (4 if honest else 16) + (0 if honest else 2 * 16 * (3 * 9 + 1 + 2 * 5))
    # Here, q, distances, sum; besides forward, root, key, levels, blind, zero, checks of 4 turns, and the outcome.
    assert found["rounds"] == (4 if honest else 4 + 3 + 3 + 2 + 16 + 1)
    # The rows once, 5 distances and 256 sums, and who is here.
    if honest:
        assert found["server_bytes"][1] == 4 * HEADER + 5 * 32 + 4 * 5 + 4 * 256 + 5


def test_a_wrong_sum_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"online_s": 1.0, "offline_s": 1.0, "sums": torch.full((256,), 99)}
    monkeypatch.setattr(rain_round, "server_rounds", lambda size, seed: [wrong])
    with pytest.raises(ProtocolError, match="another sum than the rule in the clear"):
        measure(RainRoundSize(clients=5, params=256, mode="semi-honest", repeats=1), 1)


def test_servers_that_differ_or_fail_are_no_measurement() -> None:
    one = {"sums": torch.zeros(2)}
    with pytest.raises(ProtocolError, match="different sums"):
        rain_servers._together(one, {"sums": torch.ones(2)})


def test_a_round_that_opens_no_sum_is_no_measurement() -> None:
    with pytest.raises(ProtocolError, match=r"params = 64: too few rows were accepted.*take more"):
        measure(RainRoundSize(clients=5, params=64, repeats=1), 1)
