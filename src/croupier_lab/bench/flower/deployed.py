"""The digits app on a real SuperLink, protected: hosts by `croupier serve`, nodes with keys and a guard each."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import ArrayRecord
from torch import nn

from croupier.flower.guard import approve, install
from croupier.flower.rehearse import RehearsalPlan, Rehearsed, make_homes
from croupier.flower.station import client_name
from croupier.service.roster import Timetable
from croupier_lab.bench.flower.superlink import APP, SuperLink, add_node, superlink

# A step is longer than a message takes on a busy machine.
TIMES = Timetable(phase=120.0, round=600.0, hold=5.0)


@dataclass(frozen=True)
class DeployedRun:
    """What a run left behind: what the app said, each node's log, and all that the SuperLink has stored or logged."""

    said: str
    logs: dict[str, str]


def digits_arrays() -> ArrayRecord:
    """A model of the app's shape."""
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    with torch.no_grad():
        return ArrayRecord({f"layers.{name}": value for name, value in layers.state_dict().items()})


def protected_run(
    nodes: int, config: str = "", app: Path = APP, approves: Path = APP, times: Timetable = TIMES,
    meanwhile: Callable[[SuperLink], None] = lambda link: None,
) -> DeployedRun:  # fmt: skip
    """Run an app on a SuperLink whose nodes have approved a bundle; `meanwhile` is called when all are started."""
    made = make_homes(RehearsalPlan(metrics={"train_loss": 16.0}, times=times), nodes, digits_arrays())
    try:
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder) / "approved.txt"
            approve(approves, listed)
            guard = install(Path(folder) / "guard", listed).parent
            with superlink({"CROUPIER_KEY": str(made.key("server"))}) as link:
                _start(link, made, nodes, guard)
                meanwhile(link)
                said = link.run(app, config)
                names = [path.stem for path in link.folder.glob("*.log")]
                return DeployedRun(said, {name: link.log(name) for name in names})
    finally:
        made.close()


def _start(link: SuperLink, made: Rehearsed, nodes: int, guard: Path) -> None:
    for host in made.hosts:
        link.start(host, [sys.executable, "-m", "croupier", "serve", host, "--key", str(made.key(host))])
    for number in range(nodes):
        add_node(link, number, nodes, made.key(client_name(number)), guard)
    for host in made.hosts:
        link.await_text(host, "listening", 120.0)
