"""An audit of hidden coordinates from a description to findings: what a curious server reads of permuted uploads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from croupier.audit.exposure import exposed
from croupier.audit.integrity import Ground, Setting
from croupier.audit.learned import learned
from croupier.audit.report.result import Reported
from croupier.audit.secrecy import FULL, Depth, part, study
from croupier.encode.hidden import HiddenUnits
from croupier.errors import SpecError, option
from croupier.learn.data import folder_of
from croupier.learn.own import records
from croupier.pipeline import Pipeline
from croupier.runtime.kept import Kept, deciding
from croupier.runtime.local import Local
from croupier.spec import Sets, Source, Spec, counted, load

Watch = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class Disclosure(Reported):
    """The result of a secrecy audit."""

    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""
        from croupier.audit.report.secrecy import render

        return render(self.plain)


def described(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says, nobody malicious. Raises: SpecError when its clients noise what they send."""
    task, privacy = spec.task, spec.protocol.privacy
    if privacy.use != "none":
        raise SpecError(f"protocol.privacy = {privacy.use!r}: this audit is of updates as they are; use 'none'")
    return Setting(
        task.data, task.split, task.model, task.fit, spec.federation, 0.0, task.root, task.together, folder,
        spec.run.device, 1, task.opaque, task.loss,
    )  # fmt: skip


def check(seeds: int, depth: Depth) -> None:
    """What can be refused before minutes of work. Raises: SpecError for too few runs, or where LPIPS cannot be had."""
    if seeds < 2:
        raise SpecError(f"{option('seeds')} = {seeds}: intervals are over runs; ask for at least 2")
    if depth.lpips:
        learned(depth.lpips)


def hands(spec: Spec, abreast: int | None) -> int:
    """How many runs go on at once."""
    return abreast or spec.run.workers or os.cpu_count() or 1


def read(
    setting: Setting, pipeline: Pipeline, seeds: Sequence[int], watch: Watch, depth: Depth, abreast: int, kept: Kept
) -> dict[str, Any]:
    """What the server of a description makes of its own views, over runs."""
    return exposed(study(setting, pipeline, seeds, Local(), watch, depth, abreast, kept))


def decided(spec: Spec, ground: Ground, depth: Depth, kind: str) -> dict[str, Any]:
    """All that decides a seed's result; data that cannot be had are refused here, before anything is begun."""
    plain, made = spec.plain(), ground.made
    described = {key: plain[key] for key in ("task", "federation", "protocol")}
    more = {"kind": kind, "device": spec.run.device, "depth": asdict(depth), "own": records(spec)}
    return deciding(described, made.dataset.digest, made.task.first.vector, ground.seed, **more)


def examine(
    source: Source = "tazza-mnist",
    *,
    sets: Sets = (),
    seeds: int = 3,
    seed: int = 0,
    data: str | Path | None = None,
    abreast: int | None = None,
    depth: Depth = FULL,
    watch: Watch = lambda _: None,
    kept: Kept | None = None,
) -> Disclosure:
    """Audit what the server reads of a description with hidden coordinates. Raises: SpecError, DataError.

    `depth` says how much is tried. Seeds that are finished go to `kept`, and what is there is not done again
    (StoreError where that cannot be).
    """
    check(seeds, depth)
    spec = load(source, sets, count=counted(data))
    if not isinstance(spec.protocol.encode, HiddenUnits):
        raise SpecError(
            f"protocol.encode = {spec.protocol.encode.use!r}: a secrecy audit asks what a server reads of permuted "
            f"uploads; use 'hidden-units', or {option('kind')} source"
        )
    setting, numbers = described(spec, folder_of(data)), range(seed, seed + seeds)
    ground, shelf = Ground(setting, seed), Kept() if kept is None else kept
    about = decided(spec, ground, depth, "secrecy")
    shelf.begin(f"{spec.name}-secrecy", about, [part(number) for number in numbers], "seeds")
    secret = read(setting, spec.protocol, numbers, watch, depth, hands(spec, abreast), shelf)
    return Disclosure(findings(spec, len(ground.made.task.enrolled), numbers, secret))


def findings(spec: Spec, clients: int, seeds: Sequence[int], secret: Mapping[str, Any]) -> dict[str, Any]:
    """Everything as plain values, with intervals over runs."""
    plain = spec.plain()
    return {
        "kind": "croupier secrecy audit",
        "name": spec.name,
        **{key: plain[key] for key in ("task", "federation", "protocol")},
        "clients": clients,
        "cohort": spec.federation.cohort or clients,
        "rounds": max(order["rounds"] for order in secret["orders"]),
        "runs": len(seeds),
        "seeds": list(seeds),
        "verdict": [secret["verdict"]],
        "confidentiality": secret,
        "threat": secret["threat"],
        "notes": secret["notes"],
    }
