"""rooms: whoever names a part gets it from a process that has loaded no other, and lists of names are whole."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tools.describe import slots

import croupier
from croupier.audit.poison import Poison
from croupier.audit.question import Question
from croupier.audit.recorded.shadows import Shadows
from croupier.core.part import Part
from croupier.core.rooms import holding
from croupier.learn import datasets, models
from croupier.learn.distort import Distortion

ROOT = Path(croupier.__file__).parent
SLOTS: list[type[Part]] = [
    *{kind.verb: kind for kind in slots().values()}.values(),
    Question,
    Poison,
    Shadows,
    Distortion,
]


def said(file: Path) -> set[tuple[str, str]]:
    """The classes of a file that say `use=`, with the name that they say."""
    return {
        (node.name, str(word.value.value))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for word in node.keywords
        if word.arg == "use" and isinstance(word.value, ast.Constant)
    }


def test_every_class_that_says_a_name_is_offered_by_a_slot() -> None:
    classes = {found for file in ROOT.rglob("*.py") for found in said(file)}
    parts = [(part, use) for slot in SLOTS for use, part in slot.offered().items()]
    assert {(part.__name__, use) for part, use in parts if part.__module__.startswith("croupier.")} == classes


@pytest.mark.parametrize("slot", SLOTS, ids=lambda slot: slot.verb)
def test_a_part_is_found_in_its_room_by_its_name(slot: type[Part]) -> None:
    for use, part in slot.offered().items():
        if not part.__module__.startswith("croupier."):
            continue
        own = part.__module__ == slot.__module__
        assert own or part.__module__ in holding(slot.lies_in, f'use="{use}"'), use


def test_a_part_that_lies_elsewhere_would_be_seen() -> None:
    assert holding("croupier.encode", 'use="shuffle"') == []
    assert holding("croupier.release", 'use="shuffle"') == ["croupier.release.shuffle"]


@pytest.mark.parametrize("package", [models, datasets], ids=lambda package: package.__name__)
def test_packages_offer_what_they_list(package: object) -> None:
    names = getattr(package, "__all__")  # noqa: B009 - of any module
    assert [getattr(package, name).__name__ for name in names] == names
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        getattr(package, "Nobody")  # noqa: B009


def test_a_description_loads_its_own_parts_only() -> None:
    """And none of the large libraries that it does not use."""
    asked = "import sys, croupier; croupier.load('digits-shuffled'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert "croupier.release.shuffle" in loaded
    assert {"numba", "scipy", "sklearn", "croupier.release.scored", "croupier.place.servers"} & set(loaded) == set()
