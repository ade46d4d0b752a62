"""`croupier enrol`: a roster from everybody's cards, or its next version.

Rosters are made by `service.versions`; here is what belongs to a person's input: which files are read, which options
fit together, and what is said of the result. How large updates are is taken from the description's data
(`service.training`), or from the model of a Flower app (`flower.layouts`). Everybody then runs `croupier accept`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from croupier.cli import options
from croupier.cli.rosters import about, changes, facts_of, few, now, refuse_given, tell

if TYPE_CHECKING:
    from croupier.service.card import Card
    from croupier.service.roster import Roster, Timetable
    from croupier.spec import Spec


Cards = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Argument(metavar="CARD...", help="Every party's card; after another roster, only new or renewed ones."),
]
Described = Annotated[Optional[str], typer.Option(help="A preset or TOML file: what is run.")]  # noqa: UP045
After = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="OLD.roster", help="Make the version after this roster; its description stays."),
]
Without = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="NAME", help="Leave this party of the old roster out; may be repeated."),
]
FromRound = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="The first round that the new version holds for; rounds are counted from 1."),
]
Quorum = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Clients that a round needs; the description's share of the invited unless given."),
]
Phase = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(help="Seconds of one step of a round: longer than training takes (300 unless given)."),
]
RoundLimit = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(help="Seconds after which a round has failed (3600 unless given)."),
]
Hold = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(help="Seconds that a host keeps a caller waiting (15 unless given)."),
]
Like = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="MODEL.safetensors", help="The model of an app of your own (Flower), in place of the task's."),
]
Metrics = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--metric", metavar="NAME=BOUND", help="With --like: a metric that is summed too; may be repeated."),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="The roster's file; federation.roster, or federation.VERSION.roster, unless given."),
]


def command(
    cards: Cards = None,
    spec: Described = None,
    sets: options.Sets = None,
    after: After = None,
    without: Without = None,
    from_round: FromRound = None,
    quorum: Quorum = None,
    phase: Phase = None,
    round_limit: RoundLimit = None,
    hold: Hold = None,
    data: options.Data = None,
    like: Like = None,
    metric: Metrics = None,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Make a roster from everybody's cards: who takes part, in which protocol, by which timetable.

    Anybody may make it: everybody compares it with the others before it counts (`croupier accept`). It says how large
    updates are, so the description's data, or some of the same shape, must be at hand; for an app that brings its own
    model, such as Flower's, --like names a file of it.

    `croupier enrol *.card --spec rns-servers`

    `croupier enrol *.card --spec flower --like model.safetensors --metric train_loss=16`

    `croupier enrol new.card --after federation.roster --without hospital-b --from-round 12`
    """
    from croupier.service.card import Card
    from croupier.service.fields import write_new
    from croupier.service.roster import Roster
    from croupier.service.versions import next_roster

    given = [Card.read(path) for path in cards or ()]
    times = {"phase": phase, "round": round_limit, "hold": hold}
    old, notes = None, list[str]()
    if after is None:
        refuse_given({"--without": without, "--from-round": from_round}, "belongs to --after OLD.roster; give both")
        if like is None:
            refuse_given({"--metric": metric}, "belongs to --like MODEL.safetensors; give both")
        made, notes = _first(given, _described(given, spec, sets), _Hand(data, like, metric or []), quorum, times)
    else:
        refuse_given(
            {"--spec": spec, "--set": sets, "--data": data, "--like": like, "--metric": metric},
            "with --after the description of the old roster stays",
        )
        old = Roster.read(after)
        made = next_roster(old, _round(old, from_round), given, without or (), quorum, _timed(old.timetable, times))
    for card in made.cards:
        card.check_time(now())
    plain = "federation.roster" if made.version == 1 else f"federation.{made.version}.roster"
    path = write_new(out or Path(plain), made.text(), "name another file with --out")
    _report(path, made, changes(old, made), [*notes, *few(made)], json)


def _report(path: Path, made: Roster, changed: list[str], notes: list[str], json: bool) -> None:
    said = [
        f"made {path}: {about(made)}",
        *changed,
        *notes,
        f"words: {' '.join(made.words)}",
        f"hand {path} to every party; nothing in it is secret",
        f"next: everybody runs croupier accept {path.name} --key NAME.key and compares the words by telephone",
    ]
    options.give({"file": str(path), **facts_of(made), "notes": notes}, json, None, lambda: tell(said))


def _described(given: list[Card], spec: str | None, sets: list[str] | None) -> Spec:
    from croupier.errors import RosterError
    from croupier.spec import load

    if spec is None:
        raise RosterError(
            "--spec is missing: a roster holds the description of what is run; name a preset or TOML file"
        )
    clients = sum(not card.is_host for card in given)
    return load(spec, sets or (), count=lambda _: max(1, clients))


@dataclass(frozen=True)
class _Hand:
    """What tells how large updates are: the description's data, or the model of an app of one's own, with metrics."""

    data: Path | None
    like: Path | None
    metrics: list[str]


def _first(
    given: list[Card], described: Spec, hand: _Hand, quorum: int | None, times: dict[str, float | None]
) -> tuple[Roster, list[str]]:
    """A first roster, and what to say of it."""
    from croupier.core.coins import Coins
    from croupier.service.roster import Timetable
    from croupier.service.training import task_at_hand, without_part
    from croupier.service.versions import Shapes, make_roster

    coins, table = Coins.from_os(), Timetable(**{key: value for key, value in times.items() if value is not None})
    # What does not belong together is said before the data are loaded.
    make_roster(given, described, coins.child("draft"), quorum, table)
    if hand.like is not None:
        from croupier.flower.layouts import read_layout

        return make_roster(given, described, coins, quorum, table, Shapes(read_layout(hand.like, hand.metrics))), []
    task = task_at_hand(described, coins.child("shapes"), hand.data)
    made = make_roster(given, described, coins, quorum, table, Shapes(task.layout, task.inputs))
    if not (bare := without_part(task, made.clients)):
        return made, []
    parts = sorted(task.shards)
    shown = ", ".join(bare[:8]) + (", ..." if len(bare) > 8 else "")
    return made, [
        f"warning: task.split gives {len(parts)} parts, {parts[0]} to {parts[-1]}, and none to {shown}: each of them "
        "joins with records of its own (--data, and --set task.split.clients=1 where the split is made up) or with "
        "--fit; or name clients like the parts"
    ]


def _timed(old: Timetable, times: dict[str, float | None]) -> Timetable:
    return replace(old, **{key: value for key, value in times.items() if value is not None})


def _round(old: Roster, from_round: int | None) -> int:
    from croupier.errors import RosterError

    if from_round is None:
        raise RosterError(
            "--from-round is missing: from which round on does the new version hold? name one after "
            f"{old.from_round}, late enough for everybody to accept it"
        )
    if from_round > old.spec.federation.rounds:
        raise RosterError(
            f"--from-round = {from_round}: the run has {old.spec.federation.rounds} rounds, and the version would "
            "never hold; name an earlier one, or make a roster of a new run"
        )
    return from_round
