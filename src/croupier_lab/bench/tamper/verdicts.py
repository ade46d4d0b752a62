"""What every bench of cheating needs: letters that are altered, verdicts, and how they are counted and shown.

The benches of sums, of RAIN and of chains share it (`sums`, `rain/`, `chain`, `proven_rounds`), so that an escape means
the same in all. A trial is `aborted` (somebody honest raised an alarm), `harmless` (the result is right all the same)
or `escapes` (a wrong result was taken for right).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor

from croupier.core.flow import Letter

Verdict = Literal["aborted", "harmless", "escapes"]
Kinds = dict[str, dict[str, int]]


def counted(ended: Iterable[tuple[str, Verdict]]) -> dict[str, Any]:
    """Count trials, escapes, and how every kind of tampering ended."""
    kinds: Kinds = {}
    for kind, verdict in ended:
        counts = kinds.setdefault(kind, {"trials": 0, "aborted": 0, "harmless": 0, "escapes": 0})
        counts["trials"] += 1
        counts[verdict] += 1
    return {
        "trials": sum(kind["trials"] for kind in kinds.values()),
        "escapes": sum(kind["escapes"] for kind in kinds.values()), "kinds": kinds,
    }  # fmt: skip


def body_of(letter: Letter) -> Mapping[str, Tensor]:
    """The arrays of an honest letter."""
    if isinstance(letter.body, bytes):
        raise AssertionError("an honest letter has a body of arrays")
    return letter.body


def filled(letter: Letter, **fields: Tensor) -> Letter:
    """The same letter with other values in some fields."""
    return replace(letter, body={**body_of(letter), **fields})


def places(letters: tuple[Letter, ...], kind: str) -> list[int]:
    """The places of the letters of this kind."""
    return [at for at, letter in enumerate(letters) if letter.kind == kind]


def exchanged(letters: tuple[Letter, ...], at: int) -> tuple[Letter, ...]:
    """The same letters, where two of one kind have exchanged their bodies."""
    same = places(letters, letters[at].kind)
    other = same[(same.index(at) + 1) % len(same)]
    swap = {at: letters[other].body, other: letters[at].body}
    return tuple(replace(letter, body=swap.get(place, letter.body)) for place, letter in enumerate(letters))


def table(found: Mapping[str, Any]) -> str:
    """The counts as text, a line for every kind of tampering."""
    head = f"{'kind':<24}{'trials':>8}{'aborted':>9}{'harmless':>10}{'escapes':>9}"
    lines = [
        f"{name:<24}{kind['trials']:>8}{kind['aborted']:>9}{kind['harmless']:>10}{kind['escapes']:>9}"
        for name, kind in found["kinds"].items()
    ]
    return "\n".join([head, *lines])


def escaped(found: Mapping[str, Any]) -> str:
    """Which kinds got by, and how often."""
    return ", ".join(f"{name} {kind['escapes']}" for name, kind in found["kinds"].items() if kind["escapes"])
