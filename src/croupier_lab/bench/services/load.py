"""How fast real hosts take many clients' letters (`croupier bench serve`): three sum servers, each a process, over TLS.

Every client has a connection of its own to each host, with its own certificate, and sends what a client of that many
parameters does: a share as long as the update to one host and seeds to the others. Shares are drawn, because any share
is uniform. Measured are the seconds until every letter is durable at its host and until the hosts have added them up,
the memory of each host, and bytes a second beside a bare copy of as many bytes over loopback.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pydantic import Field

from croupier.aggregate.mean import Scaled
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.encode.fixed import FixedPoint
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import CroupierError
from croupier.pipeline import Pipeline
from croupier.place.servers import SumServers
from croupier.release.sums import Sum
from croupier.service.doorway import Call, Tls
from croupier.service.host import Host
from croupier.service.member import SERVER, Member
from croupier.service.notice import END, ROUND, Notice
from croupier.service.options import Options
from croupier.service.rehearsal import make_members
from croupier.service.roster import Timetable
from croupier.service.start import run_here
from croupier.service.store import Store
from croupier.service.transport import CLOSED, ENDED, LATER, OK, REFUSED, Calls, listen
from croupier.spec import Spec
from croupier_lab.bench.services.toy import toy_task
from croupier_lab.bench.size import BenchSize, Watch, ignore

TIMES = Timetable(phase=900.0, round=1800.0, hold=5.0)
# So many clients send at a time, and the others wait: an assumption on how many come to a host at once.
TOGETHER = 24
# To whom, the header with the attempt's key, and the body.
Letters = list[tuple[str, bytes, bytes]]
GOAL_BYTES, GOAL_SECONDS = 2_000_000_000, 20.0  # a host's memory; until all letters of the crowd are durable


class LoadSize(BenchSize):
    """Two federations: few clients with large updates, and many with small ones."""

    clients: int = Field(100, ge=6, description="Clients with large updates.")
    params: int = Field(1_000_000, ge=10, description="Parameters of a large update.")
    crowd: int = Field(1000, ge=6, description="Clients with small updates.")
    crowd_params: int = Field(100_000, ge=10, description="Parameters of a small update.")


@dataclass
class Sink:
    """The server, as far as sum servers need one: it takes their sums."""

    member: Member
    sums: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def tls(self) -> Tls:
        """The server's certificate, and everybody's of the roster."""
        keys, trusted = self.member.keyring, "".join(card.certificate for card in self.member.roster.cards)
        return Tls(keys.tls_key_pem, keys.tls_cert_pem, trusted.encode())

    def caller(self, certificate: bytes, call: Call) -> str | None:
        """Whose certificate it is."""
        return self.member.roster.party_of(certificate)

    def failed(self, caller: str | None, error: Exception) -> bytes:
        raise error

    def asked_to_wait(self, caller: str | None) -> bytes:
        return LATER

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        """Take a sum."""
        head = await anext(pieces, b"")
        async for _ in pieces:
            continue
        if Header.unpack(head[:HEADER_BYTES]).kind != "sum":
            return REFUSED
        self.sums += 1
        if self.sums == len(self.member.roster.hosts) - 1:
            self.done.set()
        return OK

    async def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        """No letters lie here: whoever fetches hears that the attempt is over."""
        yield ENDED

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """Nobody asks."""
        return REFUSED

    async def ended(self, caller: str | None, request: bytes) -> bytes:
        """A sum server ended."""
        return OK

    async def known(self, caller: str | None) -> bytes:
        """Nobody asks."""
        return LATER


@dataclass(frozen=True)
class Submissions:
    """What the clients of one federation send."""

    members: dict[str, Member]
    notice: Notice

    def letters(self, name: str) -> Letters:
        """A client's letters: to whom, the header with the attempt's key, and the body."""
        member, roster = self.members[name], self.notice.cohort
        schemas = member.pipeline.schemas(member.given(self.notice, "", 0))
        hosts = [host for host in member.roster.hosts if host != SERVER]
        holder, made = roster.index(name) % len(hosts), []
        for at, host in enumerate(hosts):
            kind = "share" if at == holder else "seed"
            body = bytearray(os.urandom(schemas[kind].most_bytes))
            if kind == "share":
                # A tag below the field's prime, and no bit after the last number.
                body[-8:] = (int.from_bytes(os.urandom(7), "little")).to_bytes(8, "little")
                body[-9] = 0
            ours = self.notice.attempt_id(member.pipeline.digest())
            head = Header(ours.header_spec, ours.run, 0, 0, kind, name, host, 0, len(body)).pack()
            made.append((host, head + self.notice.key, bytes(body)))
        return made


def federation(clients: int, params: int) -> Submissions:
    """Everybody's keys and one roster."""
    names = tuple(f"c{number:05}" for number in range(clients))
    pipeline = Pipeline(encode=FixedPoint(clients=clients), release=Sum(), aggregate=Scaled(), place=SumServers())
    spec = Spec(protocol=pipeline, federation=Federation(rounds=1))
    members = make_members(spec, toy_task(names, params), Coins.from_os(), TIMES, seeded=False)
    roster = members[SERVER].roster
    return Submissions(members, Notice(0, ROUND, roster.digest, roster.run, 0, 0, roster.clients))


def _start_host(member: Member, folder: Path) -> tuple[int, int]:
    """A host in a process of its own: its id, and a pipe that tells at its end its peak memory and what it refused."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    code = 1
    try:
        os.close(reader)
        host = Host(member, Store(folder / member.name), {}, Options())
        run_here(host)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(writer, json.dumps({"peak": peak, "refused": host.counts["refused"]}).encode())
        code = 0
    finally:
        os._exit(code)


async def _submit(batch: Submissions, name: str, letters: Letters, gate: asyncio.Semaphore) -> int:
    """Send a client's letters, all at once, as a client does, until each is durable; how many bytes they had."""
    async with gate:
        calls = Calls(batch.members[name])

        async def put(host: str, head: bytes, body: bytes) -> int:
            while (said := await calls.put(host, head, body, 120.0)) == LATER:
                await asyncio.sleep(0.05)
            if said in (REFUSED, CLOSED):
                raise CroupierError(f"{host} did not take a letter of {name}: {said.decode()}")
            return len(head) + len(body)

        try:
            return sum(await asyncio.gather(*(put(*letter) for letter in letters)))
        finally:
            await calls.close()


async def _play(batch: Submissions) -> dict[str, float]:
    """Open a round at the hosts, send everybody's letters, wait for the sums, and end it."""
    own = batch.members[SERVER]
    sink, gate = Sink(own), asyncio.Semaphore(TOGETHER)
    server, _ = await listen(sink, own.roster.address(SERVER))
    calls = Calls(own)
    hosts = [host for host in own.roster.hosts if host != SERVER]

    async def push(notice: Notice) -> None:
        signed = notice.sign(own.keyring.identity)
        for host in hosts:
            while await calls.open(host, signed, 10.0) != OK:
                await asyncio.sleep(0.05)

    try:
        await push(batch.notice)
        # Clients make their letters each on its own machine, before they submit.
        letters = {name: batch.letters(name) for name in batch.notice.cohort}
        start = time.perf_counter()
        sent = sum(await asyncio.gather(*(_submit(batch, name, mine, gate) for name, mine in letters.items())))
        submitted = time.perf_counter() - start
        await asyncio.wait_for(sink.done.wait(), 600.0)
        added = time.perf_counter() - start
        await push(Notice(1, END, own.roster.digest, own.roster.run, 1, 0, ()))
    finally:
        await calls.close()
        await server.stop(0.2)
    return {"submit_s": submitted, "added_s": added, "bytes": sent}


def _copied(count: int) -> float:
    """Seconds that as many bytes take over loopback, from one process to another that drops them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pid = os.fork()
        if not pid:
            with socket.create_connection(listening.getsockname()) as sender:
                piece = memoryview(os.urandom(1 << 20))
                left = count
                while left > 0:
                    sender.sendall(piece[: min(left, len(piece))])
                    left -= len(piece)
            os._exit(0)
        room = bytearray(1 << 20)
        taken, _ = listening.accept()
        with taken:
            start = time.perf_counter()
            while taken.recv_into(room):
                pass
            seconds = time.perf_counter() - start
        os.waitpid(pid, 0)
    return seconds


def load(clients: int, params: int) -> dict[str, Any]:
    """One federation; to be called in a process that has never used the transport, because it forks."""
    batch = federation(clients, params)
    # What is compiled or loaded when it is first needed is loaded before the hosts part from this process.
    coins, plan = Coins.from_os(), Federation(rounds=1)
    next(rounds(batch.members[SERVER].pipeline, toy_task(), plan, coins, Local(coins.child("links"))))
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        hosts = {
            name: _start_host(member, Path(folder))
            for name, member in batch.members.items()
            if not member.is_client and name != SERVER
        }
        gc.freeze()  # as every party does that is a process of its own
        found: dict[str, Any] = asyncio.run(_play(batch))
        said = {}
        for name, (pid, reader) in hosts.items():
            with os.fdopen(reader, "rb") as pipe:
                said[name] = json.loads(pipe.read())
            os.waitpid(pid, 0)
    copy = _copied(int(found["bytes"]))
    rate = found["bytes"] / found["submit_s"]
    return {
        "clients": clients, "params": params, **found, "bytes_per_s": rate, "copy_s": copy,
        "copy_bytes_per_s": found["bytes"] / copy, "share_of_copy": copy / found["submit_s"],
        "host_peak_bytes": max(one["peak"] for one in said.values()),
        "refused": sum(one["refused"] for one in said.values()),
    }  # fmt: skip


def measure(size: LoadSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Both federations, each from a fresh process. `seed` changes nothing: keys and bodies are the system's drawing."""
    found = {}
    for name, clients, params in (
        ("large", size.clients, size.params), ("crowd", size.crowd, size.crowd_params),
    ):  # fmt: skip
        watch(f"{clients} clients of {params} parameters")
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            found[name] = fresh.submit(load, clients, params).result()
    return found


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people; "copy" is in MB/s, as the column before it."""
    print(
        f"{'':<7}{'clients':>8}{'params':>9}{'MB':>7}{'submit':>9}{'added':>9}{'MB/s':>7}{'copy':>7}{'host peak':>11}"
    )
    for name, row in found.items():
        print(
            f"{name:<7}{row['clients']:>8}{row['params']:>9}{row['bytes'] / 1e6:>7.0f}{row['submit_s']:>7.1f} s"
            f"{row['added_s']:>7.1f} s{row['bytes_per_s'] / 1e6:>7.0f}{row['copy_bytes_per_s'] / 1e6:>7.0f}"
            f"{row['host_peak_bytes'] / 1e6:>8.0f} MB"
        )
    print(f"goals: {GOAL_BYTES / 1e9:.0f} GB a host; the crowd within {GOAL_SECONDS:.0f} s")
