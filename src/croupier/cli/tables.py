"""Tables of finished runs for people, and how bytes and scores are written on the command line.

`croupier run` shows one run by rounds (`per_round`) or several side by side (`comparison`), with what clients have
spent, by tier, and what was refused, clamped or masked on the way: nothing is dropped in silence. Epsilons, which are
guarantees, are rounded up. `cli.findings`, `cli.plan` and `cli.recommend` take `size` from here, and `cli.progress`
takes `SCORES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from croupier.cli.fit import line, show, wrapped

if TYPE_CHECKING:
    from croupier.engine.job.result import Result

# The metrics that are known by name, in the order of their columns: the head, and how a value is written.
SCORES = {
    "accuracy": ("accuracy", "{:.1%}"),
    "auc": ("AUC", "{:.3f}"),
    "f1": ("F1", "{:.3f}"),
    "balanced_accuracy": ("balanced", "{:.1%}"),
    "precision": ("precision", "{:.1%}"),
    "recall": ("recall", "{:.1%}"),
    "rmse": ("RMSE", "{:.4g}"),
    "mae": ("MAE", "{:.4g}"),
    "r2": ("R2", "{:.3f}"),
    "loss": ("loss", "{:.3f}"),
}
# How a value of the user's own metric is written.
OWN = "{:.4g}"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def per_round(result: Result) -> None:
    """One run, a row a round."""
    scores = _scores([result])
    table = Table(title=f"{result.spec.name}: round by round", title_justify="left")
    spending = "ledger" in result.summary
    for head in [
        "round",
        *(_head(key, [result]) for key in scores),
        *(["spent epsilon, by tier"] if spending else []),
        *(["epsilon of a record"] if "record" in result.final else []),
        *(["clusters"] if "clusters" in result.final else []),
        "clients",
        "up/client",
        "down/client",
        "seconds",
        "peak memory",
    ]:
        table.add_column(head, justify="right")
    for told, spent in zip(result.metrics, result.timing, strict=True):
        values = [_score(key, told) for key in scores]
        if spending:
            values.append(" / ".join(_up(one["epsilon"]) for one in told["spent"].values()))
        if "record" in result.final:
            values.append(_up(told["record"]["epsilon"]) if "record" in told else "")
        if "clusters" in result.final:
            values.append(str(told.get("clusters", "")))
        table.add_row(
            str(told["round"]), *values, f"{told['present']}/{told['invited']}", size(told["bytes_up_per_client"]),
            size(told["bytes_down_per_client"]), f"{spent['seconds']:.2f}", size(spent["peak_bytes"]),
        )  # fmt: skip
    show(table)
    _clients(result)
    _accounts(result)
    if cost := result.summary.get("record"):
        print(
            f"{result.spec.name}: training cost a record at most epsilon {_up(cost['epsilon'])} at delta = "
            f"{cost['delta']:g}, by {cost['accountant']}; {cost['adjacency']}"
        )
    _remarks(result)


def _scores(results: list[Result]) -> list[str]:
    """The metrics of some runs: known ones in their order, then the user's own."""
    asked = [path.rpartition(":")[2] for result in results for path in result.spec.task.metrics]
    known = [key for key in SCORES if any(key in result.final for result in results)]
    return [*known, *dict.fromkeys(name for name in asked if name not in known)]


def _head(key: str, results: list[Result]) -> str:
    """A metric's name for people, with its unit where it has one."""
    units = {result.spec.task.data.unit for result in results} if key in ("rmse", "mae") else set[str]()
    unit = units.pop() if len(units) == 1 else ""
    return SCORES.get(key, (key, OWN))[0] + (f" ({unit})" if unit else "")


def _score(key: str, line: Mapping[str, Any]) -> str:
    return SCORES.get(key, (key, OWN))[1].format(line[key]) if key in line else "none"


# So many clients stand in a table.
LISTED = 20


def _clients(result: Result) -> None:
    """How good the last model is for each client, on its own test part; or why nobody can say."""
    found = result.summary.get("clients")
    if found is None or not result.spec.task.split.by_owner:
        return
    if "why" in found:
        print(f"{result.spec.name}: {found['why']}")
        return
    scores = _scores([result])
    table = Table(title=f"{result.spec.name}: each client's own test records", title_justify="left")
    for head in ("client", "train records", "test records", *(_head(key, [result]) for key in scores)):
        table.add_column(head, justify="left" if head == "client" else "right")
    shown = list(found["results"].items())[:LISTED]
    for who, one in shown:
        values = [_score(key, one["metrics"]) for key in scores]
        table.add_row(who, str(one["train_records"]), str(one["test_records"]), *values)
    counts = [sum(one[key] for one in found["results"].values()) for key in ("train_records", "test_records")]
    table.add_section()
    table.add_row("all together", *map(str, counts), *(_score(key, result.final) for key in scores))
    show(table)
    if (more := len(found["results"]) - LISTED) > 0:
        print(f"{result.spec.name}: {more} more clients: {result.path}/summary.json has each one's own")
    for who, one in shown:
        for key, why in one["undefined"].items():
            said = "no test records of its own" if key == "all" else f"no {key} of its own: {why}"
            print(f"{result.spec.name}: {who} has {said}")


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
    print(line(f"{result.spec.name}: unit {ledger['unit']}; {ledger['adjacency']}; each client's own: ledger.jsonl"))


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
    scores = _scores(results)
    table = Table(title="after the last round", title_justify="left")
    table.add_column("run", no_wrap=True)
    for head in [*(_head(key, results) for key in scores), "rounds", "up/client", "down/client", "seconds"]:
        table.add_column(head, justify="right", no_wrap=True)
    for result in results:
        last = result.final
        values = [_score(key, last) if key in last else "" for key in scores]
        table.add_row(
            result.spec.name, *values, str(last["round"]), size(last["bytes_up_per_client"]),
            size(last["bytes_down_per_client"]), f"{result.summary['seconds']:.2f}",
        )  # fmt: skip
    show(table)
    print("What the server learns in each round:")
    for result in results:
        learns = result.summary["statement"]["learns"]["server"]
        print(wrapped(learns, f"  {result.spec.name}: "))
    for result in results:
        _remarks(result)


# So many clients that were refused are named.
SHOWN = 8
# Clamping more than this share of the values changes what is learned.
MANY = 0.01


def _remarks(result: Result) -> None:
    """What was refused, clamped or masked on the way: nothing is dropped in silence."""
    refused: dict[str, int] = {}
    for told in result.metrics:
        for name in told["refused"]:
            refused[name] = refused.get(name, 0) + 1
    notes = [f"{name} refused in {count} rounds" for name, count in sorted(refused.items())[:SHOWN]]
    if len(refused) > SHOWN:
        notes.append(f"{len(refused) - SHOWN} more clients refused, in {sum(refused.values())} rounds in all")
    noted: dict[str, int] = {}
    for told in result.noted:
        for note in told["clients"].values():
            for key, value in note.items():
                noted[key] = noted.get(key, 0) + value
    notes += [f"{value} {key.replace('_', ' ')} (seen by the simulation only)" for key, value in noted.items() if value]
    size = sum(parameter.numel() for parameter in result.model.parameters() if parameter.requires_grad)
    if still := sum(parameter.numel() for parameter in result.model.parameters()) - size:
        notes.append(f"{still} parameters are frozen, and {size} are trained and sent")
    sent = size * sum(told["present"] for told in result.metrics)
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
    for note in [*_learnt(result), *notes]:
        print(line(f"{result.spec.name}: {note}"))


def _learnt(result: Result) -> list[str]:
    """A note where the last model is right no more often than one that always gives the commonest answer."""
    found, last = result.summary.get("always"), result.final
    if found is None or last["accuracy"] > found["accuracy"]:
        return []
    more = (
        f"its AUC is {last['auc']:.3f}, where 0.5 is a guess"
        if "auc" in last
        else "--set 'task.metrics=[\"auc\"]' shows whether it tells classes apart at all"
    )
    return [
        f"accuracy {last['accuracy']:.1%}: no better than always answering {found['name']!r} "
        f"({found['accuracy']:.1%} of the test records); {more}"
    ]
