"""Tazza's Figure 17: a server that looks for the rule in the parameters, and what is left where it saw no order.

Searches that stand for the paper's look at the input layer alone. Weight matching uses all layers together. Where the
server never saw a model in plain order, it can try the smoothness of pictures and public pictures.
`croupier reproduce tazza/figure17` runs it, on `attacks.rule_search`, `attacks.pixel_layout` and
`attacks.smooth_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins, Ints
from croupier.encode.symmetry import Rule, Symmetry
from croupier.learn.axes import symmetry_of
from croupier.learn.axes.matching import after, match, shares
from croupier.learn.data import Dataset
from croupier.learn.datasets import Mnist
from croupier.learn.flat import layout_of
from croupier.learn.gradients import gradient_of, holding
from croupier.learn.likeness import psnr, ssim
from croupier.learn.models import Mlp
from croupier.learn.png import png
from croupier_lab.attacks.permuted_upload import read_upload, record_of
from croupier_lab.attacks.pixel_layout import ROUNDS, by_example, chance_neighbours, kept_neighbours, laid_out
from croupier_lab.attacks.rule_search import (
    BITS,
    index_error,
    literal_listing1,
    match_sorted,
    nearest_by_norm,
    seek,
    swapped,
)
from croupier_lab.attacks.smooth_layout import by_smoothness, turned
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER, RATE
from croupier_lab.papers.tazza.parameter_search_rows import (
    INPUT,
    PIXELS,
    PRINTED,
    SIDE,
    interval,
    plain_row,
    says_figure17,
    search_row,
)

Watch = Callable[[str], None]
# Clients, local epochs, records a client, pictures for the layout, seeds tried, steps of the search by swaps.
SIZES: Mapping[Scale, tuple[int, tuple[int, ...], int, int, int, int]] = {
    "smoke": (4, (1,), 128, 200, 200, 1000),
    "small": (20, (1, 10), 300, 2000, 5000, 10_000),
    "paper": (100, (1, 10), 600, 10_000, 100_000, 10_000),
}
# A title of rows, and how many records are really inverted.
DRAWN, READ = "first model drawn by the clients", 5


def figure17(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    """The paper's search beside weight matching, sorted values and seeds; then what is left without plain order."""
    rows = []
    for seed in seeds:
        bench = _bench(scale, means, seed)
        rows += _only_inputs(bench, watch)
        rows += [row for epochs in SIZES[scale][1] for row in _all_layers(bench, epochs, watch)]
        rows += _without_order(bench, watch)
        rows.append(_seeds(bench))
    return rows


@dataclass(frozen=True)
class _Bench:
    """A fresh network, its symmetry, records of clients and public ones."""

    scale: Scale
    dataset: Dataset
    module: nn.Module
    symmetry: Symmetry
    handed: Tensor
    coins: Coins

    def trained(self, client: int, epochs: int, batches: int | None = None) -> Tensor:
        """A client's model after Adam at 0.001 on batches of 64, for so many epochs or their first batches only."""
        _, _, count, *_ = SIZES[self.scale]
        network = holding(self.module, self.handed, self.symmetry.layout)
        search = torch.optim.Adam(network.parameters(), 1e-3)
        generator = self.coins.child("order", client, epochs).fast()
        for _ in range(epochs):
            order = client * count + torch.randperm(count, generator=generator)
            for at in order.split(64)[:batches]:  # type: ignore[no-untyped-call]
                x, y = self.dataset.train.batch(at)
                search.zero_grad()
                functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
                search.step()
        return self.symmetry.layout.flatten(dict(network.named_parameters())).detach().clone()


def _bench(scale: Scale, means: Means, seed: int) -> _Bench:
    clients, _, count, pictures, *_ = SIZES[scale]
    dataset = Mnist(train=max(clients * count, pictures), test=5000).load(means.folder)
    coins = Coins.from_seed(seed).child("figure 17")
    with coins.child("weights").ambient():
        module = Mlp(hidden=(256, 128)).build(dataset)
    symmetry = symmetry_of(module, dataset.train.batch(torch.arange(2))[0])
    handed = layout_of(module).flatten(dict(module.named_parameters())).detach().clone()
    return _Bench(scale, dataset, module, symmetry, handed, coins)


def _only_inputs(bench: _Bench, watch: Watch) -> list[dict[str, Any]]:
    """Rows for the paper's setting: one update, only the input layer permuted, each client under a rule of its own."""
    clients, _, _, _, _, steps = SIZES[bench.scale]
    found: dict[str, list[tuple[float, float]]] = {}
    still = {group: np.arange(size) for group, size in bench.symmetry.groups.items()}
    for client in range(clients):
        coins = bench.coins.child("inputs", client)
        true = bench.symmetry.draw(coins.child("rule"), 0).of[INPUT]
        upload = bench.symmetry.apply(bench.trained(client, 1, 1), Rule(still | {INPUT: true}))
        ours, theirs = (one[: 256 * PIXELS].view(256, PIXELS) for one in (bench.handed, upload))
        for name, order in _searches(bench, upload, ours, theirs, steps, coins).items():
            found.setdefault(name, []).append((index_error(order, true), float(np.mean(order == true))))
    watch("the input layer alone")
    paper = ("L2 search, by lengths (the paper's attack, one reading)", "L2 search, by swaps (the other reading)")
    return [
        search_row("input layer only, one update", name, [one for one, _ in got], [one for _, one in got],
             PRINTED if name in paper else None)
        for name, got in found.items()
    ]  # fmt: skip


def _searches(bench: _Bench, upload: Tensor, ours: Tensor, theirs: Tensor, steps: int, coins: Coins) -> dict[str, Ints]:
    return {
        "no view: a random order": bench.symmetry.draw(coins.child("guess"), 0).of[INPUT],
        "L2 search, by lengths (the paper's attack, one reading)": nearest_by_norm(ours, theirs, coins.child("norm")),
        "L2 search, by swaps (the other reading)": swapped(ours, theirs, steps, coins.child("swap")),
        "sorted values": match_sorted(bench.handed, upload, bench.symmetry, coins.child("sorted")).rule.of[INPUT],
        "weight matching": match(bench.handed, upload, bench.symmetry, coins.child("match")).rule.of[INPUT],
    }


def _all_layers(bench: _Bench, epochs: int, watch: Watch) -> list[dict[str, Any]]:
    """Rows for every layer permuted: single clients, and averages of ten (or of half of them, where they are few)."""
    clients = SIZES[bench.scale][0]
    uploads = [bench.trained(client, epochs) for client in range(clients)]
    several = min(10, clients // 2)
    means = [torch.stack(uploads[at : at + several]).mean(0) for at in range(0, clients - several + 1, several)]
    watch(f"all layers after {epochs} epochs")
    rows = []
    for label, sent in (("one client", uploads), (f"average of {several}", means)):
        for name, attack in (("sorted values", match_sorted), ("weight matching", match)):
            errors, right, groups = [], [], []
            for number, upload in enumerate(sent):
                coins = bench.coins.child("all", epochs, label, number)
                rule = bench.symmetry.draw(coins.child("rule"), 0)
                permuted = bench.symmetry.apply(upload, rule)
                found = attack(bench.handed, permuted, bench.symmetry, coins.child(name)).rule
                each = shares(found, rule)
                errors.append(index_error(found.of[INPUT], rule.of[INPUT]))
                right.append(min(each.values()))
                groups.append(each)
            row = search_row(f"all layers, {epochs} epochs, {label}", name, errors, right)
            rows.append(row | {"_groups": groups})
    return rows


def _without_order(bench: _Bench, watch: Watch) -> list[dict[str, Any]]:
    """Rows for a first model that the clients drew: only relative orders are found, and pictures are laid out."""
    pictures = SIZES[bench.scale][3]
    coins = bench.coins.child("relative")
    frame, rule = (bench.symmetry.draw(coins.child("rules"), number) for number in range(2))
    handed, upload = bench.symmetry.apply(bench.handed, frame), bench.symmetry.apply(bench.trained(0, 1), rule)
    found = match(handed, upload, bench.symmetry, coins.child("match")).rule
    absolute, relative = shares(found, rule), shares(after(frame, found), rule)
    rows = [
        plain_row(DRAWN, "matching, absolute", min(absolute.values()), 1 / 128),
        plain_row(DRAWN, "matching, between rounds", min(relative.values()), 1 / 128),
    ]
    x, y = bench.dataset.train.batch(torch.arange(pictures))
    # Only `READ` records are really inverted, which shows how exact that is; the others are permuted as they would come
    # out.
    read = torch.cat(
        [_read(bench, handed, rule, x[n : n + 1], y[n : n + 1], coins.child("read", n)) for n in range(READ)]
    )
    exact = cell(psnr(read, bench.symmetry.permute_inputs(x[:READ], frame)).tolist())
    rows.append(plain_row(DRAWN, f"{READ} records of single steps, in the unknown order", 0.0, 1 / PIXELS))
    rows[-1] |= {"recovered": None, "chance": None, "psnr": interval(exact, 1), "_exact": exact}
    samples = torch.cat([read, bench.symmetry.permute_inputs(x[READ:], frame)]).flatten(1)
    order = frame.of[INPUT]
    public = bench.dataset.test.batch(torch.arange(len(bench.dataset.test)))[0].flatten(1)
    rounds = 2 if bench.scale == "smoke" else ROUNDS
    guess, changes = coins.child("guess").sampler().permutation(PIXELS), _changes(bench, handed, rule, coins)
    smooth = partial(by_smoothness, height=SIDE, width=SIDE, rounds=rounds)
    layouts = {
        "no view: a random order": guess,
        f"smoothness of {len(changes)} changes of filters": smooth(changes, coins=coins.child("filters")),
        f"smoothness of {pictures} pictures": smooth(samples, coins=coins.child("smooth")),
        f"co-occurrence in {pictures} pictures, public ones known": by_example(
            samples, public, coins.child("example"), rounds
        ),
    }
    watch("layouts of pictures in an unknown order")
    rows += [_layout(name, places, order, samples[:100], x[:100]) for name, places in layouts.items()]
    return rows


def _changes(bench: _Bench, handed: Tensor, rule: Rule, coins: Coins) -> Tensor:
    """What an epoch did to the first layer's units, in the order of the model that was handed out."""
    ours, found = handed[: 256 * PIXELS].view(256, PIXELS), []
    for client in range(min(10, SIZES[bench.scale][0])):
        sent = bench.symmetry.apply(bench.trained(client, 1), rule)
        back = match(handed, sent, bench.symmetry, coins.child("change", client)).rule
        found.append(bench.symmetry.invert(sent, back)[: 256 * PIXELS].view(256, PIXELS) - ours)
    return torch.cat(found)


def _read(bench: _Bench, handed: Tensor, rule: Rule, x: Tensor, y: Tensor, coins: Coins) -> Tensor:
    """A record of one step, inverted in the frame of the model that was handed out."""
    upload = bench.handed - RATE * gradient_of(holding(bench.module, bench.handed, bench.symmetry.layout), x, y)
    sent = bench.symmetry.apply(upload, rule)
    view = read_upload("relative", bench.module, handed, sent, bench.symmetry, RATE, coins.child("read"))
    return record_of(view, x.shape[1:], bench.dataset.classes, coins.child("invert")).clamp(0, 1)


def _layout(name: str, places: Ints, true: Ints, samples: Tensor, pictures: Tensor) -> dict[str, Any]:
    """A row on a layout: pictures by its best turned or mirrored form, the share of places as it stands."""
    turns = turned(laid_out(samples, places).view(-1, 1, SIDE, SIDE))
    each = [psnr(turn, pictures) for turn in turns]
    best = max(range(8), key=lambda number: float(each[number].mean()))
    like = cell(each[best].tolist())
    return {
        **plain_row(DRAWN, name, float(np.mean(places == true)), 1 / PIXELS),
        "neighbours_kept": round(kept_neighbours(places, true, SIDE, SIDE), 4),
        "chance_neighbours": round(chance_neighbours(SIDE, SIDE), 4),
        "psnr": interval(like, 1), "ssim": interval(cell(ssim(turns[best], pictures).tolist()), 3),
        "_png": png(turns[best][0]), "_true": png(pictures[0]),
    }  # fmt: skip


def _seeds(bench: _Bench) -> dict[str, Any]:
    """A row for the seeds of the printed listing, tried one by one against one row of the first layer."""
    count = SIZES[bench.scale][4]
    layer = nn.Linear(PIXELS, 256)
    weight = bench.handed[: 256 * PIXELS].view(256, PIXELS)
    moved = bench.trained(0, 1)[: 256 * PIXELS].view(256, PIXELS)
    secret = int(bench.coins.child("seed").sampler().integers(count))
    with torch.no_grad():
        layer.weight.copy_(moved)
    literal_listing1(layer, secret)
    found = seek(weight, layer.weight.detach(), range(count))
    row = plain_row(
        "printed listing", f"seed search, {count} of 2^{BITS} seeds", float(found.seeds == (secret,)), 1 / count
    )
    return row | {"trial_ms": round(1e3 * found.trial_s, 3), "core_hours": round(found.core_hours())}


FIGURES = (
    Figure(
        "tazza/figure17", f"{PAPER}, Figure 17", "the rule from parameters: the paper's search beside weight matching",
        "'Index error' is how many of 784 places an index is off on average, 'blind error' that of a random order; "
        "'recovered' the share of places found (of the worst group, where all layers are permuted), beside what a "
        "random order has. Intervals are 95 % over clients, or over averages of clients. PSNR and "
        "SSIM of a layout are those of the best of its turned and mirrored forms, and neighbours are the same in all "
        "eight; what is recovered counts in the layout as it stands. Seeds are searched for the printed listing.",
        figure17, {"smoke": 1, "small": 1, "paper": 1},
        (
            "the paper does not say how it minimises the L2 norm: two searches stand for it, one that compares lengths "
            "of columns and one that swaps columns at random",
        ),
        says_figure17,
    ),
)  # fmt: skip
