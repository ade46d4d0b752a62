"""How much a bench measures, as a checked value: the base of every bench's size, and how it says what it is doing.

`croupier bench` makes its options from the fields of a size (`croupier_lab/cli/bench.py`): a field with a description
is an option with the field's default and bounds, a field without one is set from Python alone.
"""

from __future__ import annotations

from collections.abc import Callable

from croupier.core.part import Part

Watch = Callable[[str], None]


def ignore(doing: str) -> None:
    """The watcher of those who do not want to be told what a bench is doing."""


class BenchSize(Part):
    """How much one bench measures.

    An option has the name of its field; `json_schema_extra={"flag": "cohort"}` gives it another one, as where a field
    holds many values and the option is repeated, once for each.
    """
