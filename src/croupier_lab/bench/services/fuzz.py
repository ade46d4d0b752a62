"""Altered bytes into every decoder and into every call of running hosts: nothing but a refusal may come out.

Most inputs are valid messages with something changed, because noise is refused at the first byte. Counted must be
zero: `crashes` (anything but a `CroupierError` out of a decoder, an error of the handler out of a call) and `hangs`
(an input that takes longer than a second). `peak_bytes` is by how much the process grew.
"""

from __future__ import annotations

import asyncio
import math
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import torch
from pydantic import Field

from croupier.core import canon
from croupier.core.canon import DTYPES
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.core.wire import Schema
from croupier.engine.federation import Federation
from croupier.engine.loop import begin
from croupier.engine.work import RoundWork
from croupier.errors import CroupierError
from croupier.service.card import Card
from croupier.service.fields import Fields, read_table
from croupier.service.group import SealedGroup, draw_group
from croupier.service.host import Host
from croupier.service.identity import Keyring
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member, OneVersion
from croupier.service.notice import ROUND, Notice
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.rehearsal import make_members
from croupier.service.roster import Roster, Timetable
from croupier.service.store import Store
from croupier.service.transport import OK, SERVICE, Calls, listen
from croupier.service.versions import next_roster
from croupier.spec import Spec
from croupier_lab.bench.services.toy import CLIENTS, PIPELINES, toy_task
from croupier_lab.bench.size import BenchSize, Watch, ignore

SLOW = 1.0
TOGETHER = 64
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63)
# Handlers that raise answer so; every other status is a refusal of the transport's own.
_BROKEN = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


class FuzzSize(BenchSize):
    """How many inputs: into decoders, and into calls of running hosts."""

    inputs: int = Field(1_000_000, ge=100, description="Inputs in all.")
    calls: int = Field(20_000, ge=10, description="Of these, calls of running hosts.")


@dataclass(frozen=True)
class Decoder:
    """Something that reads bytes of strangers, with messages that it takes, and how often it is tried."""

    name: str
    read: Callable[[bytes], Any]
    samples: tuple[bytes, ...]
    share: float


@dataclass
class FuzzTally:
    """What came out so far."""

    counts: Counter[str] = field(default_factory=Counter)
    by_name: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def crash(self, name: str, data: bytes, error: BaseException | str) -> None:
        """Count something that should not have come out, and keep the first few to look at."""
        self.counts["crashes"] += 1
        if len(self.failures) < 20:
            self.failures.append(f"{name}: {error!r:.200}: {data[:80].hex()}")


class Mutator:
    """Messages with something changed, from samples that are valid."""

    def __init__(self, seed: bytes) -> None:
        self.chance = random.Random(seed)

    def __call__(self, samples: Sequence[bytes]) -> bytes:
        """One of them, changed once or a few times."""
        chance = self.chance
        if chance.random() < 0.02:
            return chance.randbytes(chance.randrange(300))
        data = bytearray(chance.choice(samples))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            chance.choice((self._flip, self._number, self._cut, self._repeat, self._join, self._swap))(data, samples)
        return bytes(data)

    def _at(self, data: bytearray) -> int:
        return self.chance.randrange(len(data)) if data else 0

    def _flip(self, data: bytearray, samples: Sequence[bytes]) -> None:
        if data:
            data[self._at(data)] ^= 1 << self.chance.randrange(8)

    def _number(self, data: bytearray, samples: Sequence[bytes]) -> None:
        at, size = self._at(data), self.chance.choice((1, 2, 4, 8))
        data[at : at + size] = (self.chance.choice(_NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")

    def _cut(self, data: bytearray, samples: Sequence[bytes]) -> None:
        at = self._at(data)
        del data[at : at + self.chance.choice((1, 8, len(data)))]

    def _repeat(self, data: bytearray, samples: Sequence[bytes]) -> None:
        at = self._at(data)
        data[at:at] = data[at : at + self.chance.choice((1, 9, 40))]

    def _join(self, data: bytearray, samples: Sequence[bytes]) -> None:
        other, at = self.chance.choice(samples), self._at(data)
        data[at:] = other[min(at, len(other)) :]

    def _swap(self, data: bytearray, samples: Sequence[bytes]) -> None:
        """Another type where one is marked: what is read as a length or a value changes its meaning."""
        marks = [at for at, byte in enumerate(data[:400]) if byte in b"N+-IFSBTMA"]
        if marks:
            data[self.chance.choice(marks)] = self.chance.choice(b"N+-IFSBTMA")


def _filled(schema: Schema) -> bytes:
    """A message of a kind, with zeros and ones in it."""
    values: dict[str, Any] = {}
    back = {name: dtype for dtype, name in DTYPES.items()}
    for one in schema.fields:
        values[one.name] = torch.ones(one.dims(values), dtype=back[one.dtype])
    return schema.pack(values)


def decoders(folder: Path) -> list[Decoder]:
    """Every decoder of bytes or text that strangers write, with valid samples."""
    found: list[Decoder] = []
    for name, pipeline in PIPELINES.items():
        members = _members(name)
        notice = _notice(members)
        schemas = pipeline.schemas(members[SERVER].given(notice, "", 0))
        for kind, schema in schemas.items():
            found.append(Decoder(f"schema {name} {kind}", schema.unpack, (_filled(schema),), 0.4))
    share = {"schemas": 0.4 / len(found)}
    found = [replace(one, share=share["schemas"]) for one in found]
    members = _members("sum servers")
    own, roster = members["c0"], members["c0"].roster
    notice, public = _notice(members), members[SERVER].keyring.public
    signed = notice.sign(members[SERVER].keyring.identity)
    header = Header(bytes(32), notice.run, 0, 0, "share", "c0", "sum1", 0, 100).pack()
    plain = canon.dump({"a": (1, 2.5, None, True, "text"), "b": torch.ones(3), "c": {"d": b"bytes" * 9}})
    sealed, _ = draw_group(roster, own.keyring, Coins.from_seed(1))
    card, keys = roster.cards[0].text(), folder / "c0.key"

    def read_card(data: bytes) -> Card:
        return Card.parse(Fields("card", read_table(_text(data), "card", "ask again"), "ask again"))

    def read_keys(data: bytes) -> Keyring:
        keys.write_bytes(data)
        keys.chmod(0o600)
        return Keyring.read(keys)

    return [
        *found,
        Decoder("header", Header.unpack, (header,), 0.25),
        Decoder("canon", canon.load, (plain, signed, canon.dump({"key": bytes(32), "kind": "up", "hold": 1.0})), 0.25),
        Decoder("notice", lambda data: Notice.read(data, public), (signed,), 0.09),
        Decoder("card", read_card, (card.encode(),), 0.03),
        Decoder("roster", lambda data: Roster.parse(_text(data)), (roster.text().encode(),), 0.01),
        Decoder("keyring", read_keys, (own.keyring.text().encode(),), 0.03),
        Decoder("sealed group", lambda data: SealedGroup.parse(_text(data)), (sealed.text().encode(),), 0.03),
    ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _members(name: str) -> dict[str, Member]:
    spec = Spec(protocol=PIPELINES[name], federation=Federation(rounds=3))
    times = Timetable(phase=3600.0, round=3600.0, hold=0.02)
    return make_members(spec, toy_task(), Coins.from_seed(1), times, seeded=True)


def _notice(members: dict[str, Member]) -> Notice:
    roster = members[SERVER].roster
    return Notice(0, ROUND, roster.digest, roster.run, 0, 0, roster.clients)


def feed(decoder: Decoder, count: int, mutate: Mutator, tally: FuzzTally) -> None:
    """So many changed messages into one decoder."""
    for _ in range(count):
        data = mutate(decoder.samples)
        start = time.perf_counter()
        try:
            decoder.read(data)
        except CroupierError:
            tally.counts["refused"] += 1
        except Exception as error:
            tally.crash(decoder.name, data, error)
        tally.counts["hangs"] += time.perf_counter() - start > SLOW
        tally.counts["inputs"] += 1
    tally.by_name[decoder.name.split()[0]] += count


# ---- calls of running hosts


@dataclass
class FuzzedHost:
    """A running host, and who calls it: an enrolled client, the server, and one whose certificate was revoked."""

    party: PartyProcess
    callers: dict[str, Calls]
    samples: dict[str, tuple[bytes, ...]]


@asynccontextmanager
async def running(name: str) -> AsyncIterator[FuzzedHost]:
    """A relay or a server in the middle of a round; the last client was connected when a new roster left it out."""
    members = _members("relay")
    with tempfile.TemporaryDirectory(prefix="croupier-fuzz-") as folder:
        store, task = Store(Path(folder)), toy_task()
        party: PartyProcess
        if name == SERVER:
            pipeline = members[name].pipeline
            first = begin(task, pipeline).memories[SERVER]
            work = RoundWork(pipeline, task).by_name()
            party = Lead(
                members[name], store, work, Options(first_memory=first), Measures(task.evaluate, Coins.from_seed(1))
            )
        else:
            party = Host(members[name], store, {}, Options())
        server, _ = await listen(party, members[name].roster.address(name))
        playing = asyncio.create_task(party.run())
        callers = {who: Calls(members[who]) for who in ("c0", SERVER, CLIENTS[-1])}
        notice = _notice(members)
        signed = notice.sign(members[SERVER].keyring.identity)
        if name != SERVER and await callers[SERVER].open(name, signed, 5.0) != OK:
            raise CroupierError(f"{name} did not take an honest notice")
        await callers[CLIENTS[-1]].known(name, 5.0)
        later = next_roster(members[name].roster, 2, without=[CLIENTS[-1]])
        party.versions = OneVersion(replace(members[name], roster=later))
        party.turn_to(party.versions.at(2))
        try:
            yield FuzzedHost(party, callers, _samples(members, notice, name))
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            for calls in (*callers.values(), party.calls):
                await calls.close()
            await server.stop(0.2)
            store.close()


def _samples(members: dict[str, Member], notice: Notice, target: str) -> dict[str, tuple[bytes, ...]]:
    schema = members["c0"].pipeline.schemas(members["c0"].given(notice, "", 0))["up"]
    ours, body = notice.attempt_id(members["c0"].pipeline.digest()), _filled(schema)
    head = Header(ours.header_spec, ours.run, 0, 0, "up", "c0", target, 0, len(body)).pack() + notice.key
    return {
        "Put": (head + body,),
        "Take": (canon.dump({"key": notice.key, "kind": "model", "hold": 0.01}),),
        "Open": (notice.sign(members[SERVER].keyring.identity), canon.dump({"after": 5})),
        "End": (canon.dump({"key": notice.key, "well": False, "missing": ("c0", "c1")}),),
        "Known": (b"", b"x"),
    }


async def call(target: FuzzedHost, who: str, method: str, data: bytes, tally: FuzzTally) -> None:
    """One call with these bytes; a letter's are cut into pieces as a header and a body would be."""
    channel, path = target.callers[who]._channel(target.party.name), f"/{SERVICE}/{method}"
    start = time.perf_counter()
    try:
        if method == "Put":

            async def pieces() -> AsyncIterator[bytes]:
                yield data[: HEADER_BYTES + 32]
                yield data[HEADER_BYTES + 32 :]

            await channel.stream_unary(path)(pieces(), timeout=20.0)
        elif method == "Take":
            async for _ in channel.unary_stream(path)(data, timeout=20.0):
                pass
        else:
            await channel.unary_unary(path)(data, timeout=20.0)
    except grpc.aio.AioRpcError as error:
        if error.code() in _BROKEN:
            tally.crash(f"{method} of {target.party.name} by {who}", data, str(error.details()))
        # Many calls are made at a time, so that only one that is never answered counts as a hang.
        tally.counts["hangs"] += error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    tally.counts["slowest_ms"] = max(tally.counts["slowest_ms"], round(1e3 * (time.perf_counter() - start)))
    tally.counts["inputs"] += 1
    tally.by_name[f"call {method}"] += 1


async def call_hosts(count: int, mutate: Mutator, tally: FuzzTally, watch: Watch) -> None:
    """So many changed messages into the calls of a relay and of a server."""
    async with AsyncExitStack() as stack:
        targets = [await stack.enter_async_context(running(name)) for name in ("relay", SERVER)]
        done = 0
        while done < count:
            batch = []
            for number in range(done, min(done + TOGETHER, count)):
                target = targets[number % 2]
                method = mutate.chance.choice(tuple(target.samples))
                who = mutate.chance.choice(tuple(target.callers))
                # Now and then more than a message may have.
                data = bytes(3 << 20) if number % 2000 == 1999 else mutate(target.samples[method])
                batch.append(call(target, who, method, data, tally))
            await asyncio.gather(*batch)
            done += len(batch)
            watch(f"{done} of {count} calls")
        for target in targets:
            refused = target.party.counts["refused"]
            tally.counts["refused_calls"] += refused


def measure(size: FuzzSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Decoders first, then running hosts."""
    start, tally = time.perf_counter(), FuzzTally()
    mutate = Mutator(Coins.from_seed(seed).child("fuzz").export())
    with tempfile.TemporaryDirectory(prefix="croupier-fuzz-") as folder:
        every = decoders(Path(folder))
        for decoder in every:
            feed(decoder, 2, mutate, FuzzTally())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        left, shares = max(0, size.inputs - size.calls), sum(one.share for one in every)
        for decoder in every:
            watch(f"{decoder.name}: {tally.counts['inputs']} of {size.inputs}")
            feed(decoder, math.ceil(left * decoder.share / shares), mutate, tally)
    asyncio.run(call_hosts(size.calls, mutate, tally, watch))
    counts = tally.counts
    return {
        "inputs": counts["inputs"], "crashes": counts["crashes"], "hangs": counts["hangs"],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before,
        "refused": counts["refused"], "refused_calls": counts["refused_calls"],
        "slowest_call_ms": counts["slowest_ms"], "by_name": dict(tally.by_name), "failures": tally.failures,
        "seconds": time.perf_counter() - start,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """The same numbers for people."""
    print(
        f"{found['inputs']} inputs: crashes {found['crashes']}, hangs {found['hangs']} (both must be 0); the process "
        f"grew by {found['peak_bytes'] / 1e6:.0f} MB; {found['seconds']:.0f} s"
    )
    print("  " + ", ".join(f"{name} {count}" for name, count in found["by_name"].items()))
    for line in found["failures"]:
        print(f"  {line}")
