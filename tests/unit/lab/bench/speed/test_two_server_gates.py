"""The bench of two servers' gates: what it says is there, right and counted."""

from __future__ import annotations

import pytest
from tests.shell import Shell

from croupier.errors import CroupierError
from croupier.mpc import signs
from croupier_lab.bench.speed.two_server_gates import GatesSize, measure, show

HEADER = 148


def test_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(GatesSize(params=800, clients=3, rule_params=20, repeats=1), 1)
    opened, zero, previous = (found["signs"][name] for name in ("opened", "zero", "previous"))
    assert opened["bytes_each_way"] == 4 * 800 + HEADER
    # The masked number, 41 masked bits, or 8 more to tell 0; then a bit for each sign, or two.
    assert previous["bytes_each_way"] == 4 * 800 + (41 + 1) * 100 + 6 * HEADER
    assert zero["bytes_each_way"] == 4 * 800 + (49 + 2) * 100 + 6 * HEADER
    assert zero["rounds"] == previous["rounds"] == 6
    # 73 bits a sign in whole words, and a seed for each.
    assert previous["dealt_bytes"] == [32, 32 + 73 * 8 * 13]
    assert found["rule"]["rounds"] == 3 * 6 + 6 + 3 * 6 + 6 + 1 + 6
    assert found["rule"]["bits"] == 32
    assert all(row["seconds"] > 0 for row in (opened, zero, previous, found["rule"]))
    show(found)
    assert "secret rule" in capsys.readouterr().out


def test_a_wrong_outcome_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    right = signs.plain
    monkeypatch.setattr(signs, "plain", lambda numbers, previous=None: -right(numbers, previous))
    with pytest.raises(CroupierError, match="another outcome"):
        measure(GatesSize(params=8, clients=3, rule_params=2, repeats=1), 1)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    found = shell.json("bench", "gates", "--params", "50", "--clients", "3", "--rule-params", "5", "--repeats", "1")
    assert {"signs", "rule"} <= set(found)
    assert "rule_params = 7" in shell("bench", "gates", "--rule-params", "7", "--print-config")[1]
