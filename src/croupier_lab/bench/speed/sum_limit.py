"""How fast a secure sum could be on this machine: the bytes that it must handle, at the rates of the bare operations.

No step can be left out: every mask is drawn at the client and again at a server; every long message is sealed once and
opened once; every party reads what it is given and writes what it makes. The rates are measured in the same run, on all
cores, by the very ciphers that the sum uses and by copying memory. Work on numbers is taken to be free. `secure_sum`
(`croupier bench sum`) prints the limit, and `large_models` (`croupier bench large`) uses the rates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.core.coins import Coins
from croupier.core.envelope import CHUNK
from croupier.kernels import packed

# What one thread handles in one timed go; and what it copies from and to where that is more than caches hold.
_BYTES, _LARGE = 1 << 26, 1 << 25


def must(params: int, clients: int, servers: int, bits: int) -> dict[str, int]:
    """Bytes that are drawn, sealed or opened, and read or written, in one sum of floats."""
    long = packed.size(params, bits)
    messages = 2 * clients + servers
    read = clients * 4 * params + (clients + servers + clients) * long
    written = (clients + servers + 1) * long + 8 * params
    return {
        "drawn": 2 * clients * (servers - 1) * long, "sealed": 2 * messages * long, "moved": read + written,
    }  # fmt: skip


def rates(repeats: int) -> dict[str, float]:
    """Bytes a second of each operation, on all cores; the best of the repeats.

    A copied byte counts twice in "moved": it is read and written.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        return {
            "drawn": _rate(pool, cores, repeats, _drawing), "sealed": _rate(pool, cores, repeats, _sealing),
            # A copy reads and writes. Most vectors of a sum may lie in caches, where that is several times as fast as
            # in memory: as a limit this holds wherever they lie.
            "moved": 2 * _rate(pool, cores, repeats, partial(_copying, CHUNK)),
            "moved in memory": 2 * _rate(pool, cores, repeats, partial(_copying, _LARGE)),
        }  # fmt: skip


def limit(params: int, clients: int, servers: int, bits: int, repeats: int) -> dict[str, Any]:
    """Seconds that the bytes alone take, with the bytes and the rates that they come from."""
    needed, found = must(params, clients, servers, bits), rates(repeats)
    return {
        "limit_s": sum(needed[name] / found[name] for name in needed),
        "limit": {name: {"bytes": needed[name], "bytes_per_s": found[name]} for name in needed},
    }


def _rate(pool: ThreadPoolExecutor, cores: int, repeats: int, ready: Callable[[], Callable[[], None]]) -> float:
    """Bytes a second when every core does `_BYTES` of it."""
    goes = [ready() for _ in range(cores)]
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for done in [pool.submit(go) for go in goes]:
            done.result()
        best = min(best, time.perf_counter() - start)
    return cores * _BYTES / best


def _drawing() -> Callable[[], None]:
    draw, words = Coins.from_os().secure().packed(64)(0), np.empty(CHUNK // 8, np.uint64)

    def go() -> None:
        for _ in range(_BYTES // CHUNK):
            draw(words, len(words))

    return go


def _sealing() -> Callable[[], None]:
    aead, clear, sealed = AESGCM(Coins.from_os().export()), bytes(CHUNK), bytearray(CHUNK + 16)

    def go() -> None:
        for number in range(_BYTES // CHUNK):
            # Nothing is sent, and the key is forgotten: nonces need not differ from go to go.
            aead.encrypt_into(number.to_bytes(12, "little"), clear, None, sealed)

    return go


def _copying(size: int) -> Callable[[], None]:
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)

    def go() -> None:
        for _ in range(max(1, _BYTES // size)):
            target[:] = source

    return go
