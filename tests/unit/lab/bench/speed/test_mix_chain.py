"""The bench of mix networks: every form's sum is right, its bytes are those of messages, and a wrong sum is seen."""

from __future__ import annotations

import pytest
import torch

from croupier.core.coins import Coins
from croupier.encode.encoder import Released
from croupier.errors import CroupierError
from croupier.place.chain.table import MixTable
from croupier_lab.bench.speed.mix_chain import MixSize, measure, pipelines, played, show
from croupier_lab.bench.speed.secure_sum import drawn


def test_every_form_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(MixSize(params=300, clients=4, servers=2, digits=3, encrypted=0), 1)
    rows = {row["form"]: row for row in found["forms"]}
    assert list(rows) == ["relay", "full", "pairs", "dealer", "onion"]
    assert [rows[name]["servers"] for name in rows] == [1, 1, 3, 2, 2]
    assert rows["dealer"]["bits"] == rows["pairs"]["bits"] == rows["relay"]["bits"]
    # Four clients' bits, each row in whole bytes, and who is present.
    assert rows["dealer"]["hop_bytes"] == 4 * -(-rows["dealer"]["bits"] // 32) + 4
    assert rows["full"]["client_bytes"] < rows["relay"]["client_bytes"]
    assert rows["dealer"]["client_bytes"] < rows["relay"]["client_bytes"] + 600, "a long share and a seed"
    for row in found["forms"]:
        assert row["prove_s"] is row["verify_s"] is None
        assert row["mix_s"] > 0
        assert (row["deal_s"] is not None) == (row["form"] == "dealer")
    show(found)
    assert "hop / copy" in capsys.readouterr().out


def test_a_wrong_sum_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MixTable.released

    def off(self: MixTable, present: tuple[str, ...], rows: object) -> Released:
        got = honest(self, present, rows)  # type: ignore[arg-type]
        assert got.rows is not None
        return Released(got.present, torch.zeros_like(got.rows), layout=got.layout)

    monkeypatch.setattr(MixTable, "released", off)
    size = MixSize(params=50, clients=3, servers=2, digits=3)
    with pytest.raises(CroupierError, match="is not that of the updates"):
        played(pipelines(size)["dealer"], drawn(50, 3, Coins.from_seed(2)), Coins.from_seed(2))
