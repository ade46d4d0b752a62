"""Audits that are stopped go on where they stopped, to the same result; a full disk costs no table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.disk import full_for
from tests.scenes import hasten
from tests.shell import Shell

from croupier.audit import harness
from croupier.cli import options
from croupier.learn import beside

TINY = ("-s", "task.model.hidden=[8]", "-s", "task.fit.epochs=1", "-s", "run.workers=1", "-s", "federation.rounds=1")
SOURCE = (
    "audit", "digits-uneven", *TINY, "-s", "task.split.clients=3", "--seeds", "2", "--seed", "3",
    "-q", "source", "-q", "membership", "--against", "sum",
)  # fmt: skip
HIDDEN = (
    "audit", "tazza", "--fast", "--seeds", "2", *TINY, "-s", "task.split.clients=6", "-s", "federation.cohort=3",
    "-s", "protocol.aggregate=mean", "--against", "nothing", "-q", "permutation", "-q", "poisoning",
)  # fmt: skip
# What is asked, and in how many parts: seeds times protocols.
AUDITS = {"source": (SOURCE, "4 parts"), "hidden": (HIDDEN, "4 parts")}


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """In an empty folder; attacks run in this process, in few runs."""
    monkeypatch.chdir(tmp_path)
    hasten(monkeypatch)
    monkeypatch.setattr(
        options, "stamp", lambda: {"made": "2026-01-01T00:00:00Z", "command": "croupier", "version": "0"}
    )
    return Shell(monkeypatch, capsys)


def stopping(real: Callable[..., Any], after: int) -> Callable[..., Any]:
    """Somebody presses Ctrl-C when so much was done."""
    left = [after]

    def work(*args: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args)

    return work


def result(found: dict[str, Any]) -> dict[str, Any]:
    """Without the name of the page, and what a clock measured."""
    rows = [{key: value for key, value in row.items() if key != "seconds_per_round"} for row in found["rows"]]
    return {**{key: value for key, value in found.items() if key != "report"}, "rows": rows}


def alive(group: int) -> list[str]:
    """The processes of a group that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state = path.read_text().rpartition(")")[2].split()
            found += [state[0]] if int(state[2]) == group and state[0] not in "ZX" else []
    return found


@pytest.mark.parametrize("kind", AUDITS)
def test_an_audit_that_was_stopped_ends_as_one_that_was_not(
    shell: Shell, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words, units = AUDITS[kind]
    real = harness._play
    with monkeypatch.context() as patch:
        patch.setattr(harness, "_play", stopping(real, 2))
        code, out, said = shell(*words, "--json")
    (folder,) = Path("audits").iterdir()
    done = len(list(folder.glob("se*.json")))
    total, unit = units.split()
    assert (code, out) == (130, "")
    assert done >= 1
    assert said == (f"stopped; {done} of {total} {unit} are kept in {folder}; to go on, start the same command again\n")
    calls: list[object] = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(harness, "_play", counted)
        code, out, said = shell(*words, "--json")
    assert (code, said) == (0, f"going on: {done} of {total} {unit} are kept in {folder}\n")
    assert len(calls) < int(total)
    resumed = json.loads(out)
    assert not folder.exists()
    _, page, numbers, _ = sorted(Path("audits").iterdir())
    whole = shell.json(*words, "--report", "whole.html")
    assert json.dumps(result(resumed)) == json.dumps(result(whole))
    assert result(json.loads(numbers.read_text())) == result(whole)
    assert page.read_text("utf-8").startswith("<!doctype html>")
    names = ["audits", "whole.csv", "whole.html", "whole.json", "whole.md"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_full_disk_shows_the_table_first_and_then_names_the_file_and_the_remedy(shell: Shell) -> None:
    with full_for("page.html"):
        code, out, said = shell(*SOURCE, "--report", "page.html")
    assert code == 2
    assert "digits-uneven: 2 runs" in out
    assert "report:" not in out
    assert said == (
        "croupier: error: page.html: cannot be written (No space left on device); free space, or choose another "
        "--report; 4 of 4 parts are kept, so that the same command then need not repeat them\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["audits"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "_play", stopping(harness._play, 0))
        code, again, _ = shell(*SOURCE, "--report", "page.html")
    assert code == 0
    assert again == out + "report: page.html\n"
    names = ["audits", "page.csv", "page.html", "page.json", "page.md"]
    assert sorted(path.name for path in Path().iterdir()) == names
    assert not list(Path("audits").iterdir())


@pytest.mark.parametrize("file", ["page.json", "x.json"])
def test_any_file_of_an_audit_may_fail_after_the_table(shell: Shell, file: str) -> None:
    with full_for(file):
        code, out, said = shell(*SOURCE, "--report", "page.html", "--out", "x.json", "--json")
    assert code == 2
    assert json.loads(out)["report"] == "page.html"
    assert said.startswith(f"croupier: error: {file}: cannot be written (No space left on device); free space")
    assert said.count("\n") == 1


def test_an_interrupt_before_anything_is_finished_leaves_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(harness, "_play", stopping(harness._play, 0))
    code, out, said = shell(*SOURCE)
    assert (code, out, said) == (130, "", "stopped; nothing was finished, and nothing is kept\n")
    assert not list(tmp_path.iterdir())


def test_another_description_or_seed_does_not_use_what_is_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(harness, "_play", stopping(harness._play, 2))
        shell(*SOURCE)
    (folder,) = Path("audits").iterdir()
    for other, key in (
        (("-s", "task.fit.lr=0.3"), "task.fit.lr"), (("--seed", "4"), "seed"), (("--shadow", "0.1"), "shadow"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(harness, "_play", stopping(harness._play, 0))
            code, _, said = shell(*SOURCE, *other)
        assert code == 130
        assert said.startswith(f"{folder} is of another audit ({'first_model' if key == 'seed' else key} differs)")
        assert list(Path("audits").iterdir()) == [folder]


def test_code_of_ones_own_that_changed_does_not_use_what_is_kept(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from torch import nn\n\ndef net(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
    Path("mine_kept.py").write_text(code)
    words = ("-s", "task.model={use='own', make='mine_kept:net'}", *SOURCE[4:], "--json")
    monkeypatch.setattr(harness, "_play", stopping(lambda *_: lambda: harness.ArmAnswers({}), 2))
    shell("audit", "digits-uneven", *words)
    Path("mine_kept.py").write_text(code + "# the same weights at first\n")
    # Another command is another process.
    beside.leave(Path.cwd())
    assert "own.task.model.make.sha256 differs): it is not used" in shell("audit", "digits-uneven", *words)[2]


def test_the_same_audit_twice_at_once_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(*args: Any) -> Any:
        raise AssertionError(shell.refused(*SOURCE))

    monkeypatch.setattr(harness, "_play", meanwhile)
    with pytest.raises(AssertionError, match="another process is at the same work; wait for it"):
        shell(*SOURCE)
    assert not list(Path().iterdir())


def test_ctrl_c_ends_every_process_with_one_line(tmp_path: Path) -> None:
    """The real signal, to the whole group, as a terminal sends it."""
    words = (*SOURCE[:-6], "-q", "source", "--against", "nothing", "--seeds", "40")
    command = [str(Path(sys.executable).with_name("croupier")), *words]
    # A shell that starts tests in the background makes them deaf to Ctrl-C, and so what they start.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        audit = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, heard)
    while not list(tmp_path.glob("audits/*/seed-*.json")):
        assert audit.poll() is None
        time.sleep(0.05)
    os.killpg(audit.pid, signal.SIGINT)
    out, said = audit.communicate(timeout=400)
    assert (audit.returncode, out) == (130, "")
    # Before it there may be lines of progress, by the clock.
    *before, last = said.splitlines()
    assert all(line.startswith("digits-uneven: ") for line in before)
    until = time.monotonic() + 60
    while alive(audit.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(audit.pid)
    (folder,) = tmp_path.glob("audits/*")
    kept = len(list(folder.glob("seed-*.json")))
    # A process may have put one down while the others were being stopped.
    said_kept = (
        f"stopped; {count} of 40 parts are kept in audits/{folder.name}; to go on, start the same command again"
        for count in (kept, kept - 1)
    )
    assert last in said_kept
