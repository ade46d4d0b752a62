"""The bench of encrypted bits: every number of the row is there, and what is timed is checked by another party."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.place.chain.mix_record import MixRecord
from croupier_lab.bench.speed.mix_proofs import measure, show


def test_a_step_is_timed_with_its_proofs_and_the_rival(capsys: pytest.CaptureFixture[str]) -> None:
    row = measure(150, 3, 2, Coins.from_seed(1), share=0.3)
    assert row["form"] == "malicious"
    assert row["servers"] == 2
    assert row["bits"] % 3 == 0
    assert all(row[name] > 0 for name in ("mix_s", "prove_s", "verify_s", "mix_us", "client_bytes", "hop_bytes"))
    assert (row["faster"] is None) == (find_spec("rbcl") is None)
    show(row)
    assert "10^5 bits in" in capsys.readouterr().out


def test_what_does_not_hold_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MixRecord, "_context", lambda self, *said: str(id(self)).encode())
    with pytest.raises(IntegrityError, match="mix1 does not prove"):
        measure(60, 3, 2, Coins.from_seed(1), share=0.3)
