"""What the paper prints, judged: verdicts follow from arithmetic, and change when a number does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.errors import SpecError
from croupier_lab.papers.rns.bits_per_parameter import CLAIMS, PaperClaim, expanded, judge, judged, table

BROKEN = {"Table 1, r = 3, 1.04x", "Table 1, r = 4, 1.28x", "Table 1, r = 5, 1.81x"}


def test_expansions_are_bits() -> None:
    assert [expanded(factor) for factor in (1.04, 1.28, 1.81, 2.4)] == [33, 41, 58, 77]


def test_which_entries_break_the_papers_own_condition() -> None:
    rows = judged()
    assert {row["where"] for row in rows if row["where"].startswith("Table 1") and not row["lossless"]} == BROKEN
    assert all(not row["lossless_without_signs"] for row in rows if row["where"] in BROKEN)
    nine = {(row["clients"], row["digits"]): row["lossless"] for row in rows if row["where"].startswith("Table 9")}
    assert [key for key, fine in nine.items() if not fine] == [(10_000, 8)]
    eight = next(row for row in rows if row["digits"] is None)
    assert (eight["lossless"], eight["sums"], eight["least_sum"], eight["least_bits"]) == (True, 2541, 30, 25)
    assert "not the least" in eight["verdict"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.where}, {claim.clients}")
def test_a_verdict_turns_at_the_least_sum(claim: PaperClaim) -> None:
    found = judge(claim)
    at, below = (judge(replace(claim, bits=found["least_sum"] - off)) for off in (0, 1))
    assert at["lossless"]
    assert not below["lossless"]
    assert below["verdict"].startswith("breaks its condition")
    assert found["lossless"] == (found["bits"] >= found["least_sum"])


def test_cells_hold_what_the_paper_prints_for_them() -> None:
    cells = {(cell["clients"], cell["digits"]): cell for cell in table()}
    assert cells[10, 4]["printed"] == [41, 55]
    assert cells[10_000, 16]["printed"] == [440]
    assert cells[5, 1]["printed"] == []
    assert all(cell["bits"] == sum(m - 1 for m in cell["moduli"]) for cell in cells.values())


def test_a_claim_about_nobody_is_refused() -> None:
    with pytest.raises(SpecError):
        judge(replace(CLAIMS[0], clients=0))
