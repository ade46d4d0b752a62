"""The bench of shuffles: what it counts is what the protocols send, and a wrong result is no result."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from tests.shell import Shell

from croupier.core.coins import Coins
from croupier.errors import CroupierError
from croupier.mpc import onion
from croupier.mpc.group import Xor
from croupier_lab.bench.speed import shared_row_shuffles
from croupier_lab.bench.speed.shared_row_shuffles import RowShufflesSize, SharedRows, measure, show

HAS = find_spec("rbcl") is not None


def test_what_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    clients, params = 5, 77
    found = measure(RowShufflesSize(clients=clients, params=params, repeats=2), 1)
    forms, row = found["forms"], (params + 7) // 8
    assert set(forms) == set(shared_row_shuffles.FORMS) - (set() if HAS else {"transfer"})
    assert all(form["offline_s"] > 0 and form["online_s"] > 0 and form["label"] for form in forms.values())
    assert forms["dealer"]["offline_bytes"] == 2 * (64 + clients * row)
    assert forms["dealer"]["online_bytes"] == forms["dabits"]["online_bytes"] == 2 * clients * row
    assert forms["dabits"]["offline_bytes"] == 64 + 4 * clients * params
    # Three layers of a label (32) and a box (48), around a seed (32) and the row.
    assert forms["onion"]["client_bytes"] == onion.size(Xor(params)) == row + 32 + 3 * (32 + 48)
    # There two layers of each, and back the innermost.
    assert forms["onion"]["online_bytes"] == clients * (row + 32 + 2 * 80) + clients * (32 + 80)
    if HAS:
        # Five rows need three levels: for each of the 15 transfers a point and a pair, and one more point.
        assert forms["transfer"]["offline_bytes"] == 2 * (32 + 15 * (32 + 32))
        assert forms["transfer"]["online_bytes"] == forms["dealer"]["online_bytes"]
    show(found)
    said = capsys.readouterr().out
    assert all(f"\n{name}" in said for name in shared_row_shuffles.FORMS)


def test_without_the_extra_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared_row_shuffles, "find_spec", lambda _: None)
    found = measure(RowShufflesSize(clients=3, params=8, repeats=1), 1)
    assert set(found["forms"]) == {"dealer", "onion", "dabits"}
    show(found)
    assert "pip install croupier[transfer]" in capsys.readouterr().out


def test_a_wrong_result_is_an_error() -> None:
    case = SharedRows.draw(RowShufflesSize(clients=4, params=20, repeats=1), Coins.from_seed(1))
    case.check(case.clear[[2, 0, 3, 1]], "x")
    for wrong in (case.clear[[0, 0, 1, 2]], case.clear ^ np.uint8(1)):
        with pytest.raises(CroupierError, match="x: the shuffled rows"):
            case.check(wrong, "x")


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    found = shell.json("bench", "shuffles", "--params", "50", "--clients", "3", "--repeats", "1")
    assert {"offline_s", "offline_bytes", "online_s", "online_bytes", "label"} <= set(found["forms"]["dealer"])
    assert "params = 50" in shell("bench", "shuffles", "--params", "50", "--print-config")[1]
