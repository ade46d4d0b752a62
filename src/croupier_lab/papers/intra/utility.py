"""IntraShuffler's tables of utility (3, 4, 8, 9), run again at equal noise through the real round loop.

`croupier reproduce intra/table3` (and so on) runs them. Each table has a `Board` of its own (`utility_table`), which
trains each cell once a seed; it is no board of clients. `utility_findings` says in sentences what the rows show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from croupier_lab.papers.intra.protocols import (
    ADAM,
    COSINE,
    FEDAVG,
    FEDPROX,
    PROXIMAL,
    RULES,
    SMALLEST,
    NoiseArm,
    ServerRule,
)
from croupier_lab.papers.intra.tasks import CNN, DENSENET, LSTM, MOBILENET, TRANSFORMER, london, people, pictures
from croupier_lab.papers.intra.utility_findings import says, says4
from croupier_lab.papers.intra.utility_table import Board, UtilityCell, row
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
Row = dict[str, Any]
Printed = Mapping[str, Mapping[str, tuple[float, ...]]]
PAPER = "IntraShuffler (2026)"
LONDON, PECAN, COMSTOCK, PEOPLE, PHOTOS = (
    "London households", "Pecan Street", "ComStock", "activity (in place of ComStock)", "CIFAR-10",
)  # fmt: skip
NAMES = ("FedAvg", "FedProx", "FedOpt")


def _printed(lstm: Sequence[tuple[float, ...]], other: Sequence[tuple[float, ...]]) -> Printed:
    return {
        "LSTM": dict(zip(NAMES, lstm, strict=True)), "TimesFM": dict(zip(NAMES, other, strict=True)),
    }  # fmt: skip


# Printed numbers, by model and aggregator: Plain FL-DP, Shuffle-DP, IntraShuffler.
TABLE3 = _printed(
    ((0.442, 0.423, 0.424), (0.439, 0.421, 0.422), (0.433, 0.417, 0.418)),
    ((0.409, 0.392, 0.393), (0.406, 0.390, 0.391), (0.401, 0.386, 0.387)),
)
TABLE8 = {
    LONDON: _printed(
        ((0.468, 0.445, 0.446), (0.462, 0.440, 0.441), (0.455, 0.433, 0.434)),
        ((0.451, 0.428, 0.429), (0.446, 0.424, 0.425), (0.439, 0.418, 0.419)),
    ),
    PECAN: _printed(
        ((0.421, 0.402, 0.403), (0.417, 0.398, 0.399), (0.410, 0.392, 0.393)),
        ((0.404, 0.386, 0.387), (0.400, 0.382, 0.383), (0.394, 0.377, 0.378)),
    ),
}
TABLE9 = {
    "MobileNet": dict(zip(NAMES, ((71.8, 74.6, 74.4), (72.3, 75.1, 75.0), (73.5, 76.2, 76.0)), strict=True)),
    "DenseNet": dict(zip(NAMES, ((78.4, 81.6, 81.4), (78.9, 82.1, 82.0), (80.1, 83.3, 83.1)), strict=True)),
}
# Printed numbers of Table 4: no bucket, bucket.
TABLE4 = {LONDON: (0.577, 0.408), PECAN: (0.551, 0.424), COMSTOCK: (0.518, 0.393)}

# Stated: as much noise as the paper's epsilons take. By cosine: as much as leaves a noised update the cosine with the
# clean one that the paper's Table 1 shows, which is far less.
NONE, STATED, BY_COSINE = NoiseArm("none"), NoiseArm("stated"), NoiseArm("cosine")
# The stated noise with a smaller server step, because it drowns the updates; one arm for each way to weigh rows.
QUIET = tuple(NoiseArm("stated", weights, quiet=True) for weights in ("equal", "tier", "bucket"))
ARMS = (NONE, STATED, *QUIET, BY_COSINE, NoiseArm("cosine", "tier"), NoiseArm("cosine", "bucket"))
FEWER = (NONE, STATED, QUIET[0], BY_COSINE, NoiseArm("cosine", "bucket"))
# Table 4's cosines: Table 1's, and two that take more noise (the less cosine is left, the louder the noise), so that
# weights have something to mend.
LOUDER = (COSINE, 0.03, 0.01)


def _rules(scale: Scale) -> tuple[ServerRule, ...]:
    return (FEDAVG, ADAM) if scale == "smoke" else RULES


def _beside(printed: Mapping[str, tuple[float, ...]], rule: ServerRule, arm: NoiseArm, table: str) -> str:
    """The paper's numbers that an arm is to be compared with."""
    found = printed[rule.name.partition(":")[0]]
    if arm.noise == "none":
        return "-"
    plain, shuffled, intra = (f"{one:g}" for one in found)
    kept = {"equal": f"{plain} / {shuffled} / {intra}", "tier": plain, "bucket": f"{shuffled} / {intra}"}
    return f"{kept[arm.weights]} ({table})"


def _absent(data: str, printed: Printed, table: str) -> list[Row]:
    return [
        row(data, model, name, paper=f"{' / '.join(f'{one:g}' for one in found)} ({table})")
        for model, rules in printed.items()
        for name, found in rules.items()
    ]


def _filled(board: Board, cells: Sequence[UtilityCell], beside: Callable[[UtilityCell], str]) -> list[Row]:
    board.ahead(cells)
    return [board.row(one, beside(one)) for one in cells]


def _table8(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    names = {LSTM: "LSTM", TRANSFORMER: "TimesFM"}
    works = {(LONDON, model): london(model, scale, means) for model in names}
    board = Board(works, tuple(seeds), means, watch)
    cells = [UtilityCell(task, rule, arm) for task in works for rule in _rules(scale) for arm in ARMS]
    rows = _filled(board, cells, lambda c: _beside(TABLE8[LONDON][names[c.task[1]]], c.rule, c.arm, "Table 8"))
    # Row 1 is the first with noise; `says` tells of any row that has this.
    rows[1]["_same"] = board.same((LONDON, LSTM))
    return [*rows, *_absent(PECAN, TABLE8[PECAN], "Table 8")]


def _table3(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    works = {(PEOPLE, CNN): people(scale, means)}
    board = Board(works, tuple(seeds), means, watch)
    rules = (FEDAVG,) if scale == "smoke" else RULES
    cells = [UtilityCell(task, rule, arm) for task in works for rule in rules for arm in ARMS]
    rows = _filled(board, cells, lambda _: "-")
    # On the first row with noise, as in Table 8.
    rows[1]["_same"] = board.same((PEOPLE, CNN))
    return [*rows, *_absent(COMSTOCK, TABLE3, "Table 3")]


def _table9(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    names = {MOBILENET: "MobileNet", DENSENET: "DenseNet"}
    works = {(PHOTOS, model): pictures(model, scale, means) for model in names}
    board = Board(works, tuple(seeds), means, watch)
    rules = {"smoke": (FEDAVG,), "small": (FEDAVG, ADAM), "paper": (FEDAVG, FEDPROX, ADAM)}[scale]
    cells = [UtilityCell(task, rule, arm) for task in works for rule in rules for arm in FEWER]
    return _filled(board, cells, lambda c: _beside(TABLE9[names[c.task[1]]], c.rule, c.arm, "Table 9, per cent"))


def _table4(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    works = {(LONDON, TRANSFORMER): london(TRANSFORMER, scale, means)}
    if scale != "smoke":
        works |= {(PEOPLE, CNN): people(scale, means)}
    board = Board(works, tuple(seeds), means, watch)
    arms: list[NoiseArm] = [NONE]
    levels = LOUDER[:2] if scale == "smoke" else LOUDER
    for noise, quiet, level in [("cosine", False, level) for level in levels] + [("stated", True, COSINE)]:
        arms += [NoiseArm(noise, "equal", "variance", quiet, level)]  # type: ignore[arg-type]
        arms += [NoiseArm(noise, "bucket", by, quiet, level) for by in ("variance", "epsilon")]  # type: ignore[arg-type]
        arms += [NoiseArm(noise, "tier", "variance", quiet, level)]  # type: ignore[arg-type]
    cells = [UtilityCell(task, FEDAVG, arm) for task in works for arm in arms]
    rows = _filled(board, cells, _beside4)
    lacking = [(data, *TABLE4[data]) for data in (PECAN, COMSTOCK)]
    return [*rows, *(row(d, "TimesFM", "FedAvg", paper=f"{no:g} / {yes:g} (Table 4)") for d, no, yes in lacking)]


def _beside4(one: UtilityCell) -> str:
    if one.task[0] not in TABLE4 or one.arm.noise == "none" or one.arm.weights == "tier":
        return "-"
    return f"{TABLE4[one.task[0]][one.arm.weights == 'bucket']:g} (Table 4)"


READ = (
    "Forecasts: root mean squared error in kWh a half hour, less is better; classes: accuracy in per cent. Means over "
    "seeds with 95 % intervals, and against the first model seed by seed. 'Noise stated': per-round epsilon 0.5, 1, 2, "
    "4 or 8 by client, delta = 1e-5, for whole clients with sensitivity 2 C; 'noise cosine c': the same tiers' noise "
    "made smaller until a noised update keeps that cosine with the clean one. 'Comes out as': the columns of the paper "
    "that are one and the same training here, because a shuffle changes no sum."
)
# What is put in place of the paper's series (Table 9 has none), and of its training.
SERIES_SUBSTITUTED = (
    "Pecan Street and ComStock are not available: the paper's numbers stand alone",
    "people's activities (21 subjects: 16 clients, 5 auxiliary, tested on 9 others) stand in for ComStock as a second "
    "series with natural clients, with accuracy for RMSE",
    "a small Transformer trained from nothing stands in for TimesFM, which is pretrained",
    "every 29th window of a household at paper scale (61st small, 211th smoke): the paper does not say which it takes, "
    "nor the unit of its RMSE",
)
TRAINING_SUBSTITUTED = (
    "C is the median length of the auxiliary clients' updates at the first model; the paper names no C",
    f"local SGD with momentum for all rules; FedProx with weight {PROXIMAL:g}; FedOpt as FedAdam, FedYogi and "
    "FedAdagrad, server rate 0.01, quietly 0.001",
    "quiet steps: FedAvg's and FedProx's rate is the share that a signal as long as C can have in the squared length "
    f"of the noised mean, from public numbers; buckets of {SMALLEST} or more",
)
SUBSTITUTED = (*SERIES_SUBSTITUTED, *TRAINING_SUBSTITUTED)
SEEDS: Mapping[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
FIGURES = (
    Figure(
        "intra/table3", f"{PAPER}, Table 3", "utility by aggregator under heterogeneous DP: ComStock, and activity",
        READ, _table3, SEEDS, SUBSTITUTED, says,
    ),
    Figure(
        "intra/table4", f"{PAPER}, Table 4", "utility with buckets and without", READ, _table4, SEEDS, SUBSTITUTED,
        says4,
    ),
    Figure(
        "intra/table8", f"{PAPER}, Table 8", "RMSE by model and aggregator under heterogeneous DP: London and others",
        READ, _table8, SEEDS, SUBSTITUTED, says,
    ),
    Figure(
        "intra/table9", f"{PAPER}, Table 9", "accuracy on CIFAR-10 under heterogeneous DP", READ, _table9, SEEDS,
        (
            *TRAINING_SUBSTITUTED,
            "CIFAR-10 by Dirichlet 0.5 among 200 clients and 20 auxiliary ones; the paper says 'class-skew'",
            "groups of 8 channels are normalised, not batches: running statistics would travel, be "
            "clipped and noised",
            "below paper scale a quarter of MobileNet's width, a DenseNet of 20,298 weights, fewer pictures",
        ),
        says,
    ),
)  # fmt: skip
