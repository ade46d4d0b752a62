"""Croupier: federated learning whose server gets a sum or a shuffled set, and an audit of what still leaks.

import croupier
print(croupier.plan("digits-shuffled"))  # what a run will cost
print(croupier.explain("digits-shuffled").learns["server"])  # who learns what
result = croupier.run("digits-shuffled", seed=7)
print(result.final["accuracy"], result.final["bytes_up_per_client"])
findings = croupier.audit("digits-uneven", sets={"federation.rounds": 2})  # what looking adds

A description is a preset's name, the path of a TOML file, a dict or a `Spec`: `plan`, `explain`, `run`, `audit` and
`load` take any of them. Every name here is imported from its own file when it is first asked for (`_HOMES`).
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.audit.described import audit as audit
    from croupier.audit.report.result import Report as Report
    from croupier.encode.moduli import moduli as moduli
    from croupier.engine.job.result import Result as Result
    from croupier.engine.job.run import resume as resume
    from croupier.engine.job.run import run as run
    from croupier.errors import CroupierError as CroupierError
    from croupier.errors import CroupierWarning as CroupierWarning
    from croupier.outlook import Forecast as Forecast
    from croupier.outlook import explain as explain
    from croupier.outlook import plan as plan
    from croupier.pipeline import Pipeline as Pipeline
    from croupier.spec import Spec as Spec
    from croupier.spec import load as load
    from croupier.statement import Statement as Statement
    from croupier.systems import intra as intra
    from croupier.systems import intra_sum as intra_sum
    from croupier.systems import naive as naive
    from croupier.systems import plain as plain
    from croupier.systems import rain as rain
    from croupier.systems import rns as rns
    from croupier.systems import sum_servers as sum_servers
    from croupier.systems import tazza as tazza
    from croupier.systems import total as total
    from croupier.toml_read import presets as presets

# Loaded when first asked for: importing torch takes over a second, and `croupier --help` needs none of it.
_HOMES = {
    "CroupierError": "errors",
    "CroupierWarning": "errors",
    "Forecast": "outlook",
    "Pipeline": "pipeline",
    "Report": "audit.report.result",
    "Result": "engine.job.result",
    "Spec": "spec",
    "Statement": "statement",
    "explain": "outlook",
    "intra": "systems",
    "intra_sum": "systems",
    "load": "spec",
    "moduli": "encode.moduli",
    "naive": "systems",
    "plain": "systems",
    "plan": "outlook",
    "presets": "toml_read",
    "rain": "systems",
    "resume": "engine.job.run",
    "rns": "systems",
    "run": "engine.job.run",
    "sum_servers": "systems",
    "tazza": "systems",
    "total": "systems",
}

__all__ = sorted([*_HOMES, "audit"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("croupier")
    if name == "audit":
        # A package that can be called, too: `croupier.audit(...)`; its own `__init__` says how.
        return import_module("croupier.audit")
    if name not in _HOMES:
        raise AttributeError(f"module 'croupier' has no attribute {name!r}")
    return getattr(import_module(f"croupier.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
