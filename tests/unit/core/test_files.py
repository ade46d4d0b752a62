"""Files that are whole or absent, and folders that are taken away again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.disk import full_for

from croupier.core.files import DRAFT, drop_folders, make_folder, write_whole
from croupier.errors import StoreError


def test_a_file_is_put_in_place_with_its_folder(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a" / "b" / "x", b"one", "mend it")
    write_whole(path, b"two", "mend it")
    assert path.read_bytes() == b"two"
    assert [one.name for one in path.parent.iterdir()] == ["x"]


def test_a_full_disk_leaves_what_was_there_and_names_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with (
        full_for("x"),
        pytest.raises(StoreError, match=rf"^{path}: cannot be written \(No space left on device\); free space$"),
    ):
        write_whole(path, b"new", "free space")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_a_file_that_cannot_be_written_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_whole(tmp_path / "a" / "b" / "x", b"new", "free space")
    assert not list(tmp_path.iterdir())


def test_folders_go_away_unless_somebody_put_a_file_there(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "a" / "b" / "c")
    assert made == [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert make_folder(tmp_path / "a") == []
    (tmp_path / "a" / "mine").touch()
    drop_folders(made)
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["mine"]


def test_a_draft_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "x"
    victim.write_bytes(b"mine")
    (tmp_path / f"x{DRAFT}").symlink_to(victim)
    write_whole(path, b"new", "mend it")
    assert (victim.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"mine", b"new", False)
