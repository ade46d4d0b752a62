"""IntraShuffler's Table 7: what forming buckets, shuffling and averaging cost in clients and parameters, measured.

The paper gives orders of growth, and no numbers to compare with. Here stand seconds of the product's own code at
growing sizes, and the exponent with which they grow. `croupier reproduce intra/table7` runs it, on
`bench.speed.coordinate_shuffle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.release.buckets import form
from croupier_lab.bench.speed.coordinate_shuffle import CoordinateShuffleSize, measure, power
from croupier_lab.bench.speed.rns_chunks import draw
from croupier_lab.papers.intra.protocols import SMALLEST, TIERS
from croupier_lab.papers.shared.figure import Figure, Scale, counted

PAPER = "IntraShuffler (2026)"
# Parameters of the models of the paper's tables; then by scale the clients, parameters and models that are timed.
NETWORKS: Mapping[str, int] = {
    "LSTM (32)": 4_513, "series Transformer (64)": 68_097, "MobileNetV2": 2_236_682, "DenseNet-121": 6_956_426,
}  # fmt: skip
SWEPT: Mapping[Scale, tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]] = {
    "smoke": ((10, 20, 40), (20_000, 80_000), ("LSTM (32)",)),
    "small": ((10, 20, 40, 80), (100_000, 1_000_000), ("LSTM (32)", "series Transformer (64)", "MobileNetV2")),
    "paper": ((10, 20, 40, 80, 160), (100_000, 1_000_000, 10_000_000), tuple(NETWORKS)),
}


def _rows(scale: Scale) -> list[dict[str, Any]]:
    clients, params, names = SWEPT[scale]
    sizes = [(20, NETWORKS[name], name) for name in names]
    # What does not fit into a small machine's memory is left out.
    sizes += [(m, d, "-") for d in params for m in clients if m * d <= 400_000_000]
    found = [(m, d, name, _shuffled(m, d)) for m, d, name in sizes]
    swept = [{"clients": m, "params": d, "seconds": one["shuffle_s"]} for m, d, name, one in found if name == "-"]
    grown = power(swept, "seconds")
    return [
        {
            "model": name, "clients": m, "parameters": d, "bucketing_s": _took(partial(form, _tiers(m), SMALLEST)),
            "shuffle_s": round(one["shuffle_s"], 6), "shuffle_ns_a_value": round(one["ns_per_element"], 2),
            "averaging_s": _averaged(m, d), "memory_bytes": one["peak_growth_bytes"],
            "grows_as": f"(m D)^{grown:.2f}", "cores": one["cores"],
            "paper": "O(m), O(m D), O(m D) (Table 7)",
        }
        for m, d, name, one in found
    ]  # fmt: skip


def _shuffled(clients: int, params: int) -> dict[str, Any]:
    return measure(CoordinateShuffleSize(clients=clients, params=params, repeats=3), 0, rival=False)


def _tiers(clients: int) -> list[float]:
    return [TIERS[number % len(TIERS)] for number in range(clients)]


def _took(work: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return round(min(times), 7)


def _averaged(clients: int, params: int) -> float:
    """FedAvg of as many rows, as the server takes it."""
    layout, coins = Layout((Slice("w", (params,)),)), Coins.from_seed(0)
    rows = torch.stack([torch.from_numpy(draw(coins.child(who), params)) for who in range(clients)])
    gathered = Gathered(tuple(map(str, range(clients))), rows, weights=torch.ones(clients).double(), form="delta")
    desk = Desk((Model(torch.zeros(params)),), layout, coins)
    return _took(lambda: Mean()(gathered, desk, {}), 2)


FIGURES = (
    Figure(
        "intra/table7", f"{PAPER}, Table 7", "what buckets, shuffle and mean cost in clients and parameters",
        "Seconds of the parts of a round on this machine: forming buckets of clients, permuting every coordinate among "
        "all clients with randomness from a cipher (buckets permute fewer at a time), and averaging. 'grows as' is the "
        "power of clients times parameters that the shuffle's seconds grow with over all sizes without a model's name: "
        "1 is linear. The paper gives orders and no seconds. TimesFM's own weights are not here: a small Transformer "
        "and the networks of Table 9 stand in.",
        counted(_rows),
    ),
)  # fmt: skip
