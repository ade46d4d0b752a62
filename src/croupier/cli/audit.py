"""`croupier audit`: attacks on what the server really sees, against what it could have guessed without looking."""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.pipeline import Pipeline

FAST = ("federation.rounds=2",)
RUNS = 40


class Kind(StrEnum):
    """What is asked."""

    source = "source"
    profile = "profile"
    integrity = "integrity"


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
            help="Independent runs; intervals are over runs. Default: 40, of a profile 5, of integrity 3.",
            min=2,
            max=1000,
        ),
    ] = None,
    kind: Annotated[
        Optional[Kind],  # noqa: UP045
        typer.Option(
            help="Whose record is it (source), what are clients like (profile), what do malicious clients break "
            "(integrity). Default: by the protocol."
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
            help="For clusters and pictures, also measure LPIPS by alex, vgg or squeeze: needs croupier\\[lpips] and "
            "the network's weights from torchvision, which you must have."
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

    `croupier audit --fast`: handwritten digits, ten clients, alpha = 0.1.
    """
    from croupier.audit.secrecy import FAST as FAST_DEPTH
    from croupier.audit.secrecy import FULL
    from croupier.cli import integrity, profile
    from croupier.errors import SpecError
    from croupier.inquiry import examine
    from croupier.profiling import profile as profiled
    from croupier.soundness import examine as attacked
    from croupier.spec import load

    asked = kind or _kind(load(spec, sets or []).protocol)
    quick = {Kind.source: FAST, Kind.profile: profile.FAST, Kind.integrity: integrity.FAST}[asked]
    described = load(spec, [*(quick if fast else ()), *(sets or [])])
    if print_config:
        options.show_config(described, json)
        return
    page = report or _somewhere(described.name)
    if page.suffix == ".json":
        raise SpecError(f"--report = {page}: the numbers would take the page's place; name it {page.stem}.html")
    if report is not None:
        # Before the minutes of work, not after.
        options.make_room(report, "--report")
    if lpips and asked is not Kind.integrity:
        raise SpecError(f"--lpips = {lpips!r}: this audit inverts no pictures; leave it out, or audit clusters")
    if asked is not Kind.source:
        known: Any
        if asked is Kind.profile:
            known = profiled(described, seeds=seeds or profile.RUNS, seed=seed or 0, data=data, watch=options.watch)
        else:
            depth = replace(FAST_DEPTH if fast else FULL, lpips=lpips)
            known = attacked(
                described, seeds=seeds or integrity.RUNS, seed=seed or 0, data=data, depth=depth, watch=options.watch
            )
        found = {**known.plain, **options.stamp()}
        options.make_room(page, "--report")
        type(known)(found).save(page)
        options.emit(found, False, page.with_suffix(".json"))
        options.emit(found | {"report": str(page)}, json, out)
        if not json:
            (profile if asked is Kind.profile else integrity).show(found)
            print(f"report: {page}")
        return
    findings = examine(
        described, seeds=seeds or RUNS, seed=seed or 0, shadow=shadow, noise=noise, data=data,
        watch=options.watch,
    )  # fmt: skip
    found = {**findings.plain, **options.stamp()}
    write(found, page)
    options.emit(found | {"report": str(page)}, json, out)
    if not json:
        show(found)
        print(f"report: {page}")


def _kind(protocol: Pipeline) -> Kind:
    if protocol.aggregate.use == "clusters":
        return Kind.integrity
    return Kind.profile if protocol.privacy.use == "tiers" else Kind.source


def write(found: dict[str, Any], page: Path) -> None:
    """The page, and the numbers beside it."""
    from croupier.inquiry import Findings

    options.make_room(page, "--report")
    Findings(found).save(page)
    options.emit(found, False, page.with_suffix(".json"))


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
