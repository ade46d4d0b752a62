"""`croupier audit`: attacks on what the server really sees, against what it could have guessed without looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options
from croupier.cli.progress import progress

if TYPE_CHECKING:
    from croupier.audit.report.result import Reported
    from croupier.audit.secrecy import Depth
    from croupier.runtime.kept import Kept

HOME = Path("audits")
FAST = ("federation.rounds=2",)
RUNS = 40


class Kind(StrEnum):
    """What is asked."""

    source = "source"
    profile = "profile"
    integrity = "integrity"
    secrecy = "secrecy"


# What is asked of pictures that are inverted.
READS = (Kind.integrity, Kind.secrecy)
Report = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this form
    typer.Option(help="Where the page goes; the JSON goes beside it. Default: audits/NAME-TIME.html."),
]


def command(
    spec: Annotated[
        str, typer.Argument(help="A preset or TOML file: its task is audited under each defence.")
    ] = "digits-uneven",
    sets: options.Sets = None,
    seeds: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Independent runs; intervals are over runs. Default: 40, of a profile 5, of integrity and secrecy 3.",
            min=2,
            max=1000,
        ),
    ] = None,
    kind: Annotated[
        Optional[Kind],  # noqa: UP045
        typer.Option(
            help="Whose record is it (source), what are clients like (profile), what do malicious clients break "
            "(integrity), what does the server read of hidden coordinates (secrecy). Default: by the protocol, and "
            "never the last, which is a part of integrity."
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Fewer rounds: a minute on digits, five on households.")] = False,
    shadow: Annotated[float, typer.Option(help="Share of each client's records that the adversary holds.")] = 0.05,
    noise: Annotated[
        str, typer.Option(help="For data of pictures, how the shadow sets are off: clean, rotate, mirror, colour.")
    ] = "clean",
    lpips: Annotated[
        str,
        typer.Option(
            help="For integrity or secrecy, and pictures: measure LPIPS, too, by alex, vgg or squeeze: needs "
            "croupier\\[lpips] and the network's weights from torchvision, which you must have."
        ),
    ] = "",
    seed: options.Seed = None,
    data: options.Data = None,
    report: Report = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Whose record is it? Attacks on plain, shuffled and summed updates, against the prior, with a report.

    The server knows that a record was trained on, and has a small shadow set of each client's distribution. The prior
    is what that knowledge guesses without any view; a defence leaks what an attack adds to it.

    Where clients noise by tiers, as in `intra-london`, the other audit is run: what do updates tell of clients'
    habits, and can a client's updates be linked across rounds? It holds the records of auxiliary clients.

    Where uploads are clustered, as in `tazza-mnist`, the third: a quarter of the clients attack, and it is measured
    what honest clients receive, beside other rules, and whether clusters keep the two apart. The same audit asks what
    the server reads where coordinates are hidden: it matches weights of its own views, and inverts single steps.
    That part alone, in minutes, and under any rule: `croupier audit tazza-mnist --kind secrecy`.

    An audit that is stopped (Ctrl-C, a full disk) keeps its finished seeds in a folder audits/NAME-KIND-DIGEST.kept:
    start the same command again, and it goes on from there to the same result. Another description, seed or version
    never uses them. The folder is removed when the report is written.

    `croupier audit --fast`: handwritten digits, ten clients, alpha = 0.1.
    """
    from croupier.auditing import kind_of
    from croupier.errors import SpecError
    from croupier.spec import counted, load, unread

    asked = kind or Kind(kind_of(unread(spec, sets or [])[0].protocol))
    way = _ways()[asked]
    changes = [*(way.fast if fast else ()), *(sets or [])]
    if print_config:
        # What only prints a description loads nothing.
        shown, supposed = unread(spec, changes)
        options.show_config(shown, json, supposed)
        return
    described = load(spec, changes, count=counted(data))
    options.caution(spec, sets or ())
    if report is not None and report.suffix == ".json":
        raise SpecError(f"--report = {report}: the numbers would take the page's place; name it {report.stem}.html")
    # Before the minutes of work, not after.
    options.check_room(report or _somewhere(described.name), "--report")
    if lpips and asked not in READS:
        raise SpecError(f"--lpips = {lpips!r}: this audit inverts no pictures; leave it out, or use --kind secrecy")
    given: dict[str, Any] = {"shadow": shadow, "noise": noise} if asked is Kind.source else {}
    if asked in READS:
        given = {"depth": _depth(fast, lpips)}
    given |= {"seeds": seeds or way.runs, "seed": seed or 0, "data": data}
    # Until everything is delivered what is finished stays kept.
    with kept_seeds() as kept:
        with progress(described.name) as told:
            kept.count = told.at
            known = way.ask(described, watch=told.say, kept=kept, **given)
        deliver(known, report or _somewhere(described.name), way.show, json, out)
        kept.drop()


@contextmanager
def kept_seeds() -> Iterator[Kept]:
    """Where finished seeds are kept; an interrupt, or a disk that is full, says how to go on from there."""
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


def deliver(known: Reported, page: Path, show: Callable[[dict[str, Any]], None], json: bool, out: Path | None) -> None:
    """The table first: whatever becomes of the files, it has been seen. Then the page, its numbers, and --out."""
    found = {**known.plain, **options.stamp()}
    options.give(found | {"report": str(page)}, json, None, lambda: show(found))
    type(known)(found).save(page)
    options.write_json(page.with_suffix(".json"), found, "--report")
    if out is not None:
        options.write_json(out, found | {"report": str(page)})
    if not json:
        print(f"report: {page}")


@dataclass(frozen=True)
class Way:
    """How one thing is asked: by what, how often, what a quick audit changes, and how it is shown."""

    ask: Callable[..., Reported]
    show: Callable[[dict[str, Any]], None]
    runs: int
    fast: tuple[str, ...] = ()


def _ways() -> dict[Kind, Way]:
    from croupier import disclosure, inquiry, profiling, soundness
    from croupier.cli import integrity, profile, secrecy

    return {
        Kind.source: Way(inquiry.examine, show, RUNS, FAST),
        Kind.profile: Way(profiling.profile, profile.show, profile.RUNS, profile.FAST),
        Kind.integrity: Way(soundness.examine, integrity.show, integrity.RUNS, integrity.FAST),
        # Of training it asks for little in any case: what a quick one leaves out is its depth.
        Kind.secrecy: Way(disclosure.examine, secrecy.show, secrecy.RUNS),
    }


def _depth(fast: bool, lpips: str) -> Depth:
    from croupier.audit import secrecy

    return replace(secrecy.FAST if fast else secrecy.FULL, lpips=lpips)


def _somewhere(name: str) -> Path:
    stem = HOME / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    pages = (stem.with_name(f"{stem.name}{f'-{number}' if number else ''}.html") for number in count())
    return next(page for page in pages if not page.exists())


def show(found: dict[str, Any]) -> None:
    """The same for the terminal: a table, and a sentence for each defence."""
    from rich.table import Table

    from croupier.cli.fit import line, wrapped
    from croupier.cli.fit import show as print_table
    from croupier.cli.tables import size

    title = f"{found['name']}: whose record is it? Means over rounds and {found['runs']} runs"
    table = Table(title=title, title_justify="left")
    how = "RMSE" if "rmse" in found["rows"][0] else "accuracy"
    heads = ("defence", "attack", "success", "95 %", "prior", "leak, points (95 %)", how, "up/client")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at < 2 else "right", no_wrap=at < 2)
    for row in found["rows"]:
        for number, (name, attack) in enumerate((n, a) for n, a in row["attacks"].items() if n != "prior"):
            good = f"{row['rmse']:.4g}" if "rmse" in row else f"{row['accuracy']:.1%}"
            once = ("", "", "") if number else (row["defence"], good, size(row["bytes_per_client"]))
            cells = (once[0], name, *_figures(attack), *once[1:])
            table.add_row(*cells)
        table.add_section()
    print_table(table, labels=2)
    chance = f"1/n = {found['chance']:.1%}"
    print(line(f"{chance}. Prior: the adversary's knowledge without a view. Leak: what the view adds to it."))
    print(wrapped(f"The prior comes from {found['rows'][0]['attacks']['prior']['carried']}."))
    for row in found["rows"]:
        print(wrapped(f"{row['defence']}: {row['verdict']['sentence']}"))
    reasons: dict[str, list[str]] = {}
    for row in found["rows"]:
        for name, attack in row["attacks"].items():
            if "not_run" in attack:
                reasons.setdefault(attack["not_run"], []).append(name)
    for why, names in reasons.items():
        print(wrapped(f"not run: {', '.join(dict.fromkeys(names))}: {why}."))


def _figures(attack: dict[str, Any]) -> tuple[str, ...]:
    if not attack["scored"]:
        return "not run" if "not_run" in attack else "failed its control", "", "", ""
    leak = attack["leak"]
    return (
        f"{attack['rate']:.1%}", f"{attack['low']:.0%} to {attack['high']:.0%}", f"{attack['prior']:.1%}",
        f"{100 * leak['rate']:+.1f} ({100 * leak['low']:+.1f} to {100 * leak['high']:+.1f})",
    )  # fmt: skip
