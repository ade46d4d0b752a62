"""Which tests each command runs: `make check` a first look, `make test` every law and part, `make test-long` all of it.

`tests/conftest.py` asks `selected` with the tier that the command names (`pytest --tier fast`, `test` or `long`). With
no tier everything runs but what is marked `long`, so that whoever runs one file runs all of it. `laws/test_tiers.py`
holds that no law and no part is left out of a tier, and that every test named here exists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Tier = Literal["fast", "test", "long"]
TIERS: tuple[Tier, ...] = ("fast", "test", "long")

# Products of like cases, as `file::test`: `make test` takes each value of each argument at least once, in turn with the
# values of the other arguments; `make test-long` takes every combination.
SPANNED = frozenset(
    {
        "test_abort::test_abort",
        "test_carry::test_through_processes",
        "test_hostile_description::test_a_hostile_description_touches_nothing",
        "test_once::test_once",
        "test_realise::test_realise",
        "test_refused::test_a_bad_message_is_refused_by_its_receiver",
    }
)

# Long lists of like cases: `make test` takes so many of them, spread evenly over the list; `make test-long` all.
SAMPLED: Mapping[str, int] = {}

# Seconds of training or of starting processes, to show at length what a lighter test beside it shows too.
HEAVY = frozenset[str]()

# `make check` takes all cases of these: between them they build every part and play every pipeline once.
WHOLE_IN_CHECK = frozenset(
    {
        "test_docs::test_every_part_is_described_with_its_fields",
        "test_replay::test_replay",
    }
)

# Laws whose tests take seconds: `make check` leaves them out, where the law has another test there.
SLOW_LAWS = frozenset[str]()


@dataclass(frozen=True)
class Case:
    """One test with one choice of arguments: where it lies, what it is called, what it is given."""

    file: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """File and test, wherever the file lies."""
        return f"{self.file.rsplit('/', 1)[-1].removesuffix('.py')}::{self.function.rsplit('::', 1)[-1]}"

    @property
    def is_law(self) -> bool:
        """Whether it tests a law."""
        return "/laws/" in f"/{self.file}"


def selected(cases: Sequence[Case], tier: Tier | None) -> list[bool]:
    """Which of these cases a tier runs; `None`: all but what is marked long."""
    if tier == "long":
        return [True] * len(cases)
    short = ["long" not in case.marks for case in cases]
    if tier is None:
        return short
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        if short[number]:
            groups[case.file, case.function].append(number)
    chosen = set[int]()
    seen_files = set[str]()
    for (file, _), numbers in groups.items():
        of_one = [cases[number] for number in numbers]
        kept = _in_check(of_one, file not in seen_files) if tier == "fast" else _in_test(of_one)
        if kept:
            seen_files.add(file)
        chosen.update(numbers[at] for at in kept)
    return [number in chosen for number in range(len(cases))]


def _in_check(cases: Sequence[Case], opens_file: bool) -> Iterable[int]:
    """The first case of every law's tests, and of the first test of every other file that is not known to be slow."""
    key = cases[0].key
    if key in WHOLE_IN_CHECK:
        return range(len(cases))
    slow = key in SLOW_LAWS | SPANNED | HEAVY or key in SAMPLED
    wanted = cases[0].is_law and key not in SLOW_LAWS | HEAVY
    return [0] if wanted or (opens_file and not slow) else []


def _in_test(cases: Sequence[Case]) -> Iterable[int]:
    key = cases[0].key
    if key in HEAVY:
        return []
    if key in SPANNED:
        return spanning(cases)
    if key in SAMPLED:
        return evenly(len(cases), SAMPLED[key])
    return range(len(cases))


def evenly(count: int, wanted: int) -> list[int]:
    """So many places out of a list, spread over it."""
    wanted = min(count, wanted)
    return sorted({place * count // wanted for place in range(wanted)})


def spanning(cases: Sequence[Case]) -> list[int]:
    """Places of cases that show each value of each argument at least once.

    Along the longest argument the others take turns, so that as many pairs are met as there are cases; what a product
    with holes leaves out is added.
    """
    values: dict[str, list[str]] = defaultdict(list)
    spelled = [{name: repr(value) for name, value in case.arguments.items()} for case in cases]
    for row in spelled:
        for name, value in row.items():
            if value not in values[name]:
                values[name].append(value)
    if not values:
        return list(range(len(cases)))
    longest = max(values, key=lambda name: len(values[name]))
    kept = []
    for place, row in enumerate(spelled):
        turn = values[longest].index(row[longest])
        if all(values[name].index(value) == turn % len(values[name]) for name, value in row.items()):
            kept.append(place)
    met = {pair for place in kept for pair in spelled[place].items()}
    for place, row in enumerate(spelled):
        if not met.issuperset(row.items()):
            kept.append(place)
            met.update(row.items())
    return sorted(kept)
