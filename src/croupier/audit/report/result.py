"""The result of an audit: its plain values, and the ways to read and save them.

`croupier.audit(...)` returns a `Report`; `audit.described` and `audit.recorded.audited` make it, and `croupier audit`
writes it to files. Pages and texts are made by `audit.report.html` and `audit.report.text` from the same values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from croupier.audit.report import html, text
from croupier.audit.report.read import Lenient
from croupier.core.files import write_whole
from croupier.errors import SpecError, option

REMEDY = "free space, or choose another {}"
# What `Report.save_all` writes beside a page, under the same name.
BESIDE = (".json", ".csv", ".md")


def check_beside(page: Path) -> None:
    """Raises: SpecError where a report's files would take the place of files that no report wrote."""
    there = [] if page.exists() else [file.name for end in BESIDE if (file := page.with_suffix(end)).exists()]
    if there:
        name = option("report", "path")
        raise SpecError(f"{name} = {page}: {there[0]} would be replaced, and no report wrote it; choose another name")


@dataclass(frozen=True, repr=False)
class Report:
    """What an audit ends with: the plain values of docs/audit-report.md, and the ways to read them."""

    plain: Mapping[str, Any]

    def __repr__(self) -> str:
        name, rows = self.plain.get("name", "audit"), len(self.rows)
        return f"Report({name}: {rows} defences; .verdict says it, .plain has the numbers, .save(path) writes the page)"

    def _repr_html_(self) -> str:
        return html.brief(self.plain)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each defence, the description's own first."""
        return list(self.plain.get("rows") or ())

    @property
    def verdict(self) -> str:
        """What it comes to, in one sentence."""
        return Lenient(self.plain).part("verdict").text("sentence")

    def page(self) -> str:
        """One HTML document that needs nothing else."""
        return html.render(self.plain)

    def csv(self) -> str:
        """The numbers of every attack, a line for each, with what its defence costs."""
        return text.csv(self.plain)

    def markdown(self) -> str:
        """The verdict, what was found of the own protocol, and the matrix."""
        return text.markdown(self.plain)

    def json(self) -> str:
        """All of it; questions and adversaries stay in their order."""
        return json.dumps(self.plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write the page. Raises: StoreError when that cannot be."""
        return write_whole(Path(path), self.page().encode(), REMEDY.format(option("report", "path")))

    def save_all(self, path: str | Path) -> list[Path]:
        """Write the page, and beside it .json, .csv and .md. Raises: SpecError, StoreError."""
        page, name = Path(path), option("report", "path")
        beside = {".json": self.json, ".csv": self.csv, ".md": self.markdown}
        check_beside(page)
        if page.suffix in beside:
            raise SpecError(f"{name} = {page}: the page ends in .html; {page.suffix} is written beside it")
        texts = [(page.with_suffix(end), made().encode()) for end, made in beside.items()]
        return [self.save(page), *(write_whole(file, made, REMEDY.format(name)) for file, made in texts)]
