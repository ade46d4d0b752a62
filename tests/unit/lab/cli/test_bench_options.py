"""Options of benches: made from the described fields of a size, with their defaults, bounds and names."""

from __future__ import annotations

from typing import Annotated, Literal

import click
import pytest
from pydantic import Field
from typer.main import get_command

from croupier.cli import app
from croupier_lab.bench.size import BenchSize
from croupier_lab.cli.bench import BENCHES, options_of


class Toy(BenchSize):
    """A field of every kind."""

    many: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (3, 4), description="Many.", json_schema_extra={"flag": "one"}
    )
    count: int = Field(5, ge=1, le=9, description="Count.")
    share: float = Field(0.5, ge=0, description="Share.")
    kind: Literal["a", "b"] = Field("b", description="Kind.")
    quick: bool = Field(False, description="Quick.")
    inner: int = 7


def test_described_fields_are_options_and_no_others() -> None:
    made = {one.field: one for one in options_of(Toy)}
    assert list(made) == ["many", "count", "share", "kind", "quick"]
    assert {name: one.flag for name, one in made.items() if one.flag != name} == {"many": "one"}
    assert [one.default for one in made.values()] == [None, 5, 0.5, "b", False]
    bounds = {
        name: (one.annotation.__metadata__[0].min, one.annotation.__metadata__[0].max) for name, one in made.items()
    }
    assert bounds["many"] == (2, None)
    assert bounds["count"] == (1, 9)
    assert bounds["share"] == (0, None)


def flags(name: str) -> dict[str, object]:
    command = get_command(app).commands["bench"].commands[name]  # type: ignore[attr-defined]
    return {option.opts[-1]: option.default for option in command.get_params(click.Context(command))}


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("rns", {"--params": 11_237_432, "--sweep": False, "--largest": 10**8, "--plot": None}),
        ("disaggregate", {"--cohort": None, "--alpha": 0.1, "--seeds": 8}),
        ("tamper", {"--system": "sum-servers", "--trials": 10_000}),
        ("tazza", {"--model": None, "--threads": 1}),
    ],
)
def test_a_command_has_the_flags_of_its_size(name: str, some: dict[str, object]) -> None:
    assert set(BENCHES) >= {name}
    assert some.items() <= flags(name).items()
