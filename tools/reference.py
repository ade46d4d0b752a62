"""Writes docs/reference.md from the code: commands and their options, the Python API, errors. Part of `make docs`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import typer

import croupier
from croupier import errors
from croupier.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
HEAD = """# Reference

Written by `make docs` from the code. Keys of a description: [description](description.md), and as a
JSON schema for editors [here](croupier.schema.json). The report as JSON: [its
page](audit-report.md).

## Commands
`croupier COMMAND --help` says the same. Every command also takes `--help` and `--debug`.
"""
# The laboratory's benches have options of their own sizes; `croupier bench NAME --help` lists them.
GROUPS_LEFT_OUT = ("bench",)


def written() -> str:
    """The whole page."""
    command = typer.main.get_command(app)
    parts = [HEAD, *_commands(command, "croupier"), "\n## Python\n", *_names(), "\n## Errors\n", *_errors()]
    return "".join(parts)


def _commands(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            if name not in GROUPS_LEFT_OUT:
                yield from _commands(inner, f"{path} {name}")
        return
    yield f"\n### {path.removeprefix('croupier ')}\n{_filled(_first(command.help or ''), '')}\n"
    for one in command.params:
        told = getattr(one, "help", None)
        if told and not getattr(one, "hidden", False) and one.name != "debug":
            yield _filled(
                f"- `{' '.join(one.opts) if one.opts[0].startswith('-') else one.human_readable_name}`: {told}", "  "
            )


def _names() -> Iterator[str]:
    for name in croupier.__all__:
        value = getattr(croupier, name)
        yield _filled(f"- `croupier.{name}`: {_first(inspect.getdoc(value) or '')}", "  ")


def _errors() -> Iterator[str]:
    known = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.CroupierError)]
    for one in known:
        above = "" if one is errors.CroupierError else f" ({one.__bases__[0].__name__})"
        yield _filled(f"- `{one.__name__}`{above}: {_first(inspect.getdoc(one) or '')}", "  ")


def _first(text: str) -> str:
    """The first paragraph, on one line, without a terminal's marks."""
    return " ".join(re.sub(r"\[/?\w+\]", "", text).strip().split("\n\n")[0].split())


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(), "utf-8")


if __name__ == "__main__":
    main()
