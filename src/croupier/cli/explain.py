"""`croupier explain`: who learns what, who must not collude, and what is not claimed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from pathlib import Path

    from croupier.spec import Spec
    from croupier.statement import Statement


def command(
    spec: Annotated[str, typer.Argument(help="A preset or TOML file.")] = "digits",
    sets: options.Sets = None,
    table: Annotated[
        bool,
        typer.Option("--table", help="Instead: moduli and bits by clients and digits, beside the paper's."),
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
    """
    from croupier.federation import check, least
    from croupier.spec import load
    from croupier.statement import explain

    described = load(spec, sets or ())
    if print_config:
        options.show_config(described, json)
        return
    if table:
        _table(described, json, out)
        return
    # A statement about a run that would be refused is worth nothing; natural clients are counted when they are loaded.
    clients = getattr(described.task.split, "clients", None)
    if clients is not None:
        # Data and network are not loaded here: what they offer shows when the run begins.
        offers = frozenset(
            {"answers", "symmetry", "samples", *({"root", "forward"} if described.task.root.records else ())}
        )
        check(described.protocol, clients, described.federation, offers)
    cohort = described.federation.cohort
    changing = None if clients is None else cohort is not None and cohort < clients
    plan, invited = described.federation, cohort or clients
    statement = explain(
        described.protocol, noise=described.task.fit.claims(), cohorts=changing, rounds=plan.rounds,
        present=None if invited is None else least(plan, invited),
        invited=None if clients is None or invited is None else (clients, invited),
    )  # fmt: skip
    options.emit({"name": described.name, "seed": seed, **statement.plain()}, json, out)
    if not json:
        _show(described.name, statement)


def _table(described: Spec, as_json: bool, out: Path | None) -> None:
    from croupier.errors import SpecError
    from croupier.papers.claims import judged, table

    if not described.protocol.encode.unary:
        used = described.protocol.encode.use
        raise SpecError(f"--table with protocol.encode = {used!r}: only residues have moduli; use explain rns --table")
    cells, claims = table(), judged()
    options.emit({"name": described.name, "table": cells, "printed": claims}, as_json, out)
    if not as_json:
        _show_cells(cells)
        _show_claims(claims)


def _show_cells(cells: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from croupier.cli.tables import show, wrapped

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
        print(f"    {bits:3} bits: {', '.join(map(str, chosen))}")


def _show_claims(claims: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from croupier.cli.tables import show, wrapped

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


def _show(name: str, statement: Statement) -> None:
    print(f"{name}: {statement.backend}\n")
    for who, what in statement.learns.items():
        _line(f"{who} learns", what)
    _line(
        "must not collude",
        "; ".join(" with ".join(pair) for pair in statement.must_not_collude) or "nobody is kept apart",
    )
    rest: dict[str, Any] = statement.plain()
    for key in ("privacy_threshold", "integrity_threshold", "liveness_threshold"):
        _line(key.replace("_", " "), rest[key])
    for line in statement.encoding:
        _line("encoding", line)
    for head, text in statement.warnings.items():
        _line(head, text)
    for key in ("differential_privacy", "amplification", "robustness", "anonymity", "over_rounds"):
        _line(key.replace("_", " "), rest[key])


def _line(head: str, text: str) -> None:
    print(textwrap.fill(text, 100, initial_indent=f"{head + ':':<22} ", subsequent_indent=" " * 23))
