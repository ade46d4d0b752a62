"""`croupier audit`: attacks on what the server really sees, against what it could have guessed without looking."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.audit.report.result import Reported
    from croupier.audit.secrecy import Depth
    from croupier.pipeline import Pipeline

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

    `croupier audit --fast`: handwritten digits, ten clients, alpha = 0.1.
    """
    from croupier.errors import SpecError
    from croupier.spec import load

    asked = kind or _kind(load(spec, sets or []).protocol)
    way = _ways()[asked]
    described = load(spec, [*(way.fast if fast else ()), *(sets or [])])
    if print_config:
        options.show_config(described, json)
        return
    page = report or _somewhere(described.name)
    if page.suffix == ".json":
        raise SpecError(f"--report = {page}: the numbers would take the page's place; name it {page.stem}.html")
    if report is not None:
        # Before the minutes of work, not after.
        options.make_room(report, "--report")
    if lpips and asked not in READS:
        raise SpecError(f"--lpips = {lpips!r}: this audit inverts no pictures; leave it out, or use --kind secrecy")
    given: dict[str, Any] = {"shadow": shadow, "noise": noise} if asked is Kind.source else {}
    if asked in READS:
        given = {"depth": _depth(fast, lpips)}
    known = way.ask(described, seeds=seeds or way.runs, seed=seed or 0, data=data, watch=options.watch, **given)
    found = {**known.plain, **options.stamp()}
    options.make_room(page, "--report")
    type(known)(found).save(page)
    options.emit(found, False, page.with_suffix(".json"))
    options.emit(found | {"report": str(page)}, json, out)
    if not json:
        way.show(found)
        print(f"report: {page}")


def _kind(protocol: Pipeline) -> Kind:
    if protocol.aggregate.use == "clusters":
        return Kind.integrity
    return Kind.profile if protocol.privacy.use == "tiers" else Kind.source


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
    return Path("audits") / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.html"


def show(found: dict[str, Any]) -> None:
    """The same for the terminal: a table, and a sentence for each defence."""
    from rich.table import Table

    from croupier.cli.tables import is_narrow, size, wrapped
    from croupier.cli.tables import show as print_table

    title = f"{found['name']}: whose record is it? Means over rounds and {found['runs']} runs"
    table = Table(title=title, title_justify="left")
    heads = ("defence", "attack", "success", "95 %", "prior", "leak, points (95 %)", "accuracy", "up/client")
    # On a narrow terminal the rest is left to the page.
    kept = range(len(heads)) if not is_narrow() else (0, 1, 2, 4, 5)
    for at in kept:
        table.add_column(heads[at], justify="left" if at < 2 else "right", no_wrap=at < 2)
    for row in found["rows"]:
        for number, (name, attack) in enumerate((n, a) for n, a in row["attacks"].items() if n != "prior"):
            once = ("", "", "") if number else (row["defence"], f"{row['accuracy']:.1%}", size(row["bytes_per_client"]))
            cells = (once[0], name, *_figures(attack), *once[1:])
            table.add_row(*(cells[at] for at in kept))
        table.add_section()
    print_table(table)
    print(
        f"1/n = {found['chance']:.1%}. Prior: the adversary's knowledge without a view. Leak: what the view adds to it."
    )
    for row in found["rows"]:
        print(wrapped(f"{row['defence']}: {row['verdict']['sentence']}"))


def _figures(attack: dict[str, Any]) -> tuple[str, ...]:
    if not attack["scored"]:
        return "failed its control", "", "", ""
    leak = attack["leak"]
    return (
        f"{attack['rate']:.1%}", f"{attack['low']:.0%} to {attack['high']:.0%}", f"{attack['prior']:.1%}",
        f"{100 * leak['rate']:+.1f} ({100 * leak['low']:+.1f} to {100 * leak['high']:+.1f})",
    )  # fmt: skip
