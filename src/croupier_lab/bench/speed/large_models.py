"""A round of very large updates, one from each client, by sum servers and by IntraShuffler's buckets.

It measures seconds, processor time, peak memory and sent bytes, to show that neither protocol needs memory for a whole
model. `croupier bench large` runs it. The names `rns-servers` and `intra` are those of presets, but settings are fixed
here and in `streamed`. Each protocol runs in a process of its own, with updates that are drawn by the strip and never
all in memory (`streamed`). So `peak_growth_bytes` is the protocol's own memory, and `peak_bytes` that of the whole
process with Python and torch. A client that holds its update, and a server that holds its model, have four bytes a
parameter more.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Coins
from croupier.kernels.memory import keep_freed
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.process import apart, resident
from croupier_lab.bench.speed.rns_chunks import draw
from croupier_lab.bench.speed.streamed import STRIP, bucketed, summed
from croupier_lab.bench.speed.sum_limit import rates

Protocol = Literal["rns-servers", "intra"]
PROTOCOLS: tuple[Protocol, ...] = ("rns-servers", "intra")


class LargeModelSize(BenchSize):
    """How large: parameters, clients, sum servers, decimal digits, and the members of a bucket."""

    params: int = Field(1_000_000_000, ge=1, description="Parameters of each update.")
    clients: int = Field(4, ge=2, description="Clients, each with an update of its own.")
    servers: int = Field(3, ge=2, le=16, description="Sum servers.")
    digits: int = Field(4, ge=1, le=9, description="Decimal digits of a parameter.")
    smallest: int = Field(4, ge=2, description="Fewest members of a bucket.")


def measure(size: LargeModelSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Both protocols, one after the other; as a floor, the seconds that merely copying the bytes of each takes."""
    found: dict[str, Any] = {"params": size.params, "clients": size.clients, "rows": []}
    for protocol in PROTOCOLS:
        watch(protocol)
        found["rows"].append(apart(streamed_once, protocol, size, seed))
    moved = rates(3)["moved in memory"]
    for row in found["rows"]:
        # `rates` counts what a copy reads and what it writes, so that each sent byte counts twice.
        row["copy_s"] = 2 * row["bytes_sent"] / moved
    return found


def streamed_once(protocol: Protocol, size: LargeModelSize, seed: int) -> dict[str, Any]:
    """One protocol in this process.

    Raises: AssertionError when the first strip of the `rns-servers` mean is not that of the updates. Rows of `intra`
    are noised, so that nothing is checked there.
    """
    keep_freed()
    coins, first = Coins.from_seed(seed), list[Tensor]()

    def take(start: int, mean: Tensor) -> None:
        if start == 0:
            first.append(mean)

    def go(params: int) -> Any:
        if protocol == "intra":
            return bucketed(params, size.clients, size.smallest, coins, take)
        return summed(params, size.clients, size.servers, size.digits, coins, take)

    # Compiled loops are loaded before anything is measured.
    go(min(size.params, 1 << 12))
    first.clear()
    before, cpu = resident("VmRSS"), time.process_time()
    wire = go(size.params)
    cpu = time.process_time() - cpu
    peak = resident("VmHWM")
    if protocol == "rns-servers":
        count = len(first[0])
        own = [torch.from_numpy(draw(coins.child("update", 0).child(c), count)) for c in range(size.clients)]
        off = float((torch.stack(own).double().mean(0) - first[0]).abs().max())
        if off > 10.0**-size.digits:
            raise AssertionError(f"the mean is off by {off}")
    return {
        "protocol": protocol, "seconds": wire.spent, "bytes_sent": wire.sent, "strip": STRIP,
        # Of all cores, the drawing of updates included: what others do on the machine does not lengthen it.
        "cpu_s": cpu,
        "ns_per_parameter_and_client": 1e9 * wire.spent / size.params / size.clients,
        "peak_bytes": peak, "peak_growth_bytes": peak - before,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['clients']} clients, {found['params']} parameters each, streamed")
    for row in found["rows"]:
        grown, sent = row["peak_growth_bytes"] / 1e6, row["bytes_sent"] / 1e9
        spent = f"{row['seconds']:9.1f} s ({row['cpu_s']:.1f} s of processors)"
        print(
            f"{row['protocol']:<12}{spent}, {grown:.0f} MB beyond the loaded program, {sent:.2f} GB "
            f"sent; copying these takes {row['copy_s']:.1f} s"
        )
