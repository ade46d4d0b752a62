"""Where the tests' time goes: `pytest --tier long --junitxml times.xml`, then `python tools/test_times.py times.xml`.

Prints the tests that take most, all their cases together, with the number of cases and the file. `tests/tiers.py` is
filled from this list.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from xml.etree import ElementTree


def seconds_by_test(report: str) -> dict[tuple[str, str], list[float]]:
    """The seconds of every case of every test, by file and name."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").rsplit(".", 1)[-1]
        found[file, case.get("name", "").partition("[")[0]].append(float(case.get("time", 0)))
    return found


def main(arguments: list[str]) -> None:
    """Print the longest, and what all take together."""
    found = seconds_by_test(arguments[0])
    shown = int(arguments[1]) if len(arguments) > 1 else 60
    for (file, name), seconds in sorted(found.items(), key=lambda each: -sum(each[1]))[:shown]:
        print(f"{sum(seconds):8.1f} s {len(seconds):5} cases  {file}::{name}")
    print(f"{sum(map(sum, found.values())):8.1f} s {sum(map(len, found.values())):5} cases  all")


if __name__ == "__main__":
    main(sys.argv[1:])
