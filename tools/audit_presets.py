"""Whether every preset can be audited: `python -m tools.audit_presets [--seeds N] [--into FOLDER] [PRESET ...]`.

Runs `croupier audit PRESET --fast --json` for each, one after another, and prints what came of it: exit code, seconds,
processor seconds, the most memory that its processes held together, the first row's defence, and how many answers have
each status. Ends with 1 where one of them is not as docs/audit-report.md says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from croupier.toml_read import presets

ANSWER = ("adversary", "value", "low", "high", "prior", "gain", "control", "status")


def faults(preset: str, code: int, printed: str) -> list[str]:
    """What is wrong with an audit of a preset; nothing where all is as it should be."""
    if code:
        return [f"exit code {code}"]
    try:
        rows = json.loads(printed)["rows"]
    except (ValueError, KeyError) as error:
        return [f"no report: {error!r}"]
    # `own-...` where a protocol that it is compared with has the preset's name.
    own = rows[0]["defence"] in (preset, f"own-{preset}") and rows[0]["own"]
    found = [] if own else [f"the first row is {rows[0]['defence']!r}"]
    asked = {name for row in rows for name in row["questions"]}
    for row in rows:
        found += [f"{row['defence']}: {name} is missing" for name in asked if name not in row["questions"]]
        for name, answer in row["questions"].items():
            lacks = [key for key in ANSWER if key not in answer]
            found += [f"{row['defence']}: {name} has no {', '.join(lacks)}"] if lacks else []
    return found if asked else [*found, "no question"]


def statuses(rows: list[Mapping[str, Any]]) -> str:
    """How many answers about the preset's own protocol, and about all, have each status."""
    counts = [Counter(one["status"] for row in some for one in row["questions"].values()) for some in (rows[:1], rows)]
    return "; ".join(", ".join(f"{many} {status}" for status, many in sorted(each.items())) for each in counts)


def held_by(process: int) -> int:
    """Bytes of memory that a process and all that it started hold now; what they share counts once."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(one) for thread in threads for one in (thread / "children").read_text().split()]
    except (OSError, StopIteration):
        # It has just ended.
        return 0
    return own + sum(held_by(child) for child in children)


def audited(preset: str, seeds: int | None, into: Path) -> tuple[int, float, float, int, str]:
    """One audit: exit code, seconds, processor seconds, peak bytes, and what it printed."""
    command = [sys.executable, "-m", "croupier", "audit", preset, "--fast", "--json"]
    command += ["--seeds", str(seeds)] if seeds else []
    printed, begun, peak = into / f"{preset}.json", time.perf_counter(), 0
    with printed.open("wb") as out, (into / f"{preset}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, cwd=into)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, held_by(process.pid))
            time.sleep(2)
    spent = ended[2].ru_utime + ended[2].ru_stime
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    return process.returncode, time.perf_counter() - begun, spent, peak, printed.read_text()


def main(arguments: list[str]) -> int:
    """Print the table; 1 where an audit has a fault."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("presets", nargs="*", help="which ones; all when not said")
    options.add_argument("--seeds", type=int, help="independent runs; what --fast takes when not said")
    options.add_argument("--into", type=Path, help="keep reports and logs in this folder")
    asked = options.parse_args(arguments)
    wrong = 0
    print(f"{'preset':17} {'rc':>3} {'s':>6} {'cpu s':>6} {'GiB':>5}  first row: statuses of it; of all rows")
    with TemporaryDirectory() as passing:
        into = asked.into or Path(passing)
        into.mkdir(parents=True, exist_ok=True)
        for preset in asked.presets or presets():
            code, seconds, spent, peak, printed = audited(preset, asked.seeds, into.resolve())
            found = faults(preset, code, printed)
            rows = json.loads(printed)["rows"] if not code and printed else []
            said = f"{rows[0]['defence']}: {statuses(rows)}" if rows else (into / f"{preset}.log").read_text()[-300:]
            print(f"{preset:17} {code:3} {seconds:6.0f} {spent:6.0f} {peak / (1 << 30):5.2f}  {said}", flush=True)
            for one in found:
                print(f"  wrong: {one}", flush=True)
            wrong += bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
