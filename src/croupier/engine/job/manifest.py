"""What a run begins with: its root coins, versions, machine, and digests of description, data and first model.

Digests of the user's own functions that the description names are there, too. `engine.job.job` writes the manifest
before anything is sent. When a run is resumed, `engine.job.run` reads it and `engine.job.resume` compares: other coins,
another description, other data or another first model (once there is a checkpoint, a network of another size) are
refused. Changed functions and other versions of packages are only told; the machine is not compared.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.engine.state import run_id
from croupier.errors import RangeError, StoreError
from croupier.learn.assemble import Assembled
from croupier.learn.flat import frozen_of
from croupier.learn.own import records
from croupier.spec import Spec


@dataclass(frozen=True)
class Began:
    """What a run began with, from its manifest; digests in hexadecimal digits.

    `shorter` are the digests of its description before it was given more rounds. `own` has name, file and digest of
    each function of the user's.
    """

    coins: Coins = field(repr=False)
    run: str
    spec: str
    data: str
    first: str
    packages: Mapping[str, str]
    shorter: tuple[str, ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, manifest: Mapping[str, Any]) -> Began:
        """From a manifest. Raises: StoreError when it is damaged."""
        try:
            return cls(
                Coins(bytes.fromhex(manifest["coins"])),
                manifest["run"], manifest["spec"], manifest["data"]["digest"], manifest["first"],
                dict(manifest["packages"]), tuple(manifest.get("shorter", ())), manifest.get("own", {}),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, RangeError):
            raise StoreError(f"{path}/manifest.json is damaged: this is no run that can be resumed") from None


def described(spec: Spec) -> str:
    """The digest of a description without its table `run`: how a machine runs it may change when a run is resumed."""
    return canon.digest((spec.task.digest(), spec.federation.digest(), spec.protocol.digest())).hex()


def first_digest(made: Assembled) -> str:
    """The digest of the first model, with the weights that are never trained."""
    vector, frozen = made.task.first.vector, frozen_of(made.module)
    return canon.digest({"first": vector, "frozen": frozen} if frozen else vector).hex()


def version_of(package: str) -> str:
    """The installed version of a package, or that there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def manifest_of(spec: Spec, coins: Coins, made: Assembled, seed: int | None) -> dict[str, Any]:
    """What a run begins with, to be written before anything is sent."""
    return {
        "croupier": version("croupier"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("torch", "numpy", "cryptography", "numba")},
        "machine": platform.machine(),
        "seed": seed,
        # A simulation must be resumable, so its root is kept with it.
        "coins": coins.export().hex(),
        "protocol": spec.protocol.digest().hex(),
        "spec": described(spec),
        "run": run_id(coins).hex(),
        "workers": made.workers,
        "threads_per_worker": 1,
        "together": spec.task.together,
        "device": spec.run.device,
        "data": {
            "name": made.dataset.name,
            "digest": made.dataset.digest,
            "licence": made.dataset.licence,
            "notes": dict(made.dataset.notes),
        },
        "first": first_digest(made),
        "own": records(spec),
        "shards": dict(made.task.shards),
    }
