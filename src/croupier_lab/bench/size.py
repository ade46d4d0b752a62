"""How much a bench measures, as a checked value: the base of every bench's size, and how it says what it is doing.

`croupier bench` makes its options from the fields of a size (`croupier_lab/cli/bench.py`): a field with a description
is an option with the field's default and bounds, a field without one is set from Python alone.
"""

from __future__ import annotations

from collections.abc import Callable

from croupier.core.part import Part

Watch = Callable[[str], None]


def ignore(doing: str) -> None:
    """The watcher of whoever does not want to hear what a bench is doing."""


class BenchSize(Part):
    """How much one bench measures.

    An option is named as its field; `json_schema_extra={"flag": "cohort"}` gives it another name, as where one value of
    many is given at a time.
    """
