"""What a server reads of hidden coordinates, in the terminal: alone, and as a part of the audit of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

RUNS = 3


def show(found: dict[str, Any]) -> None:
    """The tables, then the sentences."""
    from croupier.cli.fit import line, wrapped

    title = (
        f"{found['name']}: what a curious server reads. {found['clients']} clients, {found['cohort']} a round, "
        f"up to {found['rounds']} rounds in each setting; means over {found['runs']} runs (95 %)"
    )
    print(line(title))
    tables(found["confidentiality"])
    for said in (*found["confidentiality"]["says"], *found["verdict"]):
        print(wrapped(said))


def tables(found: dict[str, Any]) -> None:
    """What the server recovers and reads, and what a tampered upload does."""
    from croupier.audit.report.secrecy import KNOWN, noticed
    from croupier.cli.fit import show as print_table

    if found["hidden"]:
        matched = [
            (order["name"], (one["group"], str(one["size"]), _value(one["absolute"], 1, 100),
                             _value(one["relative"], 1, 100), f"{100 * one['chance']:.1f}", str(one["uploads"])))
            for order in found["orders"] for one in order["groups"]
        ]  # fmt: skip
        heads: tuple[str, ...] = ("group", "places", "recovered, absolute", "between rounds", "chance", "uploads")
        print_table(_grouped("weight matching: per cent of places recovered", heads, matched))
    read = [
        (f"{order['name']}: {one['moment']}",
         (KNOWN[one["knows"]] + (f", {one['read']}" if one["knows"] == "relative" else ""), _value(one["psnr"], 1),
          _value(one["ssim"], 2), str(one["records"])))
        for order in found["orders"] for one in order["inversion"]
    ]  # fmt: skip
    if read:
        heads = ("the server knows", "PSNR, dB", "SSIM", "records")
        print_table(_grouped("records of single steps, inverted", heads, read))
    if found["tampered"]:
        heads = ("one client's upload", "accuracy", "with it", "noticed")
        lies = [
            (one["rule"], (one["says"], per_cent(one["honest"]), per_cent(one["accuracy"]), noticed(one)))
            for one in found["tampered"]
        ]
        print_table(_grouped("a client that breaks the rule", heads, lies))


def _grouped(title: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Rows under a line of their own for each name."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if at else "left")
    last = ""
    for name, cells in rows:
        if name != last:
            table.add_section()
            table.add_row(f"[bold]{name}[/bold]", *[""] * (len(heads) - 1))
            last = name
        table.add_row(*cells)
    return table


def _value(rate: dict[str, Any] | None, digits: int, scale: float = 1) -> str:
    if rate is None or rate["rate"] is None:
        return ""
    mean, low, high = (f"{scale * rate[name]:.{digits}f}" for name in ("rate", "low", "high"))
    return f"{mean} ({low} to {high})"


def per_cent(rate: dict[str, Any] | None) -> str:
    """A share with its interval; nothing where there is none."""
    if rate is None or rate["rate"] is None:
        return ""
    return f"{100 * rate['rate']:.1f} ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"
