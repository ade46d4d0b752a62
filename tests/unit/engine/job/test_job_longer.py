"""A run that goes on to more rounds than it was begun with, and one that goes on anew."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.shell import Shell

from croupier.engine.job.result import Result
from croupier.engine.job.run import resume, run
from croupier.errors import SpecError, StoreError

SETS = ("task.fit.epochs=1", "run.workers=1")
FILES = ("metrics.jsonl", "sent.jsonl", "checkpoints/000004.state", "model.safetensors", "spec.toml")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run("digits-sum", sets=(*SETS, "federation.rounds=2"), out=tmp_path_factory.mktemp("job") / "run", seed=8)


@pytest.fixture
def copy(short: Result, tmp_path: Path) -> Path:
    return Path(shutil.copytree(short.path, tmp_path / "copy"))


def test_a_longer_run_is_the_one_that_was_long_from_the_start(copy: Path, tmp_path: Path) -> None:
    done = resume(copy, rounds=4)
    alone = run("digits-sum", sets=(*SETS, "federation.rounds=4"), out=tmp_path / "alone", seed=8)
    assert done.metrics == alone.metrics
    for name in FILES:
        assert (copy / name).read_bytes() == (alone.path / name).read_bytes(), name
    # And it can be resumed again, as it is and longer still.
    assert resume(copy).final == done.final
    assert resume(copy, rounds=5).final["round"] == 5


def test_a_crash_between_manifest_and_description_leaves_a_run(copy: Path, short: Result) -> None:
    resume(copy, rounds=3)
    manifest = (copy / "manifest.json").read_bytes()
    shutil.rmtree(copy)
    shutil.copytree(short.path, copy)
    (copy / "manifest.json").write_bytes(manifest)
    assert resume(copy).final["round"] == 2
    assert resume(copy, rounds=3).final["round"] == 3


def test_a_run_cannot_be_made_shorter(copy: Path) -> None:
    with pytest.raises(SpecError, match="rounds = 1: the run was begun with 2; it can only be made longer"):
        resume(copy, rounds=1)


def test_anything_else_in_the_description_still_stays(copy: Path) -> None:
    resume(copy, rounds=3)
    text = (copy / "spec.toml").read_text()
    (copy / "spec.toml").write_text(text.replace("epochs = 1", "epochs = 2"))
    with pytest.raises(StoreError, match="is not the one this run began with; restore it"):
        resume(copy)


def test_the_command_line_makes_a_run_longer(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(monkeypatch, capsys)
    code, out, _ = shell("run", "--resume", str(copy), "--set", "federation.rounds=3", "--json")
    assert code == 0
    assert json.loads(out)["runs"][0]["final"]["round"] == 3
    code, _, said = shell("run", "--resume", str(copy), "--set", "task.fit.lr=3")
    assert code == 2
    assert "a run that goes on keeps its description; change federation.rounds=N only" in said
    code, _, said = shell("run", "digits", "--anew")
    assert code == 2
    assert "--anew plays a round again that had begun: name the run with --resume DIRECTORY" in said


def test_going_on_anew_where_nothing_had_left_changes_nothing(copy: Path) -> None:
    heard: list[str] = []
    before = (copy / "metrics.jsonl").read_bytes()
    resume(copy, anew=True, watch=lambda event, facts: heard.append(facts.get("text", "")))
    assert "nothing had left since the last checkpoint: nothing counts twice" in heard
    assert (copy / "metrics.jsonl").read_bytes() == before


NET = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Linear(64, {}), nn.{}(), nn.Linear({}, classes))
"""


def test_a_network_that_was_edited_is_said_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hospital_net.py").write_text(NET.format(4, "ReLU", 4))
    own = ('task.model={use="own",make="hospital_net:net"}', "federation.rounds=1", *SETS)
    path = run("rns-servers", sets=own, out="run", seed=3).path
    heard: list[str] = []

    def again(text: str) -> None:
        (tmp_path / "hospital_net.py").write_text(text)
        sys.modules.pop("hospital_net", None)
        resume(path, rounds=2, watch=lambda event, facts: heard.append(facts.get("text", "")))

    with pytest.raises(StoreError, match="the network has 385 numbers, and 310 when it began; restore it"):
        again(NET.format(5, "ReLU", 5))
    assert not (path / "lost.json").exists()
    again(NET.format(4, "Tanh", 4))
    assert any("has changed since this run began" in text for text in heard)
