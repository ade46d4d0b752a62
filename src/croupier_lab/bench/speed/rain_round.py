"""One RAIN round on two servers, each a process of its own, from the clients' hidden rows to the opened sum.

The dealer's material lies ready in memory (or in a file, `streamed`): what is timed is everything from the moment both
servers hold the clients' messages until both have the sum, with every message packed, sent and checked.
"""

from __future__ import annotations

import multiprocessing
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import Envelope, Header
from croupier.core.flow import Exchange, Flow, Given, Letter, Received, SubFlow
from croupier.core.update import Layout, Slice
from croupier.core.wire import Schema
from croupier.encode.encoder import Payload, Released
from croupier.encode.signs import NONCE, Signs, commitment, handed
from croupier.errors import ProtocolError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.deal_shares import DealSpec, Stored
from croupier.mpc.dealer import ShuffleShare
from croupier.place.two_servers import messages
from croupier.place.two_servers.messages import SERVERS
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.server_flow import ServerFlow
from croupier.release.scored import ScoredSum
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.rns_encoding import resident

Mode = Literal["semi-honest", "malicious"]
RUN = bytes(16)
# Numbers that a plain mean is timed on at most; more are reckoned from them.
_MEANT = 1 << 27
# The most that is swept over with each mode, as clients times parameters.
LARGEST: dict[Mode, int] = {"semi-honest": 10**9, "malicious": 10**8}
SMALLEST = 10**5


class RainRoundSize(BenchSize):
    """How much is shuffled: clients, parameters, who may cheat, and whether material is read from a file."""

    clients: int = Field(100, ge=3, description="Clients, and so rows of signs.")
    params: int = Field(100_000, ge=16, description="Parameters, and so signs of a row.")
    mode: Mode = Field("malicious", description="Whether a server may cheat.")
    streamed: bool = Field(False, description="Read dealt material from a file, or a seed.")
    repeats: int = Field(3, ge=1, description="Timed rounds; the best counts.")


class RainRoundSweep(BenchSize):
    """Whether other sizes are measured too, and up to which."""

    sweep: bool = Field(False, description="Also sizes ten times apart, in both modes.")
    largest: int = Field(1_000_000_000, description="Most signs of the sweep, clients times parameters.")


SWEEP = RainRoundSweep


@dataclass(frozen=True)
class RoundInputs:
    """What a round is about: rows of signs, the reference, and everybody's keys."""

    size: RainRoundSize
    given: Given
    deal: DealSpec
    release: ScoredSum
    rows: kernel.Bytes
    late: Mapping[str, Tensor]
    keys: Mapping[str, Mapping[str, Any]]
    coins: Coins

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """Every message."""
        return messages.schemas(self.deal, self.given)


def laid(size: RainRoundSize, coins: Coins, number: int) -> RoundInputs:
    """Made-up rows around a made-up reference."""
    names = tuple(f"c{number:04d}" for number in range(size.clients))
    layout = Layout((Slice("w", (size.params,)),))
    given = Given("server", RUN, 0, 0, names, 2, layout)
    place = Pair(malicious=size.mode == "malicious")
    deal = place.deal(given)
    chance = coins.child("rows").secure()

    def drawn() -> kernel.Bytes:
        found = np.frombuffer(chance.bytes(deal.width), np.uint8)
        if deal.spare:
            found[-1] &= 0xFF >> deal.spare
        return found

    reference = drawn()
    # A bit differs from the reference's where one coin shows heads and one of two others does: 3 of 8.
    rows = np.stack([reference ^ (drawn() & (drawn() | drawn())) for _ in names])
    nonce = torch.zeros(NONCE, dtype=torch.uint8)
    late = {"reference": _unpacked(reference, size.params), "nonce": nonce}
    late["commitment"] = commitment(late["reference"], nonce)
    late["handed"] = handed(torch.zeros(size.params), late["commitment"])
    keys = place.enrol(names, coins.child("keys"))
    return RoundInputs(size, given, deal, ScoredSum(), rows, late, keys, coins.child("deal", number))


def _unpacked(row: kernel.Bytes, count: int) -> Tensor:
    return torch.from_numpy(np.unpackbits(row, count=count, bitorder="little"))


def measure(size: RainRoundSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """The best of some rounds, beside the same rule in the clear and the bare mean of as many numbers."""
    coins = Coins.from_seed(seed)
    table = laid(size, coins, 0)
    _, client_s, client_bytes = _clients(table)
    started = time.perf_counter()
    rows = [_unpacked(row, size.params) for row in table.rows]
    unpack_s = time.perf_counter() - started
    want = table.release.against(rows, table.late["reference"], coins.child("clear"))
    clear_s = time.perf_counter() - started - unpack_s
    del rows
    if not int(want["total"]):
        raise ProtocolError(f"params = {size.params}: too few rows were accepted to open a sum; take more, 1000 say")
    watch(f"{size.repeats} rounds of two servers")
    found = _rounds(size, seed)
    for one in found:
        if not torch.equal(one.pop("sums"), want["sums"]):
            raise ProtocolError("two servers gave another sum than the rule in the clear")
    best = min(found, key=lambda one: float(one["online_s"]))
    return {
        **size.plain(), "clear_s": clear_s, "mean_s": _mean(size), "client_bytes": client_bytes, "client_s": client_s,
        **best, "offline_s": min(float(one["offline_s"]) for one in found), "equal_to_clear": True,
    }  # fmt: skip


def sweep(size: RainRoundSize, seed: int, watch: Watch = ignore, *, largest: int) -> list[dict[str, Any]]:
    """The same round at sizes ten times apart, in both modes, material made ahead and read from a file."""
    points = []
    for mode, most in LARGEST.items():
        totals = [SMALLEST * 10**k for k in range(9) if SMALLEST * 10**k <= min(most, largest)]
        for total in totals:
            watch(f"{mode}, {total} signs")
            own = {"params": max(16, total // size.clients), "mode": mode, "streamed": True, "repeats": 1}
            found = measure(size.model_copy(update=own), seed)
            kept = ("online_s", "offline_s", "clear_s", "dealt_bytes", "server_bytes", "peak_growth_bytes")
            points.append(
                {"release": mode, "params": total, "seconds": found["online_s"], **{k: found[k] for k in kept}}
            )
    return points


def show(found: Mapping[str, Any]) -> None:
    """The same numbers for people."""
    print(f"{found['clients']} clients, {found['params']} parameters, {found['mode']}: best of {found['repeats']}")
    print(f"a client        {found['client_s']:9.4f} s {found['client_bytes']:>13,} bytes up, to both servers")
    print(
        f"two servers     {found['online_s']:9.4f} s {sum(found['server_bytes']):>13,} bytes, {found['rounds']} turns"
    )
    print(f"dealt before    {found['offline_s']:9.4f} s {found['dealt_bytes']:>13,} bytes")
    print(f"in the clear    {found['clear_s']:9.4f} s   the same rule on rows that one server reads")
    print(f"a plain mean    {found['mean_s']:9.4f} s   of as many 32-bit floats")
    print(f"peak            {found['peak_bytes'] / 1e6:9.0f} MB in a server's process")


def draw_sweep(points: Sequence[Mapping[str, Any]]) -> str:
    """Seconds and memory against size, as a picture."""
    # Not at the top: what is measured here does not draw, and its memory is counted.
    from croupier_lab.drawing import lines

    return lines.sweep(points, "a RAIN round", "signs, clients times parameters")


def show_sweep(points: Sequence[Mapping[str, Any]]) -> None:
    """A line a point."""
    for point in points:
        said = f"{point['release']:<12} {point['params']:>13,} signs {point['seconds']:9.3f} s"
        print(f"{said} {point['dealt_bytes']:>14,} bytes dealt {point['peak_growth_bytes'] / 1e6:8.0f} MB")


def _mean(size: RainRoundSize) -> float:
    """The time of a plain mean of as many 32-bit floats."""
    rows = torch.ones(max(1, min(size.clients, _MEANT // size.params)), size.params)
    rows.mean(0)  # once for the library's threads
    started = time.perf_counter()
    rows.mean(0)
    return (time.perf_counter() - started) * size.clients / len(rows)


def _clients(table: RoundInputs) -> tuple[list[Received], float, int]:
    """What every client sends a server, the time of one client, and its bytes to both."""
    size = table.size
    place = Pair(malicious=size.mode == "malicious")
    seeds, spent, ups, total = dealer.seeds(table.deal, table.coins), [], [], 0
    for name, seed, row in zip(table.given.roster, seeds, table.rows, strict=True):
        given = Given(name, RUN, 0, 0, table.given.roster, 2, table.given.layout)
        vector = _unpacked(row, size.params)
        started = time.perf_counter()
        keys, own = table.keys.get(name, {}), table.coins.child("submit", name)
        flow = place.submit(_Bare(), given, Payload(vector), keys, own, table.late)
        next(flow)
        dealt = Received("dealer", "seed", {"seed": torch.frombuffer(bytearray(seed), dtype=torch.uint8)})
        ask = flow.send((dealt,))
        sent = ask.send if isinstance(ask, Exchange) else ()
        spent.append(time.perf_counter() - started)
        total = sum(len(_wrapped(table.schemas, name, letter)) for letter in sent)
        ups.append(Received(name, "up", sent[0].body))  # type: ignore[arg-type]
    return ups, sorted(spent)[len(spent) // 2], total


class _Bare:
    """As much of a pipeline as a client's half needs."""

    encode, release = Signs(), ScoredSum()

    @property
    def privacy(self) -> Any:
        """Rows come noised."""
        return _Noised()


class _Noised:
    def entropy(self, size: int) -> float:
        """Enough."""
        return float("inf")


def _rounds(size: RainRoundSize, seed: int) -> list[dict[str, Any]]:
    """Both servers' rounds, each server in a fresh process: what this one has computed so far is not in them."""
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
    ups, _, _ = _clients(table)
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
            data = _wrapped(self.schemas, self.name, letter)
            if letter.target == self.peer:
                self.sent += len(data)
                self._out.put(data)
        if ask.wait is None:
            return ()
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
        return Received(self.peer, kind, self.schemas[kind].unpack(envelope.body))

    def _bytes(self, count: int) -> bytearray:
        room = bytearray(count)
        view = memoryview(room)
        while len(view):
            read = self.end.recv_into(view)
            if not read:
                raise ProtocolError("the other server hung up")
            view = view[read:]
        return room


def _wrapped(schemas: Mapping[str, Schema], source: str, letter: Letter) -> bytes:
    if isinstance(letter.body, bytes):
        raise ProtocolError("an honest letter has a body of arrays")
    body = schemas[letter.kind].pack(letter.body)
    header = Header(bytes(32), RUN, 0, 0, letter.kind, source, letter.target, 0, len(body))
    return Envelope(header, body).pack()
