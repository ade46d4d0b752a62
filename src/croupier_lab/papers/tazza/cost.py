"""Tazza's Figures 14 to 16: how long a client's defences take, by depth, updates, architecture and threads.

The paper's figures are plots of measurements on three single-board computers. These are measurements of whatever
machine runs them, in milliseconds; `bench.speed.client_defences` times them. `croupier reproduce tazza/figure14` (to
`tazza/figure16`) runs them.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from croupier.core.coins import Coins
from croupier.learn.models import Mixer, Mlp, Network, Rnn, Vit
from croupier_lab.bench.speed.client_defences import CLOCKS, DPSGD, NONE, PRUNING, TAZZA, costs
from croupier_lab.bench.speed.limited_cores import lent
from croupier_lab.bench.speed.model_permutation import CASES, subject
from croupier_lab.drawing.lines import LineStyle, lines
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER

Watch = Callable[[str], None]
Row = dict[str, Any]
Kind = tuple[Network, tuple[int, ...], int]
DEFENCES = (TAZZA, PRUNING, DPSGD)
# What the paper's text says on Figure 16: how many times as long as Tazza pruning takes on a Raspberry Pi 3B; and how
# many times as long the weakest of its three computers takes as the strongest.
PRINTED, SPREAD = 6.70, {TAZZA: 2.01, PRUNING: 2.68}
# Where nothing else is said: records of a batch, updates, units of a hidden layer, and hidden layers.
BATCH, UPDATES, WIDTH, HIDDEN = 64, 10, 256, 1
# Said beside every result: the machine is none of the paper's single-board computers.
BOARDS = "not the paper's boards"
# Hidden layers, updates, and repeats of which the best counts.
SWEPT: Mapping[Scale, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "smoke": ((1, 2), (1, 4), 2),
    "small": ((1, 2, 3, 4, 5), (1, 5, 10, 20, 50), 3),
    "paper": ((1, 2, 3, 4, 5), (1, 5, 10, 20, 50, 100), 20),
}
KINDS: Mapping[str, Kind] = {
    "MLP": (Mlp(hidden=(256, 128)), (1, 28, 28), 10), "RNN": (Rnn(), (30, 20), 4),
    "Mixer": (Mixer(), (3, 32, 32), 10), "ViT": (Vit(), (3, 32, 32), 10), "MLP, wide": CASES["mlp"],
    "ResNet-18": CASES["resnet18"],
}  # fmt: skip
# Which networks, and repeats: a Mixer's batch takes as long as a hundred of the perceptron's.
BUILT: Mapping[Scale, tuple[tuple[str, ...], int]] = {
    "smoke": (("MLP", "RNN"), 1), "small": (("MLP", "RNN", "Mixer", "ViT"), 1), "paper": (tuple(KINDS), 10),
}  # fmt: skip
THREADS = (1, 2)


def perceptron(layers: int) -> Kind:
    """MNIST's network with so many hidden layers."""
    return Mlp(hidden=(WIDTH,) * layers), (1, 28, 28), 10


def figure14(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Rows by the number of hidden layers, and by the number of updates.

    `means` is not used in this file: nothing needs data or a device. `Figure.rows` passes it to all.
    """
    depths, counts, repeats = SWEPT[scale]
    asked = [("hidden layers", depth, depth, UPDATES) for depth in depths]
    asked += [("updates", count, HIDDEN, count) for count in counts]
    rows: list[Row] = []
    for swept, count, depth, updates in asked:
        watch(f"{swept}: {count}")
        rows += _rows(perceptron(depth), updates, repeats, 1, seeds, {"swept": swept, "count": count})
    return rows


def figure15(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Rows by architecture."""
    rows: list[Row] = []
    names, repeats = BUILT[scale]
    for name in names:
        watch(name)
        rows += _rows(KINDS[name], UPDATES, repeats, 1, seeds, {"network": name})
    return rows


def figure16(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Rows on one thread and on two, with one hidden layer and ten updates."""
    rows: list[Row] = []
    for threads in THREADS:
        watch(_threads(threads))
        at = {"platform": _threads(threads)}
        # Two threads are no quicker by the processor's time: it counts both.
        rows += _rows(perceptron(HIDDEN), UPDATES, SWEPT[scale][2], threads, seeds, at, "wall")
    for row in rows:
        row["paper"] = f"{PRINTED:.2f} (Raspberry Pi 3B)" if row["defence"] == TAZZA else None
    return rows


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _rows(
    kind: Kind, updates: int, repeats: int, threads: int, seeds: Sequence[int], at: Row, clock: str = "processor"
) -> list[Row]:
    """Every defence of one setting, a run for each seed, and how many times as long as it pruning takes."""
    with lent(threads) as cores:
        runs = [_run(kind, updates, repeats, seed, clock) for seed in seeds]
        load = round(os.getloadavg()[0], 1)
    known = {"updates": updates, "threads": threads, "cores": cores, "clock": clock, "load": load}
    return [_row(name, runs, {**at, **known}) for name in DEFENCES]


def _run(kind: Kind, updates: int, repeats: int, seed: int, clock: str) -> dict[str, Any]:
    coins = Coins.from_seed(seed).child("defences")
    return costs(subject(*kind, BATCH, coins), updates, repeats, coins.child("measured"), CLOCKS[clock])


def _row(name: str, runs: Sequence[Mapping[str, Any]], at: Row) -> Row:
    alone, total = ([one[part][name] for one in runs] for part in ("alone", "total"))
    known = None not in alone
    held = {"_alone": times_cell(alone) if known else None, "_total": times_cell(total) if known else None,
            "_none": times_cell([one["total"][NONE] for one in runs])}  # fmt: skip
    times, whole, once = (_ratio(runs, name, part) if known else None for part in ("alone", "total", "once"))
    return {
        **at, "parameters": runs[0]["parameters"], "defence": name, "paper": None, "alone_ms": _shown(held["_alone"]),
        "with_training_ms": _shown(held["_total"]), "training_ms": _shown(held["_none"]),
        "pruning_takes_times": _shown(times, 1.0, 2), "pruning_once_takes_times": _shown(once, 1.0, 2),
        "with_training_times": _shown(whole, 1.0, 2), "machine": f"{platform.machine()}, {BOARDS}",
        **held, "_times": times, "_whole": whole, "_once": once,
    }  # fmt: skip


def _ratio(runs: Sequence[Mapping[str, Any]], name: str, part: str) -> dict[str, Any]:
    """How many times as long as a defence pruning takes, seed by seed.

    With `once` pruning cuts one gradient only, that which is sent.
    """
    if part == "once":
        return times_cell([_over(one["pruned_once"], one["alone"][name]) for one in runs])
    return times_cell([_over(one[part][PRUNING], one[part][name]) for one in runs])


def _over(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def times_cell(values: Sequence[float | None]) -> dict[str, Any]:
    """A geometric mean of durations or ratios with its interval, which is taken in logarithms.

    A difference of two durations may come out at 0 or below on a busy machine: it has no logarithm, and counts as lost,
    as does a ratio to it, which is None. The mean is None where fewer than two are left.
    """
    found = cell([math.log(value) if value is not None and value > 0 else math.nan for value in values])
    ends = {key: None if found[key] is None else math.exp(found[key]) for key in ("mean", "low", "high")}
    return {**ends, "runs": list(values), "lost": found["lost"]}


def _shown(found: Mapping[str, Any] | None, times: float = 1e3, places: int = 3) -> str | None:
    """A mean with its interval as text, multiplied by `times`: by default seconds become milliseconds."""
    if found is None or found["mean"] is None:
        return None
    mean, low, high = (times * found[key] for key in ("mean", "low", "high"))
    return f"{mean:.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def draw(rows: Sequence[Mapping[str, Any]], panel: str, label: str, title: str) -> str:
    """Milliseconds on an axis of powers of ten: the defence alone, and with training."""
    panels: dict[str, dict[str, list[tuple[str, dict[str, float]]]]] = {}
    for what, key in (("the defence alone, ms", "_alone"), ("with training, ms", "_total")):
        for row in rows:
            if row[key] is not None and row[key]["mean"] is not None:
                name = f"by {row[panel]}: {what}" if panel else what
                mark = {to: 1e3 * row[key][of] for to, of in (("rate", "mean"), ("low", "low"), ("high", "high"))}
                panels.setdefault(name, {}).setdefault(row["defence"], []).append((str(row[label]), mark))
    style = LineStyle(log=True, priors=False, joined=label != "network")
    return lines(panels, title, "" if panel else label, style)


def says14(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on how the durations grow with layers and updates."""
    out = []
    for swept in ("hidden layers", "updates"):
        own = {(row["defence"], row["count"]): row["_alone"]["mean"] for row in rows if row["swept"] == swept}
        few, many = min(at for _, at in own), max(at for _, at in own)
        grown = ", ".join(f"{name} {_grown(own[name, few], own[name, many])}" for name in DEFENCES)
        out.append(f"From {few} to {many} {swept} the defence alone takes so many times as long: {grown}.")
    return [*out, *compared(rows)]


def _grown(few: float | None, many: float | None) -> str:
    return "could not be told from its batches" if few is None or many is None else f"{many / few:.1f}"


def compared(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences that compare Tazza with pruning at every batch, and with pruning once."""
    own = [row for row in rows if row["defence"] == TAZZA]
    ratios = [row["_times"]["mean"] for row in own]
    once = [row["_once"]["mean"] for row in own]
    whole = [row["_whole"]["mean"] for row in own]
    return [
        f"Pruning 90 % at every batch takes {min(ratios):.2f} to {max(ratios):.2f} times as long as Tazza's rule, "
        f"restoring and permuting ({min(whole):.2f} to {max(whole):.2f} with training counted on both sides); the "
        f"paper prints up to {PRINTED:.2f} on a Raspberry Pi 3B. Above it are {sum(one >= PRINTED for one in ratios)} "
        f"of {len(own)} settings.",
        f"The server sees only what is sent: pruning that once, as it is permuted once, takes {min(once):.2f} to "
        f"{max(once):.2f} times as long as Tazza. The rest of the ratio is the number of batches.",
        f"This is {BOARDS}, and says nothing about them.",
    ]


def says16(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same, and how far one thread is behind two."""
    at = {(row["defence"], row["threads"]): row["_total"]["mean"] for row in rows if row["_total"]}
    apart = [
        f"{name} {at[name, THREADS[0]] / at[name, THREADS[-1]]:.2f}"
        + (f" (the paper's weakest board against its strongest: {SPREAD[name]:.2f})" if name in SPREAD else "")
        for name in DEFENCES
    ]
    return [*compared(rows), f"With training, one thread takes so many times as long as two: {', '.join(apart)}."]


READ = (
    "Milliseconds, geometric means with 95 % intervals over seeds (a fresh network and rule each), every one the least "
    "of repeats, on one thread by the processor's time, which others on the machine change little, and in Figure 16 by "
    "the wall's, which they do; 'load' is how many wanted to run. Alone: Tazza derives the round's rule, restores the "
    "model it is handed and permutes the one it sends, once; pruning keeps the largest 10 % of every batch's gradient; "
    "DP-SGD is its batches less plain ones. 'Pruning takes times': how many times as long as this pruning takes "
    "alone; 'once': if it prunes only what is sent; 'with training': both with their batches. Agreeing on a rule is "
    "measured elsewhere (croupier bench agree)."
)
SUBSTITUTIONS = (
    "one machine with one and two threads for a Raspberry Pi 3B, a Jetson Nano and a Jetson TX2: " + BOARDS,
    "the paper does not say whether training is counted but in Figure 15: both stand here; nor does it give widths: "
    f"hidden layers have {WIDTH} units, batches {BATCH} records, {UPDATES} updates where nothing else is said",
    "DP-SGD's noise comes from a cipher, which takes longer than a library's generator; where torch gives no single "
    "records' gradients (recurrent layers, batch normalisation) it is left out",
)
SEEDS: Mapping[Scale, int] = {"smoke": 2, "small": 4, "paper": 10}


def _figure(number: int, title: str, rows: Any, says: Any, panel: str, label: str) -> Figure:
    source = f"{PAPER}, Figure {number}"
    picture = partial(draw, panel=panel, label=label, title=f"{source}: {title}; {BOARDS}")
    return Figure(f"tazza/figure{number}", source, title, READ, rows, SEEDS, SUBSTITUTIONS, says, picture, bare=True)


FIGURES = (
    _figure(14, "seconds of defences by hidden layers and updates", figure14, says14, "swept", "count"),
    _figure(15, "seconds of defences by architecture", figure15, compared, "", "network"),
    _figure(16, "seconds of defences by threads", figure16, says16, "", "platform"),
)
