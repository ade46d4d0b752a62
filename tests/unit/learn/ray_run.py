"""A program of its own for the tests of Ray: runs here and on two actors are compared, with an actor killed on the way.

`python ray_run.py FOLDER` prints what held.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

import croupier

SETS = {"federation.rounds": 3, "task.split": {"use": "dirichlet", "clients": 12, "alpha": 0.5}, "task.together": 4}
MARK = "CROUPIER_TEST_OF_RAY"
AFAR = {**SETS, "run.engine": "ray", "run.workers": 2}


class Own(nn.Module):
    """A network of a file that no actor knows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def own(*_: Any) -> nn.Module:
    return Own()


def actors() -> list[int]:
    """The actors that this program started: they inherit its environment."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = mark in (entry / "environ").read_bytes().split(b"\0")
            if ours and b"ray::RayHands" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return sorted(found)


def main(folder: Path) -> None:
    os.environ[MARK] = str(folder)
    here = croupier.run("rns-servers", sets=SETS, out=folder / "here", seed=4)
    there = croupier.run("rns-servers", sets=AFAR, out=folder / "there", seed=4)
    assert there.metrics == here.metrics
    print("same")
    killed: list[int] = []

    def watch(event: str, facts: Mapping[str, Any]) -> None:
        # In the second round, while a group is under way.
        if event == "trained" and len(killed) < 1 and (folder / "killed" / "metrics.jsonl").exists():
            killed.append(actors()[0])
            os.kill(killed[0], signal.SIGKILL)

    again = croupier.run("rns-servers", sets=AFAR, out=folder / "killed", seed=4, watch=watch)
    assert killed
    assert again.metrics == here.metrics
    print("survived")
    sets = {"federation.rounds": 1, "task.model": {"use": "own", "make": own}}
    alone = croupier.run("digits", sets=sets, out=folder / "own", seed=4)
    beside = croupier.run("digits", sets={**sets, "run.engine": "ray"}, out=folder / "own-ray", seed=4)
    assert beside.metrics == alone.metrics
    print("own")
    assert actors() == []
    print("ended")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
