"""The bench of tampering: nothing escapes sum servers, the control and masks show that it would be seen."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.core.flow import Given
from croupier.mpc.tags import Tagger
from croupier.place import placement, servers
from croupier.systems import sum_servers
from croupier_lab.bench.tamper import sums
from croupier_lab.bench.tamper.sum_tampering import SumTamperCell, cells
from croupier_lab.bench.tamper.sums import SumTamperSize, measure, show, tally

KINDS = {
    "flip", "drop", "repeat", "swap", "scale", "leave out", "leave out, named", "double", "equivocate", "reuse",
    "replay", "silence",
}  # fmt: skip


def test_nothing_escapes_and_the_control_lets_scaled_totals_by(capsys: pytest.CaptureFixture[str]) -> None:
    every = len(cells("sum-servers"))
    found = measure("sum-servers", SumTamperSize(trials=every), 5)
    assert found["trials"] == every
    assert found["escapes"] == 0
    assert set(found["kinds"]) == KINDS
    for kind in found["kinds"].values():
        assert kind["trials"] == kind["aborted"] + kind["harmless"] + kind["escapes"]
    for name in ("scale", "leave out", "double", "silence"):
        assert found["kinds"][name]["aborted"] == found["kinds"][name]["trials"] > 0, name
    assert found["kinds"]["repeat"]["aborted"] == 0
    control = found["control"]
    assert control["kinds"]["scale"]["escapes"] >= 6, "three factors, at all servers and in what is published"
    assert control["kinds"]["leave out"]["escapes"] > 0
    assert control["escapes"] == sum(kind["escapes"] for kind in control["kinds"].values())
    show(found)
    out = capsys.readouterr().out
    assert "0 escapes" in out
    assert "control, tags without pads" in out


def test_masks_have_no_integrity_and_the_bench_says_so() -> None:
    found = measure("masks", SumTamperSize(trials=2 * len(cells("masks"))), 5)
    assert found["escapes"] > 0
    assert "no integrity" in found["note"]
    assert found["control"] == {}
    assert found["kinds"]["drop"]["aborted"] == found["kinds"]["drop"]["trials"]


def only(*kinds: str) -> list[SumTamperCell]:
    """The cells of some kinds."""
    return [cell for cell in cells("sum-servers") if cell.kind in kinds]


def tried(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> dict[str, Any]:
    """Each cell of some kinds, once."""
    chosen = only(*kinds)
    monkeypatch.setattr(sums, "cells", lambda _: chosen)
    return tally(sum_servers(5), "sum-servers", len(chosen), 12, Coins.from_seed(2), lambda _: None)


def test_keys_that_outlive_their_attempt_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def lasting(seed: bytes, given: Given) -> Coins:
        return Coins(seed)

    assert tried(monkeypatch, "reuse", "replay")["escapes"] == 0
    monkeypatch.setattr(placement, "once", lasting)
    monkeypatch.setattr(servers, "once", lasting)
    found = tried(monkeypatch, "reuse", "replay")
    assert found["kinds"]["reuse"]["escapes"] > 0
    assert found["kinds"]["replay"]["escapes"] > 0


def test_a_check_that_lets_everything_by_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tagger, "fits", lambda *_: True)
    found = tried(monkeypatch, "flip", "double")
    assert found["kinds"]["double"]["escapes"] == found["kinds"]["double"]["trials"]
    assert found["kinds"]["flip"]["escapes"] > 0


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    found = shell.json("bench", "tamper", "--system", "masks", "--trials", "20")
    assert {"trials", "escapes", "kinds", "control"} <= set(found)
    assert "trials = 20" in shell("bench", "tamper", "--trials", "20", "--print-config")[1]


def test_a_round_loop_that_asks_no_client_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "alarmed", lambda *_: None)
    found = tried(monkeypatch, "silence", "double")
    assert found["kinds"]["silence"]["escapes"] == found["kinds"]["silence"]["trials"] == 3
    assert found["kinds"]["double"]["escapes"] > 0
