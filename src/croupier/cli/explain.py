"""`croupier explain`: who learns what, who must not collude, and what is not claimed.

It prints a `Statement` (`croupier.statement`), which is computed from the pipeline's parts; no sentence of it is
written here. `--flower` adds what `flower.trust` says. `--table` prints the moduli of residues beside a paper's printed
bits instead. That table comes from the laboratory, where it is installed, and is the same for every description that
encodes residues. Nothing here is random, and `--seed` is only repeated in the statement's JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from pathlib import Path

    from croupier.spec import Spec
    from croupier.statement import Statement


def command(
    spec: Annotated[str, typer.Argument(help="A preset or TOML file.", autocompletion=options.descriptions)] = "digits",
    sets: options.Sets = None,
    table: Annotated[
        bool,
        typer.Option("--table", help="Instead: moduli and bits by clients and digits, beside the paper's."),
    ] = False,
    flower: Annotated[
        bool, typer.Option("--flower", help="Say too what running inside Flower adds to what must be trusted.")
    ] = False,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """State what each party learns in a run, composed from what its parts reveal.

    `croupier explain digits-shuffled`

    `croupier explain digits --set protocol.place=relay --json`

    `croupier explain rns --table`

    `croupier explain flower --flower`
    """
    from croupier.outlook import stated
    from croupier.spec import unread

    described, supposed = unread(spec, sets or ())
    if print_config:
        options.show_config(described, json, supposed)
        return
    if table:
        _table(described, json, out)
        return
    options.caution(spec, sets or ())
    statement = stated(described, supposed)
    told = {"name": described.name, "seed": seed, **statement.plain()}
    inside = _inside_flower(described) if flower else []
    told |= {"flower": dict(inside)} if flower else {}
    options.give(told, json, out, lambda: _show(described.name, statement, inside))


def _inside_flower(described: Spec) -> list[tuple[str, str]]:
    from croupier.flower.trust import sentences

    return sentences(described.protocol)


def _table(described: Spec, as_json: bool, out: Path | None) -> None:
    from croupier.cli.lab import load
    from croupier.errors import SpecError

    if not described.protocol.encode.unary:
        used = described.protocol.encode.use
        raise SpecError(f"--table with protocol.encode = {used!r}: only residues have moduli; use explain rns --table")
    claims_of = load("papers.rns.bits_per_parameter")
    cells, claims = claims_of.table(), claims_of.judged()
    told = {"name": described.name, "table": cells, "printed": claims}
    options.give(told, as_json, out, lambda: _show_table(cells, claims))


def _show_table(cells: list[dict[str, Any]], claims: list[dict[str, Any]]) -> None:
    _show_cells(cells)
    _show_claims(claims)


def _show_cells(cells: list[dict[str, Any]]) -> None:
    """Our moduli and bits, for each number of clients and digits."""
    from rich.table import Table

    from croupier.cli.fit import show, wrapped

    counts = list(dict.fromkeys(cell["clients"] for cell in cells))
    grid = Table(title="bits a parameter, by digits (down) and clients (across)", title_justify="left")
    for head in ("digits", *map(str, counts)):
        grid.add_column(head, justify="right")
    for digits in dict.fromkeys(cell["digits"] for cell in cells):
        row = [cell for cell in cells if cell["digits"] == digits]
        grid.add_row(str(digits), *(f"{c['bits']} ({c['sum']}; {c['one_modulus']})" for c in row))
    show(grid)
    said = (
        "Ours, the least for which every sum stays apart: m - 1 bits for each modulus m. In brackets: the least with "
        "the paper's m bits, and the bits of one binary modulus, for a relay that may add. The moduli:"
    )
    print(wrapped(said))
    for bits, chosen in sorted({cell["bits"]: cell["moduli"] for cell in cells}.items()):
        print(wrapped(f"{bits:3} bits: {', '.join(map(str, chosen))}", "    ", " " * 14))


def _show_claims(claims: list[dict[str, Any]]) -> None:
    """A paper's printed bits beside the least that keep sums apart, and which of them lose sums."""
    from rich.table import Table

    from croupier.cli.fit import show, wrapped

    grid = Table(title="what the paper prints", title_justify="left")
    for head in ("where", "clients", "values", "bits", "sums told apart", "sums possible", "verdict", "needed", "ours"):
        grid.add_column(head, justify="left" if head in ("where", "verdict") else "right")
    for claim in claims:
        grid.add_row(
            claim["where"], str(claim["clients"]), f"±{claim['largest_value']}", f"{claim['bits']}",
            f"{claim['most_sums']:.4g}", f"{claim['sums']:.4g}", claim["verdict"], str(claim["least_sum"]),
            str(claim["least_bits"]),
        )  # fmt: skip
    show(grid)
    said = (
        "Sums told apart: the largest product of any coprime moduli that add up to those bits (Landau's function). "
        "Every sum is kept where that is 2 n v + 1 at least; the paper's own condition is n v < floor((M - 1) / 2)."
    )
    print(wrapped(said))


def _show(name: str, statement: Statement, inside: list[tuple[str, str]]) -> None:
    from croupier.cli.fit import line

    print(line(f"{name}: who learns what, what that rests on, and what is not claimed") + "\n")
    # The statement's `backend` is the list of the pipeline's five parts.
    for head, text in [*statement.sentences(), ("parts", statement.backend)]:
        _line(head, text)
    if inside:
        print("\ninside Flower\n")
    for head, text in inside:
        _line(head, text)


def _line(head: str, text: str) -> None:
    from croupier.cli.fit import wrapped

    print(wrapped(text, f"{head + ':':<22} ", " " * 23))
