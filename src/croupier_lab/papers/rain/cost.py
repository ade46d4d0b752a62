"""What RAIN costs: bytes and seconds of real messages between real processes, beside the paper's tables.

`croupier reproduce rain/table2`, `rain/table3` and `rain/figure7` run it, on `bench.speed.rain_round`. The paper's
shuffle as printed sends nothing between the servers and does not recombine, so its numbers stand beside ours and are
not compared. Camel and FLGuard are the paper's own measurements: neither is built here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from croupier_lab.bench.speed.rain_inputs import Mode, RainRoundSize
from croupier_lab.bench.speed.rain_round import measure
from croupier_lab.papers.shared.figure import Figure, Scale, counted

PAPER = "Li et al., RAIN, arXiv 2603.03108"
MODES: tuple[Mode, ...] = ("semi-honest", "malicious")
# Parameters. The paper gives neither model nor dimension; its 25.30 KB a client is what two copies of 101,200 signs
# take, and a perceptron 784-128-10 has about as many.
DIMENSIONS: Mapping[str, int] = {"MNIST": 101_770, "FMNIST": 305_720}
# Printed kilobytes a client sends and seconds of the servers (Table II); seconds of a client and of the servers (III).
TABLE2: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Camel": {"MNIST": (25.76, 0.954), "FMNIST": (28.13, 0.989)},
    "FLGuard": {"MNIST": (64.32, 5.264), "FMNIST": (823.6, 7.486)},
    "RAIN": {"MNIST": (25.30, 0.910), "FMNIST": (76.43, 0.980)},
}
TABLE3: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Camel": {"MNIST": (0.046, 0.031), "FMNIST": (0.059, 0.154)},
    "FLGuard": {"MNIST": (0.210, 0.420), "FMNIST": (0.636, 0.470)},
    "RAIN": {"MNIST": (0.055, 0.052), "FMNIST": (0.063, 0.067)},
}
CLIENTS: Mapping[Scale, int] = {"smoke": 10, "small": 100, "paper": 100}
READ = (
    "Smoke runs d = 10,000 (Figure 7: 1,000) with 10 clients and compares with nothing. Ours: both servers as "
    "processes that share this machine, messages packed with their headers, dealt material lying ready; 'mean' is a "
    "plain mean of as many 32-bit floats, 'extra' the time that integrity costs over the semi-honest form (the paper "
    "claims below 1 %). The paper names no model; d of ours is that of a perceptron 784-128-10 (MNIST) and 784-384-10 "
    "(FMNIST), whose signs to two servers take about what it prints. 'paper, not measured' rows are the paper's own "
    "numbers on its own machine: no ratio is claimed against them."
)


def _ours(dataset: str, scale: Scale, mode: Mode) -> dict[str, Any]:
    size = RainRoundSize(
        clients=CLIENTS[scale], params=DIMENSIONS[dataset] if scale != "smoke" else 10_000, mode=mode, repeats=2
    )
    return measure(size, 0)


def _table2(scale: Scale) -> list[dict[str, Any]]:
    found = [
        {"method": f"{name}: paper, not measured", "data": data, "d": "not said", "paper_client_kb": kb,
         "paper_server_s": seconds, "client_kb": "-", "server_s": "-"}
        for name, rows in TABLE2.items()
        for data, (kb, seconds) in rows.items()
    ]  # fmt: skip
    for mode in MODES:
        for data in DIMENSIONS:
            got = _ours(data, scale, mode)
            printed = TABLE2["RAIN"][data] if scale != "smoke" else ("-", "-")
            found.append({
                "method": f"ours, {mode}", "data": data, "d": got["params"], "paper_client_kb": printed[0],
                "paper_server_s": printed[1], "client_kb": round(got["client_bytes"] / 1000, 2),
                "server_s": round(got["online_s"], 3),
            })  # fmt: skip
    return found


def _table3(scale: Scale) -> list[dict[str, Any]]:
    found = [
        {"method": f"{name}: paper, not measured", "data": data, "d": "not said", "paper_client_s": one,
         "paper_server_s": two, "client_s": "-", "server_s": "-", "extra_percent": "-", "clear_s": "-", "mean_s": "-"}
        for name, rows in TABLE3.items()
        for data, (one, two) in rows.items()
    ]  # fmt: skip
    for data in DIMENSIONS:
        both = {mode: _ours(data, scale, mode) for mode in MODES}
        for mode, got in both.items():
            printed = TABLE3["RAIN"][data] if scale != "smoke" else ("-", "-")
            more = got["online_s"] / both["semi-honest"]["online_s"] - 1
            found.append({
                "method": f"ours, {mode}", "data": data, "d": got["params"], "paper_client_s": printed[0],
                "paper_server_s": printed[1], "client_s": round(got["client_s"], 5),
                "server_s": round(got["online_s"], 3), "extra_percent": round(100 * more, 1),
                "clear_s": round(got["clear_s"], 4), "mean_s": round(got["mean_s"], 4),
            })  # fmt: skip
    return found


def _figure7(scale: Scale) -> list[dict[str, Any]]:
    counts = {"smoke": (10, 20), "small": (10, 30, 100, 300), "paper": (10, 30, 100, 300, 1000)}[scale]
    params = 1_000 if scale == "smoke" else DIMENSIONS["MNIST"]
    found = []
    for mode in MODES:
        for clients in counts:
            got = measure(
                RainRoundSize(clients=clients, params=params, mode=mode, repeats=1, streamed=clients > 100), 0
            )
            found.append({
                "mode": mode, "clients": clients, "d": params, "client_kb": round(got["client_bytes"] / 1000, 2),
                "paper_servers": "megabytes, sub-linear", "servers_mb": round(sum(got["server_bytes"]) / 1e6, 3),
                "dealt_mb": round(got["dealt_bytes"] / 1e6, 2), "online_s": round(got["online_s"], 3),
            })  # fmt: skip
    return found


FIGURES = (
    Figure(
        "rain/table2", f"{PAPER}, Table II", "bytes a client sends and seconds of the servers", READ, counted(_table2)
    ),
    Figure("rain/table3", f"{PAPER}, Table III", "seconds of a client and of the servers", READ, counted(_table3)),
    Figure(
        "rain/figure7", f"{PAPER}, Figure 7", "bytes by the number of clients",
        f"{READ} The paper's figure shows bytes between servers that grow more slowly than the number of clients, in "
        "megabytes: its shuffle as printed sends nothing. Any shuffle of rows that servers share moves all of them: "
        "ours grows with clients times parameters.",
        counted(_figure7),
    ),
)  # fmt: skip
