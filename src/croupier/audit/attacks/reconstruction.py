"""What did the record look like? Attacks on a round in which everybody took one step on one record of its own.

The step gives away a gradient, and from it a record is read off the first linear layer, searched for, or peeled off a
sum. `audit.questions.reconstruction` asks them by name (`ATTACKS`) in the blind process and compares what they find
with the records. What follows from the mathematics of a layer is in `learn.layer_gradients`, the search in
`learn.gradient_search`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.audit.knowledge import Knowledge
from croupier.audit.seen import begun, seen
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout
from croupier.errors import SpecError, Unsuited
from croupier.learn.ends import Entrance, find_entrance, last_gradient
from croupier.learn.flat import layout_of
from croupier.learn.gradient_search import SearchRecipe, Target, search_records
from croupier.learn.gradients import Loss, gradient_from, holding
from croupier.learn.layer_gradients import at_entrance, counted_labels, label_of, off_layer

TITLES: Mapping[str, str] = {
    "read": "read off the first linear layer: exact for a single record",
    "read+prior": "read off the first linear layer, and drawn to the public average as far as it is noisy",
    "search": "searched for by its gradient, from what public records suggest (Inverting Gradients, Geiping et al.)",
    "peel": "peeled off the sum one by one: read off single hidden units, and kept if the network would have moved so",
}
CROSS_ENTROPY: Loss = functional.cross_entropy
# Of a record's own gradient, so much may lie beside what the sum is made of; chance alone leaves nearly all of it.
BESIDE = 0.3
# How far beyond the range of public records a guess may lie, in ranges.
SLACK = 0.1


@dataclass(frozen=True)
class PublicKnowledge:
    """What is known before any view: the network, and what public records look like.

    `mean`, `spread` (the variance), `low` and `high` are those of each place in public records; `guesses` are named
    for several records without a view. `rate` is that of the clients' single step, `steps` how long a search may take.
    """

    module: nn.Module
    layout: Layout
    classes: int
    outputs: int
    rate: float
    steps: int
    pictured: bool
    mean: Tensor = field(repr=False)
    spread: Tensor = field(repr=False)
    low: Tensor = field(repr=False)
    high: Tensor = field(repr=False)
    guesses: Tensor = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record."""
        return tuple(self.mean.shape)

    @property
    def recipe(self) -> SearchRecipe:
        """How records are searched for: pictures within 0 and 1, other quantities around the public average."""
        if self.pictured:
            return SearchRecipe(steps=self.steps, variation=1e-2)
        middle, spread = float(self.mean.mean()), float(self.spread.mean().sqrt()) or 1.0
        return SearchRecipe(self.steps, variation=1e-2, boxed=False, mean=middle, deviation=spread)

    def whole(self, found: Tensor, count: int) -> Tensor:
        """So many records within the range of public ones; what was not found is guessed as without a view."""
        shown = torch.where(found.isfinite(), found, self.mean)[:count]
        left = self.guesses if count > 1 else self.mean.unsqueeze(0)
        for record in shown[: len(left) - 1]:
            nearest = (left - record).flatten(1).square().sum(1).argmin()
            left = left[torch.arange(len(left)) != nearest]
        # Fewer public kinds than records: the mean stands for the rest.
        rest = self.mean.unsqueeze(0).expand(count, *self.mean.shape)
        return torch.cat([shown, left, rest])[:count].clamp(self.low, self.high).float()


@dataclass(frozen=True)
class MeanGradient:
    """The mean gradient of so many records, in the network that it was made in."""

    told: PublicKnowledge
    network: nn.Module
    first: Entrance | None
    gradient: Tensor
    count: int = 1

    @cached_property
    def layer(self) -> tuple[Tensor, Tensor]:
        """Its part in the layer that reads records: weights, one row a unit, and biases. Raises: Unsuited."""
        if self.first is None:
            raise Unsuited("no linear layer with biases reads whole records")
        return at_entrance(self.gradient, self.network, self.first)

    @cached_property
    def exact(self) -> nn.Module:
        """The network in double precision."""
        return copy.deepcopy(self.network).double()


Attack = Callable[[MeanGradient, Coins], Tensor]


def study(known: Mapping[str, Any], device: str = "cpu") -> PublicKnowledge:
    """What is known, before any view."""
    knowledge = Knowledge(**known["knowledge"])
    module = knowledge.module.to(device).eval()
    rest = {name: value for name, value in known.items() if name != "knowledge"}
    outputs = knowledge.classes or knowledge.records[1].shape[1]
    return PublicKnowledge(module, layout_of(module), knowledge.classes, outputs, **rest)


def mount(told: PublicKnowledge, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Records by attack, and whose they are where updates have names.

    `asked` has `views`, by party, of the round, and the model `start` that was handed out in it; the public `protocol`;
    whether each row is one client's own (`single`), and how many rows are tried (`most`); names of `attacks`, and of
    others to try on rows of one client (`alone`); and `coins`.
    """
    found = seen(asked["views"], asked["protocol"], told.layout, asked["start"])
    start = begun(asked["views"], asked["protocol"], asked["start"])
    network = holding(told.module, start, told.layout).eval()
    rows, first = _gradients(found, start, told), find_entrance(network, told.shape)
    each = [MeanGradient(told, network, first, row) for row in rows[: asked["most"]]]
    every = [MeanGradient(told, network, first, rows.mean(0), len(found.present))]
    got, unsuited = dict[str, Tensor](), dict[str, str]()
    for name in (*asked["attacks"], *asked["alone"]):
        sums = each if asked["single"] or name in asked["alone"] else every
        node = Coins(asked["coins"]).child(name)
        try:
            parts = [told.whole(ATTACKS[name](one, node.child(at)), one.count) for at, one in enumerate(sums)]
            got[name] = torch.cat(parts)
        except Unsuited as error:
            unsuited[name] = str(error)
    return {"found": got, "unsuited": unsuited, "names": found.ids or ()}


def _gradients(found: Gathered, start: Tensor, told: PublicKnowledge) -> Tensor:
    """The gradient behind every row, or the one behind a sum. Raises: SpecError where there is neither."""
    rows = found.rows
    if rows is None:
        if found.sums is None or found.weights is None:
            raise SpecError("records are reconstructed from updates or their sum, and this view holds neither")
        rows = (found.sums.double() / float(found.weights.sum())).unsqueeze(0)
    elif found.scaled and found.weights is not None:
        rows = rows.double() / found.weights.unsqueeze(1)
    size = sum(part.numel() for part in told.module.parameters() if part.requires_grad)
    before = (torch.zeros_like(start) if found.form == "delta" else start)[:size].double()
    return torch.stack([gradient_from(row[:size].double(), before, told.rate) for row in rows])


def read(one: MeanGradient, coins: Coins) -> Tensor:
    """The record, read off the first linear layer; of several records it is their mix."""
    return off_layer(*one.layer).reshape(1, *one.told.shape)


def read_with_prior(one: MeanGradient, coins: Coins) -> Tensor:
    """The same for a noisy layer: what its units do not agree on is drawn to the public average.

    Noise in the biases makes what they explain look smaller, and is taken out of their energy.
    """
    told, (weight, bias) = one.told, one.layer
    units, energy, mean = len(bias), bias.square().sum(), told.mean.flatten().double()
    off = (weight - torch.outer(bias, off_layer(weight, bias))).square().sum() / (weight.numel() - weight.shape[1] or 1)
    signal = energy - units * off
    # What chance alone puts there in one run of forty.
    if signal <= 2 * (2 * units) ** 0.5 * off:
        return told.mean.unsqueeze(0)
    moved, spread = bias @ weight, told.spread.flatten().double()
    # Where nothing is noisy a place may leave what public records have shown of it.
    spread = spread.clamp(min=1e3 * float(off / signal)) if off / signal < 1e-9 else spread
    guess = mean + spread * (moved - signal * mean) / (signal * spread + off).clamp(min=1e-300)
    return guess.reshape(1, *told.shape)


def search(one: MeanGradient, coins: Coins) -> Tensor:
    """Records with this gradient. Raises: Unsuited where their classes, or errors, are not read in the last layer."""
    gradient, shape, classes = one.gradient.float(), one.told.shape, one.told.classes
    target, by = Target(gradient, one.count, shape, classes), CROSS_ENTROPY
    if not classes:
        labels, by = _errors(one), _pulled
    elif one.count == 1:
        labels = label_of(gradient, one.network, shape)
    else:
        labels = counted_labels(gradient, one.network, target.records, shape, coins.child("labels"))
    begin = one.told.whole(one.told.mean.new_zeros(0, *shape), one.count)
    known, node = replace(target, labels=labels), coins.child("search").child(0)
    return search_records(one.told.recipe, one.network, known, node, by, begin)[0]


def _pulled(out: Tensor, errors: Tensor) -> Tensor:
    return (out * errors).sum()


def _errors(one: MeanGradient) -> Tensor:
    """By how much a loss pulls at each output: what the last biases' gradient is, whatever the loss and the target."""
    _, bias = last_gradient(one.network, one.gradient.float(), one.told.shape)
    if bias is None or one.count > 1:
        why = "the last layer has no biases" if bias is None else "errors of several records add up"
        raise Unsuited(f"a record behind a forecast is searched for by its error, and here {why}")
    return bias.unsqueeze(0)


def peel(one: MeanGradient, coins: Coins) -> Tensor:
    """Records of a sum, taken off one by one, each of which makes the next ones purer.

    The layer's gradient is a sum of one product a record: how it moves the units, times the record. A unit that few
    records move shows nearly one of them. A guess is right if what the network says that record does to the units is a
    part of what the sum is made of. That such a gradient has low rank is what SPEAR uses (Dimitrov et al. 2024); the
    check is this project's own.
    """
    return torch.stack([*_peeled(one)] or [one.told.mean.double()])


def _peeled(one: MeanGradient) -> Iterator[Tensor]:
    rest = torch.cat([one.layer[0], one.layer[1].unsqueeze(1)], 1)
    for left in range(one.count, 0, -1):
        # Directions of units and of records, as rows, by how much of the matrix they hold.
        units, sizes, records = torch.linalg.svd(rest, full_matrices=False)
        moves, sizes, mixes = units.T[:left], sizes[:left], records[:left]
        rest = (moves.T * sizes) @ mixes
        # As many records as units can be anything: a part of the whole is then no proof.
        found = _purest(one, rest, moves, BESIDE * max(0.0, 1 - left / len(rest)) ** 0.5)
        if found is None:
            return
        record, moved = found
        yield record.reshape(one.told.shape)
        row = torch.cat([record, record.new_ones(1)])
        rest = rest - torch.outer(moved, row) / ((mixes @ row / sizes.clamp(min=1e-30)) @ (moves @ moved))


def _purest(one: MeanGradient, rest: Tensor, moves: Tensor, most: float) -> tuple[Tensor, Tensor] | None:
    """The unit's guess whose own gradient lies least beside the given moves, and that gradient; if little enough."""
    told, alive = one.told, rest[:, -1].abs() > 1e-6 * rest[:, -1].abs().max()
    low, high = (edge.flatten().double() for edge in (told.low, told.high))
    guesses = rest[alive, :-1] / rest[alive, -1:]
    beyond = ((low - guesses).clamp(min=0) + (guesses - high).clamp(min=0)).square().mean(1).sqrt()
    guesses = guesses[beyond <= SLACK * (high - low).mean()].clamp(low, high)
    if not len(guesses):
        return None
    moved = _moved(one, guesses)
    beside = (moved - moved @ moves.T @ moves).norm(dim=1) / moved.norm(dim=1)
    at = int(beside.nan_to_num(1.0).argmin())
    return (guesses[at // one.told.outputs], moved[at]) if beside[at] < most else None


def _moved(one: MeanGradient, records: Tensor) -> Tensor:
    """How each record would move the layer's units if it were of each class; of a forecast, by each output."""
    told, layer = one.told, one.exact.get_submodule(one.first.weight.rpartition(".")[0] if one.first else "")
    if not isinstance(layer, nn.Linear):
        raise Unsuited("the layer that reads records is no torch.nn.Linear, to which one could listen")
    caught = list[Tensor]()
    hook = layer.register_forward_hook(lambda _, __, out: caught.append(out))
    out = one.exact(records.reshape(-1, *told.shape).repeat_interleave(told.outputs, 0))
    hook.remove()
    picked = torch.arange(told.outputs).repeat(len(records))
    chosen = out.gather(1, picked.unsqueeze(1)).sum()
    value = functional.cross_entropy(out, picked, reduction="sum") if told.classes else chosen
    return torch.autograd.grad(value, caught[0])[0]


ATTACKS: Mapping[str, Attack] = {"read": read, "read+prior": read_with_prior, "search": search, "peel": peel}
