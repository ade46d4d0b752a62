"""How a party is put together from a roster, its keys and what it has at home: its data, its folder, its function.

`croupier serve`, `croupier join` and `croupier up` make parties here and run them to their end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.engine.loop import begin
from croupier.engine.task import Fits, Task
from croupier.engine.work import RoundWork
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.service.client import Client
from croupier.service.host import Host
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member
from croupier.service.party import Options, PartyProcess
from croupier.service.store import Store
from croupier.service.transport import listen
from croupier.spec import Spec

ROOT = "root coins"


@dataclass(frozen=True)
class Workplace:
    """What a party has at home: the folder of its store, where data lie, and a function of its own that trains.

    `task` is what was assembled already, where several parties run on one machine; `own` changes the description's
    task here and nowhere else, as a client does whose records lie in a file of its own.
    """

    folder: Path
    data: Path | None = None
    fit: Fits | None = None
    task: Assembled | None = None
    own: Spec | None = None


def assembled(spec: Spec, coins: Coins, data: Path | None = None) -> Assembled:
    """The description's task: data, network, training and measuring. Raises: SpecError, DataError."""
    task = spec.task
    return assemble(
        task.data, task.split, task.model, task.fit, coins,
        options=task.options, folder=data, machine=Hardware(spec.run.device, spec.run.workers),
    )  # fmt: skip


def make_party(
    member: Member, place: Workplace, options: Options, on_round: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> PartyProcess:
    """One party, ready to run. Raises: SpecError, DataError, StoreError."""
    store = Store(place.folder)
    if not member.is_client and member.name != SERVER:
        return Host(member, store, {}, options)
    root = _root(store)
    if member.is_client and place.fit is not None:
        return Client(member, store, {"fit": place.fit}, options)
    made = place.task or assembled(place.own or member.roster.spec, root, place.data)
    _check_layout(made.task.layout, member.roster.layout)
    work = RoundWork(member.pipeline, made.task).by_name()
    if member.is_client:
        return Client(member, store, work, replace(options, shard=_shard(made.task, member.name)))
    first = begin(made.task, member.pipeline).memories[SERVER]
    measures = Measures(made.task.evaluate, root.child("cohorts"), on_round)
    return Lead(member, store, work, replace(options, first_memory=first), measures)


def _root(store: Store) -> Coins:
    """A party's own root of chance, drawn once: a party that starts again draws its data and its cohorts as before."""
    kept = store.fact(ROOT)
    if kept is None:
        kept = os.urandom(32)
        store.remember({ROOT: kept})
    return Coins(kept)


def _shard(task: Task, name: str) -> str:
    """Which part of the data is this client's: the one of its name, or all of it."""
    if name in task.shards:
        return task.shards[name]
    if len(task.shards) == 1:
        return next(iter(task.shards.values()))
    raise SpecError(
        f"task.split gives {len(task.shards)} parts, {min(task.shards)} to {max(task.shards)}, and none is called "
        f"{name!r}; with records of your own, set task.split to one client (--set task.split.clients=1)"
    )


def _check_layout(mine: Layout, agreed: Layout) -> None:
    """Raises: SpecError when the network here is not the one that the roster was made for."""
    if mine != agreed:
        theirs = {(part.name, part.shape) for part in agreed.slices}
        other = next((part for part in mine.slices if (part.name, part.shape) not in theirs), None)
        what = f"{other.name} of shape {other.shape}" if other else f"{len(mine.slices)} tensors"
        raise SpecError(
            f"task.model: the network made here has {what}, and the roster's has not; use the data and the version "
            "of Croupier that the roster was made with"
        )


async def run_party(party: PartyProcess, stop: asyncio.Event | None = None) -> None:
    """A party from its first call to its last; when told to stop, it ends between two steps and can start again."""
    server, running = None, None
    try:
        if not party.member.is_client:
            server, _ = await listen(party, party.member.roster.address(party.name))
        running = asyncio.ensure_future(party.run())
        stopping = asyncio.ensure_future(stop.wait() if stop else asyncio.Event().wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            running.result()
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await party.close()
        if server is not None:
            # Time for answers that are on their way: whoever waits for one would ask again and find nobody.
            await server.stop(1.0)
        party.store.close()


def run_here(party: PartyProcess) -> None:
    """Run a party in this process until it ends, or until it is asked to stop (SIGTERM, Ctrl-C)."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await run_party(party, stop)

    asyncio.run(main())
