"""A driver inside Flower: the strategy and the mod on an in-process grid, hosts as services, seeded as a simulation."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from croupier.core.update import Layout
from croupier.errors import CroupierWarning
from croupier.flower.arrays import from_vector, to_vector
from croupier.flower.background import wait_for
from croupier.flower.mod import ShieldMod
from croupier.flower.rehearse import RehearsalPlan
from croupier.flower.session import Session, begin_session
from croupier.flower.station import Station
from croupier.flower.strategy import Protected
from croupier.service.host import Host
from croupier.service.member import SERVER, Member
from croupier.service.notice import Notice
from croupier.service.options import Options
from croupier.service.store import Store
from croupier.service.transport import listen
from croupier_lab.bench.flower.grid import HereGrid
from tests.laws.services import Deployment, Seen, folder_of
from tests.laws.toy import fit


def initial(layout: Layout, vector: torch.Tensor) -> ArrayRecord:
    """A model as Flower has it; counters are whole numbers."""
    like = {
        part.name: Array(
            torch.zeros(part.shape, dtype=torch.int64 if part.role == "counter" else torch.float32).numpy()
        )
        for part in layout.slices
    }
    return from_vector(vector, layout, ArrayRecord(like))[0]


@dataclass
class FlowerScene:
    """A deployment whose clients are Flower's nodes, numbered from 1 in the order of their names."""

    made: Deployment
    strategy: Callable[[], Strategy] = FedAvg
    drops: Callable[[int, Message], bool] = lambda node, message: False
    run_config: Mapping[str, Any] = field(default_factory=dict)
    before_train: Callable[[str], None] = lambda name: None
    lost_is_fine: bool = False
    seen: Seen = field(default_factory=dict)
    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    models: list[torch.Tensor] = field(default_factory=list)
    updates: list[torch.Tensor] = field(default_factory=list)

    def station(self, member: Member, folder: Path) -> Station:
        """A party at home, with the coins of a simulation."""
        name = member.name

        def kept(notice: Notice, view: Any) -> None:
            self.seen[notice.round, notice.what, 0, view.party] = view

        def tell(event: str, **facts: Any) -> None:
            self.told.append((name, event, facts))

        options = Options(
            coins=self.made.coins_of(name), shard=self.made.task.shards.get(name, ""), keep="keep", tell=tell,
            on_view=kept,
        )  # fmt: skip
        return Station(member, folder / name, options)

    def app(self, stations: Mapping[int, Station]) -> ClientApp:
        """The toy's training as an app."""
        layout = self.made.task.layout
        app = ClientApp(mods=[ShieldMod(lambda facts: stations[int(facts.node["node"])])])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            station = stations[int(context.node_config["node"])]
            name, number = station.member.name, int(str(message.content.config_records["config"]["server-round"])) - 1
            self.before_train(name)
            coins = self.made.coins.child("party", name).child("run", station.member.roster.run, "round", number)
            own = coins.child("participation", number)
            arrays = message.content.array_records["arrays"]
            start = to_vector(arrays, layout)
            (update,) = fit([(start, station.options.shard, own.child("fit"))])
            self.updates.append(update.vector)
            content: dict[str, Any] = {
                "arrays": from_vector(update.vector, layout, arrays)[0],
                "metrics": MetricRecord({"num-examples": float(update.luggage["weight"][0])}),
            }
            return Message(RecordDict(content), reply_to=message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 1.0})}), reply_to=message)

        return app

    def run(self, count: int = 2) -> tuple[Result, HereGrid]:
        """Some rounds."""
        members, layout = self.made.members(), self.made.task.layout
        with folder_of() as folder:
            stations = {name: self.station(member, folder) for name, member in members.items()}
            nodes = {number + 1: stations[name] for number, name in enumerate(self.made.task.enrolled)}
            grid = HereGrid(self.app(nodes), {node: {"node": node} for node in nodes}, self.run_config, self.drops)
            hosts = [stations[name] for name in members if not members[name].is_client and name != SERVER]
            with _hosting(hosts), warnings.catch_warnings():
                warnings.simplefilter("ignore" if self.lost_is_fine else "error", CroupierWarning)

                def opened(*given: Any) -> Session:
                    return begin_session(stations[SERVER], root=self.made.task.root)

                strategy = Protected(self.strategy(), RehearsalPlan(), opened)
                first = initial(layout, self.made.task.first.vector)

                def measured(number: int, arrays: ArrayRecord) -> None:
                    self.models.append(to_vector(arrays, layout))

                return strategy.start(grid, first, count, evaluate_fn=measured), grid


@contextmanager
def _hosting(stations: list[Station]) -> Iterator[None]:
    """Hosts on this process's loop."""

    async def begin() -> list[tuple[Host, Any, asyncio.Task[None]]]:
        found = []
        for station in stations:
            host = Host(station.member, Store(station.folder), {}, station.options)
            server, _ = await listen(host, station.member.roster.address(host.name))
            found.append((host, server, asyncio.create_task(host.run())))
        return found

    async def end(found: list[tuple[Host, Any, asyncio.Task[None]]]) -> None:
        for host, server, task in found:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await host.close()
            await server.stop(0.1)
            host.store.close()

    running = wait_for(begin())
    try:
        yield
    finally:
        wait_for(end(running))
