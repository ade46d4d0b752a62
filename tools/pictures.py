"""Makes the README's pictures from an audit's JSON: `python -m tools.pictures audits/demo.json`.

The matrix as a terminal shows it (SVG, by rich), and the top of the page as a browser shows it (PNG, by Chromium). The
numbers are the audit's own: `croupier audit --fast --seed 7 --report audits/demo.html` makes the file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from croupier.audit.report.html import render

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
COMMAND = "croupier audit --fast --seed 7"
COLUMNS = 112
# A laptop's window.
WINDOW = (1280, 860)


def printed(found: Mapping[str, Any]) -> str:
    """What the command prints of an audit, up to its verdict against each party."""
    code = "import json, sys; from croupier.cli.findings import show; show(json.load(sys.stdin))"
    shown = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(found), capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": str(COLUMNS)},
    )  # fmt: skip
    whole = shown.stdout.splitlines()
    return "\n".join(line.rstrip() for line in whole[: 1 + _last_of_verdict(whole)])


def _last_of_verdict(lines: list[str]) -> int:
    """The line before the first party that is judged alone: those are indented by two spaces."""
    ends = [at for at, line in enumerate(lines) if re.match(r"  \S.*: ", line)]
    return ends[0] - 1 if ends else len(lines) - 1


def terminal(found: Mapping[str, Any]) -> str:
    """An SVG of the terminal; leaks are red, what was looked for and not found is green."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {COMMAND}", style="bold cyan"))
    words = Text(printed(found))
    words.highlight_regex(r"[+-][\d.]+!", "bold red")
    words.highlight_regex(r"[+-][\d.]+?\.(?= |$)", "green")
    console.print(words)
    drawn = console.export_svg(title="croupier", theme=MONOKAI, unique_id="matrix")
    # Rich names a font of a server elsewhere: a picture asks for nothing.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")


def page(found: Mapping[str, Any], to: Path) -> None:
    """The top of the report, as a PNG. Raises: SystemExit where no browser is."""
    from playwright.sync_api import sync_playwright

    program = next((there for name in PROGRAMS if (there := shutil.which(name))), None)
    if program is None:
        raise SystemExit(f"no browser here: install one of {', '.join(PROGRAMS)}")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        sheet = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
        sheet.set_content(render(found))
        sheet.screenshot(path=to)
        browser.close()


def main() -> None:
    """Write both pictures."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("report", type=Path, help="the JSON of an audit")
    asked.add_argument("--to", type=Path, default=PICTURES, help="the folder of the pictures")
    given = asked.parse_args()
    found = json.loads(given.report.read_text("utf-8"))
    (given.to / "matrix.svg").write_text(terminal(found), "utf-8")
    page(found, given.to / "report.png")


if __name__ == "__main__":
    main()
