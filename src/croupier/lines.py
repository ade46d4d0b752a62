"""The lines of a run's metrics as flat numbers: for spreadsheets, trackers and comparisons of runs that are over.

A line of metrics.jsonl is nested. `numbers` makes it flat (for `trackers`, `engine.job.result` and `croupier compare`),
`as_csv` writes the rounds of one or several runs as a table (`croupier run --csv`, `croupier compare --csv`,
`Result.csv`), and `PastRun` reads a run directory for `croupier compare`, without loading its model or its data.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.errors import StoreError

# Left out of the numbers: bytes by party, the model's digest, and what only counts rounds and attempts.
LEFT_OUT = ("bytes", "model", "round", "attempt")


def numbers(line: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Every number of a round's line by its name, inner ones with dots; of a list of names how many there are."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if path == "" and name in LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            found |= numbers(value, f"{path}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found[path + name] = len(value)
        elif isinstance(value, int | float):
            found[path + name] = value
    return found


def as_csv(runs: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Runs by name, a line for each round; a number that a round does not have is left empty."""
    rows = [{"run": name, "round": line["round"], **numbers(line)} for name, lines in runs.items() for line in lines]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@dataclass(frozen=True)
class PastRun:
    """A run that is over, or as far as it came: its folder's name, its description and its rounds."""

    name: str
    described: str
    rounds: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, folder: Path) -> PastRun:
        """A run directory. Raises: StoreError when it is none, or no round ended."""
        try:
            text = (folder / "metrics.jsonl").read_text("utf-8")
            described = (folder / "spec.toml").read_text("utf-8")
        except OSError as error:
            raise StoreError(
                f"{folder}: is no run directory ({error.strerror}); give folders that croupier run wrote"
            ) from None
        except UnicodeDecodeError:
            raise StoreError(f"{folder}: its metrics are no text; the run cannot be read") from None
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                found.append(dict(json.loads(line)))
                int(found[-1]["round"])
            except (ValueError, KeyError, TypeError):
                raise StoreError(
                    f"{folder / 'metrics.jsonl'}: line {number} is damaged; croupier run --resume {folder} mends it"
                ) from None
        if not found:
            raise StoreError(f"{folder}: no round of this run has ended; nothing is there to compare")
        return cls(folder.resolve().name, described, tuple(found))
