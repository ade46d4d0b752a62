"""The next version of a roster holds from its round on, without a restart: some leave, some join, some renew."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import LAYOUT, task

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES
from croupier.engine.federation import Federation
from croupier.engine.loop import begin
from croupier.engine.work import RoundWork
from croupier.errors import IntegrityError, ProtocolError, RosterError, StoreError
from croupier.service.accepted import Accepted
from croupier.service.client import Client
from croupier.service.doorway import Call
from croupier.service.home import Home, next_stem, save_keys
from croupier.service.host import Host
from croupier.service.identity import make_keys, renew_keys
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.recall import check_recall
from croupier.service.roster import Roster, Timetable
from croupier.service.start import run_party
from croupier.service.store import Opened, Store, StoredLetter
from croupier.service.transport import listen
from croupier.service.versions import Shapes, make_roster, next_roster
from croupier.spec import Spec

NOW = dt.datetime.now(dt.UTC)
TIMES = Timetable(phase=3.0, round=20.0, hold=1.0)
PIPELINE = PIPELINES["sum servers"]
HOSTS = tuple(PIPELINE.parties(()))
FIRST, SECOND = ("ann", "bob", "cleo"), ("bob", "cleo", "dora")


def ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass
class Town:
    """Homes of everybody, the first roster, and the second that some of them accept later."""

    folder: Path
    renewed: tuple[str, ...] = ("sum1",)
    at: dict[str, str] = field(default_factory=dict)
    times: Timetable = TIMES

    def __post_init__(self) -> None:
        self.at = {name: f"127.0.0.1:{port}" for name, port in zip(HOSTS, ports(len(HOSTS)), strict=True)}
        self.homes = {name: self._home(name) for name in (*HOSTS, *FIRST, "dora")}
        cards = [self._card(name) for name in (*HOSTS, *FIRST)]
        spec = Spec(protocol=PIPELINE, federation=Federation(rounds=4))
        self.first = make_roster(cards, spec, Coins.from_os(), 2, self.times, Shapes(LAYOUT))
        for name in (*HOSTS, *FIRST):
            self.pin(name, self.first)

    def _home(self, name: str) -> Home:
        keys = make_keys(name, Coins.from_os(), NOW)
        secret, _ = save_keys(self.folder / name, keys, keys.card(self.at.get(name, ""), NOW.date()), name)
        return Home.open(secret)

    def _card(self, name: str) -> Any:
        return self.homes[name].keys.card(self.at.get(name, ""), NOW.date())

    def pin(self, name: str, roster: Roster) -> None:
        """Accept a roster, and have its secret."""
        home = self.homes[name]
        home.pin(roster, NOW.date())
        if name in roster.clients:
            home.keep_group(roster, bytes([roster.version]) * 32)

    def turn(self, from_round: int = 3) -> None:
        """Ann leaves, Dora joins, some renew their certificates; all who stay accept that while they run."""
        for name in self.renewed:
            keys = renew_keys(self.homes[name].keys, Coins.from_os(), NOW)
            card = keys.card(self.at.get(name, ""), NOW.date())
            secret, _ = save_keys(self.homes[name].folder, keys, card, next_stem(self.homes[name].folder, name))
            self.homes[name] = Home.open(secret)
        cards = [self._card(name) for name in (*self.renewed, "dora")]
        self.second = next_roster(self.first, from_round, cards, ["ann"])
        for name in (*HOSTS, *SECOND):
            self.pin(name, self.second)

    def party(self, name: str, events: list[dict[str, Any]], on_round: Any = lambda line: None) -> PartyProcess:
        """One party, as it was when it started: with the first key file."""
        accepted = Accepted(Home.open(self.folder / name / f"{name}.key"), self.first.run)
        told = lambda event, **facts: events.append({"party": name, "event": event, **facts})  # noqa: E731
        toy = task((*FIRST, "dora"))
        options = Options(tell=told, versions=accepted, shard=toy.shards.get(name, ""))
        store, work = Store(self.folder / name / "store"), RoundWork(PIPELINE, toy).by_name()
        member = accepted.first()
        if name != SERVER:
            return (Client if member.is_client else Host)(member, store, work, options)
        first = begin(toy, PIPELINE).memories[SERVER]
        return Lead(
            member, store, work, replace(options, first_memory=first),
            Measures(toy.evaluate, Coins.from_os(), on_round),
        )  # fmt: skip


def shown(address: str) -> bytes:
    """The certificate that a host serves at this moment."""
    host, port = address.split(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


@pytest.mark.parametrize("renewed", [("sum1",), (SERVER, "bob")], ids=["a host", "the server and a client"])
def test_one_leaves_one_joins_and_some_renew(renewed: tuple[str, ...], tmp_path: Path) -> None:
    town, events, served = Town(tmp_path, renewed), list[dict[str, Any]](), dict[int, bytes]()
    rounds: list[Mapping[str, Any]] = []
    host = next(name for name in renewed if name in HOSTS)

    def after(line: Mapping[str, Any]) -> None:
        rounds.append(line)
        served[line["round"]] = shown(town.at[host])
        if line["round"] == 1:
            town.turn()
            late.append(asyncio.run_coroutine_threadsafe(start("dora"), loop[0]))

    async def start(name: str) -> None:
        await run_party(town.party(name, events, after))

    late: list[Future[None]] = []
    loop: list[asyncio.AbstractEventLoop] = []

    async def main() -> dict[str, Any]:
        loop.append(asyncio.get_running_loop())
        parties = {name: asyncio.create_task(start(name)) for name in (*HOSTS, *FIRST)}
        async with asyncio.timeout(60):
            await parties[SERVER]
            # Nobody tells who has left that all is over: she would ask until she gives up.
            parties.pop("ann").cancel()
            done = await asyncio.gather(
                *parties.values(), *map(asyncio.wrap_future, late), return_exceptions=True
            )  # fmt: skip
        return dict(zip((*parties, "dora"), done, strict=True))

    ended = asyncio.run(main())
    assert [(line["present"], line["invited"]) for line in rounds] == [(3, 3)] * 4
    played = {
        name: [one["round"] for one in events if (one["party"], one["event"]) == (name, "closed") and one["well"]]
        for name in ("ann", "bob", "dora", "sum1", "sum2")
    }
    assert played["bob"] == played["sum1"] == played["sum2"] == [1, 2, 3, 4]
    assert played["dora"] == [3, 4]
    assert set(played["ann"]) <= {1, 2}
    assert set(ended.values()) == {None}
    assert any(one["party"] == SERVER and one["event"] == "refused" and one["source"] == "ann" for one in events)
    old, new = (one.card(host).certificate_der for one in (town.first, town.second))
    assert (served[1], served[4]) == (old, new)


@pytest.mark.parametrize("renewed", [("sum1",), ("bob",), ("sum1", "sum2", SERVER, "bob")], ids=" and ".join)
def test_a_client_that_starts_again_after_a_rotation_is_answered(renewed: tuple[str, ...], tmp_path: Path) -> None:
    town, events = Town(tmp_path, renewed), list[dict[str, Any]]()
    town.turn()

    async def main() -> None:
        hosts = [town.party(name, events) for name in HOSTS]
        servers = [(await listen(host, town.at[host.name], host.hands))[0] for host in hosts]
        for host in hosts:
            host.turn_to(host.versions.at(3))
        bob = town.party("bob", events)
        assert bob.member.roster == town.first, "it starts in the first version"
        try:
            async with asyncio.timeout(20):
                await check_recall(bob.calls, bob.store, HOSTS, 2.0)
                # What one of them has of bob's is found out through the renewed certificate, too.
                _came(hosts[-1].store, "bob")
                with pytest.raises(IntegrityError, match="has a letter 'up' of bob that its store does not know"):
                    await check_recall(bob.calls, bob.store, HOSTS, 2.0)
        finally:
            for party in (bob, *hosts):
                await party.close()
                party.store.close()
            for server in servers:
                await server.stop(0.1)

    asyncio.run(main())


def _came(store: Store, source: str) -> None:
    """A letter of a party's came in an attempt."""
    key = b"k" * 32
    store.open(Opened(key, 0, "round", bytes(16), 0, 0, b"", b"C" * 32, b"", 0.0))
    store.keep(key, StoredLetter(source, "up", b"h" * HEADER_BYTES, b"")).result()


def test_who_waits_for_a_host_says_so(tmp_path: Path) -> None:
    town, told = Town(tmp_path), list[str]()
    bob = town.party("bob", [])

    def tell(event: str, **facts: Any) -> None:
        told.append(f"{event} {facts['source']}")

    async def main() -> None:
        asking = asyncio.create_task(check_recall(bob.calls, bob.store, ("sum1",), 1.0, tell))
        async with asyncio.timeout(30):
            while not told:
                await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await bob.calls.close()

    asyncio.run(main())
    assert told == ["waiting sum1"]
    bob.store.close()


def test_a_certificate_counts_in_its_versions_only(tmp_path: Path) -> None:
    town = Town(tmp_path, ("bob",))
    server = town.party(SERVER, [])
    old, gone = (town.first.card(name).certificate_der for name in ("bob", "ann"))
    town.turn()
    new, joins = (town.second.card(name).certificate_der for name in ("bob", "dora"))
    calls: tuple[Call, ...] = ("put", "take", "open", "end", "known")

    def known(certificate: bytes) -> list[str | None]:
        return [server.caller(certificate, call) for call in calls]

    assert known(old) == ["bob"] * 5
    # Notices and one's own letters may be asked for ahead of time; letters may not be sent.
    assert known(new) == [None, None, "bob", None, "bob"]
    assert known(joins) == [None, None, "dora", None, "dora"]
    server.turn_to(server.versions.at(3))
    assert known(new) == ["bob"] * 5
    assert known(joins) == ["dora"] * 5
    # The rest of the round before, and no more; who left gets nothing but the name under which it is turned away.
    assert known(old) == [None, "bob", "bob", None, "bob"]
    assert known(gone) == [None, None, "ann", None, "ann"]
    assert "ann" not in server.member.roster.clients
    assert known(b"a stranger's") == [None] * 5
    server.store.close()


def test_who_left_is_refused_and_who_comes_waits(tmp_path: Path) -> None:
    town, events = Town(tmp_path, ()), list[dict[str, Any]]()
    server = town.party(SERVER, events)
    town.turn()

    async def ask(name: str) -> bytes:
        return await server.opened(name, canon.dump({"after": -1}))

    assert asyncio.run(ask("dora")) == b""
    server.turn_to(server.versions.at(3))
    assert asyncio.run(ask("ann")) == b"refused"
    assert events[-1]["event"] == "refused"
    for odd in ({"after": -1, "more": 1}, {"after": float("inf")}, {"word": b""}, bytes(1 << 20)):
        assert asyncio.run(server.opened("bob", canon.dump(odd))) == b"refused", "read as it should be, or not at all"
    server.store.close()


def test_a_client_that_is_refused_for_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(tmp_path, ())
    client = town.party("ann", [])

    async def refused(*_: Any) -> bytes:
        return b"refused"

    monkeypatch.setattr(client.calls, "open", refused)
    with pytest.raises(ProtocolError, match="the server does not know the certificate of ann"):
        asyncio.run(client.run())
    client.store.close()


def test_a_party_finds_the_keys_of_each_version(tmp_path: Path) -> None:
    town = Town(tmp_path)
    accepted = Accepted(Home.open(tmp_path / "sum1" / "sum1.key"), town.first.run)
    assert accepted.at(1) == accepted.at(9)
    town.turn()
    assert (accepted.at(2).roster, accepted.at(3).roster) == (town.first, town.second)
    assert accepted.at(3).keyring.tls_cert_pem == town.homes["sum1"].keys.tls_cert_pem
    (tmp_path / "sum1" / "sum1.key").unlink()
    later = Accepted(Home.open(tmp_path / "sum1" / "sum1.2.key"), town.first.run)
    assert later.first().roster == town.second
    with pytest.raises(RosterError, match=r"no key file in .* belongs to the card in version 1"):
        later.at(1)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    town = Town(tmp_path)
    run = town.first.run
    with pytest.raises(RosterError, match="dora has accepted no roster"):
        Accepted(town.homes["dora"], run).first()
    (tmp_path / "ann" / "ann.runs" / run.hex() / "1.group").unlink()
    with pytest.raises(StoreError, match="ann has no group secret under version 1"):
        Accepted(town.homes["ann"], run).first()
    town.turn()
    with pytest.raises(RosterError, match="round 2: dora has accepted no roster for it"):
        Accepted(town.homes["dora"], run).at(2)
