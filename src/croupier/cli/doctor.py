"""`croupier doctor`: what is here, what is missing, and what would run.

It is the first command to try where something does not work. Of all datasets it says whether their files are there;
that of a description which is named is loaded, by the very code that a run uses. The user's own functions are looked up
and not called.
"""

from __future__ import annotations

import os
import platform
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.spec import Spec

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
        typer.Argument(help="A preset or TOML file to check for this machine.", autocompletion=options.descriptions),
    ] = None,
    sets: options.Sets = None,
    seed: options.Seed = None,
    data: options.Data = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    report: Annotated[
        bool,
        typer.Option("--report", help="Print what to put into a bug report: no path, name, address or key is in it."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Check this machine: versions, devices, the data folder with each dataset's licence, and the presets.

    `croupier doctor mnist --data ~/data`: can this description run here?

    `croupier doctor --report`: facts for a bug report, one JSON object that tells nothing of you.
    """
    from croupier.learn.data import folder_of
    from croupier.spec import unread

    described, supposed = unread(spec or "digits", sets or ())
    if print_config:
        options.show_config(described, json, supposed)
        return
    folder = folder_of(data)
    if report:
        from croupier.cli.bug_report import bug_report

        told = bug_report(described if spec is not None else None, _datasets(folder))
        options.give(told, True, out)
        return
    found = {
        "machine": _machine(),
        "packages": {name: _version(name) for name in PACKAGES},
        "data_folder": None if folder is None else str(folder),
        "datasets": _datasets(folder),
        "presets": _presets(folder),
        "seed": seed,
    }
    if spec is not None:
        found["checked"] = _checked(described, folder)
    options.give(found, json, out, lambda: _show(found))


def _checked(spec: Spec, folder: Path | None) -> dict[str, Any]:
    """Loading the data is the check: it raises what a run would. The user's own functions are looked up, not called."""
    from croupier.learn.own import look
    from croupier.learn.own_names import named_in

    own = {key: look(key, named) for key, named in named_in(spec).items()}
    loaded = {} if "task.data.make" in own else {"digest": spec.task.data.load(folder).digest}
    return {"spec": spec.name, **loaded, **({"own": own} if own else {})}


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
    from croupier.learn.data import Data

    kinds = [kind for kind in Data.offered().values() if issubclass(kind, Data)]
    return {
        kind.use: {"present": kind.present(folder), "licence": kind.licence, "files": list(kind.files)}
        for kind in kinds
    }


def _presets(folder: Path | None) -> dict[str, dict[str, Any]]:
    from croupier.spec import load
    from croupier.toml_read import about, presets

    return {name: {"present": load(name).task.data.present(folder), "about": about(name)} for name in presets()}


def _show_presets(presets: dict[str, dict[str, Any]]) -> None:
    print("presets:")
    for name, facts in presets.items():
        print(f"  {name:<18}{facts['about']}")
    if absent := [name for name, facts in presets.items() if not facts["present"]]:
        said = f"presets whose data are missing here: {', '.join(absent)}"
        print(textwrap.fill(said, 80, subsequent_indent="  ", break_on_hyphens=False))


def _show(found: dict[str, Any]) -> None:
    from croupier.cli.fit import line

    machine = found["machine"]
    print(line(f"python {machine['python']} on {machine['system']}, {machine['cores']} cores"))
    print(line(f"CUDA: {', '.join(machine['cuda']) or 'none'}"))
    print(line("packages: " + ", ".join(f"{k} {v or '(not installed)'}" for k, v in found["packages"].items())))
    folder = found["data_folder"]
    absent = "" if folder is None or Path(folder).is_dir() else " (no such folder)"
    print(line(f"data folder: {folder or 'none (pass --data FOLDER or set CROUPIER_DATA)'}{absent}"))
    for name, facts in found["datasets"].items():
        print(line(f"  {name:<15}{'files present' if facts['present'] else 'missing':<15}{facts['licence']}", " " * 32))
    _show_presets(found["presets"])
    if "checked" in found:
        for key, where in found["checked"].get("own", {}).items():
            print(line(f"{key}: {where}, your code; read, and not run: croupier run will run it"))
        print(f"{found['checked']['spec']}: {'found what it names' if 'own' in found['checked'] else 'can run here'}")
