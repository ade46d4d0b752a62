"""The rows of Tazza's Figure 17, the search for a rule in parameters, and what they say together.

`papers/tazza/parameter_search` fills them. Other figures of this room use `interval`: `augmentation`, `patch_search`,
`permuted_training` and `picture_distance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier_lab.attacks.rule_search import (
    BITS,
    blind_index_error,
)
from croupier_lab.papers.shared.trainings import cell

# Figure 17 (a): the mean error is "concentrated near 280".
PRINTED = 280.0
# The group of the input's pixels in the network's symmetry, and how many they are.
INPUT, PIXELS, SIDE = "input.0", 784, 28
COLUMNS = {
    "setting": "", "attack": "", "paper_error": None, "index_error": None, "blind_error": None, "recovered": None,
    "chance": None, "neighbours_kept": None, "chance_neighbours": None, "psnr": None, "ssim": None, "trial_ms": None,
    "core_hours": None,
}  # fmt: skip


def search_row(
    setting: str, attack: str, errors: Sequence[float], right: Sequence[float], paper: float | None = None
) -> dict[str, Any]:
    return COLUMNS | {
        "setting": setting, "attack": attack, "paper_error": paper, "index_error": interval(cell(errors), 1),
        "blind_error": round(blind_index_error(PIXELS), 1), "recovered": interval(cell(right), 4),
        "chance": round(1 / PIXELS, 4), "_recovered": cell(right), "_error": cell(errors),
    }  # fmt: skip


def plain_row(setting: str, attack: str, share: float, chance: float) -> dict[str, Any]:
    found = {"setting": setting, "attack": attack, "recovered": f"{share:.4f}", "chance": round(chance, 4)}
    return COLUMNS | found | {"_recovered": None, "_error": None}


def interval(found: Mapping[str, Any], places: int) -> str | None:
    if found["mean"] is None:
        return None
    return f"{found['mean']:.{places}f} [{found['low']:.{places}f}, {found['high']:.{places}f}]"


def says_figure17(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on how far the rule is from secret."""
    whole = [row for row in rows if row["attack"] == "weight matching"]
    sure = [row for row in whole if row["_recovered"]["low"] >= 0.99]
    seeds = [row for row in rows if row["core_hours"] is not None]
    theirs = ", ".join(f"{row['_error']['mean']:.0f}" for row in rows if row["paper_error"] is not None)
    exact = max(row["_exact"]["mean"] for row in rows if "_exact" in row)
    return [
        f"Weight matching recovers at least 99 % of every group in {len(sure)} of {len(whole)} settings. The searches "
        f"that stand for the paper's are {theirs} places off, theirs {PRINTED:.0f}, a random order "
        f"{blind_index_error(PIXELS):.0f}: that a search fails says nothing about the rule.",
        "Where the clients draw the first model, matching still brings all rounds into one frame, in which records of "
        f"single steps come out at {exact:.0f} dB, in an order that only the statistics of pictures can undo.",
        *(f"All {BITS}-bit seeds would take one core {row['core_hours']} hours at most." for row in seeds[:1]),
        "Weight permutation is obfuscation, not encryption. For confidentiality from the server use sum servers.",
    ]
