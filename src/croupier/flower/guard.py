"""The node's own gatekeeper: an app runs only if its bundle is one that this organisation has approved.

The SuperLink ships the code that nodes run. A SuperNode starts one of Flower's commands for every task, found by PATH.
The commands that `croupier flower-guard install` (`cli.flower`) writes stand in their place. That for `flwr-clientapp`
(`main`) compares the bundle's SHA-256 with the list of approved ones before anything of it is unpacked, unpacks it into
a folder that nobody else has written, and runs it from there; all the others refuse. Packages that a bundle asks for
are not covered by its digest, so that none are installed at run time. What an app raises outside its mods stays on the
node, too.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from croupier.errors import DataError, IntegrityError, SpecError, StoreError

COMMAND = "flwr-clientapp"
# Where Flower names its commands, and the module of the one that runs apps.
_COMMANDS, _TABLE = "flwr.supercore.constant", "TASK_TYPE_TO_COMMAND"
_RUNTIME = "flwr.supernode.runtime.run_clientapp"
# What Flower's command calls to unpack a bundle, to load an app and to fetch packages.
_UNPACK, _LOADER, _PACKAGES = "install_from_fab", "get_load_client_app_fn", "install_app_dependencies"
_UNPACKED = "unpacked"
_HEX = 64
# All that the server learns of a refusal, as in `letters`.
_WORD = "failed"


def bundle_bytes(path: Path) -> bytes:
    """An app's bundle: a .fab file, or what Flower builds of an app's folder. Raises: DataError, SpecError."""
    try:
        if not path.is_dir():
            return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); name a .fab file or an app's folder") from None
    try:
        build: Callable[[Path], bytes] = import_module("flwr.cli.build").build_fab_from_disk
    except (ImportError, AttributeError):
        raise SpecError(f"{path}: is a folder, and Flower is not here to build it; name the .fab file") from None
    try:
        return build(path)
    except Exception as error:
        raise DataError(f"{path}: Flower does not build it ({error}); name a .fab file or an app's folder") from None


def digest_of(content: bytes) -> str:
    """The SHA-256 by which lists name a bundle."""
    return hashlib.sha256(content).hexdigest()


def approved(listed: Path) -> dict[str, str]:
    """The digests on a list, each with its note. Raises: StoreError when others may write it, or it is none."""
    try:
        mode, lines = listed.stat().st_mode, listed.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{listed}: the list of approved bundles cannot be read ({error})") from None
    if stat.S_IMODE(mode) & 0o022:
        raise StoreError(f"{listed}: others may write this list of approved bundles; chmod 644 {listed}")
    found = {}
    for line in lines:
        digest, _, note = line.strip().partition("  ")
        if not digest or digest.startswith("#"):
            continue
        if len(digest) != _HEX or set(digest) - set("0123456789abcdef"):
            raise StoreError(f"{listed}: {digest!r:.80} is no SHA-256; write 64 hexadecimal digits and a note")
        found[digest] = note
    return found


def approve(bundle: Path, listed: Path) -> str:
    """Put a bundle on the list, and give its digest. Raises: DataError, SpecError, StoreError."""
    digest = digest_of(bundle_bytes(bundle))
    if listed.exists() and digest in approved(listed):
        return digest
    try:
        descriptor = os.open(listed, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(f"{digest}  {bundle.name}\n")
    except OSError as error:
        raise StoreError(f"{listed}: cannot be written ({error.strerror}); choose another list") from None
    return digest


def commands() -> list[str]:
    """Every command that a SuperNode may start for a task. Raises: SpecError when this Flower has no table of them."""
    try:
        found = sorted({str(name) for name in getattr(import_module(_COMMANDS), _TABLE).values()})
    except (ImportError, AttributeError):
        found = []
    if COMMAND not in found:
        raise SpecError(
            f"{_COMMANDS}.{_TABLE} does not name {COMMAND}; pip install 'croupier[flower]' (flwr 1.41, 1.42)"
        )
    return found


def install(folder: Path, listed: Path) -> Path:
    """Write the commands that stand in Flower's place; give the one that runs apps. Raises: SpecError, StoreError."""
    approved(listed)
    allowed = f"main({str(listed.resolve())!r}, {str(folder.resolve())!r})"
    for name in commands():
        entry, call = ("main", allowed) if name == COMMAND else ("refuse", f"refuse({name!r})")
        path = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!{sys.executable}\nfrom croupier.flower.guard import {entry}\n\n{call}\n", "utf-8")
            path.chmod(0o755)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another folder") from None
    return folder / COMMAND


class Gate:
    """One run of Flower's command: which bundle it unpacked, and where."""

    def __init__(self, listed: Path, folder: Path) -> None:
        self.listed, self.folder = listed, folder
        self._app: Path | None = None

    def unpacking(self, unpack: Callable[..., Path]) -> Callable[..., Path]:
        """What unpacks a bundle: of those on the list alone, and never where something lies already."""

        def unpacked(content: bytes, **_: Any) -> Path:
            digest = digest_of(content) if isinstance(content, bytes) else "no bytes"
            try:
                known = digest in approved(self.listed)
            except StoreError as error:
                raise _refused(str(error)) from None
            if not known:
                raise _refused(f"bundle {digest} is not approved in {self.listed}; it was not run")
            # Flower would take any folder whose name has the first eight digits.
            self._app = unpack(content, install_dir=self._fresh(digest), skip_prompt=True)
            return self._app

        return unpacked

    def _fresh(self, digest: str) -> Path:
        """A new folder for one process, that only this user may enter."""
        home = self.folder / _UNPACKED
        try:
            home.mkdir(mode=0o700, exist_ok=True)
            found = home.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise _refused(f"{home}: others may write there; remove it, and it is made anew")
            fresh = Path(tempfile.mkdtemp(prefix=f"{digest}-", dir=home))
        except OSError as error:
            raise _refused(f"{home}: cannot be written ({error.strerror}); install the guard into a folder that this "
                           "user may write") from None  # fmt: skip
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
        return fresh

    def loading(self, loader: Callable[..., Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
        """What loads an app: from where it was unpacked, whatever the run says; Flower compares id and version."""

        def make(**_: Any) -> Callable[..., Any]:
            def load(name: str, version: str, _: str) -> Callable[..., Any]:
                if self._app is None:
                    raise _refused("an app was to be loaded before its bundle was checked; it was not run")
                try:
                    return kept_in(
                        loader(default_app_ref="", app_path=str(self._app), multi_app=True)(name, version, "")
                    )
                except Exception as error:
                    raise _refused(
                        f"{self._app.name} was not loaded as {name!r:.80} {version!r:.40}: {error}"
                    ) from error

            return load

        return make


def kept_in(app: Callable[..., Any]) -> Callable[..., Any]:
    """An app whose exceptions stay on the node: its lifespan runs outside its mods."""

    def run(message: Any, context: Any) -> Any:
        try:
            return app(message=message, context=context)
        except Exception:
            traceback.print_exc()
        raise _refused("the app raised an exception outside its mods; see above")

    return run


def _no_packages(*_: Any, **__: Any) -> Any:
    raise _refused("packages are no part of an approved bundle: leave out --allow-runtime-dependency-installation")


def _refused(why: str) -> IntegrityError:
    """Say why on this machine; what is raised travels, and is one fixed word."""
    print(f"croupier: {why}", file=sys.stderr, flush=True)
    return IntegrityError(_WORD)


def refuse(command: str) -> None:
    """Be a command of Flower's that no node needs for protected training: it would run what nobody approved."""
    print(f"croupier: {command} is refused on this node: the guard lets {COMMAND} run, and only approved bundles; "
          "nothing was run", file=sys.stderr, flush=True)  # fmt: skip
    raise SystemExit(1)


def main(listed: str, folder: str) -> None:
    """Be Flower's command, with the guard before it. Raises: SpecError when this Flower cannot be guarded."""
    # Packages from an index are no part of the bundle that was approved.
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    runtime, gate = import_module(_RUNTIME), Gate(Path(listed), Path(folder))
    if not all(callable(getattr(runtime, name, None)) for name in (_UNPACK, _LOADER, _PACKAGES)):
        raise SpecError(f"this version of Flower unpacks bundles elsewhere than in {_RUNTIME}; use flwr 1.41 or 1.42")
    setattr(runtime, _UNPACK, gate.unpacking(getattr(runtime, _UNPACK)))
    setattr(runtime, _LOADER, gate.loading(getattr(runtime, _LOADER)))
    setattr(runtime, _PACKAGES, _no_packages)
    # Flower tells by its own name which command it is.
    sys.argv[0] = str(Path(sys.argv[0]).with_name(COMMAND))
    import_module("flwr.supernode.cli").flwr_clientapp()
