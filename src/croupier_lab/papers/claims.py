"""All claims of the four papers, for `croupier reproduce --list` and docs/results.md.

Each paper's own list is in its room's `claims` module. `cli.listed` prints what `listed` returns, and
`tools/results.py` writes docs/results.md from `CLAIMS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from croupier_lab.papers.intra import claims as intra
from croupier_lab.papers.rain import claims as rain
from croupier_lab.papers.rns import claims as rns
from croupier_lab.papers.rns import claims_appendix as rns_appendix
from croupier_lab.papers.shared.claim import Claim, ClaimStatus
from croupier_lab.papers.tazza import claims as tazza

CLAIMS: Mapping[str, Sequence[Claim]] = {
    "rns": rns.CLAIMS + rns_appendix.CLAIMS,
    "intra": intra.CLAIMS,
    "rain": rain.CLAIMS,
    "tazza": tazza.CLAIMS,
}
TITLES = {
    "rns": "RNS: Athanasiou, Jung and Palamidessi, Protection against Source Inference Attacks (ICLR 2026)",
    "intra": "IntraShuffler: Riya, Kotevska and Sun (arXiv 2606.02563)",
    "rain": "RAIN: Li et al., Secure and Robust Aggregation under Shuffle Model (arXiv 2603.03108)",
    "tazza": "Tazza: Lee et al., Shuffling Neural Network Parameters",
}


def listed() -> dict[str, Any]:
    """Every claim by paper, and how many of each status."""
    return {
        "papers": {key: {"title": TITLES[key], "claims": [one.plain() for one in CLAIMS[key]]} for key in CLAIMS},
        "counts": {key: counts(CLAIMS[key]) for key in CLAIMS},
    }


def counts(claims: Sequence[Claim]) -> dict[str, int]:
    """How many claims of each status."""
    found = Counter(one.status for one in claims)
    return {status.value: found[status] for status in ClaimStatus}
