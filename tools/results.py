"""Writes docs/results.md, what became of every claim of the papers: `python -m tools.results` (part of `make docs`).

The rows are values of the laboratory (`croupier_lab.papers.claims`); `tests/unit/lab/papers/test_claims.py` holds that
the page is up to date, and that every number of ours stands in docs/benchmarks.md or in a stored result.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from croupier_lab.papers.claims import CLAIMS, TITLES, counts
from croupier_lab.papers.shared.claim import MEANINGS, TESTED, Claim, ClaimSource, ClaimStatus

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
HEAD = """# Results against the papers

Written by `make docs` from the rows that `croupier reproduce --list` prints. Every figure, table,
numbered algorithm, theorem and headline claim of the four papers has a row, beside what was seen
here. Numbers of ours are those of [benchmarks](benchmarks.md), of a stored count, or of a test.
"""


def written() -> str:
    """The whole page."""
    return "".join([HEAD, "\n", *_statuses(), "\n", _totals(), *(_paper(key) for key in CLAIMS)])


def _statuses() -> list[str]:
    return [
        textwrap.fill(f"- **{status}**: {said}.", 100, subsequent_indent="  ") + "\n"
        for status, said in MEANINGS.items()
    ]


def _totals() -> str:
    lines = ["| paper | " + " | ".join(ClaimStatus) + " |", "|---|" + "---|" * len(ClaimStatus)]
    for key, claims in CLAIMS.items():
        lines.append(f"| {TITLES[key].split(':')[0]} | " + " | ".join(map(str, counts(claims).values())) + " |")
    return "\n".join(lines) + "\n"


def _paper(key: str) -> str:
    lines = ["", f"## {TITLES[key].split(':')[0]}", "", TITLES[key] + ".", ""]
    lines += [
        "| where, and what it says | status | the paper | here | scale, date | command |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(claim) for claim in CLAIMS[key]]
    return "\n".join(lines) + "\n"


def _row(claim: Claim) -> str:
    here = ". ".join(part[0].upper() + part[1:] for part in (claim.ours, claim.why) if part)
    cells = [
        f"**{claim.name}**: {claim.says}",
        claim.status.value,
        claim.paper or "-",
        here or "-",
        _when(claim.seen),
        f"`{claim.command}`" if claim.command else "-",
    ]
    return "| " + " | ".join(cells) + " |"


def _when(seen: ClaimSource | None) -> str:
    if seen is None:
        return "-"
    if seen is TESTED:
        return "a test"
    at = (
        f"[stored]({seen.where})"
        if seen.where.startswith("results/")
        else f"[{seen.scale}](benchmarks.md#{_slug(seen.where)})"
    )
    return f"{at}, {seen.date}"


def _slug(heading: str) -> str:
    """The anchor that a heading has on the site."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return "-".join(kept.split())


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(), "utf-8")


if __name__ == "__main__":
    main()
