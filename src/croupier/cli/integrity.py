"""The findings of an audit of clusters in the terminal."""

from __future__ import annotations

from typing import Any

from croupier.cli.secrecy import per_cent, tables

FAST = ("federation.rounds=6",)
RUNS = 3


def show(found: dict[str, Any]) -> None:
    """A line for each attack and rule, purity by round, then the sentences."""
    from rich.table import Table

    from croupier.cli.fit import show as print_table
    from croupier.cli.fit import wrapped

    title = (
        f"{found['name']}: {found['malicious']} of {found['clients']} clients malicious, {found['cohort']} a round, "
        f"{found['rounds']} rounds. Per cent, means over {found['runs']} runs (95 %)"
    )
    table = Table(title=title, title_justify="left")
    heads = ("attack", "rule", "accuracy received", "by clusters", "backdoor", "purity", "not alone", "clusters")
    for head in heads:
        table.add_column(head, justify="left" if head in ("attack", "rule") else "right")
    last = None
    for row in found["rows"]:
        if last not in (None, row["attack"]):
            table.add_section()
        pure = row.get("purity", {})
        cells = [per_cent(row[name]) for name in ("received", "clusters", "success")]
        cells += [per_cent(pure.get(name)) for name in ("all", "several")]
        groups = f"{pure['groups']['rate']:.1f}" if pure else ""
        table.add_row("" if last == row["attack"] else row["attack"], row["rule"], *cells, groups)
        last = row["attack"]
    print_table(table, labels=2)
    for row in found["rows"]:
        if "rounds" in row and row["attack"] != "no attack":
            by = " ".join(f"{one['all']['rate']:.2f}" for one in row["rounds"])
            print(wrapped(f"purity by round, {row['attack']}: {by}"))
    tables(found["confidentiality"])
    for line in (*found["sentences"], *found["paper"], *found["confidentiality"]["says"], *found["verdict"]):
        print(wrapped(line))
