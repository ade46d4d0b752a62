"""How many digits RNS needs: the accuracy of training through it, beside training as usual.

Too few digits round the model away, and too many cost bits. Each number of digits is trained from the same seeds as
plain floats, and compared run by run. `croupier reproduce rns/figure3`, `rns/figure10` and `rns/table8` run it, and
`papers.rns.dp_sgd` uses `through`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croupier.aggregate.mean import Mean
from croupier.audit.bench import Watch
from croupier.audit.setting import Setting
from croupier.core.coins import Coins
from croupier.core.intervals import over_runs
from croupier.encode.residues import Residues
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.kernels.residues import Rounding
from croupier.learn.assemble import Hardware, TaskOptions, assemble
from croupier.learn.fit import Adam, Sgd
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.bits import Mod
from croupier.systems import plain
from croupier_lab.papers.rns.source_inference_settings import ALIKE, FEWER, PAPER, SIZES, usual
from croupier_lab.papers.shared.figure import Figure, Means, Scale

VANILLA = "as usual"
# The paper assumes every parameter within -1 and 1.
RANGE = "parameters are clamped to -1 and 1, as the paper assumes; how many were is counted"
NEAREST = "values are rounded to the nearest; the paper rounds down, which shifts every model ('floor' stands beside)"


@dataclass(frozen=True)
class AccuracyRun:
    """How one training ended: the last model's accuracy, and the share of values that clients had to clamp."""

    accuracy: float
    clamped: float


def through(digits: int, clients: int = 10, rounding: Rounding = "even") -> Pipeline:
    """The pipeline that trains through residues with that many digits."""
    encode = Residues(clients=clients, digits=digits, rounding=rounding)
    return Pipeline(encode=encode, release=Mod(), aggregate=Mean(), place=Relay())


def ended(setting: Setting, pipeline: Pipeline, seed: int) -> AccuracyRun:
    """Train once, to the end."""
    coins = Coins.from_seed(seed)
    made = assemble(
        setting.data,
        setting.split,
        setting.model,
        setting.fit,
        coins,
        options=TaskOptions(root=setting.root, together=setting.together),
        folder=setting.folder,
        machine=Hardware(device=setting.device, workers=setting.workers),
    )
    clamped, sent, accuracy = 0, 0, 0.0
    for done in rounds(pipeline, made.task, setting.plan, coins, Local()):
        clamped += sum(noted.get("clamped", 0) for noted in done.noted.values())
        sent += len(done.noted) * made.task.layout.size
        accuracy = done.metrics["accuracy"]
    return AccuracyRun(accuracy, clamped / sent)


def compared(
    setting: Setting, ways: Mapping[str, Pipeline], seeds: Sequence[int], watch: Watch
) -> list[dict[str, Any]]:
    """A row for each way to train, compared with the first way seed by seed."""
    found: dict[str, list[AccuracyRun]] = {}
    for name, pipeline in ways.items():
        for seed in seeds:
            watch(f"seed {seed}: {name}")
            found.setdefault(name, []).append(ended(setting, pipeline, seed))
    first = [one.accuracy for one in found[next(iter(ways))]]
    rows = []
    for name, runs in found.items():
        rate = over_runs([one.accuracy for one in runs])
        gap = over_runs([one.accuracy - base for one, base in zip(runs, first, strict=True)])
        rows.append(
            {
                "training": name, "accuracy": _points(rate.rate), "low": _points(rate.low), "high": _points(rate.high),
                "against_usual": _points(gap.rate), "against_low": _points(gap.low), "against_high": _points(gap.high),
                "clamped_ppm": round(1e6 * sum(one.clamped for one in runs) / len(runs), 1),
            }
        )  # fmt: skip
    return rows


def _points(rate: float) -> float:
    return round(100 * rate, 2)


def _ways(scale: Scale, digits: Sequence[int]) -> dict[str, Pipeline]:
    chosen = digits[:2] if scale == "smoke" else digits
    floor = {} if scale == "smoke" else {"r = 3, floor": through(3, rounding="floor")}
    return {VANILLA: plain("uniform"), **{f"r = {r}": through(r) for r in chosen}, **floor}


def _on(setting: Setting, means: Means) -> Setting:
    return replace(setting, folder=means.folder, device=means.device, workers=means.workers)


def _table(tasks: Mapping[str, Setting], digits: Sequence[int], printed: Mapping[str, Mapping[str, float]]) -> Any:
    def rows(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
        out = []
        for task, setting in tasks.items():
            for row in compared(_on(setting, means), _ways(scale, digits), seeds, _prefixed(watch, task)):
                paper = printed.get(task, {}).get(row["training"])
                out.append({"task": task, "training": row.pop("training"), "paper": paper, **row})
        return out

    return rows


def _prefixed(watch: Watch, task: str) -> Watch:
    return lambda said: watch(f"{task}: {said}")


def _named(rates: Sequence[float], first: int = 1) -> dict[str, float]:
    return {VANILLA: rates[0], **{f"r = {first + at}": rate for at, rate in enumerate(rates[1:])}}


# Table 12, No DP: the paper's numbers behind Figure 3's first panel.
MNIST = {"MNIST/CNN": _named((98.2, 12.0, 96.13, 98.0, 98.07, 98.12))}
TABLE8 = {
    "synthetic/MLP": _named((80.48, 65.19, 75.96, 76.07, 80.30)),
    "activity/CNN": _named((90.38, 16.83, 53.58, 87.72, 89.28)),
    "newsgroups/Transformer": _named((67.90, 3.03, 5.16, 64.00, 66.90)),
}


def _figure3(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    names = ["MNIST/CNN"] if scale == "smoke" else ["MNIST/CNN", "CIFAR-10/CNN"]
    digits = (2, 3) if scale == "smoke" else (1, 2, 3, 4, 5, 8)
    found: list[dict[str, Any]] = _table({n: usual(n, scale) for n in names}, digits, MNIST)(scale, means, seeds, watch)
    return found


def _figure10(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    size = SIZES[scale]
    prox = Sgd(lr=0.01, momentum=0.9, batch=64, epochs=size.epochs, proximal=0.01)
    # FedSGD: a batch that is larger than any client's records is one step on all of them.
    whole = Sgd(lr=0.01, momentum=0.0, batch=1_000_000, epochs=1)
    more = Federation(rounds=size.rounds * (1 if scale == "smoke" else 5))
    tasks = {
        "CIFAR-10/CNN, FedProx": usual("CIFAR-10/CNN", scale, fit=prox),
        "CIFAR-10/CNN, FedSGD": usual("CIFAR-10/CNN", scale, fit=whole, plan=more),
    }
    found: list[dict[str, Any]] = _table(tasks, (2, 3, 4, 5), {})(scale, means, seeds, watch)
    return found


def _table8(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    tasks = {name: usual(name, scale) for name in TABLE8}
    # Each trains locally as its preset does; how many rounds is set here.
    tasks["activity/CNN"] = replace(
        tasks["activity/CNN"], fit=Sgd(lr=0.03, momentum=0.9, epochs=2, batch=32), plan=_plan(scale, 8)
    )
    tasks["newsgroups/Transformer"] = replace(
        tasks["newsgroups/Transformer"], fit=Adam(lr=0.005, epochs=1, batch=32), plan=_plan(scale, 5)
    )
    chosen = {name: tasks[name] for name in (["synthetic/MLP"] if scale == "smoke" else tasks)}
    found: list[dict[str, Any]] = _table(chosen, (1, 2, 3, 4), TABLE8)(scale, means, seeds, watch)
    return found


def _plan(scale: Scale, count: int) -> Federation:
    return Federation(rounds={"smoke": 1, "small": count, "paper": 2 * count}[scale])


READ = (
    "Accuracies in per cent, with 95 % intervals over seeds; 'against usual' is the difference to training as usual "
    "from the same seeds, in points; 'clamped' in parts per million."
)
FIGURES = (
    Figure(
        "rns/figure3", f"{PAPER}, Figure 3", "accuracy by digits, 10 clients, alpha = 0.1", READ, _figure3, FEWER,
        (RANGE, ALIKE, NEAREST, "MNIST's printed numbers are Table 12's, No DP; the figure itself prints none"),
    ),
    Figure(
        "rns/figure10", f"{PAPER}, Figure 10", "accuracy by digits under FedProx and FedSGD", READ, _figure10, FEWER,
        (RANGE, ALIKE, NEAREST, "proximal weight 0.01; FedSGD with lr 0.01 and five times as many rounds"),
    ),
    Figure(
        "rns/table8", f"{PAPER}, Table 8", "accuracy by digits on other kinds of data", READ, _table8, FEWER,
        (
            RANGE, ALIKE, NEAREST, "a small transformer with hashed words for DistilBERT: the paper's is pretrained",
            "raw signals of the phone's sensors for the filtered ones of UCI HAR",
            "alpha = 0.1 for all: the paper does not say",
        ),
        bare=True,
    ),
)  # fmt: skip
