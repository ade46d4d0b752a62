"""Encode and sum the clients' numbers chunk by chunk, in one of three ways, for one size of a sweep.

`mod` counts the bits of residues of small moduli, `bits` runs the release that shuffles them and counts what comes out,
and `sum-servers` adds numbers modulo one power of two in shares. A chunk at a time needs little memory, so that sizes
can grow to where all clients' encoded numbers would not fit. `bench/speed/rns_encoding` (`croupier bench rns`) sweeps
over sizes with it, `papers.rns.cost` takes its `RnsEncodingSize`, and other benches of speed and `papers.intra.cost`
draw their parameters by `draw`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.core.wire import Schema, packed
from croupier.encode.encoder import Released
from croupier.encode.fixed import FixedPoint
from croupier.encode.residues import Residues
from croupier.kernels import packed as kernel
from croupier.kernels import residues
from croupier.mpc.shares import added, rest, stretched, unpacked
from croupier.mpc.tags import Tagger
from croupier.release.bits import Bits, Mod
from croupier_lab.bench.size import BenchSize
from croupier_lab.bench.speed.process import resident

# Coordinates at a time: eight blocks of the release (`core.coins.BLOCK`), so that up to eight cores have work.
CHUNK = 1 << 19
SERVERS = 3
Kind = Literal["mod", "sum-servers", "bits"]


class RnsEncodingSize(BenchSize):
    """How much is measured: parameters, clients, digits, and how often `rns_encoding` times each short step."""

    params: int = Field(11_237_432, ge=1, description="Parameters of the model.")
    clients: int = Field(10, ge=2, description="Clients whose updates are added.")
    digits: int = Field(5, ge=1, le=9, description="Decimal digits that are kept.")
    repeats: int = Field(5, ge=1, description="Timed repeats of what is short; the best counts.")


def draw(coins: Coins, count: int) -> npt.NDArray[np.float32]:
    """Drawn parameters between -0.5 and 0.5; the work does not depend on their values."""
    words = np.frombuffer(coins.secure().bytes(4 * count), "<i4")
    return words.astype(np.float32) * np.float32(2.0**-32)


def warm(encoder: Residues, coins: Coins) -> None:
    """Load compiled loops and build tables before anything is timed."""
    rows = [coded(encoder, coins.child("warm", who), 1 << 12) for who in range(2)]
    layout = flat(1 << 12)
    for release in (Bits(), Mod()):
        out = release(rows, layout, encoder.modulus, coins.child("warm"))
        encoder.decode(Released(("a", "b"), out.get("rows"), out.get("sums"), layout=layout), {})


def chunks(params: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of each chunk."""
    for number, start in enumerate(range(0, params, CHUNK)):
        yield number, start, min(params, start + CHUNK)


def flat(count: int) -> Layout:
    return Layout((Slice("w", (count,)),))


def coded(encoder: Residues, coins: Coins, count: int) -> Tensor:
    """One client's bits of one chunk."""
    update = Update(torch.from_numpy(draw(coins, count)), flat(count))
    return encoder.encode(update, {}, coins.child("rounding")).vector


def sweep_point(kind: Kind, size: RnsEncodingSize, seed: int) -> dict[str, Any]:
    """One size of the sweep: seconds from given parameters to their sum as decoded numbers, drawing them left out."""
    coins, encoder = Coins.from_seed(seed), Residues(clients=size.clients, digits=size.digits)
    warm(encoder, coins)
    before, spent = resident("VmRSS"), 0.0
    for number, start, stop in chunks(size.params):
        nodes = [coins.child(who, number) for who in range(size.clients)]
        values = (draw(node, stop - start) for node in nodes)
        work = {"mod": _summed, "sum-servers": _shared, "bits": _shuffled}[kind]
        spent += work(encoder, values, stop - start, coins.child("release", number))
    peak = resident("VmHWM")
    return {
        "release": kind,
        "params": size.params,
        "seconds": spent,
        "ns_per_parameter_and_client": 1e9 * spent / size.params / size.clients,
        "peak_bytes": peak,
        "peak_growth_bytes": peak - before,
    }


def _summed(encoder: Residues, clients: Iterator[npt.NDArray[np.float32]], count: int, _coins: Coins) -> float:
    """Release "mod", a client at a time: its bits are counted, and not kept."""
    ones, spent = np.zeros((count, len(encoder.modulus)), np.int64), 0.0
    for values in clients:
        update = Update(torch.from_numpy(values), flat(count))
        start = time.perf_counter()
        residues.add(encoder.encode(update, {}, _coins).vector.numpy(), ones, encoder.modulus)
        spent += time.perf_counter() - start
    start = time.perf_counter()
    sums = torch.from_numpy((ones % np.array(encoder.modulus)).astype(np.uint8))
    _decoded(encoder, count, sums=sums)
    return spent + time.perf_counter() - start


def _shared(encoder: Residues, clients: Iterator[npt.NDArray[np.float32]], count: int, coins: Coins) -> float:
    """Sum servers, a client at a time: tagged, shared (one share packed), added by the servers, checked and decoded."""
    fixed = FixedPoint(clients=encoder.clients, digits=encoder.digits)
    tagger, bits = Tagger(coins.child("tags"), fixed.bits, encoder.clients), fixed.bits
    totals, tags, spent = dict[int, Tensor](), 0, 0.0
    wire = Schema((packed("vector", (), count, bits),))
    for who, values in enumerate(clients):
        update = Update(torch.from_numpy(values), flat(count))
        start = time.perf_counter()
        vector = fixed.encode(update, {}, coins).vector
        seeds = [coins.child("seed", who, number).export() for number in range(SERVERS - 1)]
        share, left = rest(vector, int(tagger.pads[who]), seeds, bits, tagger.key(count))
        sent = wire.unpack(wire.pack({"vector": share}))["vector"]
        for place, seed in enumerate(seeds):
            numbers, part = stretched(seed)
            at = (who + 1 + place) % SERVERS
            totals[at] = added([totals[at]] if at in totals else [], [numbers], count, bits)
            tags += part
        at = who % SERVERS
        totals[at] = added([totals[at], sent] if at in totals else [sent], (), count, bits)
        tags += left
        spent += time.perf_counter() - start
    start = time.perf_counter()
    sums = added(totals.values(), (), count, bits)
    form = kernel.form(tagger.key(count), sums.numpy(), count, bits)
    if not tagger.fits(form, tags, np.arange(encoder.clients)):
        raise AssertionError("the sum does not fit its tag")
    _decoded(fixed, count, sums=unpacked(sums, count, bits))
    return spent + time.perf_counter() - start


def _shuffled(encoder: Residues, clients: Iterator[npt.NDArray[np.float32]], count: int, coins: Coins) -> float:
    """Release "bits": all clients' bits of a chunk shuffled as the release does it, counted and decoded.

    The release scatters each block's ones at random, which has the same outcome as permuting the block.
    """
    updates = [Update(torch.from_numpy(values), flat(count)) for values in clients]
    start = time.perf_counter()
    rows = [encoder.encode(update, {}, coins).vector for update in updates]
    moved = Bits()(rows, flat(count), encoder.modulus, coins)["rows"]
    _decoded(encoder, count, rows=moved)
    return time.perf_counter() - start


def _decoded(
    encoder: Residues | FixedPoint, count: int, rows: Tensor | None = None, sums: Tensor | None = None
) -> None:
    """What the server does with all that was released of a chunk."""
    everybody = tuple(map(str, range(encoder.clients)))
    encoder.decode(Released(everybody, rows, sums, layout=flat(count)), {})
