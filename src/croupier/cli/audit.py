"""`croupier audit`: attacks on what the parties of a protocol really see, or that another engine recorded.

A description is audited by `audit.described`, recorded updates and kept views by `audit.recorded.audited`; nothing is
computed here. This file checks options and files before the minutes of work begin, shows progress (`cli.progress`),
keeps what is finished for an audit that is stopped, and delivers the report (`cli.findings` on the terminal).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import options
from croupier.cli.findings import show
from croupier.cli.progress import progress

if TYPE_CHECKING:
    from croupier.audit.bench import Watch
    from croupier.audit.report.result import Report
    from croupier.engine.shelf import FolderShelf

# Where pages and finished parts go unless somebody names a place.
HOME = Path("audits")
_OWN = "A preset or TOML file: its own protocol is audited."
Description = Annotated[str, typer.Argument(help=_OWN, autocompletion=options.descriptions)]
Where = Path | None
_ASKED = typer.Option("--question", "-q", help="Ask only this; may be repeated. Default: all that make sense.")
Questions = Annotated[list[str] | None, _ASKED]
Adversaries = Annotated[
    list[str] | None,
    typer.Option(
        "--adversary", "-a",
        help="Who is curious: server, relay, sum1, second, dealer, client, network, or a coalition as server+relay; "
        "may be repeated. Default: every single party, and the coalition that the protocol forbids.",
    ),
]  # fmt: skip
Against = Annotated[
    list[str] | None,
    typer.Option(
        help="Compare with this protocol: none, shuffle-parameter, rns-servers, a preset or a TOML file; may be "
        "repeated. 'nothing' compares with no defence alone. Default: the shuffles and the systems that fit.",
        autocompletion=options.descriptions,
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(help="Independent runs; intervals are over runs. Default: 20, with --fast 8 or 4.", min=2, max=1000),
]
Fast = Annotated[bool, typer.Option("--fast", help="Fewer runs, 2 rounds, fewer records of large data: some minutes.")]
Shadow = Annotated[float, typer.Option(help="Share of each client's records in the shadow set.")]
Noise = Annotated[
    str, typer.Option(help="For data of pictures, how the shadow sets are off: clean, rotate, mirror, colour.")
]
Lpips = Annotated[
    str,
    typer.Option(
        help="For pictures: measure LPIPS, too, by alex, vgg or squeeze: needs croupier\\[lpips] and the network's "
        "weights from torchvision, which you must have."
    ),
]
_UPDATES = "Audit updates that any engine recorded in this folder, and train nothing."
Updates = Annotated[Where, typer.Option(help=_UPDATES)]
Views = Annotated[
    Where,
    typer.Option(
        help="Audit what a party of a deployment kept of its own views (--keep-view): this folder holds them, and "
        "--updates, or it, an updates.toml with a shadow function."
    ),
]
ViewKey = Annotated[
    Where, typer.Option("--key", metavar="NAME.key", help="With --views: the party's key file, which opens them.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every attack and every adversary.")]
Page = Annotated[
    Where,
    typer.Option(
        "--report", help="Where the page goes; JSON, CSV and Markdown go beside it. Default: audits/NAME-TIME.html."
    ),
]


def command(
    spec: Description = "digits-small",
    sets: options.Sets = None,
    question: Questions = None,
    adversary: Adversaries = None,
    against: Against = None,
    seeds: Seeds = None,
    fast: Fast = False,
    shadow: Shadow = 0.05,
    noise: Noise = "clean",
    lpips: Lpips = "",
    updates: Updates = None,
    views: Views = None,
    key: ViewKey = None,
    verbose: Verbose = False,
    seed: options.Seed = None,
    data: options.Data = None,
    report: Page = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """What does a protocol leak, to whom? Attacks on what its parties see, beside what they could have guessed.

    The description's own protocol comes first, then no defence, then others, so that you see what would be better.
    Questions: whose record is it (source), was it trained on (membership), what did it look like (reconstruction), is
    this the same client as before (linkage), what is a client like (traits), can single updates be taken out of sums
    (separation), can hidden coordinates be put in order (permutation), what do malicious clients break (poisoning), do
    counts of bits tell more than the sum (carries).

    The prior is the best guess of the same adversary without a view; a leak is what the view adds to it. An adversary
    knows that a record was trained on, and holds a shadow set: a few records like each client's own, which nobody
    trains on. An attack counts only if it passes its control: it must work where nothing defends.

    An audit that is stopped (Ctrl-C, a full disk) keeps its finished parts in audits/NAME-DIGEST.kept until the report
    is written: the same command goes on from there to the same result.

    `croupier audit --fast`: handwritten digits, twenty clients with few records each.
    """
    if print_config:
        _print_config(spec, sets or [], fast, json)
        return
    options.caution(spec, sets or ())
    kept_views = _kept_views(views, key, updates)
    # Before the minutes of work, not after.
    page, name = _page(report, spec, sets or [], updates if views is None else views)
    asked: dict[str, Any] = {"seed": seed or 0, "data": data, **(kept_views or {})}
    if kept_views is None and updates is None:
        asked |= {
            "sets": sets or (), "questions": question or (), "adversary": adversary or (), "against": against,
            "seeds": seeds, "fast": fast, "shadow": shadow, "noise": noise, "lpips": lpips,
        }  # fmt: skip
    # Until everything is delivered what is finished stays kept.
    with kept_parts() as kept:
        with progress(name) as told:
            kept.count = told.at
            known = _audited(spec, updates, asked, told.say, kept)
        deliver(known, page, verbose, json, out)
        kept.drop()


def _kept_views(views: Path | None, key: Path | None, updates: Path | None) -> dict[str, Any] | None:
    """A party's own views, opened, and the task; None where none are named. Raises: SpecError, StoreError, ..."""
    from croupier.errors import SpecError

    if (views is None) != (key is None):
        raise SpecError("--views and --key belong together: the folder of kept views, and the key file that opens them")
    if views is None or key is None:
        return None
    from croupier.service.views import party_views

    return dict(zip(("kept", "task"), party_views(views, key), strict=True), folder=updates or views)


def _print_config(spec: str, sets: list[str], fast: bool, json: bool) -> None:
    from croupier.audit.described import quicker
    from croupier.spec import unread

    # What only prints a description loads nothing.
    shown, supposed = unread(spec, sets)
    options.show_config(quicker(shown, sets) if fast else shown, json, supposed)


def _page(report: Path | None, spec: str, sets: list[str], updates: Path | None) -> tuple[Path, str]:
    """Where the page goes, and what is audited, by name. Raises: SpecError, StoreError where that cannot be."""
    from croupier.audit.report.result import check_beside
    from croupier.errors import SpecError
    from croupier.spec import unread
    from croupier.toml_read import called

    name = called(unread(spec, sets)[0].name, spec) if updates is None else updates.resolve().name
    if report is not None and report.suffix in (".json", ".csv", ".md"):
        raise SpecError(f"--report = {report}: the numbers would take the page's place; name it {report.stem}.html")
    page = report or _somewhere(name)
    options.check_room(page, "--report")
    check_beside(page)
    return page, name


def _audited(spec: str, updates: Path | None, asked: dict[str, Any], watch: Watch, kept: FolderShelf) -> Report:
    """The report on a description, on updates that were recorded elsewhere, or on views that a party kept."""
    if "task" in asked:
        from croupier.audit.recorded.audited import recorded_views

        return recorded_views(asked.pop("kept"), asked.pop("folder"), asked.pop("task"), watch=watch, **asked)
    if updates is not None:
        from croupier.audit.recorded.audited import recorded

        return recorded(updates, watch=watch, **asked)
    from croupier.audit.described import audit

    return audit(spec, watch=watch, kept=kept, **asked)


@contextmanager
def kept_parts() -> Iterator[FolderShelf]:
    """Where finished parts are kept; after an interrupt, or where a file cannot be written, it says how to go on."""
    from croupier.engine.shelf import FolderShelf
    from croupier.errors import StoreError

    with FolderShelf(HOME, lambda said: print(said, file=sys.stderr)) as kept:
        try:
            yield kept
        except KeyboardInterrupt:
            again = f"{kept.finished} are kept in {kept.folder}; to go on, start the same command again"
            print(f"stopped; {again if kept.worth else 'nothing was finished, and nothing is kept'}", file=sys.stderr)
            raise
        except StoreError as error:
            again = f"; {kept.finished} are kept, so that the same command then need not repeat them"
            raise StoreError(f"{error}{again if kept.worth else ''}") from None


def deliver(known: Report, page: Path, verbose: bool, json: bool, out: Path | None) -> None:
    """Show the matrix, then write the page, its numbers and --out.

    The matrix comes first: whatever becomes of the files, it has been seen.
    """
    found = {**known.plain, **options.stamp()}
    whole = type(known)(found | {"report": str(page)})
    if json:
        # Questions and adversaries in their own order.
        print(whole.json(), end="", flush=True)
    else:
        show(found, verbose)
        sys.stdout.flush()
    type(known)(found).save_all(page)
    if out is not None:
        options.write(out, whole.json())
    if not json:
        print(f"report: {page}")


def _somewhere(name: str) -> Path:
    stem = HOME / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    pages = (stem.with_name(f"{stem.name}{f'-{number}' if number else ''}.html") for number in count())
    return next(page for page in pages if not page.exists())
