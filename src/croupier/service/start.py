"""How a party is put together from a roster, its keys and what it has at home: its data, its folder, its function.

`croupier serve` and `croupier join` (`cli.serve`) make their party with `make_party` and run it with `run_here` until
it ends. For `croupier up`, `service.rehearsal` makes the parties so and `service.up` runs them. The laboratory's
`bench/services` run parties that they made themselves, with `run_party` and `run_here`.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from croupier.core.coins import Coins
from croupier.engine.loop import begin
from croupier.engine.work import RoundWork
from croupier.errors import StoreError
from croupier.learn.assemble import Assembled
from croupier.learn.own_names import FunctionName
from croupier.service.client import Client
from croupier.service.host import Host
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.results import Results
from croupier.service.store import Store
from croupier.service.training import OwnFit, assembled, check_layout, shard_of
from croupier.service.transport import listen
from croupier.spec import Spec

# The name under which a party's store has the coins by which it assembles its task, and the server draws cohorts
# (`_root`). Those of each attempt are drawn apart (`Options.coins`).
ROOT = "root coins"


@dataclass(frozen=True)
class Workplace:
    """What a party has at home: the folder of its store, where data lie, and a function of its own that trains.

    `task` is what was assembled already, where several parties run on one machine. `own`, where there is no `task`, is
    the description with another `task` or `run` for this party alone, as for a client whose records lie in a file of
    its own. `out` is where the server's results go. `flush` says whether writes must survive a failure of the machine:
    always, but for a folder that is thrown away.
    """

    folder: Path
    data: Path | None = None
    fit: FunctionName | None = None
    task: Assembled | None = None
    own: Spec | None = None
    out: Path | None = None
    flush: bool = True


def make_party(
    member: Member, place: Workplace, options: Options, on_round: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> PartyProcess:
    """One party, ready to run. Raises: SpecError, DataError, StoreError."""
    store = Store(place.folder, place.flush)
    if not member.is_client and member.name != SERVER:
        return Host(member, store, {}, options)
    if member.is_client and place.fit is not None:
        return _own_client(member, store, place.fit, options)
    root = _root(store)
    made = place.task or assembled(place.own or member.roster.spec, root, place.data)
    check_layout(made.task.layout, member.roster.layout)
    work = RoundWork(member.pipeline, made.task, most=1).by_name()
    if member.is_client:
        return Client(member, store, work, replace(options, shard=shard_of(made.task, member.name)))
    first = begin(made.task, member.pipeline).memories[SERVER]
    measures = Measures(made.task.evaluate, root.child("cohorts"), on_round)
    lead = Lead(member, store, work, replace(options, first_memory=first), measures)
    if place.out is not None:
        _keep_results(lead, Results(place.out, made.export))
    return lead


def _keep_results(lead: Lead, results: Results) -> None:
    """Write files after every round, and now what a crash may have left out. Raises: StoreError when none can be."""
    on_round = lead.measures.on_round

    def written(line: Mapping[str, Any]) -> None:
        on_round(line)
        try:
            results.after_round(lead)
        except StoreError as error:
            # The round is in the store: the next one writes both.
            lead.options.tell("results", why=str(error))

    results.after_round(lead)
    lead.measures = replace(lead.measures, on_round=written, on_end=lambda: results.at_the_end(lead))


def _own_client(member: Member, store: Store, train: FunctionName, options: Options) -> Client:
    """A client that trains with a function of its own: no data and no network of the description's are needed."""
    client = Client(member, store, {}, options)
    client.work = {**client.work, "fit": OwnFit(train, member.roster.layout, lambda: client.number)}
    return client


def _root(store: Store) -> Coins:
    """A party's own root of chance, drawn once: a party that starts again draws its data and its cohorts as before."""
    kept = store.fact(ROOT)
    if kept is None:
        kept = Coins.from_os().export()
        store.remember({ROOT: kept})
    return Coins(kept)


async def run_party(party: PartyProcess, stop: asyncio.Event | None = None, address: str = "") -> None:
    """Run a party to its end, and then set its `over`; when told to stop before, it can start again later.

    address: where a host listens; where the roster says that others dial it unless given.
    """
    server, running = None, None
    try:
        if not party.member.is_client:
            at = address or party.member.roster.address(party.name)
            server, port = await listen(party, at, party.hands)
            party.listening = True
            party.options.tell("listening", address=at, port=port)
        running = asyncio.ensure_future(party.run())
        stopping = asyncio.ensure_future(stop.wait() if stop else asyncio.Event().wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            running.result()
            party.over = True
    finally:
        party.listening = False
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await party.close()
        if server is not None:
            # Time for answers that are on their way: whoever waits for one would ask again and find nobody.
            await server.stop(1.0)
        if party.finished:
            _let_go(party)
        party.store.close()


def _let_go(party: PartyProcess) -> None:
    try:
        party.let_go()
    except StoreError as error:
        # Who is started again hears once more that the run is over, and tries once more.
        party.options.tell("store", why=str(error))


def run_here(party: PartyProcess, address: str = "") -> None:
    """Run a party in this process until it ends, or until it is asked to stop (SIGTERM, Ctrl-C)."""

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await run_party(party, stop, address)

    # What is loaded by now stays: a collector that walked over it again and again would find nothing, and in a fork
    # would copy the memory that is shared with the parent, because it writes into what it visits.
    gc.freeze()
    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()
