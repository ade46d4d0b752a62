"""What an audit found, as a terminal shows it: the matrix, the verdict, remarks, and attacks where that is asked for.

`cli.audit` calls `show` once the report is made. The words are those of the page, from `audit.report.read`; the marks
are shorter (`MARKS`), and all is fitted into the width of a window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.audit.report.read import Lenient

# Heads of the matrix, short enough that all of them with their numbers fit into 80 columns.
SHORT = {
    "source": "source", "membership": "member", "reconstruction": "recon", "linkage": "link", "traits": "traits",
    "separation": "separ", "permutation": "permut", "poisoning": "poison", "carries": "carry",
}  # fmt: skip
# One character for each word of `audit.report.read.stamp`, to stand beside a number in the matrix.
MARKS = {
    "leak": "!", "broken": "!", "leak in the worst case": "*", "none found": ".", "proved": "=", "cannot tell": "?",
    "could not be judged": "?", "not tested": "?", "does not apply": "-", "did not run": "x", "not asked": " ",
}  # fmt: skip
LEGEND = "! leak or damage, * worst case, . none found, ? cannot tell, = proved, - does not apply, x did not run."
# What the line under the matrix says of units other than a share; the page's own are in `audit.report.read`.
UNITS = {
    "dB": "dB (10 more: a tenth of the squared error)", "cosine": "cosine (1: the same)", "bits": "bits a parameter",
}  # fmt: skip


def show(found: Mapping[str, Any], verbose: bool = False) -> None:
    """The matrix, the verdict, what is recommended, its cost, remarks, what was not run; with `verbose` all attacks."""
    from croupier.audit.report.read import LOST, Lenient, absent, cost, remarks, stamp
    from croupier.cli.fit import wrapped

    _matrix(found)
    print(wrapped(" ".join([found["verdict"]["sentence"], *found["verdict"].get("more", ())]), ""))
    for one in found["verdict"]["against"]:
        what_if = " (what if: the protocol forbids it)" if one.get("forbidden") else ""
        print(wrapped(f"{one['adversary']}{what_if}: {one['sentence']}"))
    print(wrapped(f"{found['verdict']['recommend']['sentence']} {cost(Lenient(found))}".strip(), ""))
    for one in found.get("bounds", ()):
        print(wrapped(one, ""))
    for row in found["rows"]:
        for one in remarks(Lenient(found), Lenient(row)):
            print(wrapped(f"{row['defence']}: {one}"))
    for one in absent(Lenient(found)):
        print(wrapped(one))
    for name, one in found["rows"][0]["questions"].items():
        if one["status"] == "not-run" and not one["why"].startswith(LOST):
            word = stamp(Lenient(one))[1]
            print(wrapped(f"{word}: {name}: {one['why'].removeprefix(f'{word}: ')}"))
    if verbose:
        _attacks(Lenient(found))


def _matrix(found: Mapping[str, Any]) -> None:
    """Defences by questions; a question without an answer for any defence is named below and has no column.

    The last columns are the model's measure and what a client sends a round.
    """
    from rich.table import Table

    from croupier.audit.report.read import Lenient, columns
    from croupier.cli.fit import line, wrapped
    from croupier.cli.fit import show as print_table
    from croupier.cli.tables import size

    asked, rows = found["questions"], found["rows"]
    names, silent = ([one.key for _, one in columns(Lenient(found), there)] for there in (True, False))
    rate = "RMSE" if rows[0]["measure"] == "rmse" else "accur."
    table = Table(title=f"{found['name']}: {found['runs']} runs", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for at, head in enumerate(("defence", *(SHORT.get(name, name) for name in names), rate, "up")):
        table.add_column(head, justify="right" if at else "left", no_wrap=True)
    for row in rows:
        cells = [_cell(row["questions"][name], asked[name]["unit"]) for name in names]
        good = row[row["measure"]]
        shown = "" if good is None else f"{good:.3g}" if row["measure"] == "rmse" else f"{good:.0%}"
        sent = "-" if row["bytes_per_client"] is None else size(row["bytes_per_client"])
        table.add_row(row["defence"], *cells, shown, sent)
    print_table(table)
    odd = [f"{SHORT.get(n, n)} in {UNITS[asked[n]['unit']]}" for n in names if asked[n]["unit"] != "share"]
    print(line(f"Gain over the prior, in points{'; ' if odd else ''}{', '.join(odd)}. {LEGEND}"))
    told = "; ".join(f"{SHORT.get(name, name)}: {asked[name]['asks']}" for name in names)
    print(wrapped(told, ""))
    if silent:
        print(wrapped(f"Left out, no answer anywhere: {', '.join(SHORT.get(name, name) for name in silent)}.", ""))


def _cell(one: Mapping[str, Any], unit: str) -> str:
    from croupier.audit.report.read import Lenient, stamp

    mark = MARKS[stamp(Lenient(one))[1]]
    if one["gain"] is None:
        return mark
    value = 100 * one["gain"]["rate"] if unit == "share" else one["gain"]["rate"]
    return f"{value:+.0f}{mark}" if unit in ("share", "dB") else f"{value:+.{1 if abs(value) >= 0.05 else 2}f}{mark}"


def _attacks(found: Lenient) -> None:
    """Every attack on every defence, as the page has them; adversaries that did not attack are left out."""
    from rich.table import Table

    from croupier.audit.report.read import attacks
    from croupier.audit.report.words import Estimate
    from croupier.cli.fit import show as print_table

    for row in found.parts("rows"):
        table = Table(title=row.text("title"), title_justify="left")
        for at, head in enumerate(("question", "adversary", "attack", "value (95 %)", "prior", "gain (95 %)")):
            table.add_column(head, justify="left" if at < 3 else "right", no_wrap=at < 3)
        for question, key, _, name, one in attacks(found, row):
            if not name:
                continue
            value, prior = one.rate("value"), one.number("prior")
            said = ["not run", "", ""]
            if value is not None and prior is not None:
                mark = "" if one.plain.get("scored") else " (fails its control)"
                gain = f"{question.gain(one.part('gain').rate())}{mark}"
                said = [question.value(value), question.value(Estimate(prior)), gain]
            table.add_row(question.key, key, name, *said)
        if table.rows:
            print_table(table, labels=3)
