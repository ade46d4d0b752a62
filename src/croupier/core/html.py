"""Tables for notebooks: a run's `Result` and a `Statement` show themselves by it.

Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table, without a style of its own."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"
