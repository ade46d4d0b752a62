"""Updates too long for memory: protocols are played a strip of parameters at a time, all messages sealed and opened.

Sum servers and IntraShuffler's buckets work coordinate by coordinate, except for one tag and one length a client. So a
strip goes through all parties before the next one begins, and no party holds more than a strip of anything but the
clients' key, which is hundreds of times shorter than the update. Seeds, tags and key are one for the whole update, as
in a round: a strip is no round of its own. `large_models` (`croupier bench large`) times it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import BLOCK, Coins
from croupier.core.envelope import Envelope, Header, Link
from croupier.core.update import Update
from croupier.encode.encoder import Released
from croupier.encode.fixed import FixedPoint
from croupier.errors import IntegrityError
from croupier.kernels import packed
from croupier.kernels.packed import Source
from croupier.kernels.shares import P
from croupier.mpc.shares import stretched, unpacked
from croupier.mpc.tags import Tagger
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets
from croupier_lab.bench.speed.rns_chunks import draw, flat

# Parameters of a strip, about: whole blocks of whatever is done to them.
STRIP = 1 << 20
Floats = npt.NDArray[np.float32]
# What the server makes of a strip: its first parameter, and the mean.
Take = Callable[[int, Tensor], None]


@dataclass
class Wire:
    """Links between all parties: `sent` bytes went over them in `spent` seconds, without those of drawing updates."""

    coins: Coins
    sent: int = 0
    spent: float = 0.0
    _ends: dict[tuple[str, str], tuple[Link, Link]] = field(default_factory=dict)

    def send(self, source: str, target: str, number: int, body: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Seal a strip's message, open it, and hand it over."""
        pair = (source, target)
        if pair not in self._ends:
            self._ends[pair] = Link(self.coins, *pair), Link(self.coins, *pair)
        header = Header(bytes(32), bytes(16), 0, 0, "strip", source, target, number, len(body))
        self.sent += len(header.pack()) + len(body)
        opened = [self._ends[pair][1].open(packet) for packet in self._ends[pair][0].seal(Envelope(header, body.data))]
        whole = opened[-1]
        if whole is None:
            raise IntegrityError("a message did not arrive whole")
        return np.frombuffer(whole.joined, np.uint8)

    def updates(self, coins: Coins, clients: int, count: int) -> Iterator[Floats]:
        """One strip of every client's update, drawn when it is asked for."""
        for client in range(clients):
            start = time.perf_counter()
            values = draw(coins.child(client), count)
            self.spent -= time.perf_counter() - start
            yield values


def strips(params: int, whole: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each strip: multiples of so many parameters."""
    step = max(1, STRIP // whole) * whole
    for number, start in enumerate(range(0, params, step)):
        yield number, start, min(params, start + step)


def summed(params: int, clients: int, servers: int, digits: int, coins: Coins, take: Take) -> Wire:
    """One sum through sum servers. Raises: IntegrityError when the published sum does not fit its tags."""
    start, wire = time.perf_counter(), Wire(coins.child("links"))
    fixed = FixedPoint(clients=clients, digits=digits)
    bits, names = fixed.bits, tuple(f"c{client}" for client in range(clients))
    tagger = Tagger(coins.child("tags"), bits, clients)
    key, forms, checks = tagger.key(params), [0] * clients, [0] * clients
    # By client and server; who holds the long share of a client has no seed of it.
    seeds = {
        (c, s): stretched(coins.child("seed", c, s).export())
        for c in range(clients) for s in range(servers) if s != c % servers
    }  # fmt: skip
    sources = {place: numbers.packed(bits) for place, (numbers, _) in seeds.items()}
    for number, a, b in strips(params, packed.block(bits)):
        count, own, rows = b - a, key.part(a, b), dict[int, list[npt.NDArray[np.uint8]]]()
        here = {place: _from(source, a) for place, source in sources.items()}
        for c, values in enumerate(wire.updates(coins.child("update", number), clients, count)):
            payload = fixed.encode(Update(torch.from_numpy(values), flat(count)), {}, coins)
            minus = [source for (who, _), source in here.items() if who == c]
            share, form = packed.cover(payload.vector.numpy(), bits, minus, key=own)
            forms[c] += form
            rows.setdefault(c % servers, []).append(wire.send(f"c{c}", f"sum{c % servers}", number, share))
        totals = [
            packed.fold(rows.get(s, []), [source for (_, at), source in here.items() if at == s], count, bits)
            for s in range(servers)
        ]
        arrived = [wire.send(f"sum{s}", "server", number, total) for s, total in enumerate(totals)]
        published = packed.fold(arrived, (), count, bits)
        for c in range(clients):
            got = wire.send("server", f"c{c}", number, published)
            checks[c] += packed.form(own, got, count, bits)
        sums = unpacked(torch.from_numpy(published), count, bits)
        gathered = fixed.decode(Released(names, sums=sums, layout=flat(count)), {})
        if gathered.sums is not None:
            take(a, gathered.sums / clients)
    _check(tagger, forms, checks, {place: part for place, (_, part) in seeds.items()})
    wire.spent += time.perf_counter() - start
    return wire


def _check(tagger: Tagger, forms: list[int], checks: list[int], held: Mapping[tuple[int, int], int]) -> None:
    """Share each client's tag, which is known at the end of its update, as its numbers were; all check the sum."""
    tags = list(held.values())
    for client, form in enumerate(forms):
        given_away = sum(part for (who, _), part in held.items() if who == client)
        tags.append((form + int(tagger.pads[client]) - given_away) % P)
    if not all(tagger.fits(check, sum(tags) % P, np.arange(len(forms))) for check in checks):
        raise IntegrityError("the published sum does not fit its tag")


def _from(source: Source, start: int) -> Source:
    """The same draws, from a later residue on."""
    return lambda first: source(start + first)


def bucketed(params: int, clients: int, smallest: int, coins: Coins, take: Take) -> Wire:
    """One round of buckets: clipped, noised as each tier says, shuffled inside buckets at the relay, and averaged."""
    start, wire = time.perf_counter(), Wire(coins.child("links"))
    privacy, release = Tiers(clip=0.1, tiers=(0.5, 1, 2, 4, 8)), Buckets(smallest=smallest)
    names = tuple(f"c{client}" for client in range(clients))
    mine, tiers = [privacy.of(name) for name in names], [privacy.tier(name) for name in names]
    # A first pass for the lengths: the factor that shortens an update to the clip needs the length of all of it.
    squares = [0.0] * clients
    for number, a, b in strips(params, BLOCK):
        for c, values in enumerate(wire.updates(coins.child("update", number), clients, b - a)):
            wide = values.astype(np.float64)
            squares[c] += float(wide @ wide)
    factors = [min(1.0, one.clip / math.sqrt(square)) for one, square in zip(mine, squares, strict=True)]
    for number, a, b in strips(params, BLOCK):
        rows = []
        for c, values in enumerate(wire.updates(coins.child("update", number), clients, b - a)):
            noised = np.empty(b - a, np.float32)
            for at in range(0, b - a, BLOCK):
                part = values[at : at + BLOCK].astype(np.float64) * factors[c]
                node = coins.child("noise", c, "block", (a + at) // BLOCK)
                noised[at : at + BLOCK] = part + mine[c].sigma * node.secure().normal(len(part))
            rows.append(torch.from_numpy(wire.send(names[c], "relay", number, noised.view(np.uint8)).view(np.float32)))
        moved = release.within(rows, flat(b - a), None, coins.child("relay", number), tiers)["rows"]
        got = wire.send("relay", "server", number, moved.numpy().view(np.uint8).reshape(-1)).view(np.float32)
        take(a, torch.from_numpy(got.reshape(clients, -1)).double().mean(0))
    wire.spent += time.perf_counter() - start
    return wire
