"""Both servers of a timed RAIN round, each in a process of its own, joined by a socket.

Two machines wait for each other, and each has memory of its own: one process could show neither the seconds nor the
memory of that. `bench/speed/rain_round` (`croupier bench rain`) calls `server_rounds` and says what they are measured
beside.
"""

from __future__ import annotations

import multiprocessing
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import Envelope
from croupier.core.flow import Exchange, Flow, Given, Received, SubFlow
from croupier.core.wire import Schema
from croupier.encode.encoder import Released
from croupier.errors import ProtocolError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.deal_shares import Stored
from croupier.mpc.dealer import ShuffleShare
from croupier.place.two_servers.messages import SERVERS
from croupier.place.two_servers.server_flow import ServerFlow
from croupier_lab.bench.speed.process import resident
from croupier_lab.bench.speed.rain_inputs import (
    RUN,
    RainRoundSize,
    RoundInputs,
    client_uploads,
    laid,
    wrapped,
)


def server_rounds(size: RainRoundSize, seed: int) -> list[dict[str, Any]]:
    """Both servers' rounds, each server in a fresh process, so that memory that this one has used is not counted."""
    context = multiprocessing.get_context("spawn")
    ends, gate = socket.socketpair(), context.Barrier(2)
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for me in (0, 1):
            here, there = context.Pipe()
            args = (me, size.plain(), seed, ends[me], gate, there, str(Path(folder) / "material"))
            job = context.Process(target=_server, args=args, daemon=True)
            job.start()
            # Only the server holds this end now: should it die, the other end says so.
            there.close()
            jobs.append((job, here))
        try:
            told = [canon.load(here.recv_bytes()) for _, here in jobs]
        except EOFError:
            raise ProtocolError("a server's process died; is there memory enough?") from None
        finally:
            for job, here in jobs:
                here.close()
                job.join(1)
                job.kill()
    for end in ends:
        end.close()
    for one in told:
        if "error" in one:
            raise ProtocolError(str(one["error"]))
    return [_together(one, two) for one, two in zip(told[0]["rounds"], told[1]["rounds"], strict=True)]


def _together(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    if not torch.equal(one["sums"], two["sums"]):
        raise ProtocolError("the two servers gave different sums")
    return {
        "online_s": max(one["stop"], two["stop"]) - min(one["start"], two["start"]),
        "offline_s": one["offline_s"] + two["offline_s"], "rounds": one["turns"],
        "server_bytes": [one["bytes"], two["bytes"]], "dealt_bytes": two["dealt"],
        "peak_bytes": max(one["peak"], two["peak"]),
        "peak_growth_bytes": max(one["peak"] - one["base"], two["peak"] - two["base"]), "sums": one["sums"],
    }  # fmt: skip


def _server(
    me: int, plain: Mapping[str, Any], seed: int, end: socket.socket, gate: Any, out: Connection, file: str
) -> None:
    torch.set_num_threads(1)
    size, found = RainRoundSize.parse(plain), []
    try:
        _warm()
        base = resident("VmHWM")
        for number in range(size.repeats):
            table = laid(size, Coins.from_seed(seed), number)
            found.append(_played(me, table, end, gate, Path(file)) | {"base": base})
        out.send_bytes(canon.dump({"rounds": tuple(found)}))
    except Exception as error:
        gate.abort()
        out.send_bytes(canon.dump({"error": repr(error)}))


def _played(me: int, table: RoundInputs, end: socket.socket, gate: Any, file: Path) -> dict[str, Any]:
    ups, _, _ = client_uploads(table)
    started = time.perf_counter()
    material, dealt = _material(me, table, file)
    offline = time.perf_counter() - started
    given = Given(SERVERS[me], RUN, 0, 0, table.given.roster, 2, table.given.layout)
    keys = table.keys.get(SERVERS[me], {})
    player = ServerFlow(given, table.deal, table.release, keys, Coins.from_os(), 2, material=material)
    line = _Line(end, table.schemas, ups, SERVERS[me], SERVERS[1 - me])
    gate.wait()
    begun = time.perf_counter()
    released = line.drive(player.play(dict(table.late) if me == 0 else None))
    stop = time.perf_counter()
    return {
        "start": begun, "stop": stop, "offline_s": offline, "turns": line.turns, "bytes": line.sent, "dealt": dealt,
        "peak": resident("VmHWM"), "sums": released.sums,
    }  # fmt: skip


def _warm() -> None:
    """Compiled loops are loaded before the clock starts."""
    bits = np.zeros((2, 128), np.uint8)
    for dtype in (np.uint32, np.uint64):
        numbers = np.zeros((2, 1024), dtype)
        kernel.row_sums(numbers, bits, np.zeros(2, dtype))
        kernel.column_sums(numbers, bits, np.ones(2, np.int64))
    kernel.products(np.zeros(1024, np.uint64), np.zeros(1024, np.uint64))
    kernel.carryless(np.zeros((1, 2), np.uint64), np.zeros((1, 2), np.uint64))


def _material(me: int, table: RoundInputs, file: Path) -> tuple[ShuffleShare, int]:
    deal, coins = table.deal, table.coins
    seeds = [coins.child("hand", side).export() for side in (0, 1)]
    streamed = file if table.size.streamed else None
    told = dealer.rest(deal, coins, streamed) if me == 1 else {}
    material = dealer.share_of_seed(seeds[me], me, deal, bytes(32), dealer.bound_of(seeds[1 - me], 1 - me), told)
    if me == 0 and not table.size.streamed:
        material.shares = Stored.of(deal, material.shares)
    sized = sum(array.nbytes for array in told.values() if isinstance(array, np.ndarray))
    return material, sized + (file.stat().st_size if streamed and me == 1 else 0)


class _Line:
    """A server's end of the line to the other: packed messages over a socket, sent by a thread of their own."""

    def __init__(
        self, end: socket.socket, schemas: Mapping[str, Schema], ups: list[Received], name: str, peer: str
    ) -> None:
        self.end, self.schemas, self.ups, self.name, self.peer = end, schemas, ups, name, peer
        self.turns, self.sent = 0, 0
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def drive(self, flow: SubFlow | Flow) -> Released:
        """Run a flow to its end."""
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        answer: Any = None
        try:
            while True:
                ask = flow.send(answer)
                if not isinstance(ask, Exchange):
                    raise ProtocolError("a server asks for nothing but letters")
                answer = self._exchanged(ask)
        except StopIteration as stop:
            released: Released = stop.value
            return released
        finally:
            self._out.put(None)
            sender.join()

    def _exchanged(self, ask: Exchange) -> tuple[Received, ...]:
        for letter in ask.send:
            data = wrapped(self.schemas, self.name, letter)
            if letter.target == self.peer:
                self.sent += len(data)
                self._out.put(data)
        if ask.wait is None:
            return ()
        # Clients' letters were made before the clock started.
        if ask.wait.kind == "up":
            return tuple(self.ups)
        self.turns += 1
        return (self._read(ask.wait.kind),)

    def _send(self) -> None:
        while (data := self._out.get()) is not None:
            self.end.sendall(len(data).to_bytes(8, "little") + data)

    def _read(self, kind: str) -> Received:
        data = self._bytes(int.from_bytes(self._bytes(8), "little"))
        envelope = Envelope.unpack(bytes(data))
        if envelope.header.kind != kind:
            raise ProtocolError(f"{envelope.header.kind!r} came instead of {kind!r}")
        return Received(self.peer, kind, self.schemas[kind].unpack(envelope.joined))

    def _bytes(self, count: int) -> bytearray:
        room = bytearray(count)
        view = memoryview(room)
        while len(view):
            read = self.end.recv_into(view)
            if not read:
                raise ProtocolError("the other server hung up")
            view = view[read:]
        return room
