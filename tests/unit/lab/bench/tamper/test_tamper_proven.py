"""Cheating in a mix that proves: nothing gets by, marks are caught where the coin draws them, and checks matter."""

from __future__ import annotations

import pytest

from croupier.core.coins import Coins
from croupier.place.chain.mix_record import MixRecord
from croupier_lab.bench.tamper import proven_chain, proven_rounds
from croupier_lab.bench.tamper.proven_chain import CHEATS, LETTERS, NAMES, SLOTS, MarkBench, detection
from croupier_lab.bench.tamper.proven_rounds import ProvenCell, attempted, cells, measure, show, unchecked

COINS = Coins.from_seed(4)
PIPELINE = proven_chain.pipeline()


@pytest.mark.parametrize("kind", CHEATS)
def test_a_server_that_changes_what_it_mixed_ends_the_round(kind: str) -> None:
    cell = ProvenCell(kind, NAMES[1], CHEATS[kind])
    assert attempted(PIPELINE, cell, COINS.child(kind)) == "aborted"


def test_every_server_kind_and_field_is_tried() -> None:
    tried = {(cell.party, *cell.letter) for cell in cells() if cell.letter[0]}
    assert tried == {
        (who, kind, name) for who, kinds in LETTERS.items() for kind, names in kinds.items() for name in names
    }


def test_without_checks_a_wrong_sum_gets_by() -> None:
    assert unchecked(PIPELINE, COINS.child("control")) == "escapes"


def test_hidden_marks_are_caught_where_the_coin_draws_one_of_them() -> None:
    rows = detection(2, COINS.child("marks"))
    assert [row["changed"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["caught"] == 0
    assert [round(row["computed"], 3) for row in rows] == [0.0, 0.333, 0.6, 0.8]
    bench = MarkBench.make(COINS.child("always"))
    assert bench.found(SLOTS, COINS.child("all"))


def test_a_proof_that_nobody_looks_at_catches_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MixRecord, "check_proofs", lambda *_: None)
    assert not MarkBench.make(COINS.child("always")).found(SLOTS, COINS.child("all"))


def test_the_numbers_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = [cell for cell in cells() if cell.kind in ("change a sum", "network drops")]
    monkeypatch.setattr(proven_rounds, "cells", lambda: few)
    found = measure(2, COINS.child("shown"))
    assert found["trials"] == 2
    assert found["escapes"] == 0
    assert found["control"]["escapes"] == 1
    show(found)
    out = capsys.readouterr().out
    assert "with proofs: 2 rounds, 0 escapes" in out
    assert "marks in 2 of 6 numbers, 2 proven" in out
