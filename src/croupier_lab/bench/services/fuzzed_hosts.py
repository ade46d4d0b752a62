"""Feed messages that were changed at random to every call of running hosts, for `fuzz` (`croupier bench fuzz`).

The hosts are a relay and a server in the middle of a round, over mutual TLS. The callers are an enrolled client, the
server, and a client whose certificate is good but whom the newest roster no longer has.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.engine.loop import begin
from croupier.engine.work import RoundWork
from croupier.errors import CroupierError
from croupier.service.host import Host
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member, OneVersion
from croupier.service.notice import Notice
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.store import Store
from croupier.service.transport import KEY_BYTES, OK, SERVICE, Calls, listen
from croupier.service.versions import next_roster
from croupier_lab.bench.services.fuzz_input import FuzzTally, Mutator, filled, members_of, notice_of
from croupier_lab.bench.services.toy import CLIENTS, toy_task
from croupier_lab.bench.size import Watch

TOGETHER = 64
# How the transport answers for a handler that raised; every other status is a refusal of its own.
_BROKEN = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


@dataclass
class FuzzedHost:
    """A running host, the connections of its callers by name, and valid messages by method."""

    party: PartyProcess
    callers: dict[str, Calls]
    samples: dict[str, tuple[bytes, ...]]


@asynccontextmanager
async def running(name: str) -> AsyncIterator[FuzzedHost]:
    """A relay or a server in the middle of a round; a new roster leaves the last client out after it connected."""
    members = members_of("relay")
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
        notice = notice_of(members)
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
    ours, body = notice.attempt_id(members["c0"].pipeline.digest()), filled(schema)
    head = Header(ours.header_spec, ours.run, 0, 0, "up", "c0", target, 0, len(body)).pack() + notice.key
    return {
        "Put": (head + body,),
        "Take": (canon.dump({"key": notice.key, "kind": "model", "hold": 0.01}),),
        "Open": (notice.sign(members[SERVER].keyring.identity), canon.dump({"after": 5})),
        "End": (canon.dump({"key": notice.key, "well": False, "missing": ("c0", "c1")}),),
        "Known": (b"", b"x"),
    }


async def call(target: FuzzedHost, who: str, method: str, data: bytes, tally: FuzzTally) -> None:
    """One call with these bytes; a letter comes in one piece, or as a header and a body would."""
    channel, path = target.callers[who]._channel(target.party.name), f"/{SERVICE}/{method}"
    start = time.perf_counter()
    try:
        if method == "Put":

            async def pieces() -> AsyncIterator[bytes]:
                cut = HEADER_BYTES + KEY_BYTES if len(data) % 2 else len(data)
                yield data[:cut]
                yield data[cut:]

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
    """Feed so many changed messages to the calls of a relay and of a server, many at a time."""
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
            # What fails inside is told to the operator only: the caller sees no difference.
            tally.counts["crashes"] += target.party.counts["calls failed"]
            refused = target.party.counts["refused"]
            tally.counts["refused_calls"] += refused
