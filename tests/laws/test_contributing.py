"""CONTRIBUTING's example, as printed: one file, one vector, one line, and every law holds."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from croupier.core.part import Part
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from tests.laws import pipelines, test_abort, test_carry, test_fresh, test_realise, test_replay, test_twin, test_vectors

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")


def block(kind: str, number: int) -> str:
    """A code block of the page."""
    return str(re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[number])


@pytest.fixture
def newcomer(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """The page's release, registered for one test, and the pipeline of the page's one line."""
    monkeypatch.setattr(Part, "named", dict(Part.named))
    module = ModuleType("croupier.release.ascending")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block("python", 0), "ascending.py", "exec"), module.__dict__)
    names = {"Pipeline": Pipeline, "Relay": Relay, "Ascending": module.__dict__["Ascending"]}
    line = eval("{" + block("python", 1).strip() + "}", names)
    pipeline = line["ascending"]
    assert isinstance(pipeline, Pipeline)
    monkeypatch.setitem(pipelines.PIPELINES, "ascending", pipeline)
    return pipeline


def test_the_page_holds(newcomer: Pipeline) -> None:
    for name, case in json.loads(block("json", 0)).items():
        test_vectors.check(name, case)
    test_replay.check(newcomer)
    test_carry.check_bytes(newcomer)
    test_realise.check(newcomer, ("c3",))
    test_twin.check(newcomer)
    test_fresh.check(newcomer)
    for change in test_abort.CHANGES.values():
        test_abort.check("ascending", change)
