"""What the site needs of the pages before MkDocs reads them: see `hooks` in mkdocs.yml.

Pages link to files of the repository that are no pages of the site, such as `../examples/README.md`. On the site such
a link is shown as the file's path, and nothing else: a site read from disk may lie anywhere.
"""

from __future__ import annotations

import re
from typing import Any

# [words](../path): the words may stand in backticks, and the link may break a line.
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
# Fences and pictures' texts are left as they are.
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with each page: the page without links that leave the docs."""
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_named(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, _named(markdown[at:])])


def _named(text: str) -> str:
    """Links to files outside the docs as words; the path follows where the words do not say it."""

    def named(link: re.Match[str]) -> str:
        words, path = link[1], link[2]
        said = words.strip("`").rstrip("/")
        return f"`{path}`" if path.startswith(said) else f"{words} (`{path}`)"

    return OUTSIDE.sub(named, text)
