"""`croupier reproduce` without a name, which lists what can be run, and `--list`: what became of every claim.

`cli.reproduce` calls `show_list`. Listing needs no data and no GPU.
"""

from __future__ import annotations

from typing import Any

from croupier.cli import options
from croupier.cli.fit import line, wrapped
from croupier.cli.rows import show_rows
from croupier.errors import SpecError, nearest
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.claims import listed
from croupier_lab.papers.shared.claim import MEANINGS


def show_list(name: str | None, claims: bool, as_json: bool) -> None:
    """Print what became of every claim of the papers, or of one, or what can be run again."""
    if claims:
        show_claims(name, as_json)
    else:
        _show_figures(as_json)


def show_claims(paper: str | None, as_json: bool) -> None:
    """Print all claims, or those of one paper. Raises: SpecError when no paper has that name."""
    found = listed()
    if paper is not None and paper not in found["papers"]:
        raise SpecError(f"--list {paper!r}: no such paper; {nearest(paper, found['papers'])}")
    kept = {key: told for key, told in found["papers"].items() if paper in (None, key)}
    found = {"papers": kept, "counts": {key: found["counts"][key] for key in kept}}
    options.give(found, as_json, None, lambda: _show(found))


def _show(found: dict[str, Any]) -> None:
    for key, told in found["papers"].items():
        rows = [{name: _cell(claim, name) for name in ("claim", "status", "scale", "date")} for claim in told["claims"]]
        show_rows(rows, told["title"])
        counts = ", ".join(f"{count} {status}" for status, count in found["counts"][key].items() if count)
        print(line(f"{key}: {counts}"))
        print()
    for status, said in MEANINGS.items():
        print(wrapped(f"{status}: {said}."))
    print(wrapped("docs/results.md has the numbers of both sides, the reasons and the commands; so has --json."))


def _cell(claim: dict[str, Any], name: str) -> str:
    return str(claim["name" if name == "claim" else name] or "-")


def _show_figures(as_json: bool) -> None:
    table = {
        figure.name: {"source": figure.source, "title": figure.title, "needs_data": figure.needs_data()}
        for figure in FIGURES.values()
    }
    options.give({"entries": table}, as_json, None)
    if not as_json:
        for name, told in table.items():
            print(line(f"{name:19} {'*' if told['needs_data'] else ' '} {told['title']}", " " * 22))
        said = "needs the data folder (--data or CROUPIER_DATA, see docs/data.md); others need it beyond smoke at most"
        print(line(f"*: {said}"))
        print("croupier reproduce NAME --scale smoke|small|paper")
        print("croupier reproduce --list: what became of every claim")
