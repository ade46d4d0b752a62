"""The bench of cheating in a chain: what is promised is caught, what is not escapes, and a missing check is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from croupier.place.chain import receipts
from croupier_lab.bench.tamper import chain
from croupier_lab.bench.tamper.chain import BY_DESIGN, ChainTamperSize, cells, measure, show


def test_only_rows_that_servers_alter_escape(capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(ChainTamperSize(trials=len(cells())), 3)
    assert found["trials"] == len(cells())
    assert found["against_promise"] == 0
    assert found["escapes"] == sum(found["kinds"][name]["escapes"] for name in BY_DESIGN) > 0
    for name in ("leave out", "leave out, to others", "leave out, to one", "forge a receipt", "name others", "drop"):
        assert found["kinds"][name]["aborted"] == found["kinds"][name]["trials"] > 0, name
    show(found)
    assert "0 of them against the promise" in capsys.readouterr().out


def test_receipts_that_nobody_checks_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(*_: Any) -> Iterator[Any]:
        yield from ()

    # Then a server that does as if a client had not come leaves it out, and the client does not notice.
    monkeypatch.setattr(receipts, "checked", unchecked)
    monkeypatch.setattr(chain, "cells", lambda: [cell for cell in cells() if cell.kind == "leave out"])
    found = measure(ChainTamperSize(trials=3), 3)
    assert found["kinds"]["leave out"]["aborted"] == 0
