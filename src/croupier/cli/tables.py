"""Tables for people."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from croupier.job import Result

SCORES = {"accuracy": ("accuracy", "{:.1%}"), "rmse": ("RMSE (kWh)", "{:.4f}"), "loss": ("loss", "{:.3f}")}


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def wrapped(said: str) -> str:
    """A sentence for the terminal: broken at 100 columns, later lines set in."""
    return textwrap.fill(said, 100, initial_indent="  ", subsequent_indent="    ")


def per_round(result: Result) -> None:
    """One run, a row a round."""
    scores = [key for key in SCORES if key in result.final]
    table = Table(title=f"{result.spec.name}: round by round", title_justify="left")
    spending = "ledger" in result.summary
    for head in [
        "round",
        *(SCORES[key][0] for key in scores),
        *(["spent epsilon, by tier"] if spending else []),
        *(["clusters"] if "clusters" in result.final else []),
        "clients",
        "up/client",
        "down/client",
        "seconds",
        "peak memory",
    ]:
        table.add_column(head, justify="right")
    for line, spent in zip(result.metrics, result.timing, strict=True):
        values = [SCORES[key][1].format(line[key]) for key in scores]
        if spending:
            values.append(" / ".join(_up(one["epsilon"]) for one in line["spent"].values()))
        if "clusters" in result.final:
            values.append(str(line.get("clusters", "")))
        table.add_row(
            str(line["round"]), *values, f"{line['present']}/{line['invited']}", size(line["bytes_up_per_client"]),
            size(line["bytes_down_per_client"]), f"{spent['seconds']:.2f}", size(spent["peak_bytes"]),
        )  # fmt: skip
    show(table)
    _accounts(result)
    _remarks(result)


def _accounts(result: Result) -> None:
    """What clients have spent, tier by tier, where there is something to spend."""
    ledger = result.summary.get("ledger")
    if ledger is None:
        return
    table = Table(title=f"spent at delta = {ledger['delta']:g}, by tier (one participation)", title_justify="left")
    for head in ("tier", "clients", "most participations", "largest spent epsilon", "budget", "refused"):
        table.add_column(head, justify="right")
    for row in ledger["tiers"]:
        table.add_row(
            f"{row['tier']:g}", str(row["clients"]), str(row["participations"]), _up(row["epsilon"]),
            _budget(row), str(row["refused"]),
        )  # fmt: skip
    show(table)
    print(f"{result.spec.name}: unit {ledger['unit']}; {ledger['adjacency']}; each client's own: ledger.jsonl")


def _budget(row: dict[str, Any]) -> str:
    if row["budget"] is None:
        return "none"
    low, high = row["budget"]
    return (f"{low:g}" if low == high else f"{low:g} to {high:g}") + (" or none" if row["unlimited"] else "")


def _up(epsilon: float) -> str:
    """Rounded up, as a guarantee must be."""
    from croupier.privacy.local import rounded_up

    return rounded_up(epsilon)


def comparison(results: list[Result]) -> None:
    """Several runs, a row each; what the server learns stands below, where a sentence has room."""
    scores = [key for key in SCORES if any(key in result.final for result in results)]
    table = Table(title="after the last round", title_justify="left")
    table.add_column("run", no_wrap=True)
    for head in [*(SCORES[key][0] for key in scores), "rounds", "up/client", "down/client", "seconds"]:
        table.add_column(head, justify="right", no_wrap=True)
    for result in results:
        last = result.final
        values = [SCORES[key][1].format(last[key]) if key in last else "" for key in scores]
        table.add_row(
            result.spec.name, *values, str(last["round"]), size(last["bytes_up_per_client"]),
            size(last["bytes_down_per_client"]), f"{result.summary['seconds']:.2f}",
        )  # fmt: skip
    show(table)
    print("What the server learns in each round:")
    for result in results:
        learns = result.summary["statement"]["learns"]["server"]
        print(textwrap.fill(learns, 78, initial_indent=f"  {result.spec.name}: ", subsequent_indent="    "))
    for result in results:
        _remarks(result)


# So many clients that were refused are named.
SHOWN = 8
# Clamping more than this share of the values changes what is learned.
MANY = 0.01


def _remarks(result: Result) -> None:
    """What was refused, clamped or masked on the way: nothing is dropped in silence."""
    refused: dict[str, int] = {}
    for line in result.metrics:
        for name in line["refused"]:
            refused[name] = refused.get(name, 0) + 1
    notes = [f"{name} refused in {count} rounds" for name, count in sorted(refused.items())[:SHOWN]]
    if len(refused) > SHOWN:
        notes.append(f"{len(refused) - SHOWN} more clients refused, in {sum(refused.values())} rounds in all")
    noted: dict[str, Any] = {}
    for line in result.metrics:
        for key, value in line["noted"].items():
            noted[key] = noted.get(key, 0) + value
    notes += [f"{value} {key.replace('_', ' ')} (seen by the simulation only)" for key, value in noted.items() if value]
    size = sum(parameter.numel() for parameter in result.model.parameters())
    sent = size * sum(line["present"] for line in result.metrics)
    if noted.get("clamped", 0) > MANY * sent:
        notes.append(
            f"warning: {noted['clamped'] / sent:.0%} of all values sent lay beyond the scale and were clamped; raise "
            "protocol.encode.scale, or use protocol.aggregate = 'scaled'"
        )
    notes += [
        f"{value} {key.replace('_', ' ')} windows, which hold a missing reading and are not used"
        for key, value in result.summary["data"].items()
        if key.startswith("masked") and value
    ]
    for note in notes:
        print(f"{result.spec.name}: {note}")


def is_narrow() -> bool:
    """Whether people look at it in a window that a wide table does not fit."""
    console = Console()
    return console.is_terminal and console.width < 120


def room() -> int:
    """How wide a table may be: piped output has no width of its own, and rich's guess of 80 columns would cut it."""
    console = Console()
    return console.width if console.is_terminal else 140


def show(table: Table, width: int | None = None) -> None:
    """Print a table as wide as it needs, or as wide as is said."""
    Console(width=width or room()).print(table)
