"""A run directory: whole files or none, two checkpoints, logs that can be cut, one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from croupier.engine.store import RunDir
from croupier.errors import StoreError

STATE = {"round": 3, "memories": {"server": {"models": (torch.arange(5.0),)}}, "participations": {"c0": 2}}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunDir]:
    run = RunDir(tmp_path / "run")
    run.open(resume=False)
    yield run
    run.close()


def test_a_written_file_is_in_place_and_its_draft_gone(folder: RunDir) -> None:
    folder.write("deep/er/file", b"first")
    folder.write("deep/er/file", b"second")
    assert (folder.path / "deep/er/file").read_bytes() == b"second"
    assert [file.name for file in (folder.path / "deep/er").iterdir()] == ["file"]


def test_what_holds_secrets_is_its_owners_alone(folder: RunDir) -> None:
    folder.checkpoint(1, {"round": 1})
    folder.write_json("manifest.json", {}, private=True)
    folder.write("open", b"all")
    modes = [(folder.path / name).stat().st_mode & 0o077 for name in ("checkpoints/000001.state", "manifest.json")]
    assert modes == [0, 0]
    assert (folder.path / "open").stat().st_mode & 0o400


def test_views_are_closed_from_their_first_byte_on(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    real = os.fsync

    def watched(handle: int) -> None:
        modes.append(os.fstat(handle).st_mode & 0o777)
        real(handle)

    # What a crash or an older release left: a folder and a draft that others may read, and one that holds the draft.
    (folder.path / "views").mkdir()
    (folder.path / "views").chmod(0o755)
    draft = folder.path / "views/000001-c0.view.part"
    draft.write_bytes(b"old")
    draft.chmod(0o644)
    monkeypatch.setattr("os.fsync", watched)
    with draft.open("rb") as curious:
        folder.write("views/000001-c0.view", b"keys")
        folder.append("noted.jsonl", {"round": 1})
        folder.cut("noted.jsonl", 1)
        assert curious.read() == b"old"
    assert modes == [0o600] * 3
    assert (folder.path / "views").stat().st_mode & 0o777 == 0o700
    assert (folder.path / "noted.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_what_was_there(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("file", b"first")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"file: cannot be written \(No space left on device\); free space or choose"):
        folder.write("file", b"second")
    assert (folder.path / "file").read_bytes() == b"first"


@pytest.mark.parametrize("barred", ["views", "views/000001-c0.view.part"])
def test_a_file_in_the_way_is_said(folder: RunDir, barred: str) -> None:
    """A folder that cannot be made, and a draft that cannot be written."""
    if barred == "views":
        (folder.path / barred).write_text("")
    else:
        (folder.path / barred).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"000001-c0\.view: cannot be written \(.*\); free space or choose another"):
        folder.write("views/000001-c0.view", b"")


def test_json_is_written_canonically(folder: RunDir) -> None:
    folder.write_json("a.json", {"b": 1, "a": [2, None]})
    assert (folder.path / "a.json").read_text() == '{\n  "a": [\n    2,\n    null\n  ],\n  "b": 1\n}\n'
    assert folder.read_json("a.json") == {"a": [2, None], "b": 1}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", None])
def test_damaged_json_is_said(folder: RunDir, damage: bytes | None) -> None:
    if damage is not None:
        (folder.path / "manifest.json").write_bytes(damage)
    with pytest.raises(StoreError, match=r"manifest\.json is missing or damaged"):
        folder.read_json("manifest.json")


def test_a_checkpoint_reads_back(folder: RunDir) -> None:
    assert folder.latest() is None
    folder.checkpoint(3, STATE)
    state = folder.latest()
    assert state is not None
    assert torch.equal(state["memories"]["server"]["models"][0], torch.arange(5.0))
    assert (state["round"], state["participations"]) == (3, {"c0": 2})


def test_the_last_two_checkpoints_are_kept(folder: RunDir) -> None:
    for number in (1, 2, 9, 10, 11):
        folder.checkpoint(number, {"round": number})
    assert sorted(file.name for file in (folder.path / "checkpoints").iterdir()) == ["000010.state", "000011.state"]
    assert folder.latest() == {"round": 11}


@pytest.mark.parametrize("how", ["empty", "short", "bit", "long", "head", "foreign", "half"])
def test_a_damaged_checkpoint_is_passed_over(folder: RunDir, how: str) -> None:
    folder.checkpoint(1, {**STATE, "round": 1})
    folder.checkpoint(2, {**STATE, "round": 2})
    path = folder.path / "checkpoints" / "000002.state"
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "short": data[:-1],
        "bit": data[:-1] + bytes([data[-1] ^ 1]),
        "long": data + b"\0",
        "head": bytes([data[0] ^ 1]) + data[1:],
        "foreign": b"something else entirely",
        "half": data[: len(data) // 2],
    }
    path.write_bytes(damaged[how])
    found = folder.latest()
    assert found is not None
    assert found["round"] == 1
    (folder.path / "checkpoints" / "000001.state").write_bytes(damaged[how])
    assert folder.latest() is None


def test_a_half_written_checkpoint_counts_for_nothing(folder: RunDir) -> None:
    folder.checkpoint(1, {"round": 1})
    (folder.path / "checkpoints" / "000002.state.part").write_bytes(b"croupier state 1\n")
    assert folder.latest() == {"round": 1}


def test_a_log_is_cut_after_a_round(folder: RunDir) -> None:
    for number in range(1, 6):
        folder.append("metrics.jsonl", {"round": number, "b": 1.5, "a": None})
    whole = (folder.path / "metrics.jsonl").read_bytes()
    assert whole.splitlines()[0] == b'{"a": null, "b": 1.5, "round": 1}'
    kept = folder.read("metrics.jsonl", 3)
    folder.cut("metrics.jsonl", 3)
    assert [line["round"] for line in kept] == [1, 2, 3]
    assert (folder.path / "metrics.jsonl").read_bytes() == b"".join(whole.splitlines(keepends=True)[:3])


def test_a_line_cut_short_is_dropped_and_the_next_starts_afresh(folder: RunDir) -> None:
    folder.append("metrics.jsonl", {"round": 1})
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 2')
    assert folder.read("metrics.jsonl", 2) == [{"round": 1}]
    folder.cut("metrics.jsonl", 2)
    folder.append("metrics.jsonl", {"round": 2})
    assert (folder.path / "metrics.jsonl").read_bytes() == b'{"round": 1}\n{"round": 2}\n'


@pytest.mark.parametrize(
    "junk",
    [b"junk\n", b"\xff\xfe\n", b"[1]\n", b"3\n", b"null\n", b"{}\n", b'{"round": "2"}\n', b'{"round": null}\n', b"\n"],
)
def test_a_line_that_is_none_of_ours_is_dropped(folder: RunDir, junk: bytes) -> None:
    (folder.path / "metrics.jsonl").write_bytes(b'{"round": 1}\n' + junk + b'{"round": 2}\n')
    assert folder.read("metrics.jsonl", 2) == [{"round": 1}, {"round": 2}]
    folder.cut("metrics.jsonl", 2)
    assert (folder.path / "metrics.jsonl").read_bytes() == b'{"round": 1}\n{"round": 2}\n'


def test_a_line_is_on_disk_before_the_next_step(folder: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint promises the lines before it: each is synced, whole, when it is added."""
    real, synced = os.fsync, list[bytes]()

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().read_bytes())
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    folder.append("metrics.jsonl", {"round": 1})
    folder.append("metrics.jsonl", {"round": 2})
    assert synced == [b'{"round": 1}\n', b'{"round": 1}\n{"round": 2}\n']


def test_a_line_that_cannot_be_written_is_said(folder: RunDir) -> None:
    (folder.path / "metrics.jsonl").mkdir()
    with pytest.raises(
        StoreError, match=r"metrics\.jsonl: cannot be written \(Is a directory\); free space and resume"
    ):
        folder.append("metrics.jsonl", {"round": 1})


def test_a_log_that_is_not_there_is_empty(folder: RunDir) -> None:
    assert folder.read("metrics.jsonl", 4) == []
    folder.cut("metrics.jsonl", 4)
    assert (folder.path / "metrics.jsonl").read_bytes() == b""


def test_a_directory_that_holds_a_run_is_not_begun_again(folder: RunDir) -> None:
    folder.write("spec.toml", b"")
    folder.close()
    with pytest.raises(StoreError, match=r"holds a run already; .* croupier.resume\(\), or choose another out"):
        RunDir(folder.path).open(resume=False)


def test_a_refused_start_lets_go_of_the_directory(folder: RunDir) -> None:
    folder.write("spec.toml", b"")
    folder.close()
    refused, other = RunDir(folder.path), RunDir(folder.path)
    with pytest.raises(StoreError, match="holds a run already") as kept:
        refused.open(resume=False)
    other.open(resume=True)
    other.close()
    assert kept.value.__traceback__ is not None, "the error, and what it holds, must outlive the second start"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Another process that holds the directory."""
    program = (
        "import fcntl, sys\nlock = open(sys.argv[1], 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-S", "-c", program, str(path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.stdin.close()


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path, resume: bool) -> None:
    with _locked(tmp_path), pytest.raises(StoreError, match="another process is running here; wait for it"):
        RunDir(tmp_path).open(resume=resume)
    run = RunDir(tmp_path)
    run.open(resume=resume)
    with pytest.raises(StoreError, match="another process is running here"):
        RunDir(tmp_path).open(resume=resume)
    run.close()


def test_a_way_that_is_barred_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written \(Not a directory\); choose another out"):
        RunDir(tmp_path / "file" / "run").open(resume=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "summary.json.part", "checkpoints/000001.state", "views/x"])
def test_a_directory_that_holds_a_link_is_refused_and_nothing_is_touched(
    tmp_path: Path, name: str, resume: bool
) -> None:
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("mine")
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(victim)
    (run / "spec.toml").touch()
    before = sorted(run.rglob("*"))
    with pytest.raises(StoreError, match=rf"^{run / name} is a symbolic link, .*; put the file itself there, or"):
        RunDir(run).open(resume=resume)
    assert victim.read_text() == "mine"
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize("name", ["checkpoints", "views"])
def test_a_folder_behind_a_link_keeps_its_mode_and_files(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "000001.state").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(victim)
    with pytest.raises(StoreError, match="is a symbolic link"):
        RunDir(tmp_path / "run").open(resume=True)
    assert victim.stat().st_mode & 0o777 == 0o755
    assert (victim / "000001.state").read_text() == "mine"


def test_a_run_directory_may_itself_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "there")
    run = RunDir(tmp_path / "run")
    run.open(resume=False)
    run.write("open", b"all")
    run.close()
    assert (tmp_path / "there" / "open").read_bytes() == b"all"


def test_links_put_there_later_are_not_written_through(folder: RunDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder.path / "open.part").symlink_to(victim)
    (folder.path / "log").symlink_to(victim)
    folder.write("open", b"all")
    with pytest.raises(StoreError, match="log: cannot be written"):
        folder.append("log", {"round": 1})
    assert victim.read_text() == "mine"
    assert (folder.path / "open").read_bytes() == b"all"


def test_taking_a_directory_empties_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("kept")
    run = RunDir(tmp_path)
    run.open(resume=True)
    run.close()
    assert (tmp_path / "lock").read_text() == "kept"


def test_a_kill_before_the_oldest_state_went_leaves_two_all_the_same(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    for number in range(1, 3):
        run.checkpoint(number, {"round": number})
    (tmp_path / "run/checkpoints/000000.state").write_bytes(b"of a process that was killed")
    assert run.latest() == {"round": 2}
    assert sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == ["000001.state", "000002.state"]
    run.close()
