"""One RAIN round on two servers, each a process of its own, from the clients' hidden rows to the opened sum.

`croupier bench rain` runs it, and RAIN's Tables 2 and 3 and Figure 7 (`papers.rain.cost`) take its numbers. The
dealer's material lies ready in memory (with `streamed`, in a file at the second server and in a seed at the first).
What is timed is everything from the moment both servers hold the clients' messages until both have the sum, with every
message packed, sent and checked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field

from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.rain_inputs import (
    Mode,
    RainRoundSize,
    client_uploads,
    laid,
    unpacked,
)
from croupier_lab.bench.speed.rain_servers import server_rounds

# Numbers that a plain mean is timed on at most; the time of more is scaled up from these.
_MEANT = 1 << 27
# The largest size of a sweep in each mode, as clients times parameters.
LARGEST: dict[Mode, int] = {"semi-honest": 10**9, "malicious": 10**8}
SMALLEST = 10**5


class RainRoundSweep(BenchSize):
    """Whether other sizes are measured too, and up to which."""

    sweep: bool = Field(False, description="Also sizes ten times apart, in both modes.")
    largest: int = Field(1_000_000_000, description="Most signs of the sweep, clients times parameters.")


SWEEP = RainRoundSweep


def measure(size: RainRoundSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """The best of some rounds, beside the same rule in the clear and a plain mean of as many numbers."""
    coins = Coins.from_seed(seed)
    table = laid(size, coins, 0)
    _, client_s, client_bytes = client_uploads(table)
    started = time.perf_counter()
    rows = [unpacked(row, size.params) for row in table.rows]
    unpack_s = time.perf_counter() - started
    want = table.release.against(rows, table.late["reference"], coins.child("clear"))
    clear_s = time.perf_counter() - started - unpack_s
    del rows
    if not int(want["total"]):
        raise ProtocolError(f"params = {size.params}: too few rows were accepted to open a sum; take more, 1000 say")
    watch(f"{size.repeats} rounds of two servers")
    found = server_rounds(size, seed)
    for one in found:
        if not torch.equal(one.pop("sums"), want["sums"]):
            raise ProtocolError("two servers gave another sum than the rule in the clear")
    best = min(found, key=lambda one: float(one["online_s"]))
    return {
        **size.plain(), "clear_s": clear_s, "mean_s": _mean(size), "client_bytes": client_bytes, "client_s": client_s,
        **best, "offline_s": min(float(one["offline_s"]) for one in found), "equal_to_clear": True,
    }  # fmt: skip


def sweep(size: RainRoundSize, seed: int, watch: Watch = ignore, *, largest: int) -> list[dict[str, Any]]:
    """The same round at sizes ten times apart, in both modes, with dealt material `streamed`."""
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
    """Print the same numbers for people."""
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
