"""`croupier run`: federated training, described by presets or TOML files.

One description is run and shown round by round; several are run one after the other and compared. The work is
`engine.job`'s; here are the progress bar (`cli.progress`), the tables (`cli.tables`), what Ctrl-C says, and which
changes a resumed run takes (more rounds, and nothing else).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options
from croupier.cli.progress import watching
from croupier.cli.tables import comparison, per_round

if TYPE_CHECKING:
    from croupier.engine.job.job import Watch
    from croupier.engine.job.result import Result

_SPECS = "Presets or TOML files; several are run in turn and compared."
_ANEW = "With --resume: play again, under fresh secrets, rounds that had begun. They count twice."


def command(
    specs: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[SPEC]...", help=_SPECS, autocompletion=options.descriptions),
    ] = None,
    sets: options.Sets = None,
    seed: options.Seed = None,
    data: options.Data = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Run directory; with several descriptions, the folder that holds them."),
    ] = None,
    resume: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIRECTORY",
            help="Go on with a run from its last checkpoint; with --set federation.rounds=N, to more rounds.",
        ),
    ] = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help=_ANEW),
    ] = False,
    csv: options.CsvFile = None,
    track: options.Track = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Train a model with many clients, and see how well it does and what crossed the wire.

    `croupier run digits`: plain federated averaging on handwritten digits.

    `croupier run digits digits-shuffled`: plain and behind a shuffler, compared.

    `croupier run my.toml --set federation.rounds=20 --seed 7`: your own, one key changed.

    With no description it runs the preset `digits`. `croupier doctor` lists presets and data.
    """
    from croupier.errors import SpecError
    from croupier.spec import unread

    names = specs or ["digits"]
    if resume is not None and (specs or seed is not None or out is not None or print_config):
        raise SpecError(
            "--resume takes everything from the run directory: give it nothing else but --data, --json, --anew and "
            "--set federation.rounds=N"
        )
    if anew and resume is None:
        raise SpecError("--anew plays a round again that had begun: name the run with --resume DIRECTORY")
    if print_config:
        if len(names) > 1:
            raise SpecError("--print-config prints one description: name one")
        described, supposed = unread(names[0], sets or ())
        options.show_config(described, json, supposed)
        return
    tell = list(track or ())
    more = [_resumed(resume, data, anew, _more(sets or ()), tell)] if resume else []
    results = more or _all(names, sets or [], seed, data, out, tell)
    options.give({"runs": [_plain(result) for result in results]}, json, None, lambda: _show(results))
    _write_csv(csv, results)


def _all(
    names: Sequence[str], sets: list[str], seed: int | None, data: Path | None, out: Path | None, tell: list[str]
) -> list[Result]:
    from croupier.engine.job.run import run
    from croupier.spec import counted, load

    # Every description is read before any is run: a typo in the last must not cost the first.
    described = [load(name, sets, count=counted(data)) for name in names]
    for name in names:
        options.caution(name, sets)
    places = [out if out is None or len(names) == 1 else out / f"{i + 1}-{s.name}" for i, s in enumerate(described)]
    jobs = [partial(run, spec, out=at, seed=seed, data=data) for spec, at in zip(described, places, strict=True)]
    return [_watched(spec.name, job, tell) for spec, job in zip(described, jobs, strict=True)]


def _write_csv(path: Path | None, results: Sequence[Result]) -> None:
    from croupier.lines import as_csv

    if path is not None:
        options.write(path, as_csv({result.path.name: result.metrics for result in results}), "--csv")


def _more(sets: Sequence[str]) -> int | None:
    """The number of rounds that a resumed run is to have. Raises: SpecError when anything else is changed."""
    from croupier.errors import SpecError

    found = None
    for setting in sets:
        key, _, value = (part.strip() for part in setting.partition("="))
        if key != "federation.rounds" or not value.isdecimal():
            raise SpecError(
                f"--set {setting!r}: a run that goes on keeps its description; change federation.rounds=N only"
            )
        found = int(value)
    return found


def _resumed(path: Path, data: Path | None, anew: bool, rounds: int | None, tell: list[str]) -> Result:
    from croupier.engine.job.run import resume

    return _watched(path.name, partial(resume, path, data=data, anew=anew, rounds=rounds), tell)


def _watched(name: str, start: Callable[..., Result], tell: Sequence[str]) -> Result:
    """Run with a progress bar; Ctrl-C leaves a run that can be resumed, and says how."""
    # This process is ours alone: what was loaded stays, and need not be searched for garbage in every round.
    gc.freeze()
    with watching(name) as watch, ExitStack() as open_until_over:
        place = ""

        def note(event: str, facts: Mapping[str, Any]) -> None:
            nonlocal place
            place = facts["path"] if event == "opened" else place
            if event in ("note", "warning"):
                said = "warning: " if event == "warning" else ""
                print(f"{name}: {said}{facts['text']}", file=sys.stderr)
            watch(event, facts)

        told: Watch = note
        for asked in tell:
            from croupier.trackers import tracker

            told = open_until_over.enter_context(tracker(asked, name, told))
        try:
            return start(watch=told)
        except KeyboardInterrupt:
            kept = f"rounds that ended are kept; go on with: croupier run --resume {place}"
            print(f"stopped; {kept if place else 'nothing had begun'}", file=sys.stderr)
            raise


def _show(results: list[Result]) -> None:
    if len(results) == 1:
        per_round(results[0])
    else:
        comparison(results)
    for result in results:
        print(f"{result.spec.name}: {result.path}")


def _plain(result: Result) -> Mapping[str, Any]:
    return {**result.summary, "metrics": list(result.metrics), "timing": list(result.timing)}
