"""Tazza's Figure 5: the same network on pixels in plain order and in another, and what is exactly the same.

A perceptron does not depend on the order of its pixels, and trains alike from weights permuted alike, step by step. A
convolutional network does, and is the control. `croupier reproduce tazza/figure5` runs it; `augmentation` and
`picture_distance` train with `learn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.encode.symmetry import Rule, Symmetry
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset
from croupier.learn.datasets import Mnist
from croupier.learn.flat import layout_of
from croupier.learn.gradients import holding
from croupier.learn.models import Mlp, MnistCnn, Network
from croupier_lab.drawing.lines import LineStyle, lines
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER
from croupier_lab.papers.tazza.parameter_search_rows import interval

Watch = Callable[[str], None]
Row = dict[str, Any]
# Batch and learning rate of all trainings, and test pictures whose answers are compared.
BATCH, RATE, PROBES = 64, 1e-3, 1000
PLAIN, OTHER, CROSSED = "in order", "permuted", "in order, tested permuted"
MLP, CNN = "MLP, 3 layers", "CNN, its kernels in order"


@dataclass(frozen=True)
class PermutedTrainingSize:
    """Records, epochs of the perceptron, and seeds and epochs of the convolutional control; steps compared exactly."""

    train: int | None
    test: int | None
    epochs: int
    controls: int
    control_epochs: int
    steps: tuple[int, ...]


SIZES: Mapping[Scale, PermutedTrainingSize] = {
    "smoke": PermutedTrainingSize(640, 500, 3, 2, 2, (1, 10)),
    "small": PermutedTrainingSize(10_000, 5000, 20, 3, 5, (1, 10, 100)),
    "paper": PermutedTrainingSize(None, None, 20, 3, 20, (1, 10, 100, 1000)),
}


def learn(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    epochs: int,
    coins: Coins,
    change: Callable[[Tensor, torch.Generator], Tensor] = lambda inputs, _: inputs,
) -> Iterator[None]:
    """Train with Adam at 0.001 on batches of 64, which `change` may change; it yields after every epoch."""
    search = torch.optim.Adam(module.parameters(), RATE)
    order, fresh = coins.child("order").fast(), coins.child("change").fast()
    for _ in range(epochs):
        module.train()
        for at in torch.randperm(len(x), generator=order).to(x.device).split(BATCH):  # type: ignore[no-untyped-call]
            search.zero_grad()
            functional.cross_entropy(module(change(x[at], fresh)), y[at]).backward()  # type: ignore[no-untyped-call]
            search.step()
        module.eval()
        yield


def right(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of records whose class is told right."""
    with torch.no_grad():
        parts = zip(x.split(1000), y.split(1000), strict=True)  # type: ignore[no-untyped-call]
        return sum(int((module(one).argmax(1) == true).sum()) for one, true in parts) / len(x)


@dataclass(frozen=True)
class _Class:
    """Training and test records, which can also be shown in another order of pixels."""

    dataset: Dataset
    device: str
    x: Tensor
    y: Tensor
    test: Tensor
    truth: Tensor

    def curves(self, network: Network, epochs: int, coins: Coins) -> dict[str, list[float]]:
        """Accuracy by epoch in both orders, from the same first weights and in the same batches."""
        order = torch.from_numpy(coins.child("rule").secure().permutation(self.x[0].numel())).to(self.device)
        out: dict[str, list[float]] = {PLAIN: [], OTHER: [], CROSSED: []}
        for name in (PLAIN, OTHER):
            with coins.child("weights").ambient():
                module = network.build(self.dataset).to(self.device)
            x, test = (part if name == PLAIN else _under(part, order) for part in (self.x, self.test))
            for _ in learn(module, x, self.y, epochs, coins.child("lesson")):
                out[name].append(right(module, test, self.truth))
                if name == PLAIN:
                    out[CROSSED].append(right(module, _under(test, order), self.truth))
        return out


def _under(x: Tensor, order: Tensor) -> Tensor:
    return x.flatten(1)[:, order].view_as(x)


def figure5(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Rows for both orders, for the control, and for two trainings compared step by step."""
    size = SIZES[scale]
    dataset = Mnist(train=size.train, test=size.test).load(means.folder)
    (x, y), (test, truth) = (part.batch(torch.arange(len(part))) for part in (dataset.train, dataset.test))
    room = _Class(dataset, means.device, *(part.to(means.device) for part in (x, y, test, truth)))
    rows: list[Row] = []
    for label, network, epochs, chosen in (
        (MLP, Mlp(hidden=(256, 128)), size.epochs, seeds),
        (CNN, MnistCnn(), size.control_epochs, seeds[: size.controls]),
    ):
        found = []
        for seed in chosen:
            found.append(room.curves(network, epochs, Coins.from_seed(seed).child("figure 5", label)))
            watch(f"{label}, seed {seed}")
        rows += [_row(label, name, found) for name in (PLAIN, OTHER, CROSSED) if label == MLP or name != CROSSED]
    for dtype in (torch.float32, torch.float64):
        told = [apart(dataset, size.steps, dtype, Coins.from_seed(seed)) for seed in seeds[: size.controls]]
        rows += [_matched(dtype, step, [one[step] for one in told]) for step in size.steps]
    return rows


def apart(dataset: Dataset, steps: Sequence[int], dtype: torch.dtype, coins: Coins) -> dict[int, tuple[float, ...]]:
    """How far two trainings are apart, the second on permuted pixels from weights permuted alike.

    After each number of steps it tells how far the second's weights, put back in order, are from the first's, as a
    share of the largest; the same for answers to test pictures; and the share of answers that are equal. Floats are
    added in another order, so that last bits differ.
    """
    coins = coins.child("side by side")
    with coins.child("weights").ambient():
        module = Mlp(hidden=(256, 128)).build(dataset).to(dtype)
    x, y = dataset.train.batch(torch.arange(len(dataset.train)))
    probes = dataset.test.batch(torch.arange(min(PROBES, len(dataset.test))))[0].to(dtype)
    symmetry = symmetry_of(module, probes[:2])
    rule = symmetry.draw(coins.child("rule"), 0)
    layout = layout_of(module)
    start = _flat(module)
    pair = holding(module, start, layout), holding(module, symmetry.apply(start, rule), layout)
    searches = [torch.optim.Adam(one.parameters(), RATE) for one in pair]
    generator, out = coins.child("order").fast(), {}
    for step in range(1, max(steps) + 1):
        at = torch.randint(len(x), (BATCH,), generator=generator)
        shown = x[at].to(dtype)
        for one, search, seen in zip(pair, searches, (shown, symmetry.permute_inputs(shown, rule)), strict=True):
            search.zero_grad()
            functional.cross_entropy(one(seen), y[at]).backward()  # type: ignore[no-untyped-call]
            search.step()
        if step in steps:
            out[step] = _compared(*pair, symmetry, rule, probes)
    return out


def _flat(module: nn.Module) -> Tensor:
    """All weights as one vector in their own precision, because a layout's vectors have single precision."""
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def _compared(one: nn.Module, two: nn.Module, symmetry: Symmetry, rule: Rule, probes: Tensor) -> tuple[float, ...]:
    ours, theirs = _flat(one), _flat(two)
    with torch.no_grad():
        first, second = one(probes), two(symmetry.permute_inputs(probes, rule))
    weights = float((symmetry.invert(theirs, rule) - ours).abs().max() / ours.abs().max())
    answers = float((second - first).abs().max() / first.abs().max())
    return weights, answers, float((first.argmax(1) == second.argmax(1)).double().mean())


COLUMNS: Row = {
    "network": "", "pixels": "", "paper": None, "seeds": 0, "epochs": None, "accuracy": None, "against_in_order": None,
    "steps": None, "weights_apart": None, "answers_apart": None, "same_answers": None, "_curve": None, "_less": None,
    "_apart": None,
}  # fmt: skip


def _row(label: str, name: str, found: Sequence[Mapping[str, list[float]]]) -> Row:
    curve = [cell([one[name][epoch] for one in found]) for epoch in range(len(found[0][name]))]
    less = None if name == PLAIN else cell([one[name][-1] - one[PLAIN][-1] for one in found])
    paper = "(nearly) identical" if (label, name) == (MLP, OTHER) else None
    return COLUMNS | {
        "network": label, "pixels": name, "paper": paper, "seeds": len(found), "epochs": len(curve),
        "accuracy": interval(curve[-1], 4), "against_in_order": None if less is None else interval(less, 4),
        "_curve": curve, "_less": less,
    }  # fmt: skip


def _matched(dtype: torch.dtype, step: int, told: Sequence[tuple[float, ...]]) -> Row:
    worst = [max(one[0] for one in told), max(one[1] for one in told), min(one[2] for one in told)]
    return COLUMNS | {
        "network": f"{MLP}, weights permuted alike, {str(dtype).split('.')[1]}", "pixels": OTHER, "seeds": len(told),
        "steps": step, "weights_apart": f"{worst[0]:.1e}", "answers_apart": f"{worst[1]:.1e}",
        "same_answers": round(worst[2], 4), "_apart": worst,
    }  # fmt: skip


def draw5(rows: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy by epoch, both orders of pixels over each other."""
    panels: dict[str, dict[str, list[tuple[str, dict[str, Any]]]]] = {}
    least = 1.0
    for row in rows:
        if row["_curve"] and row["pixels"] != CROSSED:
            marks = [{"rate": one["mean"], "low": one["low"], "high": one["high"]} for one in row["_curve"]]
            least = min(least, *(mark["low"] for mark in marks))
            panels.setdefault(row["network"], {})[f"pixels {row['pixels']}"] = [
                (str(number), mark) for number, mark in enumerate(marks, 1)
            ]
    style = LineStyle(limits=(max(0.0, int(20 * least) / 20), 1.0), priors=False)
    return lines(panels, "Figure 5: accuracy by epoch, pixels in order and permuted", "epoch", style)


def says5(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what is nearly, what is exactly and what is not the same."""
    at = {(row["network"], row["pixels"]): row for row in rows if row["_curve"]}
    less, lost, crossed = (at[key]["_less"] for key in ((MLP, OTHER), (CNN, OTHER), (MLP, CROSSED)))
    last = max(row["steps"] for row in rows if row["steps"])
    exact = [row for row in rows if row["steps"] == last]
    held = "holds 0: no difference is seen" if less["low"] <= 0 <= less["high"] else "does not hold 0"
    return [
        f"A perceptron on permuted pixels is {100 * less['mean']:+.2f} points [{100 * less['low']:+.2f}, "
        f"{100 * less['high']:+.2f}] from one on pixels in order; the interval {held}. It sees no layout, so there is "
        "nothing to lose, and a permutation hides nothing from whoever can train on it.",
        "From weights permuted alike both trainings are the same function at every step but for the order in which "
        f"floats are added: after {last} steps of Adam answers differ by "
        + ", ".join(f"{row['answers_apart']} ({row['network'].rsplit(', ', 1)[1]})" for row in exact)
        + " of the largest.",
        f"A network that uses the layout is not indifferent: a CNN on permuted pixels is {100 * lost['mean']:+.2f} "
        f"points [{100 * lost['low']:+.2f}, {100 * lost['high']:+.2f}] from itself, and a perceptron that learnt in "
        f"order is {100 * crossed['mean']:+.1f} points off on permuted pixels: inputs and network must be permuted "
        "together.",
    ]


FIGURES = (
    Figure(
        "tazza/figure5", f"{PAPER}, Figure 5", "accuracy on pixels in order and permuted, and the exact statement",
        "Accuracy on test records after the last epoch, means with 95 % intervals over seeds; 'against in order': the "
        "same seed's difference from pixels in order (same first weights, same batches). 'Apart': the largest "
        "difference of any seed as a share of the largest value, once the second network is brought back. Test pixels "
        "are permuted as the training's are, but where it says otherwise.",
        figure5, {"smoke": 2, "small": 10, "paper": 10},
        ("layers of 256 and 128 units, Adam at 0.001, batches of 64: the paper does not say",), says5, draw5,
    ),
)  # fmt: skip
