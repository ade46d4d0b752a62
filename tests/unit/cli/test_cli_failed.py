"""A command that fails before its first result leaves nothing behind, and two of them never share a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.shell import Shell

from croupier.audit import harness
from croupier.engine.store import RunDir
from croupier.errors import CroupierError
from croupier.learn.train import Learner

SMALL = ("-s", "federation.rounds=2", "-s", "task.fit.epochs=1", "-s", "run.workers=1", "--seed", "7")
OWN = """
import torch

def broken(*_):
    raise ValueError("no such file")

def few(*_):
    return torch.zeros(3, 4), torch.zeros(3, dtype=torch.long), torch.zeros(3, 4), torch.zeros(3, dtype=torch.long)
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """In a folder with a module of one's own."""
    (tmp_path / "mine_failed.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    return Shell(monkeypatch, capsys)


def own(data: str) -> tuple[str, ...]:
    return ("-s", "task.data={use='own', make='mine_failed:" + data + "', name='x'}")


WRONG = {
    "own data that fails": own("broken"),
    "own data too small": own("few"),
    "data that are missing": ("-s", "task.data=mnist"),
    "a cohort too large": ("-s", "federation.cohort=99"),
    "a device that is not there": ("-s", "run.device=cuda:7"),
    "parts that do not fit": ("-s", "protocol.release=bits"),
    "a view of nobody": ("-s", "run.views=['nobody']"),
    "a warm start from nothing": ("-s", "task.warm=nowhere.safetensors"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("out", [(), ("--out", "deep/er/here")], ids=["", "out"])
def test_a_run_that_cannot_start_leaves_nothing(shell: Shell, words: tuple[str, ...], out: tuple[str, ...]) -> None:
    shell.refused("run", "digits", *SMALL, *words, *out)
    assert [path.name for path in Path().iterdir()] == ["mine_failed.py"]


AUDITED = {key: words for key, words in WRONG.items() if key not in ("parts that do not fit", "a view of nobody")}


@pytest.mark.parametrize(
    "words", [words for key, words in AUDITED.items() if "warm" not in key], ids=[k for k in AUDITED if "warm" not in k]
)
@pytest.mark.parametrize("report", [(), ("--report", "deep/er/page.html", "--out", "other/x.json")], ids=["", "report"])
def test_an_audit_that_cannot_start_leaves_nothing(
    shell: Shell, words: tuple[str, ...], report: tuple[str, ...]
) -> None:
    shell.refused("audit", "digits", *SMALL, "--seeds", "2", *words, *report)
    assert [path.name for path in Path().iterdir()] == ["mine_failed.py"]


def failing(after: int) -> Callable[..., Any]:
    """Training that fails when so many times it did not."""
    real, left = Learner.__call__, [after]

    def fit(self: Learner, jobs: Any) -> Any:
        if not left[0]:
            raise CroupierError("opacus is not installed; pip install 'croupier[opacus]'")
        left[0] -= 1
        return real(self, jobs)

    return fit


@pytest.mark.parametrize("name", ["digits", "digits-sum", "rns-servers", "rns-masks", "intra"])
@pytest.mark.parametrize("out", ["here", "deep/er/here"])
def test_a_run_that_fails_in_its_first_training_leaves_nothing(
    shell: Shell, name: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "__call__", failing(0))
    assert "opacus is not installed" in shell.refused("run", name, *SMALL, "--out", out)
    assert [path.name for path in Path().iterdir()] == ["mine_failed.py"]


def test_a_fault_of_any_kind_in_the_first_training_leaves_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Learner, "__call__", broken)
    for words in (("run", "--out", "here"), ("audit", "--seeds", "2")):
        with pytest.raises(ZeroDivisionError):
            shell(*words, *SMALL)
        assert [path.name for path in Path().iterdir()] == ["mine_failed.py"]


def test_a_folder_that_was_there_stays_and_so_does_what_it_held(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("here/checkpoints").mkdir(parents=True)
    Path("here/lock").touch()
    monkeypatch.setattr(Learner, "__call__", failing(0))
    shell.refused("run", *SMALL, "--out", "here")
    assert sorted(path.name for path in Path("here").iterdir()) == ["checkpoints", "lock"]


def test_a_run_that_fails_later_keeps_what_it_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "__call__", failing(1))
    shell.refused("run", *SMALL, "--out", "here")
    assert Path("here/metrics.jsonl").read_text().count("\n") == 1
    monkeypatch.undo()


def test_an_audit_that_fails_in_its_first_seed_leaves_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "__call__", failing(0))
    shell.refused("audit", *SMALL, "--seeds", "2", "--report", "deep/page.html")
    assert [path.name for path in Path().iterdir()] == ["mine_failed.py"]


def test_an_audit_that_fails_later_keeps_the_seeds_it_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def played(bench: Any, *_: Any) -> Any:
        calls.append(bench.seed)
        if len(calls) > 1:
            raise CroupierError("an attack failed: its process ended")
        return lambda: harness.ArmAnswers({})

    monkeypatch.setattr(harness, "_play", played)
    shell.refused("audit", "digits-uneven", *SMALL, "--seeds", "2", "--against", "nothing")
    assert len(list(Path("audits").glob("*.kept/seed-7-digits-uneven.json"))) == 1


def test_two_runs_into_one_directory_are_refused(shell: Shell) -> None:
    busy = RunDir(Path("here"))
    busy.open(resume=False)
    said = shell.refused("run", *SMALL, "--out", "here")
    assert said == "here: another process is running here; wait for it, or choose another --out"
    assert sorted(path.name for path in Path("here").iterdir()) == ["checkpoints", "lock"]
    busy.close()
