"""`croupier serve` and `croupier join`: one party of a federation, from its keys and the roster it accepted to the end.

The party is made and run by `service.start`, under the versions of the roster that its operator accepted
(`service.accepted`); here its files are found and its options checked, and its end becomes an exit status. Exit status:
0 all is over, or it was stopped and the same command goes on; 1 it failed; 2 it could not begin; 3 alarm: it has proof
of foul play.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.service.accepted import Accepted
    from croupier.service.home import Home
    from croupier.service.log import Log
    from croupier.service.member import Member
    from croupier.service.options import Options
    from croupier.service.party import PartyProcess
    from croupier.service.start import Workplace

FAILED, ALARM = 1, 3
Key = Annotated[Path, typer.Option("--key", metavar="NAME.key", help="Your key file; what is kept lies beside it.")]
RosterFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(metavar="FILE.roster", help="Which run, where you have accepted rosters of several."),
]
Status = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="HOST:PORT", help="Answer /healthz, /readyz and /metrics there, for your own machines only."),
]
KeepView = Annotated[
    bool, typer.Option("--keep-view", help="Keep what reached you, sealed to your key, for croupier audit --views.")
]
OwnSets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="What is another here, as task.data=...; may be repeated."),
]


@dataclass(frozen=True)
class _Wanted:
    """What both commands take alike."""

    key: Path
    roster: Path | None
    sets: list[str]
    status: str | None
    keep_view: bool
    json: bool


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The host's name or role: server, sum1, mix1, relay, ...")
    ],
    key: Key,
    roster: RosterFile = None,
    sets: OwnSets = None,
    data: options.Data = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder for the server's results; NAME.runs/RUN/out beside the key unless given."),
    ] = None,
    listen: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="HOST:PORT", help="Where to listen, if not at the address that the roster has."),
    ] = None,
    status: Status = None,
    keep_view: KeepView = False,
    json: options.Json = False,
) -> None:
    """Be the server, or a host between clients and server, until the run is over.

    `croupier serve sum1 --key sum1/sum1.key`

    `croupier serve server --key server/server.key --out results`

    It starts only with a roster that you have accepted. After a stop (SIGTERM, Ctrl-C), a crash or a power cut, the
    same command goes on where it was. Exit status: 0 all over or stopped, 1 failed, 2 cannot begin, 3 alarm.
    """
    wanted = _Wanted(key, roster, sets or [], status, keep_view, json)
    home, accepted = _at_home(wanted)
    _check_host(name, home, accepted)
    member, folder = _member(home, accepted), home.run_folder(accepted.run)
    from croupier.service.member import SERVER
    from croupier.service.start import Workplace
    from croupier.service.training import at_home

    results = (out or folder / "out") if member.name == SERVER else None
    if out is not None and results is None:
        from croupier.errors import SpecError

        raise SpecError(f"--out = {out}: only the server has results; leave it")
    place = Workplace(folder / "store", data, own=at_home(member.roster, wanted.sets), out=results)
    _run(member, accepted, place, wanted, listen or "")


def join(
    key: Key,
    fit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your own training: def train(weights, round) gives new weights by name, and how many examples.",
        ),
    ] = None,
    roster: RosterFile = None,
    sets: OwnSets = None,
    data: options.Data = None,
    status: Status = None,
    keep_view: KeepView = False,
    json: options.Json = False,
) -> None:
    """Be a client until the run is over: train on your own records, send as agreed, check what comes back.

    `croupier join --key hospital-a/hospital-a.key --data records`

    `croupier join --key hospital-a/hospital-a.key --fit mine:train`

    It only dials out. Without --fit it trains as the description says, on the part of the data that has its name or on
    all of it. Exit status: 0 all over or stopped, 1 failed, 2 cannot begin, 3 alarm: then it takes no further part.
    """
    from croupier.cli.rosters import refuse_given
    from croupier.errors import RosterError

    wanted = _Wanted(key, roster, sets or [], status, keep_view, json)
    home, accepted = _at_home(wanted)
    if home.keys.name in accepted.rosters()[-1].hosts:
        raise RosterError(f"{home.keys.name} is a host; croupier serve {home.keys.name} --key {key}")
    if fit is not None:
        refuse_given({"--set": sets, "--data": data}, "your own function trains and finds its records itself; leave it")
    member = _member(home, accepted)
    from croupier.service.start import Workplace
    from croupier.service.training import at_home, load_training

    folder = home.run_folder(accepted.run) / "store"
    train = None if fit is None else load_training(fit)
    _run(member, accepted, Workplace(folder, data, train, own=at_home(member.roster, wanted.sets)), wanted)


def _at_home(wanted: _Wanted) -> tuple[Home, Accepted]:
    """The party's folder, and what it accepted of the run. Raises: RosterError when that is nothing."""
    options.need("grpc", "serve")
    if wanted.status is not None:
        options.need("prometheus_client", "serve")
    from croupier.errors import RosterError
    from croupier.service.accepted import Accepted
    from croupier.service.home import Home
    from croupier.service.roster import Roster

    home = Home.open(wanted.key)
    if wanted.roster is not None:
        return home, Accepted(home, home.pinned_as(Roster.read(wanted.roster)).run)
    runs = home.runs()
    if not runs:
        raise RosterError(
            f"{home.keys.name} has accepted no roster; compare its words with the others: croupier accept FILE.roster "
            f"--key {wanted.key}"
        )
    if len(runs) > 1:
        raise RosterError(f"{home.keys.name} has accepted rosters of {len(runs)} runs; name one: --roster FILE.roster")
    return home, Accepted(home, runs[0])


def _check_host(name: str, home: Home, accepted: Accepted) -> None:
    from croupier.errors import RosterError

    mine = accepted.rosters()[-1].card(home.keys.name)
    if not mine.is_host:
        raise RosterError(f"{mine.name} is a client; croupier join --key {home.file}")
    if name not in (mine.name, mine.role):
        raise RosterError(
            f"{name!r:.60}: the key file is that of {mine.name}, a {mine.role}; croupier serve {mine.name} --key "
            f"{home.file}, or name the right one"
        )


def _member(home: Home, accepted: Accepted) -> Member:
    """The party as it starts. Raises: RosterError, StoreError when a secret is missing or a certificate has ended."""
    from croupier.cli.rosters import now

    member = accepted.first()
    accepted.rosters()[-1].card(home.keys.name).check_time(now())
    return member


def _run(member: Member, accepted: Accepted, place: Workplace, wanted: _Wanted, address: str = "") -> None:
    from croupier.errors import CroupierError, IntegrityError
    from croupier.service.alone import alone
    from croupier.service.log import Log
    from croupier.service.start import make_party, run_here

    log = Log(member.name)
    with alone(place.folder):
        party = make_party(
            member, place, _options(accepted, place, wanted, log), lambda line: log("round", **_from_one(line))
        )
        code = 0
        with _status(party, wanted.status, log):
            try:
                log("started", run=accepted.run.hex(), version=member.roster.version)
                run_here(party, address)
                log("over" if party.over else "stopped")
            except IntegrityError as error:
                log("alarm", why=str(error))
                code = ALARM
            except CroupierError as error:
                log("error", why=str(error))
                code = FAILED
    if not code:
        facts = {"party": party.name, "run": accepted.run.hex(), "over": party.over, "counts": dict(party.counts)}
        options.give(facts, wanted.json, None)
    raise typer.Exit(code)


def _from_one(line: Mapping[str, Any]) -> dict[str, Any]:
    """A round's line with its attempt counted from 1, as all events of a log count; metrics.jsonl counts from 0."""
    return {**line, "attempt": line["attempt"] + 1}


def _options(accepted: Accepted, place: Workplace, wanted: _Wanted, log: Log) -> Options:
    from croupier.service.options import Options
    from croupier.service.views import ViewKeeper

    if not wanted.keep_view:
        return Options(tell=log, versions=accepted)
    keeper = ViewKeeper(place.folder.parent / "views", lambda number: accepted.at(number).keyring, log)
    return Options(tell=log, versions=accepted, keep="keep", on_view=keeper)


@contextmanager
def _status(party: PartyProcess, address: str | None, log: Log) -> Iterator[None]:
    if address is None:
        yield
        return
    from croupier.service.status import serving

    with serving(party, address) as port:
        log("status", address=address, port=port)
        yield
