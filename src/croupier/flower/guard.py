"""The node's own gatekeeper: an app runs only if its bundle is one that this organisation has approved.

The SuperLink ships the code that nodes run. A SuperNode starts `flwr-clientapp` for every message, found by PATH; the
command that `croupier flower-guard install` writes stands in its place, compares the bundle's SHA-256 with the list of
approved ones before anything of it is unpacked, and then does what Flower's own does. Packages that a bundle asks for
are not covered by its digest, so that none are installed at run time.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from croupier.errors import DataError, IntegrityError, SpecError, StoreError

COMMAND = "flwr-clientapp"
_RUNTIME, _HOOK = "flwr.supernode.runtime.run_clientapp", "install_from_fab"
_HEX = 64
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
    """What names a bundle."""
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


def install(folder: Path, listed: Path) -> Path:
    """Write the command that stands in Flower's place. Raises: StoreError."""
    approved(listed)
    path = folder / COMMAND
    text = f"#!{sys.executable}\nfrom croupier.flower.guard import main\n\nmain({str(listed.resolve())!r})\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another folder") from None
    return path


def checked(listed: Path, unpack: Callable[..., Any]) -> Callable[..., Any]:
    """What unpacks a bundle, for bundles on the list alone."""

    def unpacked(content: bytes, *more: Any, **named: Any) -> Any:
        digest = digest_of(content) if isinstance(content, bytes) else "no bytes"
        if digest not in approved(listed):
            print(f"croupier: bundle {digest} is not approved in {listed}; it was not run", file=sys.stderr, flush=True)
            raise IntegrityError(_WORD)
        return unpack(content, *more, **named)

    return unpacked


def main(listed: str) -> None:
    """Be Flower's command, with the guard before it. Raises: SpecError when this Flower cannot be guarded."""
    # Packages from an index are no part of the bundle that was approved.
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    runtime = import_module(_RUNTIME)
    if not callable(getattr(runtime, _HOOK, None)):
        raise SpecError(f"this version of Flower unpacks bundles elsewhere than in {_RUNTIME}; use flwr 1.41 or 1.42")
    setattr(runtime, _HOOK, checked(Path(listed), getattr(runtime, _HOOK)))
    # Flower tells by its own name which command it is.
    sys.argv[0] = str(Path(sys.argv[0]).with_name(COMMAND))
    import_module("flwr.supernode.cli").flwr_clientapp()
