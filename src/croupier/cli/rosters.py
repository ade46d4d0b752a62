"""What the commands of the key ceremony say alike: about a roster, about options, about today.

Used by `cli.ceremony`, `cli.enrol`, `cli.accept` and `cli.serve`. Private keys and secrets go into files only, and
never through here.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.service.roster import Roster


def now() -> dt.datetime:
    """This moment, in UTC; certificates are checked against it."""
    return dt.datetime.now(dt.UTC)


def tell(lines: list[str]) -> None:
    """Print lines that fit the window."""
    from croupier.cli.fit import line

    for one in lines:
        print(line(one))


def refuse_given(given: dict[str, Any], why: str) -> None:
    """Raises: RosterError when an option is given that does not belong here."""
    from croupier.errors import RosterError

    for name, value in given.items():
        if value is not None:
            raise RosterError(f"{name} = {value}: {why}")


def about(roster: Roster) -> str:
    """A roster in one line."""
    return (
        f"version {roster.version} of run {roster.run.hex()}, from round {roster.from_round}, "
        f"{len(roster.clients)} clients of which a round needs {roster.quorum}, hosts {', '.join(roster.hosts)}"
    )


def more_about(roster: Roster) -> list[str]:
    """What a roster asks of whoever accepts it: rounds, records, time; and a warning where few hide among few."""
    spec, times = roster.spec, roster.timetable
    invited = spec.federation.cohort or len(roster.clients)
    lines = [
        f"rounds: {spec.federation.rounds}, of {invited} invited clients each",
        f"data: {spec.task.data.use}, split {spec.task.split.use}; model {spec.task.model.use}, "
        f"{roster.layout.size} numbers an update",
        f"protocol: privacy {spec.protocol.privacy.use}, release {spec.protocol.release.use}, place "
        f"{spec.protocol.place.use}; croupier explain says who learns what",
        f"timetable: {times.phase:g} s a step, {times.round:g} s a round, {times.hold:g} s held",
    ]
    return lines + few(roster)


def few(roster: Roster) -> list[str]:
    """A warning where a round may count with so few clients that a sum or a shuffle hides little."""
    needed, hiding = roster.quorum, roster.spec.protocol.release.least
    if needed > 2 or hiding < 2:
        return []
    return [f"warning: a round counts with {needed} clients: of what two release together each knows the other's part"]


def changes(old: Roster | None, new: Roster) -> list[str]:
    """Who joined, left or renewed its keys."""
    if old is None:
        return []
    before, after = ({card.name: card for card in one.cards} for one in (old, new))
    found = {
        "joined": [name for name in after if name not in before],
        "left": [name for name in before if name not in after],
        "changed": [name for name in after if name in before and before[name] != after[name]],
    }
    return [f"{what}: {', '.join(names)}" for what, names in found.items() if names]


def facts_of(roster: Roster) -> dict[str, Any]:
    """A roster as the one JSON object tells it."""
    return {
        "version": roster.version, "run": roster.run.hex(), "from_round": roster.from_round, "quorum": roster.quorum,
        "hosts": {name: roster.address(name) for name in roster.hosts}, "clients": list(roster.clients),
        "protocol": roster.protocol.hex(), "digest": roster.digest.hex(), "words": list(roster.words),
    }  # fmt: skip
