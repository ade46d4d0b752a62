"""Draws who sends what to whom from the drawings in docs/architecture.md: `python -m tools.flows`.

GitHub shows those drawings (Mermaid) by a script from elsewhere; a site read from disk cannot. Only what the
drawings use is understood: participants, messages and notes; a line of another kind is an error.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
# The preset whose drawing it is, as the sentence before the drawing names it, and the picture's name.
SYSTEMS = {
    "rns": "flow-rns",
    "rns-servers": "flow-rns-servers",
    "intra": "flow-intra",
    "tazza": "flow-tazza",
    "rain": "flow-rain",
}
WIDTH, MARGIN, TOP, LINE, GAP = 760, 90, 34, 15, 20
PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
MESSAGE = re.compile(r"(\w+)(-?->>)(\w+): (.+)")
NOTE = re.compile(r"Note over (\w+): (.+)")


@dataclass(frozen=True)
class Step:
    """One line of a drawing: a message from one party to another, or a note at one (both ends the same, no arrow)."""

    source: str
    target: str
    words: str
    arrow: str


def drawings(page: str) -> dict[str, str]:
    """The sequence drawings of a page by the last preset that is named before each."""
    found = {}
    for block in re.finditer(r"```mermaid\nsequenceDiagram\n(.*?)```", page, re.DOTALL):
        names = re.findall(r"`([a-z-]+)`", page[: block.start()].rpartition("```")[2])
        known = [name for name in names if name in SYSTEMS]
        if known:
            found[known[-1]] = block[1]
    return found


def parse(drawing: str) -> tuple[dict[str, str], list[Step]]:
    """The parties by their letters, and the steps in order. Raises: ValueError for a line of another kind."""
    parties: dict[str, str] = {}
    steps = []
    for line in filter(None, map(str.strip, drawing.splitlines())):
        if party := PARTICIPANT.fullmatch(line):
            parties[party[1]] = party[2]
        elif said := MESSAGE.fullmatch(line):
            steps.append(Step(said[1], said[3], said[4], said[2]))
        elif note := NOTE.fullmatch(line):
            steps.append(Step(note[1], note[1], note[2], ""))
        else:
            raise ValueError(f"{line!r}: only participants, messages and notes can be drawn")
    return parties, steps


def draw(drawing: str, title: str) -> str:
    """The picture, as SVG. Its words are text: they can be searched, and read aloud."""
    parties, steps = parse(drawing)
    step = (WIDTH - 2 * MARGIN) / max(1, len(parties) - 1)
    at = {letter: MARGIN + round(step * number) for number, letter in enumerate(parties)}
    body, y = [], TOP + 40
    for one in steps:
        lines, y = _step(one, at, y)
        body += lines
    height = y + 10
    posts = [
        f'<line x1="{x}" y1="{TOP + 10}" x2="{x}" y2="{height - 8}" stroke="#b0b7c3" stroke-dasharray="3 4"/>'
        for x in at.values()
    ]
    heads = [part for letter, name in parties.items() for part in _head(at[letter], name)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12.5">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto-start-reverse">'
        '<path d="M0,0 L9,4 L0,8 z" fill="#234"/></marker></defs>',
        *posts, *heads, *body, "</svg>\n",
    ])  # fmt: skip


def _head(x: int, name: str) -> list[str]:
    wide = 2 * MARGIN - 14
    box = f'<rect x="{x - wide // 2}" y="6" width="{wide}" height="{TOP}" rx="6" fill="#e8eef9" stroke="#6b86b8"/>'
    lines = textwrap.wrap(name, 26)
    first = 6 + TOP / 2 + 4.5 - LINE * (len(lines) - 1) / 2
    return [box, *(_text(x, first + LINE * number, line) for number, line in enumerate(lines))]


def _step(one: Step, at: dict[str, int], y: int) -> tuple[list[str], int]:
    """What one step draws below y, and where the next begins."""
    start, end = at[one.source], at[one.target]
    note = not one.arrow
    room = 2 * MARGIN + 40 if start == end else max(abs(end - start) - 16, 2 * MARGIN)
    lines = textwrap.wrap(one.words, max(18, int(room / 6.4)))
    # Words at the edge stay inside the picture.
    half = max(map(len, lines)) * 6.4 / 2 + 8
    middle = min(max((start + end) / 2, half), WIDTH - half)
    words = [_text(middle, y + LINE * number, line, note) for number, line in enumerate(lines)]
    below = y + LINE * len(lines)
    if note:
        high = LINE * len(lines) + 8
        box = (
            f'<rect x="{middle - half:.0f}" y="{y - 14}" width="{2 * half:.0f}" height="{high}" rx="4" fill="#fff6d8"/>'
        )
        return [box, *words], below + GAP - 4
    line = below - 8
    if start == end:
        path = f"M{start},{line} h26 v12 h-24"
        return [*words, f'<path d="{path}" fill="none" stroke="#234" marker-end="url(#tip)"/>'], below + GAP + 10
    # A dashed arrow of Mermaid's stands for messages in both directions here.
    both = ' stroke-dasharray="5 3" marker-start="url(#tip)"' if one.arrow == "-->>" else ""
    arrow = f'<line x1="{start}" y1="{line}" x2="{end}" y2="{line}" stroke="#234" marker-end="url(#tip)"{both}/>'
    return [*words, arrow], below + GAP


def _text(x: float, y: float, words: str, note: bool = False) -> str:
    # A white rim keeps words readable where they cross a post.
    rim = "" if note else ' stroke="#ffffff" stroke-width="4" paint-order="stroke"'
    return f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="middle" fill="#182230"{rim}>{escape(words)}</text>'


def pictures() -> dict[Path, str]:
    """Every picture by its file. Raises: KeyError where a system has no drawing."""
    found = drawings((DOCS / "architecture.md").read_text("utf-8"))
    return {DOCS / "pictures" / f"{name}.svg": draw(found[preset], preset) for preset, name in SYSTEMS.items()}


def main() -> None:
    """Write all pictures."""
    for path, text in pictures().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
