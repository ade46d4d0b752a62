"""Feed altered bytes to decoders and to every call of running hosts: they may be taken or refused, and nothing else.

Most inputs are valid messages with something changed, because noise is refused at the first byte. Two counts must be 0:
`crashes` (anything but a `CroupierError` from a decoder, an error of the handler from a call) and `hangs` (an input to
a decoder that takes longer than a second, or a call that is never answered). `peak_bytes` is by how much the process
grew. `croupier bench fuzz` runs it, with inputs from `fuzz_input` and calls from `fuzzed_hosts`.
"""

from __future__ import annotations

import asyncio
import math
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.errors import CroupierError
from croupier.service.card import Card
from croupier.service.fields import Fields, read_table
from croupier.service.group import SealedGroup, draw_group
from croupier.service.identity import Keyring
from croupier.service.member import SERVER
from croupier.service.notice import Notice
from croupier.service.roster import Roster
from croupier_lab.bench.services.fuzz_input import FuzzTally, Mutator, filled, members_of, notice_of
from croupier_lab.bench.services.fuzzed_hosts import call_hosts
from croupier_lab.bench.services.toy import PIPELINES
from croupier_lab.bench.size import BenchSize, Watch, ignore

# Reading that takes longer than so many seconds counts as hanging.
SLOW = 1.0


class FuzzSize(BenchSize):
    """How many inputs: into decoders, and into calls of running hosts."""

    inputs: int = Field(1_000_000, ge=100, description="Inputs in all.")
    calls: int = Field(20_000, ge=10, description="Of these, calls of running hosts.")


@dataclass(frozen=True)
class Decoder:
    """Something that reads bytes, with valid samples, and its share of the inputs."""

    name: str
    read: Callable[[bytes], Any]
    samples: tuple[bytes, ...]
    share: float


def decoders(folder: Path) -> list[Decoder]:
    """Decoders of what comes from other parties, and of a party's own key file, each with valid samples."""
    found: list[Decoder] = []
    for name, pipeline in PIPELINES.items():
        members = members_of(name)
        notice = notice_of(members)
        schemas = pipeline.schemas(members[SERVER].given(notice, "", 0))
        for kind, schema in schemas.items():
            found.append(Decoder(f"schema {name} {kind}", schema.unpack, (filled(schema),), 0.4))
    share = {"schemas": 0.4 / len(found)}
    found = [replace(one, share=share["schemas"]) for one in found]
    members = members_of("sum servers")
    own, roster = members["c0"], members["c0"].roster
    notice, public = notice_of(members), members[SERVER].keyring.public
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


def feed(decoder: Decoder, count: int, mutate: Mutator, tally: FuzzTally) -> None:
    """Feed so many changed messages to one decoder."""
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


def measure(size: FuzzSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Feed the decoders first, then running hosts."""
    start, tally = time.perf_counter(), FuzzTally()
    mutate = Mutator(Coins.from_seed(seed).child("fuzz").export())
    with tempfile.TemporaryDirectory(prefix="croupier-fuzz-") as folder:
        every = decoders(Path(folder))
        for decoder in every:
            # Once before memory is looked at, so that what is loaded at first use does not count as growth.
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
    """Print the same numbers for people."""
    print(
        f"{found['inputs']} inputs: crashes {found['crashes']}, hangs {found['hangs']} (both must be 0); the process "
        f"grew by {found['peak_bytes'] / 1e6:.0f} MB; {found['seconds']:.0f} s"
    )
    print("  " + ", ".join(f"{name} {count}" for name, count in found["by_name"].items()))
    for line in found["failures"]:
        print(f"  {line}")
