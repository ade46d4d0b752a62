"""How fast every coordinate is permuted among the clients, from a stream cipher, against sorting random keys in NumPy.

`croupier bench intra` runs it, and IntraShuffler's Table 7 (`papers.intra.cost`) takes the times of the shuffle from
it. Both sides permute the same rows in the same process, in turn. The rival's keys come from NumPy's generator, which
is quicker than a cipher and hides nothing. It is given the form that is quickest here: block by block, a coordinate's
keys side by side. Three other forms stand beside it: the usual one in one line, the quickest one on all cores, and the
quickest one with a cipher's keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import BLOCK, Coins
from croupier.core.update import Layout, Slice
from croupier.errors import CroupierError
from croupier.kernels import permute
from croupier.release.shuffle import Shuffle
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed import argsort_shuffle as argsort
from croupier_lab.bench.speed.process import apart, resident
from croupier_lab.bench.speed.rns_chunks import draw

# The rival's other forms are timed on so many coordinates, and scaled up.
PART = 1 << 20
# Coordinates whose values are compared with those that went in.
CHECKED = 1 << 12
# Sizes of the sweep: numbers of clients, and the fewest parameters.
CLIENTS = (5, 10, 20, 40, 80)
SMALLEST = 10**5
Table = npt.NDArray[Any]


class CoordinateShuffleSize(BenchSize):
    """How much is shuffled: clients, parameters, and how often each side is timed."""

    clients: int = Field(20, ge=2, description="Clients among whom every coordinate is permuted.")
    params: int = Field(11_237_432, ge=1, description="Parameters, and so coordinates.")
    repeats: int = Field(3, ge=1, description="Timed repeats of each side; the best counts.")


class CoordinateShuffleSweep(BenchSize):
    """Whether other sizes are measured too."""

    sweep: bool = Field(False, description="Also other sizes up to this one: is it linear?")


SWEEP = CoordinateShuffleSweep


def measure(size: CoordinateShuffleSize, seed: int, watch: Watch = ignore, *, rival: bool = True) -> dict[str, Any]:
    """Seconds and memory of one shuffle of all coordinates, in a process of its own; with its rival, where wanted.

    Raises: CroupierError as `check` does, of the last `CHECKED` coordinates.
    """
    return apart(_one_size, size, seed, rival)


def sweep(size: CoordinateShuffleSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Seconds at products of clients and parameters up to the given one, and the exponent with which they grow."""
    return apart(_sweep, size, seed)


def _one_size(size: CoordinateShuffleSize, seed: int, rival: bool) -> dict[str, Any]:
    coins = Coins.from_seed(seed)
    _warm(size.clients, coins)
    before = resident("VmRSS")
    rows = _rows(size.clients, size.params, coins)
    ours = _Timed(partial(_shuffled, rows, coins.child("shuffle")), rows)
    ours()
    peak, theirs = resident("VmHWM"), _Timed(partial(argsort.blocked, rows, argsort.generator(seed)), rows)
    # In turn, so that what else the machine does touches both alike.
    for number in range(size.repeats):
        if rival:
            theirs()
        if number:
            ours()
    elements = size.clients * size.params
    words = len(permute.batches(size.clients))
    found: dict[str, Any] = {
        "clients": size.clients,
        "params": size.params,
        "shuffle_s": min(ours.wall),
        "shuffle_all_s": ours.wall,
        # Of all cores: what others do on the machine hardly lengthens it.
        "shuffle_cpu_s": min(ours.cpu),
        "ns_per_element": 1e9 * min(ours.wall) / elements,
        # Timed apart from the shuffle, on one core.
        "words_s": _words(coins.child("words"), size.params * words),
        "random_bytes_per_parameter": 8 * words,
        "cores": torch.get_num_threads(),
        "peak_bytes": peak,
        "peak_growth_bytes": peak - before,
        "data_bytes": 4 * elements,
        "peak_is": "resident high-water mark of a fresh process after its first shuffle: the clients' rows, the "
        "shuffled rows, and the loaded program; growth is beyond the loaded program",
    }
    return found | (_against(found["shuffle_s"], theirs, rows, coins, seed) if rival else {})


def _against(shuffle_s: float, theirs: _Timed, rows: Sequence[Tensor], coins: Coins, seed: int) -> dict[str, Any]:
    """The rival's numbers: its quickest form on all coordinates, other forms on some of them."""
    argsort_s, params = min(theirs.wall), len(rows[0])
    some = [row[:PART] for row in rows]
    scale = params / len(some[0])
    others = {
        "line": partial(argsort.line, some, seed),
        "cores": partial(argsort.together, some, seed),
        "cipher": partial(argsort.blocked, some, argsort.cipher(coins.child("keys"))),
    }
    took = {name: scale * min(_Timed(work, some)() for _ in range(2)) for name, work in others.items()}
    return {
        "argsort_s": argsort_s,
        "argsort_all_s": theirs.wall,
        "argsort_cpu_s": min(theirs.cpu),
        "argsort_is": f"one core, float64 keys from NumPy's generator, {argsort.STEP} coordinates at a time, sorted "
        "along the last axis",
        "ratio": argsort_s / shuffle_s,
        "argsort_line_s": took["line"],
        "argsort_line_is": "take_along_axis(rows, generator.random(rows.shape).argsort(0), 0)",
        "argsort_all_cores_s": took["cores"],
        "argsort_cipher_s": took["cipher"],
        "others_measured_on": len(some[0]),
        "ratio_line": took["line"] / shuffle_s,
        "ratio_all_cores": took["cores"] / shuffle_s,
        "ratio_cipher": took["cipher"] / shuffle_s,
    }


class _Timed:
    """Work on rows that is timed each time it is done, and whose result is looked at."""

    def __init__(self, work: Callable[[], Table], rows: Sequence[Tensor]) -> None:
        self.work, self.rows = work, rows
        self.wall, self.cpu = list[float](), list[float]()

    def __call__(self) -> float:
        wall, cpu = time.perf_counter(), time.process_time()
        made = self.work()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        check(np.stack([row[-CHECKED:].numpy() for row in self.rows]), made[:, -CHECKED:])
        return self.wall[-1]


def check(before: Table, after: Table) -> None:
    """See that columns were permuted. Raises: CroupierError when they were not.

    Each must hold the values that went in. Whether any has moved is asked only where there are many values: few may
    stay where they were by chance.
    """
    if not np.array_equal(np.sort(before, 0), np.sort(after, 0)):
        raise CroupierError("the shuffled values of a coordinate are not those that went in")
    if before.size >= BLOCK and np.array_equal(before, after):
        raise CroupierError("nothing was shuffled")


def _rows(clients: int, params: int, coins: Coins) -> list[Tensor]:
    """The clients' rows, each an array of its own, as they arrive."""
    return [torch.from_numpy(draw(coins.child("row", who), params)) for who in range(clients)]


def _shuffled(rows: Sequence[Tensor], coins: Coins) -> Table:
    """The release itself: a new table, words from the cipher, and the swaps."""
    out: Table = Shuffle()(rows, Layout((Slice("w", (len(rows[0]),)),)), None, coins)["rows"].numpy()
    return out


def _warm(clients: int, coins: Coins) -> None:
    """Load compiled code, and start threads, before anything is timed."""
    _shuffled(_rows(clients, 2 * BLOCK, coins.child("warm")), coins)


def _words(coins: Coins, count: int) -> float:
    """Seconds that drawing all words takes one core, as many at a time as the shuffle draws."""
    step = permute.DRAWN
    start = time.perf_counter()
    for number, first in enumerate(range(0, count, step)):
        coins.child(number).secure().words(min(step, count - first))
    return time.perf_counter() - start


def _sweep(size: CoordinateShuffleSize, seed: int) -> dict[str, Any]:
    most = size.clients * size.params
    params = [SMALLEST * 10**k for k in range(12)]
    points = [(n, d) for n in CLIENTS for d in params if n * d <= most] or [(size.clients, size.params)]
    found = [_point(n, d, size.repeats, Coins.from_seed(seed)) for n, d in points]
    return {"points": found, "power": power(found, "seconds"), "cpu_power": power(found, "cpu_s")}


def _point(clients: int, params: int, repeats: int, coins: Coins) -> dict[str, Any]:
    _warm(clients, coins)
    rows = _rows(clients, params, coins)
    work = _Timed(partial(_shuffled, rows, coins.child("shuffle")), rows)
    took = min(work() for _ in range(repeats))
    each = 1e9 / (clients * params)
    return {"clients": clients, "params": params, "seconds": took, "ns_per_element": each * took,
            "cpu_s": min(work.cpu), "cpu_ns_per_element": each * min(work.cpu)}  # fmt: skip


def power(points: Sequence[dict[str, Any]], key: str) -> float | None:
    """The exponent p for which it grows as (clients x parameters)^p, by least squares on logarithms; 1 is linear.

    None where all points are of one size.
    """
    size = np.log([point["clients"] * point["params"] for point in points])
    if np.ptp(size) == 0:
        return None
    return float(np.polyfit(size, np.log([point[key] for point in points]), 1)[0])


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(
        f"{found['clients']} clients, {found['params']} parameters: every coordinate by a uniform permutation of its "
        f"own, from {found['random_bytes_per_parameter']} bytes of a cipher, {found['cores']} cores"
    )
    lines = {
        "shuffle": f"{found['shuffle_s']:9.3f} s, {found['ns_per_element']:.2f} ns an element "
        f"({found['shuffle_cpu_s']:.2f} s of processor time; of it, the cipher {found['words_s']:.3f} s)",
        "argsort": f"{found['argsort_s']:9.3f} s, {found['ratio']:.1f} times ours ({found['argsort_is']})",
        "argsort, all cores": f"{found['argsort_all_cores_s']:9.3f} s, {found['ratio_all_cores']:.1f} times",
        "argsort, cipher's keys": f"{found['argsort_cipher_s']:9.3f} s, {found['ratio_cipher']:.1f} times",
        "argsort, in one line": f"{found['argsort_line_s']:9.3f} s, {found['ratio_line']:.1f} times "
        f"({found['argsort_line_is']})",
    }
    for head, text in lines.items():
        print(f"{head:24}{text}")
    print(f"the last three are scaled up from {found['others_measured_on']} parameters")
    print(
        f"peak {found['peak_bytes'] / 1e6:.0f} MB, {found['peak_growth_bytes'] / 1e6:.0f} MB beyond the loaded program "
        f"({found['peak_is']}); the clients' rows are {found['data_bytes'] / 1e6:.0f} MB"
    )


def show_sweep(found: dict[str, Any]) -> None:
    """One line a size."""
    print(f"{'clients':>8}{'parameters':>12}{'seconds':>10}{'ns each':>10}{'processor ns':>14}")
    for point in found["points"]:
        print(
            f"{point['clients']:>8}{point['params']:>12}{point['seconds']:>10.4f}{point['ns_per_element']:>10.2f}"
            f"{point['cpu_ns_per_element']:>14.2f}"
        )
    if found["power"] is not None:
        print(
            f"seconds grow as (clients x parameters)^{found['power']:.3f}, processor time with the power "
            f"{found['cpu_power']:.3f}"
        )
