"""Un-shuffling: one model for each client again, out of what a shuffle left.

From: Algorithms 2, 3 and 5 of the source-inference paper, by the shadow sets' accuracy as printed, or by their loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from croupier.audit.candidates import candidates
from croupier.audit.knowledge import Sample, Scene, fits
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError, Unsuited
from croupier.learn.data import Rows
from croupier.learn.fit import Fit
from croupier.learn.train import Learner


@dataclass(frozen=True)
class Rebuilt:
    """One model for each client: whole vectors, or last layers on one common trunk."""

    parts: Tensor
    trunk: Tensor | None = None

    def outputs(self, scene: Scene, inputs: Tensor) -> Tensor:
        """Logits: clients, records, classes."""
        if self.trunk is None:
            return torch.stack([scene.outputs(row, inputs) for row in self.parts])
        hidden = scene.hidden(self.trunk, inputs)
        classes = scene.knowledge.classes
        weights = self.parts[:, : classes * hidden.shape[1]].reshape(len(self.parts), classes, -1)
        said = torch.einsum("rf,ncf->nrc", hidden, weights)
        return said if scene.biases is None else said + self.parts[:, None, -classes:]

    def biases(self, scene: Scene) -> Tensor | None:
        """The last layer's biases, one for each class; None where it has none, or is not linear."""
        if scene.biases is None:
            return None
        return self.parts[:, scene.biases] if self.trunk is None else self.parts[:, -scene.knowledge.classes :]


# How many numbers are judged at once: enough to keep a processor busy, few enough to stay in its cache.
_AT_ONCE = 1 << 20
Rebuild = Callable[[Scene, Coins], Rebuilt]


def pick(scores: Tensor, generator: torch.Generator, dim: int = 0) -> Tensor:
    """The place of the highest score; ties are broken at random."""
    noise = torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    best = scores == scores.amax(dim, keepdim=True)
    return torch.where(best, noise, -1.0).argmax(dim)


def named(scene: Scene, coins: Coins) -> Rebuilt:
    """Updates that came with their senders' names. Raises: SpecError when they did not."""
    seen = scene.seen
    if seen is None or seen.rows is None or seen.ids is None:
        raise SpecError("attack 'named' needs updates with their senders' names")
    return Rebuilt(seen.rows[[seen.ids.index(client) for client in scene.knowledge.clients]])


def _rows(scene: Scene) -> Tensor:
    if scene.seen is None or scene.seen.rows is None:
        raise SpecError("un-shuffling needs rows: a sum leaves none")
    return scene.seen.rows


@dataclass(frozen=True)
class Judge:
    """How well weights do on a shadow set: `whole` from all logits, `single` when one logit of each record changes.

    `single(outputs, change, labels)`: `change` (..., classes, records) is added to that class's logit alone.
    """

    whole: Callable[[Tensor, Tensor], Tensor]
    single: Callable[[Tensor, Tensor, Tensor], Tensor]


def _right(outputs: Tensor, labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        raise Unsuited("it judges models by their accuracy, and here quantities are learnt, which have none")
    return (outputs.argmax(-1) == labels).double().sum(-1)


def _right_single(outputs: Tensor, change: Tensor, labels: Tensor) -> Tensor:
    """Right when the changed logit wins for its own class, or fails to overtake a label that leads the others."""
    count, classes = outputs.shape
    others = outputs.expand(classes, count, classes).clone()
    others[torch.arange(classes), :, torch.arange(classes)] = -torch.inf
    lead, leader = others.max(-1)
    own = labels == torch.arange(classes, device=labels.device).unsqueeze(1)
    moved = outputs.T + change
    return torch.where(own, moved > lead, (leader == labels) & (lead > moved)).double().sum(-1)


def _fit(outputs: Tensor, labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        return fits(outputs, labels).sum(-1)
    return -nn.functional.cross_entropy(outputs.double(), labels, reduction="sum")


def _fit_single(outputs: Tensor, change: Tensor, labels: Tensor) -> Tensor:
    """Only one term of each record's normaliser changes, so the whole sum need not be taken again."""
    shares = torch.softmax(outputs.double(), -1).T
    own = labels == torch.arange(outputs.shape[1], device=labels.device).unsqueeze(1)
    grown = torch.log1p(shares * torch.expm1(change.double()))
    return (torch.where(own, change.double(), 0.0) - grown).sum(-1)


ACCURACY = Judge(_right, _right_single)
LOSS = Judge(_fit, _fit_single)


def _suits(scene: Scene, candidates: Rebuilt, judge: Judge) -> Tensor:
    """How well each candidate (columns) does on each client's shadow set (rows)."""
    found = []
    for inputs, labels in scene.knowledge.shadows:
        found.append(torch.stack([judge.whole(said, labels) for said in candidates.outputs(scene, inputs)]))
    return torch.stack(found).double()


def _choose(scene: Scene, candidates: Rebuilt, judge: Judge, one_to_one: bool, coins: Coins) -> Rebuilt:
    suits = _suits(scene, candidates, judge)
    if one_to_one:
        # Every row is somebody's: the best assignment of all rows beats each client's own best row.
        # In a random order: where rows suit alike, the solver would keep the order in which they came.
        order = torch.from_numpy(coins.child("order").sampler().permutation(suits.shape[1]))
        chosen = order[torch.from_numpy(linear_sum_assignment(suits[:, order].numpy(), maximize=True)[1])]
    else:
        chosen = pick(suits, coins.child("match").fast(), 1)
    return Rebuilt(candidates.parts[chosen], candidates.trunk)


def models(judge: Judge, one_to_one: bool = False) -> Rebuild:
    """Algorithm 2: to each client the row that does best on its shadow set."""

    def rebuild(scene: Scene, coins: Coins) -> Rebuilt:
        return _choose(scene, Rebuilt(_rows(scene)), judge, one_to_one, coins)

    return rebuild


def layers(judge: Judge, one_to_one: bool = False) -> Rebuild:
    """Algorithm 3: the mean of all layers but the last; to each client the last layer that does best."""

    def rebuild(scene: Scene, coins: Coins) -> Rebuilt:
        heads = _rows(scene)[:, scene.places]
        if scene.head.apart(scene.net.layout):
            # Weights and biases were permuted by themselves: a row's biases are another client's.
            heads[:, -scene.knowledge.classes :] = scene.joint[scene.biases]
        return _choose(scene, Rebuilt(heads, scene.joint), judge, one_to_one, coins)

    return rebuild


def parameters(judge: Judge, cumulative: bool = False) -> Rebuild:
    """Algorithm 5: the mean of all parameters; each one of the last layer replaced by the candidate that does best.

    `cumulative` keeps a replacement before it looks at the next parameter; the paper judges each on its own.
    """

    def rebuild(scene: Scene, coins: Coins) -> Rebuilt:
        rows = _rows(scene)[:, scene.places]
        heads = [
            replaced(scene, rows, shadow, judge, cumulative, coins.child("shadow", number))
            for number, shadow in enumerate(scene.knowledge.shadows)
        ]
        return Rebuilt(torch.stack(heads), scene.joint)

    return rebuild


def carried(scene: Scene, coins: Coins) -> Rebuilt:
    """Algorithm 5 where only counts came out: its candidates are the values that the carries make likely.

    Raises: SpecError when the view holds no counts.
    """
    counts = scene.counts
    if counts is None:
        raise SpecError("attack 'carries' needs the counts of every parameter's ones, and clients that count alike")
    if "values" not in counts.found:
        # The same draws whichever attack comes first.
        counts.found["values"] = candidates(counts, scene.places, scene.quiet.child("carries").fast())
    heads = [
        replaced(scene, counts.found["values"], shadow, LOSS, False, coins.child("shadow", number))
        for number, shadow in enumerate(scene.knowledge.shadows)
    ]
    return Rebuilt(torch.stack(heads), scene.joint)


def replaced(scene: Scene, rows: Tensor, shadow: Sample, judge: Judge, cumulative: bool, coins: Coins) -> Tensor:
    """The last layer, parameter by parameter.

    What enters it is computed once, and all candidates of one feature's weights are judged together.
    """
    device = scene.net.weights.device
    hidden = scene.hidden(scene.joint, shadow[0]).to(device)
    outputs, labels = scene.outputs(scene.joint, shadow[0]).to(device), shadow[1].to(device)
    classes, features = outputs.shape[1], hidden.shape[1]
    rows, mean, draw = rows.to(device), scene.joint[scene.places].to(device), coins.fast()
    out = mean.clone()
    # Weights lie class by class; here by feature and class.
    columns, places = hidden.T, torch.arange(classes * features).reshape(classes, features).T
    if scene.biases is not None:
        # A bias is the weight of a feature that is always 1.
        columns = torch.cat([hidden, torch.ones(len(hidden), 1, device=device)], 1).T
        places = torch.cat([places, classes * features + torch.arange(classes).unsqueeze(0)])
    step = 1 if cumulative else max(1, _AT_ONCE // (len(rows) * classes * len(hidden)))
    for at in range(0, len(places), step):
        here, column = places[at : at + step], columns[at : at + step].unsqueeze(1)
        change = (rows[:, here] - mean[here]).unsqueeze(3) * column
        best = pick(judge.single(outputs, change, labels).cpu(), draw)
        out[here] = rows[:, here].gather(0, best.to(device).unsqueeze(0))[0]
        if cumulative:
            outputs = outputs + column[0].T * (out[here] - mean[here])
    return out.cpu()


def tuned(scene: Scene, coins: Coins) -> Rebuilt:
    """The joint model trained on with each client's shadow set: what is left to try when only a sum came out."""
    known, device = scene.knowledge, str(scene.net.weights.device)
    shards = {str(number): Rows(*shadow).to(device) for number, shadow in enumerate(known.shadows)}
    try:
        learner = Learner(known.module, known.trained, Fit.parse(known.fit), shards, device)
    except SpecError as error:
        if min(len(shard) for shard in shards.values()) > 1:
            raise
        raise Unsuited(
            "a network that normalises over batches cannot be trained on one record: raise --shadow"
        ) from error
    jobs = [(scene.joint, name, coins.child("tune", name)) for name in shards]
    # Where training diverged the joint model stands in: every client keeps its place.
    return Rebuilt(torch.stack([got.vector if isinstance(got, Update) else scene.joint for got in learner(jobs)]))
