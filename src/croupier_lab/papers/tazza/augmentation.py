"""Tazza's Figure 6: crops and mirrors before pixels are permuted, and after.

A crop after the permutation mixes pixels that are no neighbours, and costs much accuracy; a crop before it keeps
neighbours together, and costs little. That is why clients of the product augment in plain coordinates.
`croupier reproduce tazza/figure6` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.encode.shuffled import Shuffled
from croupier.learn.augment import Crop
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset
from croupier.learn.datasets import Cifar10
from croupier.learn.flat import layout_of
from croupier.learn.gradients import holding
from croupier.learn.likeness import ssim
from croupier.learn.models import Mixer, Mlp, Network
from croupier.learn.png import png
from croupier_lab.attacks.feature_distance import Perceiver, fitted, perceiver
from croupier_lab.drawing.pictures import sheet
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER
from croupier_lab.papers.tazza.parameter_search_rows import interval
from croupier_lab.papers.tazza.permuted_training import learn, right

Watch = Callable[[str], None]
Row = dict[str, Any]
# The augmentation, pictures that a result keeps, and test pictures that are looked at.
AUGMENT, PICTURES, LOOKED = Crop(side=26, flip=True), 6, 500
NEVER, BEFORE, AFTER = "none", "before permuting (as clients do)", "after permuting"
Change = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class AugmentationSize:
    """Records, epochs of the networks and of the classifier that reads pictures, and the networks."""

    train: int | None
    test: int
    epochs: int
    reading: int
    networks: Mapping[str, Network]


SIZES: Mapping[Scale, AugmentationSize] = {
    "smoke": AugmentationSize(320, 200, 2, 1, {"MLP": Mlp(hidden=(32,))}),
    "small": AugmentationSize(5000, 2000, 20, 4, {"MLP": Mlp(hidden=(256, 128))}),
    "paper": AugmentationSize(None, 10_000, 50, 20, {"MLP": Mlp(hidden=(256, 128)), "Mixer": Mixer()}),
}


def orders(rule: Shuffled) -> dict[str, Change]:
    """How inputs are changed, by whether pictures are augmented before they are permuted, after, or never."""

    def before(x: Tensor, generator: torch.Generator) -> Tensor:
        return rule.permute(AUGMENT(x, generator))

    def after(x: Tensor, generator: torch.Generator) -> Tensor:
        return AUGMENT(rule.permute(x), generator)

    return {NEVER: lambda x, _: rule.permute(x), BEFORE: before, AFTER: after}


def figure6(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    """Accuracy of a network under a rule for each order of the two, and what is left of the pictures."""
    size = SIZES[scale]
    dataset = AUGMENT.prepare(
        Cifar10(train=size.train, test=size.test).load(means.folder), None, Coins.from_seed(0).child("figure 6")
    )
    eye = perceiver(dataset, size.reading, Coins.from_seed(0).child("figure 6", "eye"), means.device)
    watch(f"the classifier that reads pictures is right on {eye.accuracy:.0%}")
    rows: list[Row] = []
    for name, network in size.networks.items():
        found = []
        for seed in seeds:
            found.append(
                _seed(network, dataset, eye, size.epochs, means.device, Coins.from_seed(seed).child("6", name))
            )
            watch(f"{name}, seed {seed}")
        rows += [_row(name, order, found, eye) for order in (NEVER, BEFORE, AFTER)]
    return rows


def _seed(
    network: Network, dataset: Dataset, eye: Perceiver, epochs: int, device: str, coins: Coins
) -> dict[str, dict[str, Any]]:
    """One rule: a network trained in each order, and tested on permuted pictures that are not augmented."""
    with coins.child("weights").ambient():
        module = network.build(dataset)
    (x, y), (test, truth) = (part.batch(torch.arange(len(part))) for part in (dataset.train, dataset.test))
    symmetry, layout = symmetry_of(module, x[:2]), layout_of(module)
    rule = symmetry.under(symmetry.draw(coins.child("rule"), 0))
    start = rule.apply(layout.flatten(dict(module.named_parameters())).detach())
    out: dict[str, dict[str, Any]] = {}
    for name, change in orders(rule).items():
        trained = holding(module, start, layout).to(device)
        for _ in learn(trained, x.to(device), y.to(device), epochs, coins.child("lesson"), change):
            pass
        accuracy = right(trained, rule.permute(test).to(device), truth.to(device))
        out[name] = {"accuracy": accuracy, **_looked(test[:LOOKED], truth[:LOOKED], change, rule, eye, coins)}
    return out


def _looked(x: Tensor, y: Tensor, change: Change, rule: Shuffled, eye: Perceiver, coins: Coins) -> dict[str, Any]:
    """What one who knows the rule sees once pixels are put back.

    It is how often a classifier reads the pictures, how smooth they are, and how like the augmented pictures.
    """
    shown = change(x, coins.child("looked").fast())
    back, meant = rule.restore(shown), AUGMENT(x, coins.child("looked").fast())
    device = next(eye.module.parameters()).device
    return {
        "read": right(eye.module, fitted(back).to(device), y.to(device)), "rough": rough(back),
        "ssim": float(ssim(back, meant).mean()), "same": float((back == meant).flatten(1).all(1).double().mean()),
        "prior": float(y.bincount().max()) / len(y),
        "_shown": [png(one) for one in shown[:PICTURES]], "_back": [png(one) for one in back[:PICTURES]],
        "_plain": [png(one) for one in x[:PICTURES]],
    }  # fmt: skip


def rough(pictures: Tensor) -> float:
    """The mean difference of neighbouring pixels, over that of any two of the picture: 1 is noise."""
    down, across = (pictures.diff(dim=side).abs().double().mean() for side in (2, 3))
    inorder = pictures.double().flatten(2).sort(dim=2).values
    count = inorder.shape[2]
    # A value counts for each that is smaller, and against each that is larger.
    signs = 2 * torch.arange(count, device=pictures.device, dtype=torch.float64) - (count - 1)
    anywhere = (inorder * signs).sum(2).mean() / (count * (count - 1) / 2)
    return float((down + across) / 2 / anywhere)


def _row(name: str, order: str, found: Sequence[Mapping[str, Mapping[str, Any]]], eye: Perceiver) -> Row:
    def over(key: str) -> dict[str, Any]:
        return cell([one[order][key] for one in found])

    accuracy, read = over("accuracy"), over("read")
    gain = None if order == NEVER else cell([one[order]["accuracy"] - one[NEVER]["accuracy"] for one in found])
    first = found[0][order]
    return {
        "network": name, "augmented": order, "paper": {BEFORE: "semantics kept", AFTER: "meaningless"}.get(order),
        "accuracy": interval(accuracy, 4), "more_than_none": None if gain is None else interval(gain, 4),
        "put_back_read": interval(read, 3), "roughness": interval(over("rough"), 3), "ssim": interval(over("ssim"), 3),
        "same_as_augmented": interval(over("same"), 3), "prior": round(first["prior"], 3), "seeds": len(found),
        "_accuracy": accuracy, "_gain": gain, "_read": read, "_rough": over("rough"), "_same": over("same"),
        "_eye": eye.accuracy, "_pictures": {key: first[key] for key in ("_plain", "_shown", "_back")},
    }  # fmt: skip


def draw6(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same pictures in each order: as the network is shown them, and put back."""
    at = {row["augmented"]: row["_pictures"] for row in rows if row["network"] == rows[0]["network"]}
    strips = [("original", at[NEVER]["_plain"])]
    for name in (BEFORE, AFTER):
        strips += [(f"augmented {name}", at[name]["_shown"]), ("  the same, pixels put back", at[name]["_back"])]
    return sheet("Figure 6: a window cut and mirrored, before pixels are permuted and after", strips)


def says6(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what the order is worth."""
    out = []
    for name in dict.fromkeys(row["network"] for row in rows):
        at = {row["augmented"]: row for row in rows if row["network"] == name}
        gains = {order: at[order]["_gain"] for order in (BEFORE, AFTER)}
        told = ", ".join(
            f"{100 * one['mean']:+.1f} points [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}] {order}"
            for order, one in gains.items()
        )
        out.append(f"{name}: against no augmentation the network under the rule is {told}.")
    first = {row["augmented"]: row for row in rows if row["network"] == rows[0]["network"]}
    read = {order: 100 * row["_read"]["mean"] for order, row in first.items()}
    return [
        *out,
        f"Pixels put back, a classifier that is right on {100 * rows[0]['_eye']:.0f} % of plain pictures reads "
        f"{read[BEFORE]:.0f} % of those augmented before permuting and {read[AFTER]:.0f} % of those augmented after "
        f"({100 * rows[0]['prior']:.0f} % by always saying the commonest); neighbouring pixels differ "
        f"{first[AFTER]['_rough']['mean']:.2f} times as much as any two, {first[BEFORE]['_rough']['mean']:.2f} in the "
        "right order.",
        "With encode = 'hidden-units' clients train in plain coordinates and permute what they send: augmentation is "
        "before the permutation by construction.",
    ]


FIGURES = (
    Figure(
        "tazza/figure6", f"{PAPER}, Figure 6", "crops and mirrors before and after pixels are permuted",
        "Accuracy of a network under a rule on permuted test pictures, means with 95 % intervals over seeds; 'more "
        "than none': the same seed's difference from training without augmentation. 'Put back read': how often a "
        "classifier of plain pictures is right once the pixels of an augmented picture are put back by the rule; "
        "'roughness': differences of neighbouring pixels over those of any two (1 is noise); SSIM and the share of "
        "exactly equal pictures are against the picture augmented alike and never permuted. Prior: the share of the "
        "commonest class.",
        figure6, {"smoke": 2, "small": 5, "paper": 10},
        (
            f"a window of {AUGMENT.side} of 32 pixels anywhere and a mirror by a fair coin for the paper's centre crop "
            "and mirror; the paper shows pictures and no numbers",
        ),
        says6, draw6,
    ),
)  # fmt: skip
