"""The node's gatekeeper: approved bundles run, all others do not, and the list is its operator's alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from croupier.errors import DataError, IntegrityError, StoreError
from croupier.flower.guard import approve, approved, bundle_bytes, checked, digest_of, install

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-rns"


def test_an_approved_bundle_runs_and_another_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, good, bad = tmp_path / "approved.txt", tmp_path / "good.fab", tmp_path / "bad.fab"
    good.write_bytes(b"protected")
    bad.write_bytes(b"unprotected")
    assert approve(good, listed) == digest_of(b"protected")
    assert approve(good, listed) == digest_of(b"protected")
    assert approved(listed) == {digest_of(b"protected"): "good.fab"}
    ran: list[bytes] = []
    unpack = checked(listed, lambda content, **named: ran.append(content))
    unpack(b"protected", skip_prompt=True)
    with pytest.raises(IntegrityError, match=r"^failed$"):
        unpack(b"unprotected", skip_prompt=True)
    assert ran == [b"protected"]
    assert digest_of(b"unprotected") in capsys.readouterr().err


def test_a_folder_is_built_as_flower_builds_it(tmp_path: Path) -> None:
    first = bundle_bytes(EXAMPLE)
    assert first == bundle_bytes(EXAMPLE)
    assert first[:2] == b"PK"
    with pytest.raises(DataError, match="does not build it"):
        bundle_bytes(tmp_path)


def test_a_list_that_others_may_write_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "approved.txt"
    listed.write_text(f"# read by ann\n{'a' * 64}  one\n")
    listed.chmod(0o666)
    with pytest.raises(StoreError, match="others may write"):
        approved(listed)
    listed.chmod(0o644)
    assert approved(listed) == {"a" * 64: "one"}
    listed.write_text("all\n")
    with pytest.raises(StoreError, match="no SHA-256"):
        approved(listed)


def test_the_command_stands_in_the_place_of_flowers_own(tmp_path: Path) -> None:
    listed = tmp_path / "approved.txt"
    with pytest.raises(StoreError, match="cannot be read"):
        install(tmp_path / "guard", listed)
    listed.write_text("")
    path = install(tmp_path / "guard", listed)
    said = subprocess.run([str(path), "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "Run a Flower ClientApp" in said.stdout
