"""Finished parts in a folder: they go on where they stopped, are never mixed, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.disk import full_for

from croupier.engine.shelf import FolderShelf, deciding
from croupier.errors import StoreError

ABOUT = {"task": {"fit": {"lr": 0.1, "epochs": 2}}, "seed": 0}
PARTS = ["seed-0", "seed-1", "seed-2"]


def begun(home: Path, about: Any = ABOUT, notes: list[str] | None = None) -> FolderShelf:
    heard: list[str] = [] if notes is None else notes
    kept = FolderShelf(home, heard.append)
    kept.begin("mine-source", about, PARTS, "seeds")
    return kept


def files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def test_what_is_finished_is_there_when_the_same_work_begins_again(tmp_path: Path) -> None:
    with begun(tmp_path / "audits") as kept:
        kept["seed-1"] = {"b": [0.1, None], "a": 1}
        assert kept.finished == "1 of 3 seeds"
    notes: list[str] = []
    with begun(tmp_path / "audits", notes=notes) as again:
        assert dict(again) == {"seed-1": {"b": [0.1, None], "a": 1}}
        assert list(again["seed-1"]) == ["b", "a"]
        assert notes == [f"going on: 1 of 3 seeds are kept in {again.folder}"]
        again["seed-0"] = 2
        again.drop()
    assert files(tmp_path) == ["audits"]


def test_work_that_finished_nothing_leaves_nothing(tmp_path: Path) -> None:
    with begun(tmp_path / "new" / "audits"):
        assert len(files(tmp_path)) == 5
    assert not list(tmp_path.iterdir())
    (tmp_path / "audits").mkdir()
    with begun(tmp_path / "audits"):
        pass
    assert files(tmp_path) == ["audits"]


@pytest.mark.parametrize(
    ("other", "key"),
    [
        ({"task": {"fit": {"lr": 0.2, "epochs": 2}}, "seed": 0}, "task.fit.lr"),
        ({"task": {"fit": {"lr": 0.1, "epochs": 2}}, "seed": 1}, "seed"),
        ({"task": {"fit": {"lr": 0.1, "epochs": 2}}, "seed": 0, "versions": {"croupier": "9"}}, "versions"),
    ],
)
def test_other_work_never_uses_what_is_kept_and_says_so(tmp_path: Path, other: Any, key: str) -> None:
    with begun(tmp_path) as kept:
        kept["seed-0"] = 1
        folder = kept.folder
    notes: list[str] = []
    with begun(tmp_path, other, notes) as changed:
        assert not len(changed)
        assert changed.folder != folder
    assert notes == [f"{folder} is of another audit ({key} differs): it is not used, and may be removed"]
    with begun(tmp_path) as kept:
        assert len(kept) == 1


def test_a_folder_that_holds_other_work_is_refused_and_stays(tmp_path: Path) -> None:
    with begun(tmp_path) as kept:
        kept["seed-0"] = 1
        folder = kept.folder
    assert folder is not None
    about = folder / "about.json"
    about.write_text(about.read_text().replace("0.1", "0.3"))
    before = files(tmp_path)
    with pytest.raises(StoreError, match=r"task\.fit\.lr differs\), and parts of two are not mixed; remove"):
        begun(tmp_path)
    about.unlink()
    about.write_text("[")
    with pytest.raises(StoreError, match="not mixed"):
        begun(tmp_path)
    assert files(tmp_path) == before


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with begun(tmp_path) as one:
        with pytest.raises(StoreError, match="another process is at the same work; wait for it"):
            begun(tmp_path)
        one["seed-0"] = 1
        with begun(tmp_path, {"seed": 5}) as other:
            assert other.folder != one.folder
    with begun(tmp_path) as again:
        assert list(again) == ["seed-0"]


def test_a_damaged_part_is_done_again(tmp_path: Path) -> None:
    with begun(tmp_path) as kept:
        kept["seed-0"], kept["seed-1"] = 1, 2
        folder = kept.folder
    assert folder is not None
    path = folder / "seed-0.json"
    path.write_bytes(path.read_bytes().replace(b"1\n", b"3\n"))
    notes: list[str] = []
    with begun(tmp_path, notes=notes) as again:
        assert dict(again) == {"seed-1": 2}
    assert notes[0] == f"{path} is damaged, and is done again"


def test_a_full_disk_is_said_and_ends_nothing(tmp_path: Path) -> None:
    notes: list[str] = []
    with begun(tmp_path, notes=notes) as kept:
        assert kept.folder is not None
        with full_for("seed-0.json"):
            kept["seed-0"] = 1
        assert notes == [
            f"{kept.folder}/seed-0.json: cannot be written (No space left on device); free space: it is not kept if "
            "you stop"
        ]
        assert dict(kept) == {"seed-0": 1}
        assert (kept.finished, kept.worth) == ("0 of 3 seeds", False)
        kept["seed-1"] = 2
    with begun(tmp_path) as again:
        assert list(again) == ["seed-1"]


def test_a_home_that_cannot_be_made_is_said_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notes: list[str] = []
    with begun(tmp_path / "file" / "audits", notes=notes) as kept:
        kept["seed-0"] = 1
        assert dict(kept) == {"seed-0": 1}
    assert len(notes) == 1
    assert notes[0].endswith("cannot be written (Not a directory); what is finished is not kept if you stop")
    assert files(tmp_path) == ["file"]


def test_progress_is_told_from_what_was_kept(tmp_path: Path) -> None:
    heard: list[tuple[int, int, str]] = []
    for part in PARTS[:2]:
        kept = FolderShelf(tmp_path, count=lambda *told: heard.append(told))
        kept.begin("mine", ABOUT, PARTS, "seeds")
        kept[part] = 1
        kept.close()
    assert heard == [(0, 3, "seeds"), (1, 3, "seeds"), (1, 3, "seeds"), (2, 3, "seeds")]


def test_what_decides_holds_versions_data_and_first_model() -> None:
    one = deciding({"task": 1}, "d", torch.zeros(2), 3, shadow=0.1)
    assert {"task", "data", "first_model", "seed", "versions", "shadow"} == set(one)
    assert {"croupier", "torch", "numpy"} == set(one["versions"])
    assert one["first_model"] != deciding({"task": 1}, "d", torch.ones(2), 3)["first_model"]


@pytest.mark.parametrize("name", ["lock", "about.json.part", ""])
def test_a_folder_with_a_link_is_refused_and_nothing_is_touched(tmp_path: Path, name: str) -> None:
    with begun(tmp_path / "audits") as kept:
        folder = kept.folder
    assert folder is not None
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if name:
        folder.mkdir(parents=True)
        (folder / name).symlink_to(victim)
    else:
        (tmp_path / "other").mkdir()
        folder.parent.mkdir(exist_ok=True)
        folder.symlink_to(tmp_path / "other")
    with pytest.raises(StoreError, match=r"is or holds a symbolic link, .*; remove the link"):
        begun(tmp_path / "audits")
    assert victim.read_text() == "mine"
    assert not list((tmp_path / "other").glob("*"))
