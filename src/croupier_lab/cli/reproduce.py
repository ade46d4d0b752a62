"""`croupier reproduce`: what papers print, run again, with their numbers beside ours.

Without a name it lists what can be run (`cli.listed`). A result is shown, and kept with its scale, seeds, date and
every substitution, because a number of a smaller scale is easily taken for the paper's. `papers.shared.reproduce` runs
a figure; `croupier.cli.lab` adds this command where the laboratory is installed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options
from croupier.cli.progress import progress

if TYPE_CHECKING:
    from croupier_lab.papers.shared.figure import Figure, Scale


def command(
    name: Annotated[Optional[str], typer.Argument(help="Which one; without it, all are listed.")] = None,  # noqa: UP045
    claims: Annotated[
        bool, typer.Option("--list", help="Every claim of the papers and what became of it; with NAME, of one paper.")
    ] = False,
    scale: Annotated[
        str, typer.Option(help="smoke: a minute; small: a quarter of an hour; paper: for a GPU.")
    ] = "smoke",
    only: Annotated[str, typer.Option(help="Only cases whose label holds this text.")] = "",
    seeds: Annotated[Optional[int], typer.Option(help="Independent runs.", min=2)] = None,  # noqa: UP045
    seed: options.Seed = None,
    data: options.Data = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or cuda with a number.")] = "cpu",
    processes: Annotated[
        int,
        typer.Option(
            "--processes", "--abreast", help="How many runs at once, each in its own process (once --abreast).", min=1
        ),
    ] = 1,
    rounds: Annotated[Optional[int], typer.Option(help="So many rounds, not the scale's.", min=1)] = None,  # noqa: UP045
    plot: Annotated[Optional[Path], typer.Option(help="Also draw it into this SVG file.")] = None,  # noqa: UP045
    out: options.OutFile = None,
    json: options.Json = False,
) -> None:
    """Run a paper's figure or table again, and print its numbers beside ours.

    A result carries its scale, its seeds, the date and every substitution; it is kept under reproductions/ unless --out
    names a file.
    """
    import os

    import torch

    from croupier.errors import DataError
    from croupier.learn.data import OTHER, folder_of
    from croupier.spec import Machine
    from croupier_lab.cli.listed import show_list
    from croupier_lab.papers.shared.figure import Means
    from croupier_lab.papers.shared.reproduce import reproduce

    if claims or name is None:
        show_list(name, claims, json)
        return
    figure, size = _chosen(name, scale, plot)
    start = time.perf_counter()
    checked = Machine.parse({"device": device}, "run").device
    means = Means(folder_of(data), checked, os.cpu_count() or 1, processes, only, rounds)
    try:
        with progress(name) as told:
            found = reproduce(figure, size, means, seeds=seeds, seed=seed or 0, watch=told.say)
    except DataError as error:
        # A paper's data is not for the user to choose.
        raise DataError(str(error).removesuffix(OTHER)) from None
    found |= {"seconds": time.perf_counter() - start, "torch": torch.__version__, **options.stamp()}
    path = out or _somewhere(name, scale)
    options.give(found, json, path, lambda: (show_cases if "cases" in found else show_rows)(found))
    if plot is not None and figure.draw is not None:
        options.write(plot, figure.draw(found["rows"]), "--plot")
    if not json:
        print(f"result: {path}")


def _chosen(name: str, scale: str, plot: Path | None) -> tuple[Figure, Scale]:
    """The figure and its scale. Raises: SpecError or StoreError, before the hours of work and not after."""
    from croupier.errors import SpecError, nearest
    from croupier_lab.papers.catalogue import FIGURES
    from croupier_lab.papers.shared.figure import SCALES

    if name not in FIGURES:
        raise SpecError(f"{name!r} is no figure or table that is known; {nearest(name, FIGURES)}")
    size = next((known for known in SCALES if known == scale), None)
    if size is None:
        raise SpecError(f"--scale = {scale!r}: no such scale; {nearest(scale, SCALES)}")
    figure = FIGURES[name]
    if plot is not None and figure.draw is None:
        able = ", ".join(known for known, one in FIGURES.items() if one.draw)
        raise SpecError(f"--plot = {str(plot)!r}: {name} has no picture; leave it out, or choose among {able}")
    if plot is not None:
        options.check_room(plot, "--plot")
    return figure, size


def _somewhere(name: str, scale: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return Path("reproductions") / f"{name.replace('/', '-')}-{scale}-{stamp}.json"


def show_cases(found: dict[str, Any]) -> None:
    """Print the paper's number, ours read the same way, the prior, and what the view adds."""
    from croupier.cli.fit import wrapped
    from croupier.cli.rows import show_rows as show_table

    rows = [
        {"case": case["label"], "defence": row["defence"], **_figures(case, row)}
        for case in found["cases"]
        for row in case["rows"]
    ]
    show_table(rows, f"{found['source']}: {found['title']}. Scale: {found['scale']}; {len(found['seeds'])} runs")
    print(wrapped(f"Scale {found['scale']}: {found['scale_means']}."))
    if found["scale"] == "smoke":
        print(wrapped("It shows that everything runs; models are hardly trained, so do not compare its numbers."))
    print(wrapped("-: the paper prints no number. *: the attack failed its control (not above 1/n without a defence)."))
    print(wrapped(found["reading"]))
    for said in dict.fromkeys(s for case in found["cases"] for s in case["substitutions"]):
        print(wrapped(f"instead of the paper's: {said}"))
    for said in found["says"]:
        print(wrapped(said))


def show_rows(found: dict[str, Any]) -> None:
    """Print the rows as they are."""
    from croupier.cli.fit import wrapped
    from croupier.cli.rows import show_rows as show_table

    show_table(found["rows"], f"{found['source']}: {found['title']}. Scale: {found['scale']}")
    print(wrapped(found["reading"]))
    for said in found.get("substitutions", ()):
        print(wrapped(f"instead of the paper's: {said}"))
    for said in found.get("says", ()):
        print(wrapped(said))


def _figures(case: dict[str, Any], row: dict[str, Any]) -> dict[str, str]:
    from croupier_lab.papers.shared.comparison import pair

    theirs, ours = pair(row)
    leak, printed = ours["leak"], row["printed"]
    gained = f"{100 * leak['rate']:+.1f} ({100 * leak['low']:+.1f} to {100 * leak['high']:+.1f})"
    return {
        "paper": f"{printed['rate']:.1%}" if printed else "-",
        "best round": f"{theirs['best_round']['rate']:.1%}{'' if theirs['scored'] else '*'}",
        "mean (95 %)": f"{theirs['rate']:.1%} ({theirs['low']:.0%} to {theirs['high']:.0%})",
        "prior": f"{theirs['prior']:.1%}",
        "1/n": f"{case['chance']:.0%}",
        "prior + view: leak, points": gained,
        "accuracy": f"{row['accuracy']:.1%}",
    }
