"""CONTRIBUTING's three examples, as printed: a release, a question of the audit and a preset are added and work."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tools.describe import schema

import croupier
from croupier.audit import described
from croupier.cli import findings
from croupier.core.part import Part
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.spec import load
from croupier.toml_read import about, presets
from croupier.toml_text import to_toml
from tests.laws import (
    pipelines,
    test_abort,
    test_carry,
    test_fresh,
    test_intact,
    test_realise,
    test_replay,
    test_twin,
    test_vectors,
)
from tests.laws.test_rooms import SLOTS

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
# Adds a module of the page for one test: its name, and its source.
Add = Callable[[str, str], ModuleType]


def block(section: str, kind: str, number: int = 0) -> str:
    """A code block of the section whose title begins so."""
    text = PAGE.split(f"\n## {section}", 1)[1].split("\n## ", 1)[0]
    return str(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[number])


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """What parts are known is as before once the test has ended; those that are loaded meanwhile stay loaded."""
    for slot in SLOTS:
        slot.offered()
    monkeypatch.setattr(Part, "named", dict(Part.named))

    def added(name: str, source: str) -> ModuleType:
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        return module

    return added


@pytest.fixture
def newcomer(add: Add, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """The page's release, registered for one test, and the pipeline of the page's one line."""
    module = add("croupier.release.ascending", block("Add a release", "python"))
    names = {"Pipeline": Pipeline, "Relay": Relay, "Ascending": module.__dict__["Ascending"]}
    line = eval("{" + block("Add a release", "python", 1).strip() + "}", names)
    pipeline = line["ascending"]
    assert isinstance(pipeline, Pipeline)
    monkeypatch.setitem(pipelines.PIPELINES, "ascending", pipeline)
    return pipeline


def test_a_release_is_added(newcomer: Pipeline) -> None:
    for name, case in json.loads(block("Add a release", "json")).items():
        test_vectors.check(name, case)
    test_replay.check(newcomer)
    test_carry.check_bytes(newcomer)
    test_realise.check(newcomer, ("c3",))
    test_twin.check(newcomer)
    assert newcomer.release.intact is not test_intact.mixes(newcomer.release)
    test_fresh.check(newcomer)
    for change in test_abort.CHANGES.values():
        test_abort.check("ascending", change)


def test_a_question_is_added(
    add: Add, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    add("croupier.audit.questions.longest", block("Add a question", "python"))
    order, short, told = block("Add a question", "python", 1).strip().splitlines()
    monkeypatch.setattr(described, "ORDER", (*described.ORDER, *eval(f"({order})")))
    monkeypatch.setattr(findings, "SHORT", findings.SHORT | eval("{" + short + "}"))
    assert told.strip().endswith("(longest).")
    reports: list[Any] = []
    audit = croupier.audit

    def kept(*args: Any, **options: Any) -> Any:
        reports.append(audit(*args, **options))
        return reports[-1]

    monkeypatch.setattr(croupier, "audit", kept)
    test = add("test_question_longest", block("Add a question", "python", 2))
    test.test_names_tell_it_and_a_shuffle_does_not()
    findings.show(reports[0].plain)
    assert "long" in capsys.readouterr().out.split()


def test_a_preset_is_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "digits-median"
    with resources.as_file(resources.files("croupier") / "presets") as folder:
        shutil.copytree(folder, tmp_path / "presets")
    (tmp_path / "presets" / f"{name}.toml").write_text(block("Add a preset", "toml"), "utf-8")
    monkeypatch.setattr("croupier.toml_read.resources", SimpleNamespace(files=lambda package: tmp_path))
    monkeypatch.chdir(tmp_path)
    assert name in presets()
    assert about(name) == "Digits, shuffled; the median of each parameter."
    assert name in schema()["properties"]["protocol"]["anyOf"][0]["enum"]
    Path("printed.toml").write_text(to_toml(load(name)), "utf-8")
    assert load("printed.toml") == load(name)
    croupier.explain(name)
    croupier.plan(name)
    result = croupier.run(name, seed=1, sets={"federation.rounds": 1}, out="there")
    assert result.final["accuracy"] > 0.2
