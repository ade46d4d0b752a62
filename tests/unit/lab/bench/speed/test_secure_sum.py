"""The bench of a secure sum: what it says is there, and adds up."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier_lab.bench.speed import secure_sum
from croupier_lab.bench.speed.other_secure_sums import PACKAGES, RIVALS
from croupier_lab.bench.speed.secure_sum import SecureSumSize, drawn, measure, show


def test_what_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(secure_sum, "RIVALS", {})
    found = measure(SecureSumSize(params=3000, clients=4, repeats=1), 1)
    assert found["round_s"] > 0
    assert (
        found["bytes_up"]
        == sum(found["itemised"][k] for k in ("payload", "tag")) + 3 * found["itemised"]["header"] + 2 * 32
    )
    assert found["masks_bytes_up"] == found["itemised"]["payload"] + found["itemised"]["header"]
    assert found["largest_error"] <= 4 * 0.5e-5 + 1e-9
    assert not [key for key in found if key.startswith(("secaggplus", "ckks"))]
    show(found)
    assert "not installed" in capsys.readouterr().out


def test_a_rival_that_is_installed_is_measured_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("flwr")
    module.__spec__ = find_spec("json")
    monkeypatch.setitem(sys.modules, "flwr", module)
    monkeypatch.setattr(secure_sum, "RIVALS", {"secaggplus": lambda updates, _: (3.0, 8000, torch.zeros(20))})
    found = measure(SecureSumSize(params=20, clients=3, repeats=1), 1)
    assert found["secaggplus_s"] == 3.0
    assert found["secaggplus_ratio"] == pytest.approx(3.0 / found["round_s"])
    assert found["secaggplus_bytes_ratio"] == pytest.approx(found["bytes_up"] / 8000)


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_compute_the_same_sum(name: str) -> None:
    rival = next(key for key in RIVALS if key == name)
    if find_spec(PACKAGES[rival]) is None:
        pytest.skip(f"{PACKAGES[rival]} is not installed")
    updates = drawn(50, 4, Coins.from_seed(1))
    seconds, sent, total = RIVALS[rival](updates, 1)
    true = torch.stack([update.vector.double() for update in updates.values()]).sum(0)
    assert seconds > 0
    assert sent > 400
    assert float((total - true).abs().max()) < 1e-4


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(secure_sum, "RIVALS", {})
    shell = Shell(monkeypatch, capsys)
    found = shell.json("bench", "sum", "--params", "200", "--clients", "3", "--repeats", "1")
    assert {"round_s", "bytes_up", "itemised"} <= set(found)
    assert "params = 200" in shell("bench", "sum", "--params", "200", "--print-config")[1]
