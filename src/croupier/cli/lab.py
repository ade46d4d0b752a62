"""`croupier reproduce` and `croupier bench`: the laboratory, a package of its own that is loaded when it is there.

Nothing else in the product imports the laboratory. Here it is looked up whether the package and what it needs are
installed, and otherwise an error says what to install. `croupier.cli` attaches the two commands, and
`croupier explain --table` and `croupier compare --plot` load what they need through it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Optional

import typer

from croupier.errors import SpecError

NEEDS = ("croupier_lab", "matplotlib")


def missing() -> list[str]:
    """What the laboratory needs and this environment does not have."""
    return [name for name in NEEDS if find_spec(name) is None]


def load(module: str) -> ModuleType:
    """A module of the laboratory; where it is not installed, an error that says how to install it."""
    if absent := missing():
        raise SpecError(f"the laboratory is not installed ({', '.join(absent)}): pip install 'croupier[lab]'")
    return import_module(f"croupier_lab.{module}")


def attach(app: typer.Typer) -> None:
    """Add the laboratory's commands, or in their place ones that say how to install it."""
    if not missing():
        load("cli").attach(app)
        return
    lax = {"ignore_unknown_options": True, "allow_extra_args": True}
    for name, does in (("reproduce", "Run papers' figures and tables again"), ("bench", "Measure against rivals")):
        app.command(name, help=f"{does} (needs pip install 'croupier\\[lab]').", context_settings=lax)(_refuse)


def _refuse(words: Annotated[Optional[list[str]], typer.Argument(hidden=True)] = None) -> None:  # noqa: UP045
    load("cli")
