"""A figure or table of a paper: what it shows, at which scale we run it, and what we put beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from croupier.audit.experiment import Defence, Setting, Watch, run
from croupier.audit.whose import controlled, rows
from croupier.errors import SpecError, nearest
from croupier.runtime.local import Local

Scale = Literal["smoke", "small", "paper"]
SCALES: Mapping[Scale, str] = {
    "smoke": "whether it runs at all, within a minute",
    "small": "less data and fewer rounds, within a quarter of an hour on two cores",
    "paper": "the paper's setting, for a GPU",
}


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints as a number, and where."""

    rate: float
    where: str


@dataclass(frozen=True)
class Case:
    """One point of a figure, or one column of a table.

    `printed` is by defence. `substitutions` says what differs from the paper beyond the scale; with any of them the
    numbers are ours for our setting, and stand beside the paper's, never under its name.
    """

    label: str
    setting: Setting
    defences: tuple[Defence, ...]
    printed: Mapping[str, Printed] = field(default_factory=dict)
    substitutions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A figure or table."""

    name: str
    source: str
    title: str
    reading: str
    cases: Callable[[Scale], Sequence[Case]]
    seeds: Mapping[Scale, int]


@dataclass(frozen=True)
class Ledger:
    """A figure or table of costs: rows of plain values that are counted or timed, no experiment with clients."""

    name: str
    source: str
    title: str
    reading: str
    rows: Callable[[Scale], list[dict[str, Any]]]


@dataclass(frozen=True)
class Trial:
    """A figure or table of what is trained or reconstructed: rows of plain values over seeds.

    Of `substitutions`, those that begin with the name of a scale ("small: ...") are told at that scale alone.
    `says` reads the rows in plain sentences; `draw` makes an SVG picture of them. `cases` names what `Means.only` may
    choose among, where a trial can be run in pieces; `cuts`: `Means.rounds` is heeded; `bare`: it needs no data folder
    at smoke scale.
    """

    name: str
    source: str
    title: str
    reading: str
    rows: Callable[[Scale, Means, Sequence[int], Watch], list[dict[str, Any]]]
    seeds: Mapping[Scale, int]
    substitutions: tuple[str, ...] = ()
    says: Callable[[Sequence[Mapping[str, Any]]], list[str]] = lambda _: []
    draw: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    cases: Callable[[Scale], Sequence[str]] | None = None
    cuts: bool = False
    bare: bool = False


@dataclass(frozen=True)
class Means:
    """Where and how an entry is run on this machine, and which of a trial's cases: those whose name holds `only`.

    `rounds`: so many instead of the scale's, where a trial can be cut short.
    """

    folder: Path | None = None
    device: str = "cpu"
    workers: int = 1
    abreast: int = 1
    only: str = ""
    rounds: int | None = None


def reproduce(
    entry: Entry, scale: Scale, means: Means, *, only: str = "", seeds: int | None = None, seed: int = 0, watch: Watch
) -> dict[str, Any]:
    """Run an entry's cases, or the one called `only`, or those whose label holds it.

    Raises: SpecError when there is none.
    """
    every = entry.cases(scale)
    cases = [case for case in every if case.label == only] or [case for case in every if only in case.label]
    if not cases:
        raise SpecError(
            f"--only = {only!r}: no case of {entry.name} holds that; {nearest(only, [c.label for c in every])}"
        )
    numbers = range(seed, seed + (seeds or entry.seeds[scale]))
    comparisons = sum(len(defence.attacks) for case in every for defence in case.defences)
    done = [_case(case, numbers, means, comparisons, watch) for case in cases]
    return {
        "kind": "croupier reproduction",
        "entry": entry.name,
        "source": entry.source,
        "title": entry.title,
        "reading": entry.reading,
        "scale": scale,
        "scale_means": SCALES[scale],
        "seeds": list(numbers),
        "device": means.device,
        "comparisons": comparisons,
        "cases": done,
        "says": says(done),
    }


def tried(
    trial: Trial, scale: Scale, means: Means, *, seeds: int | None = None, seed: int = 0, watch: Watch
) -> dict[str, Any]:
    """Run a trial. Raises: SpecError when `means.only` fits none of its cases, or its rounds are fixed."""
    if means.only:
        known = [] if trial.cases is None else list(trial.cases(scale))
        if not known:
            raise SpecError(f"--only = {means.only!r}: {trial.name} has no cases; leave it out")
        if not any(means.only in case for case in known):
            raise SpecError(
                f"--only = {means.only!r}: no case of {trial.name} holds that; {nearest(means.only, known)}"
            )
    if means.rounds is not None and not trial.cuts:
        raise SpecError(f"--rounds = {means.rounds}: {trial.name} has a length of its own; leave it out")
    numbers = range(seed, seed + (seeds or trial.seeds[scale]))
    found = trial.rows(scale, means, numbers, watch)
    return {
        "kind": "croupier trial",
        "entry": trial.name,
        "source": trial.source,
        "title": trial.title,
        "reading": trial.reading,
        "scale": scale,
        "scale_means": SCALES[scale],
        "seeds": list(numbers),
        "device": means.device,
        **({} if means.rounds is None else {"rounds": means.rounds}),
        "substitutions": [said for said in trial.substitutions if _said_at(scale, said)],
        "rows": found,
        "says": trial.says(found),
    }


def needs_data(entry: Entry | Ledger | Trial) -> bool:
    """Whether it needs the data folder even at smoke scale."""
    if isinstance(entry, Entry):
        return any(case.setting.data.files for case in entry.cases("smoke"))
    return isinstance(entry, Trial) and not entry.bare


def _said_at(scale: Scale, said: str) -> bool:
    """Whether a substitution is one of this scale: those of one scale alone begin with its name."""
    return not any(said.startswith(f"{other}: ") for other in SCALES if other != scale)


def account(ledger: Ledger, scale: Scale) -> dict[str, Any]:
    """Fill in a ledger."""
    return {
        "kind": "croupier ledger",
        "entry": ledger.name,
        "source": ledger.source,
        "title": ledger.title,
        "reading": ledger.reading,
        "scale": scale,
        "rows": ledger.rows(scale),
    }


def _case(case: Case, seeds: Sequence[int], means: Means, comparisons: int, watch: Watch) -> dict[str, Any]:
    setting = replace(case.setting, folder=means.folder, device=means.device, workers=means.workers)
    outcomes = run(
        setting, controlled(case.defences), seeds, Local(), lambda said: watch(f"{case.label}: {said}"), means.abreast
    )
    found = rows(case.defences, outcomes, comparisons)
    for row in found:
        printed = case.printed.get(row["defence"])
        row["printed"] = None if printed is None else {"rate": printed.rate, "where": printed.where}
    return {
        "label": case.label,
        "substitutions": list(case.substitutions),
        "setting": _described(setting),
        "chance": outcomes[0].chance,
        "rows": found,
    }


def _described(setting: Setting) -> dict[str, Any]:
    parts = {
        name: getattr(setting, name).plain() for name in ("data", "split", "model", "fit", "plan", "augment", "noise")
    }
    return parts | {name: getattr(setting, name) for name in ("shadow", "fresh", "records", "suspects", "together")}


def says(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the prior does to the paper's claim, counted; cells whose attack failed its control are left out."""
    cells = [(case["chance"], *pair(row)) for case in cases for row in case["rows"] if not _sums(row)]
    theirs = [(chance, attack) for chance, attack, _ in cells if attack["scored"]]
    above = [attack for chance, attack in theirs if attack["low"] > chance]
    beats, loses = ([a for a in above if test(a["leak"])] for test in (_gains, _loses))
    said = [
        f"The paper's attack passed its control in {len(theirs)} of {len(cells)} cells, and is above 1/n in "
        f"{len(above)}. Against the prior, the same adversary's best guess without any view, it is above in "
        f"{len(beats)} of these, below in {len(loses)}, and not to be told from it in "
        f"{len(above) - len(beats) - len(loses)}."
    ]
    if loses:
        said.append("Where it is below the prior, success above 1/n is no sign that the view gave anything away.")
    ours = [attack for _, _, attack in cells if attack["scored"] and _gains(attack["leak"])]
    said.append(
        f"The attack that joins prior and view is above the prior in {len(ours)} of {len(cells)} cells (95 % each)."
    )
    return [*said, *_under_sums([row for case in cases for row in case["rows"] if _sums(row)])]


def _under_sums(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What attacks on sums gain, all of them, with intervals that hold together."""
    leaks = {
        (number, name): attack["leak_together"]
        for number, row in enumerate(found)
        for name, attack in row["attacks"].items()
        if name != "prior"
    }
    if not leaks:
        return []
    above = [leak for leak in leaks.values() if _gains(leak)]
    widest = max((leak["high"] - leak["low"]) / 2 for leak in leaks.values())
    most = max(leak["rate"] for leak in leaks.values())
    return [
        f"Where only a sum is seen (RNS), {len(leaks)} attacks were tried; against the prior {len(above)} gain, the "
        f"best by {100 * most:+.1f} points. Intervals that hold together for all comparisons of this entry are "
        f"±{100 * widest:.1f} points wide at most."
    ]


def _sums(row: Mapping[str, Any]) -> bool:
    return str(row["defence"]).startswith("RNS")


def _gains(leak: Mapping[str, float]) -> bool:
    return leak["low"] > 0


def _loses(leak: Mapping[str, float]) -> bool:
    return leak["high"] < 0


def pair(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The paper's own attack on a defence, and ours that joins prior and view: the first and the last."""
    names = [name for name in row["attacks"] if name != "prior"]
    return row["attacks"][names[0]], row["attacks"][names[-1]]
