"""The three levels beside the paper's numbers: every row says what it rests on and why it differs."""

from __future__ import annotations

from croupier_lab.papers.rns.mixnets import _rows


def test_every_level_stands_beside_what_the_paper_says() -> None:
    rows = {(row["level"], row["form"]): row for row in _rows("smoke")}
    full, dealt = rows["full", "full"], rows["semi-honest", "dealer"]
    assert (full["client"], full["paper"]) == (0.75, "1.03 (RLE)")
    assert dealt["paper"] == "1.81"
    assert 1.78 < dealt["client"] < 1.81
    own = [row for (level, _), row in rows.items() if "S.5" in level]
    assert {row["servers"] for row in own} == {10}
    assert rows["malicious", "proofs"]["client"] > 64 * 8 * 57 / 32, "a ciphertext a bit"
    assert rows["malicious", "printed: an onion a bit"]["client"] == 2320, "without the proofs that it needs"
    assert all(row["why"] and row["trusted"] for row in rows.values())
