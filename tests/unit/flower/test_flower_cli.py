"""Flower on the command line: what it adds to trust, a roster for an app's model, and approved bundles."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.enrolled import CLIENTS, HOSTS, card_of
from tests.shell import Shell

from croupier.service.roster import Roster


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line, in a folder of its own with everybody's cards and a model."""
    monkeypatch.chdir(tmp_path)
    for name in (*HOSTS, *CLIENTS):
        (tmp_path / f"{name}.card").write_text(card_of(name).text())
    save_file({"fc.weight": torch.zeros(2, 3)}, tmp_path / "model.safetensors")
    return Shell(monkeypatch, capsys)


def test_explain_says_what_flower_adds(shell: Shell) -> None:
    plain, inside = shell.json("explain", "flower"), shell.json("explain", "flower", "--flower")
    assert "flower" not in plain
    assert "ship other code" in inside["flower"]["the SuperLink could"]
    learns = inside["flower"]["the SuperLink learns"]
    assert "the mean of the training metrics is among it; no node's update and no node's training metrics" in learns
    assert {**inside, "flower": None} == {**plain, "flower": None}
    code, out, _ = shell("explain", "tazza", "--flower")
    assert code == 0
    assert "refused: protocol.encode" in " ".join(out.split())


def test_a_roster_is_made_for_an_apps_own_model(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import enrolled

    monkeypatch.setattr("croupier.cli.enrol.now", lambda: enrolled.NOW)
    cards = [f"{name}.card" for name in (*HOSTS, *CLIENTS)]
    words = ("--spec", "flower", "--like", "model.safetensors", "--metric", "train_loss=16")
    code, _, said = shell("enrol", *cards, *words)
    assert code == 0, said
    layout = Roster.read(Path("federation.roster")).layout
    assert [part.name for part in layout.slices] == ["fc.weight", "metric:train_loss:16.0"]
    code, _, said = shell("enrol", *cards, "--spec", "flower", "--metric", "train_loss=16", "--out", "b.roster")
    assert code == 2
    assert "--metric" in said
    assert "--like" in said


def test_bundles_are_approved_and_the_guard_installed(shell: Shell) -> None:
    Path("app.fab").write_bytes(b"an app")
    found = shell.json("flower-guard", "approve", "app.fab", "--list", "approved.txt")
    assert found["sha256"] in Path("approved.txt").read_text()
    code, out, _ = shell("flower-guard", "install", "guard", "--list", "approved.txt")
    assert code == 0
    assert "PATH=" in out
    assert Path("guard/flwr-clientapp").stat().st_mode & 0o111
    code, _, said = shell("flower-guard", "install", "guard", "--list", "missing.txt")
    assert code == 2
    assert "missing.txt" in said
