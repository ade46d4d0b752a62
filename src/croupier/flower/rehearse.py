"""A protected run in Flower's simulation: throw-away keys for everybody, and all hosts on this machine.

It shows that an app works and what it costs; it protects nobody, because one machine holds every key, and says so. The
hosts are tasks of this process's loop. Everything lies in a folder that is gone at the end. `flower.session` calls
`rehearse` where the server has no key file; the laboratory's `bench/flower` uses it and `make_homes`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord

from croupier.core.coins import Coins
from croupier.core.update import Layout, Model
from croupier.engine.task import Task
from croupier.errors import SpecError
from croupier.flower.arrays import layout_of
from croupier.flower.background import wait_for
from croupier.flower.station import Station, client_name, station_at
from croupier.flower.trust import unfit
from croupier.service.home import Home, save_keys
from croupier.service.host import Host
from croupier.service.member import SERVER
from croupier.service.rehearsal import make_members
from croupier.service.roster import Timetable
from croupier.service.transport import listen
from croupier.spec import Source, Spec, load

# Long limits: simulated nodes take turns on the same cores.
TIMES = Timetable(phase=900.0, round=1800.0, hold=5.0)
WARNING = "rehearsal: one machine holds every key, so that nobody is protected; deploy with keys of everybody's own"


@dataclass(frozen=True)
class RehearsalPlan:
    """What is rehearsed: the description, the metrics that travel with updates, rounds, and the timetable."""

    describe: Source = "flower"
    metrics: Mapping[str, float] = field(default_factory=dict)
    rounds: int = 1000
    times: Timetable = TIMES


class Rehearsed:
    """A federation that was made up for one run: its folder of keys, and its running hosts."""

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        self.folder, self.hosts = folder, hosts
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def server(self) -> Station:
        """The server's station."""
        return station_at(self.key(SERVER), flush=False)

    def key(self, name: str) -> Path:
        """A party's key file."""
        return self.folder / name / f"{name}.key"

    def close(self) -> None:
        """End the hosts and remove the folder."""
        wait_for(self._end())
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def serve(self) -> None:
        """Start the hosts as tasks of the loop."""
        wait_for(self._serve())

    async def _serve(self) -> None:
        for name in self.hosts:
            ready = asyncio.Event()
            task = asyncio.get_running_loop().create_task(_serving(self.key(name), ready))
            self.tasks.append(task)
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()


async def _serving(key: Path, ready: asyncio.Event) -> None:
    """One host until it is told to end."""
    station = station_at(key, flush=False)
    options = replace(station.options, tell=troubles(station.options.tell))
    host = Host(station.member, station.store(), {}, options)
    server, _ = await listen(host, station.member.roster.address(host.name))
    host.listening = True
    ready.set()
    try:
        await host.run()
    finally:
        await host.close()
        await server.stop(0.2)
        if host.finished:
            host.let_go()
        host.store.close()


def troubles(tell: Callable[..., None]) -> Callable[..., None]:
    """Tells what went wrong, and leaves out the news of every round."""

    def told(event: str, **facts: Any) -> None:
        if event in ("refused", "failed", "not played", "store", "disk", "alarm"):
            tell(event, **facts)

    return told


def rehearse(plan: RehearsalPlan, clients: int, arrays: ArrayRecord) -> Rehearsed:
    """Make a federation for so many nodes, with its hosts running. Raises: SpecError, RosterError."""
    made = make_homes(plan, clients, arrays)
    made.serve()
    return made


def make_homes(plan: RehearsalPlan, clients: int, arrays: ArrayRecord) -> Rehearsed:
    """Everybody's keys and accepted rosters in one folder, and nothing that runs. Raises: SpecError, RosterError."""
    spec = _for_nodes(load(plan.describe, count=lambda _: clients), clients, plan.rounds)
    if why := unfit(spec.protocol):
        raise SpecError(why)
    names = tuple(client_name(number) for number in range(clients))
    task = _nothing_to_learn(names, layout_of(arrays, plan.metrics))
    members = make_members(spec, task, Coins.from_os(), plan.times, seeded=False)
    hosts = tuple(name for name, member in members.items() if not member.is_client and name != SERVER)
    made = Rehearsed(Path(tempfile.mkdtemp(prefix="croupier-flower-")), hosts)
    today = dt.datetime.now(dt.UTC).date()
    for name, member in members.items():
        save_keys(made.folder / name, member.keyring, member.roster.card(name), name)
        home = Home.open(made.key(name))
        home.pin(member.roster, today)
        if member.is_client and "group" in spec.protocol.place.needs:
            home.keep_group(member.roster, member.group)
    return made


def _for_nodes(spec: Spec, clients: int, rounds: int) -> Spec:
    """The description for as many clients as there are nodes; the strategy decides who is invited."""
    table = spec.plain()
    table["task"]["split"] = {"use": "iid", "clients": clients}
    table["federation"] |= {"rounds": rounds, "cohort": None, "joins": {}}
    table["protocol"]["encode"].pop("clients", None)
    return load(table)


def _nothing_to_learn(names: tuple[str, ...], layout: Layout) -> Task:
    """A task that trains nothing, because the app does: it says who takes part and how long an update is."""
    first = Model(torch.zeros(layout.size))
    return Task(dict.fromkeys(names, ""), layout, first, lambda jobs: [], lambda model: {})
