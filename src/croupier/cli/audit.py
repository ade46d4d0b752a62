"""`croupier audit`: attacks on what the parties of a protocol really see, against what they could have guessed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options
from croupier.cli.progress import progress

if TYPE_CHECKING:
    from croupier.audit.report.result import Report
    from croupier.runtime.kept import Kept

HOME = Path("audits")
# Heads of the matrix that fit into 80 columns.
SHORT = {
    "source": "source", "membership": "member", "reconstruction": "recon", "linkage": "link", "traits": "traits",
    "separation": "separ", "permutation": "permut", "poisoning": "poison", "carries": "carry",
}  # fmt: skip
MARKS = {"leak": "!", "none-found": ".", "proved": "=", "not-run": "-"}
LEGEND = "Gain over the prior. ! measured leak, . no leak found, ? cannot tell, = proved, - not run."
UNITS = {"share": "points", "dB": "dB", "cosine": "cosine", "bits": "bits a parameter"}
Page = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this form
    typer.Option(
        "--report", help="Where the page goes; JSON, CSV and Markdown go beside it. Default: audits/NAME-TIME.html."
    ),
]
Many = Optional[list[str]]  # noqa: UP045


def command(
    spec: Annotated[str, typer.Argument(help="A preset or TOML file: its own protocol is audited.")] = "digits-small",
    sets: options.Sets = None,
    question: Annotated[
        Many, typer.Option("--question", "-q", help="Ask only this; may be repeated. Default: all that make sense.")
    ] = None,
    adversary: Annotated[
        Many,
        typer.Option(
            "--adversary",
            "-a",
            help="Who is curious: server, relay, sum1, second, dealer, client, network, or a coalition as "
            "server+relay; may be repeated. "
            "Default: every single party, and the coalition that the protocol forbids.",
        ),
    ] = None,
    against: Annotated[
        Many,
        typer.Option(
            help="Compare with this protocol: none, shuffle-parameter, rns-servers, a preset or a TOML file; may be "
            "repeated. 'nothing' compares with no defence alone. Default: the shuffles and the systems that fit."
        ),
    ] = None,
    seeds: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Independent runs; intervals are over runs. Default: 20, with --fast 8.", min=2, max=1000),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Fewer runs, 2 rounds: some minutes on digits.")] = False,
    shadow: Annotated[float, typer.Option(help="Share of each client's records that the adversary holds.")] = 0.05,
    noise: Annotated[
        str, typer.Option(help="For data of pictures, how the shadow sets are off: clean, rotate, mirror, colour.")
    ] = "clean",
    lpips: Annotated[
        str,
        typer.Option(
            help="For pictures: measure LPIPS, too, by alex, vgg or squeeze: needs croupier\\[lpips] and the network's "
            "weights from torchvision, which you must have."
        ),
    ] = "",
    updates: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Audit updates that any engine recorded in this folder, and train nothing."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every attack and every adversary.")] = False,
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
    knows that a record was trained on, and has a small shadow set of each client's distribution.

    An audit that is stopped (Ctrl-C, a full disk) keeps its finished parts in a folder audits/NAME-DIGEST.kept: start
    the same command again, and it goes on from there to the same result. Another description, seed or version never
    uses them. The folder is removed when the report is written.

    `croupier audit --fast`: handwritten digits, twenty clients with few records each.
    """
    from croupier.errors import SpecError
    from croupier.spec import unread

    if print_config:
        # What only prints a description loads nothing.
        from croupier.auditing import quicker

        shown, supposed = unread(spec, sets or [])
        options.show_config(quicker(shown, sets or []) if fast else shown, json, supposed)
        return
    options.caution(spec, sets or ())
    name = unread(spec, sets or [])[0].name if updates is None else updates.resolve().name
    if report is not None and report.suffix in (".json", ".csv", ".md"):
        raise SpecError(f"--report = {report}: the numbers would take the page's place; name it {report.stem}.html")
    from croupier.audit.report.result import check_beside

    page = report or _somewhere(name)
    # Before the minutes of work, not after.
    options.check_room(page, "--report")
    check_beside(page)
    # Until everything is delivered what is finished stays kept.
    with kept_parts() as kept:
        with progress(name) as told:
            kept.count = told.at
            if updates is not None:
                from croupier.recorded import recorded

                known = recorded(updates, seed=seed or 0, data=data, watch=told.say)
            else:
                from croupier.auditing import audit

                known = audit(
                    spec, sets=sets or (), questions=question or (), adversary=adversary or (), against=against,
                    seeds=seeds, seed=seed or 0, fast=fast, shadow=shadow, noise=noise, lpips=lpips, data=data,
                    watch=told.say, kept=kept,
                )  # fmt: skip
        deliver(known, page, verbose, json, out)
        kept.drop()


@contextmanager
def kept_parts() -> Iterator[Kept]:
    """Where finished parts are kept; an interrupt, or a disk that is full, says how to go on from there."""
    from croupier.errors import StoreError
    from croupier.runtime.kept import Kept

    with Kept(HOME, lambda said: print(said, file=sys.stderr)) as kept:
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
    """The matrix first: whatever becomes of the files, it has been seen. Then the page, its numbers, and --out."""
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


def show(found: Mapping[str, Any], verbose: bool = False) -> None:
    """The matrix, the verdict, and under --verbose every adversary and attack."""
    from croupier.cli.fit import wrapped

    _matrix(found)
    print(wrapped(" ".join([found["verdict"]["sentence"], *found["verdict"].get("more", ())]), ""))
    for one in found["verdict"]["against"]:
        what_if = " (what if: the protocol forbids it)" if one.get("forbidden") else ""
        print(wrapped(f"{one['adversary']}{what_if}: {one['sentence']}"))
    print(wrapped(found["verdict"]["recommend"]["sentence"], ""))
    for name, why in found["left_out"].items():
        print(wrapped(f"not compared: {name}: {why}"))
    for name, why in _reasons(found["rows"][0]).items():
        print(wrapped(f"not run: {name}: {why}"))
    if verbose:
        for row in found["rows"]:
            _attacks(row, found["questions"])


def _reasons(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: one["why"] for name, one in row["questions"].items() if one["status"] == "not-run"}


def _matrix(found: Mapping[str, Any]) -> None:
    """Defences by questions; a question that nobody could be asked has no column."""
    from rich.table import Table

    from croupier.cli.fit import line, wrapped
    from croupier.cli.fit import show as print_table
    from croupier.cli.tables import size

    asked, rows = found["questions"], found["rows"]
    names = [name for name in asked if any(row["questions"][name]["status"] != "not-run" for row in rows)]
    rate = "RMSE" if rows[0]["measure"] == "rmse" else "accur."
    table = Table(title=f"{found['name']}: {found['runs']} runs", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for at, head in enumerate(("defence", *(SHORT.get(name, name) for name in names), rate, "up")):
        table.add_column(head, justify="right" if at else "left", no_wrap=True)
    for row in rows:
        cells = [_cell(row["questions"][name], asked[name]["unit"]) for name in names]
        table.add_row(row["defence"], *cells, _good(row), size(row["bytes_per_client"]))
    print_table(table)
    odd = [f"{SHORT.get(n, n)} in {UNITS[asked[n]['unit']]}" for n in names if asked[n]["unit"] != "share"]
    print(line(f"{LEGEND} In points{'; ' if odd else ''}{', '.join(odd)}."))
    told = "; ".join(f"{SHORT.get(name, name)}: {asked[name]['asks']}" for name in names)
    print(wrapped(told, ""))


def _cell(one: Mapping[str, Any], unit: str) -> str:
    mark = "?" if one["status"] == "none-found" and one.get("unsure") else MARKS[one["status"]]
    if one["gain"] is None:
        return mark
    value = 100 * one["gain"]["rate"] if unit == "share" else one["gain"]["rate"]
    return f"{value:+.0f}{mark}" if unit in ("share", "dB") else f"{value:+.1f}{mark}"


def _good(row: Mapping[str, Any]) -> str:
    value = row[row["measure"]]
    return "" if value is None else f"{value:.3g}" if row["measure"] == "rmse" else f"{value:.0%}"


def _attacks(row: Mapping[str, Any], questions: Mapping[str, Any]) -> None:
    """Every attack of every adversary on one defence."""
    from rich.table import Table

    from croupier.cli.fit import show as print_table

    table = Table(title=row["title"], title_justify="left")
    for at, head in enumerate(("question", "adversary", "attack", "value", "95 %", "prior", "gain (95 %)")):
        table.add_column(head, justify="left" if at < 3 else "right", no_wrap=at < 3)
    for name, question in row["questions"].items():
        scale = 100 if questions[name]["unit"] == "share" else 1
        for key, cell in question["adversaries"].items():
            for attack, one in cell["attacks"].items():
                if "value" in one:
                    table.add_row(name, key, attack, *_figures(one, scale))
                else:
                    table.add_row(name, key, attack, "not run", "", "", "")
    if table.rows:
        print_table(table, labels=3)


def _figures(one: Mapping[str, Any], scale: float) -> tuple[str, ...]:
    gain = one["gain"]
    mark = "" if one["scored"] else " (fails its control)"
    return (
        f"{scale * one['value']:.1f}", f"{scale * one['low']:.1f} to {scale * one['high']:.1f}",
        f"{scale * one['prior']:.1f}",
        f"{scale * gain['rate']:+.1f} ({scale * gain['low']:+.1f} to {scale * gain['high']:+.1f}){mark}",
    )  # fmt: skip
