"""The findings of a profile audit in the terminal."""

from __future__ import annotations

from typing import Any

FAST = ("federation.rounds=12",)
RUNS = 5
SHORT = {
    "rows": "no shuffling", "model": "rows shuffled", "layer": "layers shuffled", "parameter": "IntraShuffler",
    "sums": "bucket sums",
}  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """A line for each noise and view, then the sentences, the other adversaries and the paper's tables."""
    from rich.table import Table

    from croupier.cli.fit import line, wrapped
    from croupier.cli.fit import show as print_table
    from croupier.profiling import BUCKET, ROW

    title = f"{found['name']}: what updates tell of clients. Means over {found['runs']} runs, in brackets the prior"
    table = Table(title=title, title_justify="left")
    keys = list(found["attributes"])
    for head in ("noise", "view", "cosine", "CosAUC", "delta-cos", *keys, *(f"ARI {key}" for key in keys), "linked"):
        table.add_column(head, justify="left" if head in ("noise", "view") else "right")
    last = None
    for arm in found["arms"]:
        if last not in (None, arm["noise"]):
            table.add_section()
        marks = arm["denoisers"][found["judged_by"]]
        shown = ["cosine", "CosAUC", "delta-cos", *(f"{key}: clients named right" for key in keys)]
        shown += [f"{key}: ARI" for key in keys]
        cells = [_cell(marks.get(name)) for name in shown]
        linked = _cell(marks[ROW]) if ROW in marks else f"bucket {_cell(marks.get(BUCKET))}"
        table.add_row("" if last == arm["noise"] else arm["noise"], SHORT[arm["view"]], *cells, linked)
        last = arm["noise"]
    print_table(table, labels=2)
    print(line("* fails its control: not above its prior without noise and shuffling, so it scores no defence"))
    for name, given in found["epsilons"].items():
        if given[0]:
            listed = ", ".join(f"{one:.4g}" for one in given[0])
            print(line(f"epsilon of one participation, {name}: {listed} (first run)"))
    for key, one in found["attributes"].items():
        print(wrapped(f"{key}: {one['title']}; {', '.join(one['classes'])}; chance {one['chance']:.3f}"))
    for said in (*found["sentences"], *found["adversaries"]):
        print(wrapped(said))
    for name, printed in found["paper"].items():
        print(wrapped(f"{name} of the paper ({printed['about']}): {_lines(printed)}"))


def _cell(mark: dict[str, Any] | None) -> str:
    if mark is None or mark["rate"] is None:
        return ""
    if mark.get("control") is False:
        return "*"
    known = f" ({mark['prior']:.2f})" if "prior" in mark else ""
    return f"{mark['rate']:.2f}{known}"


def _lines(printed: dict[str, Any]) -> str:
    first, *heads = printed["heads"]
    rows = [
        f"{row[0]}: " + ", ".join(f"{head} {value:.2f}" for head, value in zip(heads, row[1:], strict=True))
        for row in printed["rows"]
    ]
    return f"by {first}: " + "; ".join(rows)
