"""Inputs for fuzzing: valid messages, changed at random, and the count of what became of them.

A changed message gets further into a decoder than noise does, and so finds more. `fuzz` feeds decoders with it and
`fuzzed_hosts` running hosts (`croupier bench fuzz`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from croupier.core.canon import DTYPES
from croupier.core.coins import Coins
from croupier.core.wire import Schema
from croupier.engine.federation import Federation
from croupier.service.member import SERVER, Member
from croupier.service.notice import ROUND, Notice
from croupier.service.rehearsal import make_members
from croupier.service.roster import Timetable
from croupier.spec import Spec
from croupier_lab.bench.services.toy import PIPELINES, toy_task

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63)


@dataclass
class FuzzTally:
    """What has come out so far."""

    counts: Counter[str] = field(default_factory=Counter)
    by_name: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def crash(self, name: str, data: bytes, error: BaseException | str) -> None:
        """Count something that should not have come out, and keep the first few to look at."""
        self.counts["crashes"] += 1
        if len(self.failures) < 20:
            self.failures.append(f"{name}: {error!r:.200}: {data[:80].hex()}")


class Mutator:
    """Makes messages from valid samples, with something changed at random."""

    def __init__(self, seed: bytes) -> None:
        self.chance = random.Random(seed)

    def __call__(self, samples: Sequence[bytes]) -> bytes:
        """One of the samples, changed once or a few times; now and then mere noise."""
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
        """Write another type mark of canonical bytes where one stands: a length or a value changes its meaning."""
        marks = [at for at, byte in enumerate(data[:400]) if byte in b"N+-IFSBTMA"]
        if marks:
            data[self.chance.choice(marks)] = self.chance.choice(b"N+-IFSBTMA")


def filled(schema: Schema) -> bytes:
    """A valid message of this schema, all of ones."""
    values: dict[str, Any] = {}
    back = {name: dtype for dtype, name in DTYPES.items()}
    for one in schema.fields:
        values[one.name] = torch.ones(one.dims(values), dtype=back[one.dtype])
    return schema.pack(values)


def members_of(name: str) -> dict[str, Member]:
    spec = Spec(protocol=PIPELINES[name], federation=Federation(rounds=3))
    times = Timetable(phase=3600.0, round=3600.0, hold=0.02)
    return make_members(spec, toy_task(), Coins.from_seed(1), times, seeded=True)


def notice_of(members: dict[str, Member]) -> Notice:
    roster = members[SERVER].roster
    return Notice(0, ROUND, roster.digest, roster.run, 0, 0, roster.clients)
