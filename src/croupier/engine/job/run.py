"""Start a described run or resume one: `croupier.run` and `croupier.resume`, which `croupier run` calls, too.

Small on purpose: it chooses the folder, the coins and who watches, and hands over to `engine.job.job` or to
`engine.job.resume`. A run that fails before any client has sent something leaves no directory behind, unless it can be
resumed (after a full disk, say).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from croupier.cautions import at_reading
from croupier.core.coins import Coins
from croupier.engine.job.job import LOST, Job, Watch
from croupier.engine.job.manifest import Began
from croupier.engine.job.result import Result
from croupier.engine.job.resume import go_on
from croupier.engine.store import RunDir
from croupier.errors import CroupierWarning, StoreError, either
from croupier.learn.data import folder_of
from croupier.learn.own import check_there
from croupier.spec import Source, counted, load
from croupier.toml_read import Sets


def run(
    source: Source,
    *,
    sets: Sets = (),
    out: str | Path | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run a description to its end, and leave a run directory behind.

    source: a preset's name (`croupier.presets()`), the path of a TOML file, a table (a dict) or a `Spec`.
    sets: keys of the description to change, as `{"federation.rounds": 3}` or `["federation.rounds=3"]`.
    out: the run directory, which must be new or empty; runs/NAME-TIME-NUMBER when not said.
    seed: reproduces everything from this number; fresh chance without it.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with an event's name and its facts as the run goes on; without it, warnings are Python's own.

    Raises: SpecError, DataError, StoreError before it begins; ProtocolError and others when a round cannot end well.
    """
    spec, watch = load(source, sets, count=counted(data)), watch or _unwatched
    for text in at_reading(source, sets):
        watch("warning", {"text": text})
    coins = Coins.from_os() if seed is None else Coins.from_seed(seed)
    job = Job(spec, RunDir(Path(out) if out else _fresh(spec.name)), coins, folder_of(data), watch)
    return job.start(seed)


def resume(
    path: str | Path,
    *,
    data: str | Path | None = None,
    own: Sequence[Callable[..., Any]] = (),
    watch: Watch | None = None,
    anew: bool = False,
    rounds: int | None = None,
) -> Result:
    """Go on with a run from its last checkpoint.

    path: the run directory.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with an event's name and its facts as the run goes on; without it, warnings are Python's own.
    anew: play again, under fresh secrets, rounds that had begun.
    rounds: go on to so many rounds in all, no fewer than the run was begun with.
    own: the functions that a Python program gave the run, if it did.

    It goes on from the last checkpoint: with `run.checkpoint_every` above 1, whole rounds after that are played again.
    A round that had begun is repeated byte for byte. Where that cannot be (another machine, other code), Replayed is
    raised before anything leaves; `anew` then plays it under fresh secrets, as another release that counts.
    """
    folder = RunDir(Path(path))
    folder.check_links()
    if not (folder.path / "spec.toml").is_file() or not (folder.path / "manifest.json").is_file():
        start = either(f"croupier run --out {path}", f"croupier.run(..., out={str(path)!r})")
        raise StoreError(f"{path}: no run to resume here; start one with {start}")
    if (folder.path / LOST).is_file():
        raise StoreError(
            f"{path}: a round failed after its keys were used, and the same updates summed once more with others would "
            "give single ones away; start a new run, from task.warm if you have a model (its ledgers begin anew: lower "
            "budgets by what is spent)"
        )
    manifest = folder.read_json("manifest.json")
    began = Began.read(folder.path, manifest)
    spec = load(folder.path / "spec.toml", own=own)
    check_there(spec, manifest.get("own", {}), str(path))
    job = Job(spec, folder, began.coins, folder_of(data), watch or _unwatched)
    return go_on(job, began, anew, rounds)


def _unwatched(event: str, facts: Mapping[str, Any]) -> None:
    """Nobody watches: warnings are Python's."""
    if event == "warning":
        warnings.warn(facts["text"], CroupierWarning, stacklevel=2)


def _fresh(name: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 1
    while (path := Path("runs") / f"{name}-{stamp}-{number}").exists():
        number += 1
    return path
