"""What a paper claims, as a value: a figure, a table, an algorithm, a theorem, or a sentence of its abstract.

Every paper's room lists them in `claims.py` (RNS also in `claims_appendix.py`); `papers/claims.py` joins them. Numbers
of ours stand where `seen` says, and a test finds each of them there: a claim cannot say more than what was run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClaimStatus(StrEnum):
    """What became of a claim here."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    SUBSTITUTED = "substituted"
    NOT_RUN = "not run yet"
    NOT_POSSIBLE = "not possible here"


MEANINGS = {
    ClaimStatus.REPRODUCED: "what was run here, or is tested exactly, shows what the claim says",
    ClaimStatus.CONTRADICTED: "what was run here, or is tested exactly, shows otherwise",
    ClaimStatus.SUBSTITUTED: "run with something else in place of what the paper has: beside its numbers, not under "
    "its name",
    ClaimStatus.NOT_RUN: "nothing but whether it runs was seen so far, or it is not built",
    ClaimStatus.NOT_POSSIBLE: "what it takes is not to be had here, or there is nothing to run",
}


@dataclass(frozen=True)
class ClaimSource:
    """Where our numbers stand, at which scale they were made, and when.

    `where` is a heading of docs/benchmarks.md, or a file of docs/results/. Tests have neither: `TESTED`.
    """

    where: str
    scale: str
    date: str


# Shown exactly, by a test that every run of the suite repeats.
TESTED = ClaimSource("tests", "exact", "every run of the tests")


@dataclass(frozen=True)
class Claim:
    """One claim: where it stands in the paper and what it says, what became of it, and what shows that.

    `command` is what is run to see it: one of `croupier`'s, or a test of this repository by `pytest FILE::NAME`.
    """

    name: str
    says: str
    status: ClaimStatus
    command: str = ""
    paper: str = ""
    ours: str = ""
    why: str = ""
    seen: ClaimSource | None = None

    def plain(self) -> dict[str, str | None]:
        """The claim as a plain dict, as `croupier reproduce --list` and docs/results.md show it."""
        at = self.seen
        return {
            "name": self.name,
            "says": self.says,
            "status": self.status.value,
            "command": self.command or None,
            "paper": self.paper or None,
            "ours": self.ours or None,
            "why": self.why or None,
            "where": at.where if at else None,
            "scale": at.scale if at else None,
            "date": at.date if at else None,
        }
