"""The digits app on a real SuperLink, in the open or protected: hosts by `croupier serve`, nodes with keys and guards.

A simulation cannot show what a deployment of Flower costs and what its SuperLink stores. `bench.flower.rounds`
(`croupier bench flower --nodes`) takes its seconds from here, and tests search what it relayed (`traces`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from flwr.app import ArrayRecord
from torch import nn

from croupier.flower.guard import approve, install
from croupier.flower.rehearse import RehearsalPlan, Rehearsed, make_homes
from croupier.flower.station import client_name
from croupier.service.roster import Timetable
from croupier_lab.bench.flower.superlink import APP, SuperLink, add_node, plain_copy, superlink

# Time limits longer than any message takes on a busy machine.
TIMES = Timetable(phase=300.0, round=900.0, hold=5.0)


@dataclass(frozen=True)
class DeployedRun:
    """What a run left behind: what the app said, each process's log, and seconds of processors of each round.

    Where the SuperLink was tapped, also all that it relayed, what its database held whenever it was looked at, and the
    files of its folder at the end.
    """

    said: str
    logs: dict[str, str]
    round_cpu: tuple[float, ...]
    relayed: bytes = b""
    stored: bytes = b""

    @classmethod
    def of(cls, link: SuperLink, said: str) -> DeployedRun:
        """Read it all before the folder is removed."""
        logs = {path.stem: link.log(path.stem) for path in link.folder.glob("*.log")}
        spent = tuple(after - before for before, after in pairwise(link.spent))
        if link.tap is None:
            return cls(said, logs, spent)
        files = [path.read_bytes() for path in sorted(link.folder.rglob("*")) if path.is_file()]
        return cls(said, logs, spent, link.tap.relayed(), b"\n".join([link.tap.stored(), *files]))


def digits_arrays() -> ArrayRecord:
    """A model of the shape that the app trains."""
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with torch.no_grad():
        return ArrayRecord({f"layers.{name}": value for name, value in layers.state_dict().items()})


def open_run(
    nodes: int, config: str = "", tapped: bool = False, make: Callable[[Path, Path], Path] = plain_copy
) -> DeployedRun:
    """Run a copy of the app without Croupier, which `make` makes, on a SuperLink without keys and guards."""
    with tempfile.TemporaryDirectory() as folder, superlink(tapped=tapped) as link:
        app = make(APP, Path(folder))
        for number in range(nodes):
            add_node(link, number, nodes)
        return DeployedRun.of(link, link.run(app, config))


def protected_run(
    nodes: int, config: str = "", app: Path = APP, approves: Path = APP, times: Timetable = TIMES,
    meanwhile: Callable[[SuperLink], None] = lambda link: None, tapped: bool = False,
) -> DeployedRun:  # fmt: skip
    """Run an app on a SuperLink whose nodes run only `approves`; `meanwhile` is called when all are started."""
    made = make_homes(RehearsalPlan(metrics={"train_loss": 16.0}, times=times), nodes, digits_arrays())
    try:
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder) / "approved.txt"
            approve(approves, listed)
            guard = install(Path(folder) / "guard", listed).parent
            with superlink({"CROUPIER_KEY": str(made.key("server"))}, tapped) as link:
                _start(link, made, nodes, guard)
                meanwhile(link)
                return DeployedRun.of(link, link.run(app, config))
    finally:
        made.close()


def _start(link: SuperLink, made: Rehearsed, nodes: int, guard: Path) -> None:
    for host in made.hosts:
        link.start(host, [sys.executable, "-m", "croupier", "serve", host, "--key", str(made.key(host))])
    for number in range(nodes):
        add_node(link, number, nodes, made.key(client_name(number)), guard)
    for host in made.hosts:
        link.await_text(host, "listening", 120.0)
