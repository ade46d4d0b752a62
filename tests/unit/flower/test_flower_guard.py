"""The node's gatekeeper: approved bundles run, all others do not, and the list is its operator's alone."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from flwr.cli.install import install_from_fab
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

from croupier.errors import DataError, IntegrityError, SpecError, StoreError
from croupier.flower import guard
from croupier.flower.guard import Gate, approve, approved, bundle_bytes, digest_of, install, kept_in

# The module: its package has a function of the same name.
run_clientapp: Any = import_module("flwr.supernode.runtime.run_clientapp")
EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-rns"


def test_an_approved_bundle_runs_and_another_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, good, bad = tmp_path / "approved.txt", tmp_path / "good.fab", tmp_path / "bad.fab"
    good.write_bytes(b"protected")
    bad.write_bytes(b"unprotected")
    assert approve(good, listed) == digest_of(b"protected")
    assert approve(good, listed) == digest_of(b"protected")
    assert approved(listed) == {digest_of(b"protected"): "good.fab"}
    ran: list[bytes] = []

    def note(content: bytes, install_dir: Path, **named: Any) -> Path:
        ran.append(content)
        return install_dir

    unpack = Gate(listed, tmp_path).unpacking(note)
    unpack(b"protected", skip_prompt=True)
    with pytest.raises(IntegrityError, match=r"^failed$"):
        unpack(b"unprotected", skip_prompt=True)
    assert ran == [b"protected"]
    assert digest_of(b"unprotected") in capsys.readouterr().err
    listed.chmod(0o666)
    with pytest.raises(IntegrityError, match=r"^failed$"):
        unpack(b"protected", skip_prompt=True)
    assert "others may write" in capsys.readouterr().err


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


def test_every_command_that_a_node_may_start_is_covered(tmp_path: Path) -> None:
    (tmp_path / "approved.txt").write_text("")
    folder = install(tmp_path / "guard", tmp_path / "approved.txt").parent
    names = set(TASK_TYPE_TO_COMMAND.values())
    assert "flwr-agentapp" in names
    assert {path.name for path in folder.iterdir()} == names
    for name in sorted(names - {guard.COMMAND}):
        assert f"refuse({name!r})" in (folder / name).read_text()
        assert (folder / name).stat().st_mode & 0o111
    words = [str(folder / "flwr-agentapp"), "--runtime-api-address", "127.0.0.1:1", "--token", "t", "--insecure"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "flwr-agentapp is refused on this node" in done.stderr


def test_a_flower_whose_commands_are_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "approved.txt").write_text("")
    monkeypatch.setattr("flwr.supercore.constant.TASK_TYPE_TO_COMMAND", {})
    with pytest.raises(SpecError, match="does not name flwr-clientapp"):
        install(tmp_path / "guard", tmp_path / "approved.txt")


TOML = """
[project]
name = "digitsapp"
version = "1.0.0"
description = "x"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "ann"
[tool.flwr.app.components]
serverapp = "guarded_app:server"
clientapp = "guarded_app:app"
[tool.flwr.app.config]
"""
CODE = "from flwr.clientapp import ClientApp\napp = ClientApp()\nWHO = {who!r}\n{more}\n"
ID = ("ann/digitsapp", "1.0.0")


def bundle(who: str, more: str = "") -> bytes:
    """A bundle as Flower makes them."""
    files = {"pyproject.toml": TOML, "guarded_app.py": CODE.format(who=who, more=more)}
    listed = [f"{name},{hashlib.sha256(text.encode()).hexdigest()},{len(text) * 8}" for name, text in files.items()]
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in {**files, ".info/CONTENT": "\n".join(listed)}.items():
            archive.writestr(name, text)
    return whole.getvalue()


Guarded = Callable[[bytes], tuple[Path, Callable[..., Any]]]


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """Unpack an approved bundle behind the guard: where it lies, and what loads it."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def unpack(content: bytes) -> tuple[Path, Callable[..., Any]]:
        (tmp_path / "app.fab").write_bytes(content)
        approve(tmp_path / "app.fab", tmp_path / "approved.txt")
        gate = Gate(tmp_path / "approved.txt", tmp_path)
        path = gate.unpacking(install_from_fab)(content, skip_prompt=True)
        return path, gate.loading(get_load_client_app_fn)(default_app_ref="", app_path=None, multi_app=True)

    yield unpack
    sys.modules.pop("guarded_app", None)


def test_a_folder_that_lies_there_already_is_not_run(guarded: Guarded, tmp_path: Path) -> None:
    content = bundle("approved")
    # Flower's own folder has eight digits of the digest in its name: another bundle may have made it.
    planted = install_from_fab(content, skip_prompt=True)
    (planted / "guarded_app.py").write_text(CODE.format(who="planted", more=""))
    assert install_from_fab(content, skip_prompt=True) == planted
    first, load = guarded(content)
    (first / "guarded_app.py").write_text(CODE.format(who="planted", more=""))
    path, load = guarded(content)
    assert path != first
    home = path.parents[1]
    assert home.parent == tmp_path / "unpacked"
    assert home.name.startswith(digest_of(content))
    assert home.stat().st_mode & 0o777 == home.parent.stat().st_mode & 0o777 == 0o700
    # What the server says of the digest is not used.
    load(*ID, "../../x")
    assert sys.modules["guarded_app"].WHO == "approved"
    assert str(sys.modules["guarded_app"].__file__).startswith(str(path))


@pytest.mark.parametrize("said", [("bob/digitsapp", "1.0.0"), ("ann/digitsapp", "1.0.1"), ("ann/digitsapp", "1/../x")])
def test_a_run_that_names_another_app_is_refused(
    guarded: Guarded, said: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, load = guarded(bundle("approved"))
    with pytest.raises(IntegrityError, match=r"^failed$"):
        load(*said, "")
    assert "mismatch" in capsys.readouterr().err
    assert "guarded_app" not in sys.modules


def test_nothing_is_unpacked_where_others_may_write(tmp_path: Path, guarded: Guarded) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked").chmod(0o777)
    with pytest.raises(IntegrityError, match=r"^failed$"):
        guarded(bundle("approved"))
    assert not list((tmp_path / "unpacked").iterdir())


def test_nothing_is_loaded_before_a_bundle_was_checked(tmp_path: Path) -> None:
    load = Gate(tmp_path / "approved.txt", tmp_path).loading(get_load_client_app_fn)()
    with pytest.raises(IntegrityError, match=r"^failed$"):
        load(*ID, "")


LIFESPAN = """
@app.lifespan()
def life(context):
    {before}
    yield
    {after}
"""
RAISES = "raise ValueError('patient 4711')"


@pytest.mark.parametrize(("before", "after"), [(RAISES, "pass"), ("pass", RAISES)])
def test_what_a_lifespan_raises_stays_on_the_node(
    guarded: Guarded, before: str, after: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, load = guarded(bundle("approved", LIFESPAN.format(before=before, after=after)))
    app = load(*ID, "")
    sys.modules["guarded_app"].__dict__["app"]._call = lambda message, context: message
    with pytest.raises(IntegrityError, match=r"^failed$") as caught:
        app(message="hello", context=None)
    assert caught.value.__context__ is None
    assert "4711" in capsys.readouterr().err


def test_what_an_import_raises_stays_on_the_node(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    _, load = guarded(bundle("approved", RAISES))
    with pytest.raises(IntegrityError, match=r"^failed$"):
        load(*ID, "")
    assert "4711" in capsys.readouterr().err


def test_an_app_that_raises_nothing_answers_as_before() -> None:
    assert kept_in(lambda message, context: (message, context))(message=1, context=2) == (1, 2)


def test_no_packages_are_fetched_for_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("install_from_fab", "get_load_client_app_fn", "install_app_dependencies"):
        # Put back at the end: the guard replaces them for its own process.
        monkeypatch.setattr(run_clientapp, name, getattr(run_clientapp, name))
    monkeypatch.setattr(sys, "argv", ["flwr-clientapp"])
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "0")
    monkeypatch.setattr("flwr.supernode.cli.flwr_clientapp", lambda: run_clientapp.install_app_dependencies(tmp_path))
    with pytest.raises(IntegrityError, match=r"^failed$"):
        guard.main(str(tmp_path / "approved.txt"), str(tmp_path))
    assert "--allow-runtime-dependency-installation" in capsys.readouterr().err
    monkeypatch.delattr(run_clientapp, "get_load_client_app_fn")
    with pytest.raises(SpecError, match="elsewhere"):
        guard.main(str(tmp_path / "approved.txt"), str(tmp_path))
