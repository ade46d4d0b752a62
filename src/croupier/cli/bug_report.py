"""`croupier doctor --report`: what somebody who looks for a fault must know, and nothing that tells who asks.

Only what this file names goes in: versions, kinds of machine, which datasets are there, and which parts a description
is made of. Never a path, a name of a host or a user, an address, a key, a value of an environment variable, or any text
that the user wrote.
"""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.core.part import Part
    from croupier.spec import Spec

# What the package and its extras can bring.
PACKAGES = (
    "torch", "numpy", "numba", "llvmlite", "scipy", "scikit-learn", "cryptography", "pydantic", "safetensors", "typer",
    "click", "rich", "jinja2", "flwr", "ray", "grpcio", "prometheus-client", "dp-accounting", "opacus", "rbcl",
    "coincurve", "lpips", "matplotlib", "tensorboard", "mlflow-skinny",
)  # fmt: skip
# A version as packages have them; anything longer may be somebody's own words.
VERSION = re.compile(r"[\w.+!-]{1,40}")


def bug_report(spec: Spec | None, datasets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Facts for a report of a fault. Of a description only which of our parts it is made of."""
    import torch

    kernel = re.match(r"\d+\.\d+", platform.release())
    return {
        "kind": "croupier bug report",
        "croupier": _version("croupier"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "kernel": kernel.group() if kernel else "",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "cuda_devices": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
        "packages": {name: _version(name) for name in PACKAGES},
        "data_folder_given": "CROUPIER_DATA" in os.environ,
        "datasets_present": sorted(name for name, facts in datasets.items() if facts["present"]),
        "parts": {} if spec is None else parts_of(spec),
    }


def parts_of(part: Part, path: str = "") -> dict[str, str]:
    """Which of our own parts lie where in a description, by name; the user's own count as "own"."""
    from croupier.core.part import Part

    found = {}
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, Part):
            if value.verb:
                ours = type(value).__module__.startswith("croupier.")
                found[f"{path}{name}"] = (value.use or "default") if ours else "own"
            found |= parts_of(value, f"{path}{name}.")
    return found


def _version(name: str) -> str | None:
    try:
        found = version(name)
    except PackageNotFoundError:
        return None
    return found if VERSION.fullmatch(found) else "not a plain version"
