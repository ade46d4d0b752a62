"""The docs name every key and every part that a description can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.core.part import Part
from croupier.spec import Spec, _keys

PAGE = (Path(__file__).parents[2] / "docs" / "description.md").read_text("utf-8")
PARTS = [(name, part) for (_, name), part in Part.named.items() if part.__module__.startswith("croupier.")]


@pytest.mark.parametrize("key", [key for key in _keys(Spec()) if key.split(".")[0] in ("federation", "run")])
def test_every_key_is_described(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize(("name", "part"), PARTS, ids=[name for name, _ in PARTS])
def test_every_part_is_described_with_its_fields(name: str, part: type[Part]) -> None:
    assert f"`{name}`" in PAGE
    for field in part.model_fields:
        assert f"`{field}`" in PAGE, field
