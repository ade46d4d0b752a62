"""What permuting a model along its symmetries costs: beside a copy of it, its training, pruning and DP-SGD.

`croupier bench tazza` runs it. A copy of the same model is the least that moving all its numbers can cost, so that it
is the rival; training, pruning and DP-SGD say what the cost means beside a client's other work. `client_defences` and
`papers.tazza.cost` time its subjects, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.shuffled import Shuffled
from croupier.encode.symmetry import Symmetry
from croupier.errors import SpecError
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Adam, prune
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.models import Mixer, Mlp, Network, ResNet18, Rnn, Vit
from croupier.learn.private import check_private, clipped, each
from croupier_lab.bench.size import BenchSize, Watch, ignore

# What takes less than a few milliseconds is measured so many times as often.
OFTEN = 10
# The share of a gradient that pruning leaves, the largest values first.
KEPT = 0.1
# Tensors that are named for one reason; `--json` names all.
NAMED = 4
CASES: dict[str, tuple[Network, tuple[int, ...], int]] = {
    "mlp": (Mlp(hidden=(1024, 1024)), (1, 28, 28), 10),
    "rnn": (Rnn(), (30, 20), 4),
    "mixer": (Mixer(width=256, within=1024, across=128), (3, 32, 32), 10),
    "vit": (Vit(width=256, hidden=1024), (3, 32, 32), 10),
    "resnet18": (ResNet18(), (3, 32, 32), 10),
}


class ModelPermutationSize(BenchSize):
    """How much is measured: which models, a client's records, records of a batch, repeats of which the best counts."""

    models: tuple[str, ...] = Field(
        tuple(CASES),
        description="Models to measure; may be repeated. By default all: mlp, rnn, mixer, vit, resnet18.",
        json_schema_extra={"flag": "model"},
    )
    records: int = Field(500, ge=1, description="Records of a client, for what an epoch takes.")
    batch: int = Field(64, ge=2, description="Records of a batch.")
    repeats: int = Field(5, ge=1, description="Timed repeats; the best counts.")
    threads: int = Field(1, ge=1, description="Threads that torch may use.")


def measure(size: ModelPermutationSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Every model in turn. Raises: SpecError on a model that is not known."""
    if unknown := set(size.models) - set(CASES):
        raise SpecError(f"--model = {min(unknown)!r}: known are {', '.join(CASES)}")
    before = torch.get_num_threads()
    torch.set_num_threads(size.threads)
    try:
        found = []
        for name in size.models:
            watch(name)
            found.append(_model(name, size, Coins.from_seed(seed).child(name)))
    finally:
        torch.set_num_threads(before)
    return {**size.plain(), "models": found, "kept_by_pruning": KEPT}


@dataclass(frozen=True)
class Subject:
    """A network with one batch of records, its symmetry, and a secret that rules are derived from."""

    net: FlatNet
    rows: TensorRecords
    symmetry: Symmetry
    vector: Tensor = field(repr=False)
    seed: bytes = field(repr=False)


def subject(network: Network, shape: tuple[int, ...], classes: int, batch: int, coins: Coins) -> Subject:
    """A fresh network on drawn records."""
    with coins.child("start").ambient():
        rows = TensorRecords(torch.rand(batch, *shape), torch.arange(batch) % classes)
        module = network.build(Dataset("drawn", "classify", classes, rows, rows, "none", "drawn", labels=rows.y))
    symmetry = symmetry_of(module, rows.x[:2])
    vector = symmetry.layout.flatten(dict(module.named_parameters()) | dict(module.named_buffers()))
    net = FlatNet(module)
    net.load(vector)
    return Subject(net, rows, symmetry, vector.detach(), coins.child("rule").export())


def _model(name: str, size: ModelPermutationSize, coins: Coins) -> dict[str, Any]:
    made = subject(*CASES[name], size.batch, coins)
    symmetry, vector, seed = made.symmetry, made.vector, made.seed
    out, rule = torch.empty_like(vector), symmetry.rule(seed, 0)
    shuffled = symmetry.under(rule)
    steps = -(-size.records // size.batch)
    step = _best(stepper(made.net, made.rows, Adam()), size.repeats)
    private = privately(made.net, made.rows, coins)
    # Before the clock runs: this also works out tables of the rule, and compiles loops that the machine lacks.
    if not torch.equal(shuffled.invert(shuffled.apply(vector)), vector):
        raise AssertionError(f"{name}: there and back is not the same model")
    quick = {
        "shuffle_s": lambda: shuffled.apply(vector, out),
        "unshuffle_s": lambda: shuffled.invert(vector, out),
        "copy_s": lambda: out.copy_(vector),
    }
    return {
        "model": name,
        "parameters": symmetry.layout.size,
        "groups": len(symmetry.groups),
        "still": shuffled.still,
        "still_by_group": rule.still(),
        "held": [f"{held.tensor} axis {held.axis} ({held.size}): {held.reason}" for held in symmetry.held],
        "rule_s": _best(lambda: ruled(symmetry, seed), OFTEN * size.repeats),
        **_beside(quick, OFTEN * size.repeats),
        "batch_step_s": step,
        "steps": steps,
        "epoch_s": steps * step,
        "pruning_s": _best(lambda: prune(vector, KEPT), size.repeats),
        "dpsgd_s": None if private is None else _best(private, size.repeats),
    }


def ruled(symmetry: Symmetry, seed: bytes) -> Shuffled:
    """Derive a round's rule and its tables, as a client does once before a model is permuted and brought back."""
    found = symmetry.under(symmetry.rule(seed, 1))
    found.prepare()
    return found


def stepper(
    net: FlatNet, rows: TensorRecords, fit: Adam, change: Callable[[Tensor], Tensor] = lambda grads: grads
) -> Callable[[], None]:
    """A function that trains on one batch, whose gradient is changed before the step."""
    state, numbers = fit.start(net.weights), counting(1)

    def step() -> None:
        net.grads.zero_()
        loss_of("classify", net.module.train()(rows.x), rows.y).backward()  # type: ignore[no-untyped-call]
        fit.step(net.weights, change(net.grads), state, next(numbers))

    return step


def privately(net: FlatNet, rows: TensorRecords, coins: Coins) -> Callable[[], None] | None:
    """A function that takes one step of DP-SGD: every record's gradient clipped, and the sum noised.

    None where the network has no gradients of single records.
    """
    try:
        check_private(net.module)
    except SpecError:
        return None
    if any(isinstance(part, nn.RNNBase) for part in net.module.modules()):
        # torch takes no single records' gradients of its recurrent layers.
        return None
    fit = DpSgd(momentum=0.0)
    noise = coins.child("noise").secure()

    def step() -> None:
        total = torch.zeros_like(net.weights)
        for x, y in zip(rows.x.split(16), rows.y.split(16), strict=True):  # type: ignore[no-untyped-call]
            total += clipped(each(net.module, "classify", x, y), fit.clip)
        fit.noised(net.weights, total, float(len(rows)), {}, 1, noise)

    return step


def _best(work: Callable[[], Any], repeats: int) -> float:
    return _beside({"": work}, repeats)[""]


def _beside(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The best of each, taken in turns: what else the machine does, and what its caches hold, is the same for all."""
    for work in works.values():
        work()
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            spent[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in spent.items()}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    columns = {"rule": "rule_s", "shuffle": "shuffle_s", "back": "unshuffle_s", "copy": "copy_s"}
    columns |= {"pruning": "pruning_s", "DP-SGD": "dpsgd_s", "batch": "batch_step_s", "epoch": "epoch_s"}
    print("permuting a model once a round, in milliseconds; pruning, DP-SGD and batch are for one batch")
    print(f"{'':10}{'parameters':>12}" + "".join(f"{title:>10}" for title in columns) + "  of an epoch  copies")
    for row in found["models"]:
        cells = ["none" if row[key] is None else f"{1e3 * row[key]:.2f}" for key in columns.values()]
        share = (row["rule_s"] + row["shuffle_s"] + row["unshuffle_s"]) / row["epoch_s"]
        line = f"{row['model']:10}{row['parameters']:12,}" + "".join(f"{cell:>10}" for cell in cells)
        print(f"{line}{share:13.2%}{row['shuffle_s'] / row['copy_s']:8.1f}")
    for row in found["models"]:
        _moves(row)


def _moves(row: dict[str, Any]) -> None:
    """What is permuted in a model and how much of it stays where it was by chance; and what is held, and why."""
    print(f"\n{row['model']}: {row['groups']} groups are permuted; {row['still']:.2%} of the coordinates stay in place")
    print("  of each group: " + ", ".join(f"{name} {share:.1%}" for name, share in row["still_by_group"].items()))
    reasons: dict[str, list[str]] = {}
    for held in row["held"]:
        tensor, _, reason = held.partition(": ")
        reasons.setdefault(reason, []).append(tensor)
    for reason, tensors in reasons.items():
        more = f" and {len(tensors) - NAMED} more" if len(tensors) > NAMED else ""
        print(f"  held, because {reason}: {', '.join(tensors[:NAMED])}{more}")
