"""Small runs to make claims about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Change, Letter
from croupier.core.view import View
from croupier.engine.federation import Federation
from croupier.engine.job.result import metrics_of
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import HONEST, Round, Threat
from croupier.engine.task import Task
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.spec import Spec, load

SMALL = ("federation.rounds=2", "task.fit.epochs=1", "run.workers=1")


@dataclass(frozen=True)
class Bench:
    """A described run, assembled, that can be played with any threat and any carrier."""

    spec: Spec
    coins: Coins
    made: Assembled

    def play(
        self,
        threat: Threat = HONEST,
        *,
        sealed: bool = False,
        task: Task | None = None,
        **plan: Any,
    ) -> list[Round]:
        """Every round to the end."""
        federation = Federation(**{**dict(self.spec.federation), **plan})
        drive = Local(self.coins.child("links") if sealed else None)
        return list(rounds(self.spec.protocol, task or self.made.task, federation, self.coins, drive, threat=threat))


def bench(source: str, sets: Sequence[str] = (), seed: int = 3) -> Bench:
    """A small run of a preset."""
    torch.set_num_threads(1)
    spec, coins = load(source, [*SMALL, *sets]), Coins.from_seed(seed)
    task = spec.task
    made = assemble(
        task.data,
        task.split,
        task.model,
        task.fit,
        coins,
        options=TaskOptions(together=task.together, warm=task.warm),
        machine=Hardware(workers=1),
    )
    return Bench(spec, coins, made)


def lines(played: Sequence[Round]) -> list[dict[str, Any]]:
    """The metrics of rounds."""
    return [metrics_of(done) for done in played]


def bend(change: Callable[[Tensor], Tensor]) -> Change:
    """A client that does something to the vector it sends."""

    def changed(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(_bent(letter, change) for letter in letters)

    return changed


def _bent(letter: Letter, change: Callable[[Tensor], Tensor]) -> Letter:
    assert not isinstance(letter.body, bytes)
    return replace(letter, body={**letter.body, "vector": change(letter.body["vector"].clone())})


def contents(path: Path) -> dict[str, bytes]:
    """The files of a run that must not depend on anything but its seed."""
    checkpoints = sorted(f"checkpoints/{file.name}" for file in (path / "checkpoints").iterdir())
    names = ["metrics.jsonl", "model.safetensors", *checkpoints]
    return {name: (path / name).read_bytes() for name in names}
