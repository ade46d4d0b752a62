"""`croupier doctor`: what is here, what is missing, and what would run."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from croupier.cli import options

PACKAGES = (
    "torch",
    "numpy",
    "numba",
    "cryptography",
    "pydantic",
    "scikit-learn",
    "safetensors",
    "typer",
    "rich",
    "flwr",
)


def command(
    spec: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="A preset or TOML file to check for this machine."),
    ] = None,
    sets: options.Sets = None,
    seed: options.Seed = None,
    data: options.Data = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """Check this machine: versions, devices, the data folder with each dataset's licence, and the presets.

    `croupier doctor mnist --data ~/data`: can this description run here?
    """
    from croupier.learn.data import folder_of
    from croupier.spec import load

    described = load(spec or "digits", sets or ())
    if print_config:
        options.show_config(described, json)
        return
    folder = folder_of(data)
    found = {
        "machine": _machine(),
        "packages": {name: _version(name) for name in PACKAGES},
        "data_folder": None if folder is None else str(folder),
        "datasets": _datasets(folder),
        "presets": _presets(folder),
        "seed": seed,
    }
    if spec is not None:
        # Loading is the check: it raises the same clear error that the run would.
        found["checked"] = {"spec": described.name, "digest": described.task.data.load(folder).digest}
    options.emit(found, json, out)
    if not json:
        _show(found)


def _machine() -> dict[str, Any]:
    import torch

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count(), "cuda": cuda}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _datasets(folder: Path | None) -> dict[str, dict[str, Any]]:
    from croupier.core.part import Part
    from croupier.learn.data import Data

    kinds = [kind for (verb, _), kind in sorted(Part.named.items()) if verb == Data.verb and issubclass(kind, Data)]
    return {
        kind.use: {"present": kind.present(folder), "licence": kind.licence, "files": list(kind.files)}
        for kind in kinds
    }


def _presets(folder: Path | None) -> dict[str, bool]:
    from croupier.spec import load, presets

    return {name: load(name).task.data.present(folder) for name in presets()}


def _show(found: dict[str, Any]) -> None:
    machine = found["machine"]
    print(f"python {machine['python']} on {machine['system']}, {machine['cores']} cores")
    print(f"CUDA: {', '.join(machine['cuda']) or 'none'}")
    print("packages: " + ", ".join(f"{k} {v or '(not installed)'}" for k, v in found["packages"].items()))
    folder = found["data_folder"]
    absent = "" if folder is None or Path(folder).is_dir() else " (no such folder)"
    print(f"data folder: {folder or 'none (pass --data FOLDER or set CROUPIER_DATA)'}{absent}")
    for name, facts in found["datasets"].items():
        print(f"  {name:<15}{'files present' if facts['present'] else 'missing':<15}{facts['licence']}")
    print("presets: " + ", ".join(f"{n}{'' if ready else ' (data missing)'}" for n, ready in found["presets"].items()))
    if "checked" in found:
        print(f"{found['checked']['spec']}: can run here")
    sys.stdout.flush()
