"""Un-shuffling: one model for each client again, out of the rows or pieces that a shuffle left.

Algorithms 2, 3 and 5 are those of the source-inference paper, which the laboratory reruns as `rns`: a candidate is
chosen for a client by how well it does on the client's shadow set, by accuracy, as the paper prints it, or by loss.
Beside them are models made of named updates, of counts of ones, and of the joint model trained on.
`audit.attacks.source` guesses from the rebuilt models whose a record is; `croupier bench attack` times `replaced`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from croupier.audit.attacks.carries import candidates
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Sample, fits
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError, Unsuited
from croupier.learn.data import TensorRecords
from croupier.learn.fit import Fit
from croupier.learn.models.network import Network
from croupier.learn.train import Learner


@dataclass(frozen=True)
class Rebuilt:
    """One model for each client: whole vectors, or last layers on one common trunk.

    `parts` has a row for each client. With a `trunk` a row is only a last layer, and the trunk gives all other layers.
    """

    parts: Tensor
    trunk: Tensor | None = None

    def outputs(self, context: AttackContext, inputs: Tensor) -> Tensor:
        """Logits: clients, records, classes."""
        if self.trunk is None:
            return torch.stack([context.outputs(row, inputs) for row in self.parts])
        hidden = context.hidden(self.trunk, inputs)
        classes = context.knowledge.classes
        weights = self.parts[:, : classes * hidden.shape[1]].reshape(len(self.parts), classes, -1)
        logits = torch.einsum("rf,ncf->nrc", hidden, weights)
        return logits if context.biases is None else logits + self.parts[:, None, -classes:]

    def biases(self, context: AttackContext) -> Tensor | None:
        """The last layer's biases, one for each class; None where it has none, or is not linear."""
        if context.biases is None:
            return None
        return self.parts[:, context.biases] if self.trunk is None else self.parts[:, -context.knowledge.classes :]


# How many numbers are judged at once: enough to keep a processor busy, few enough to stay in its cache.
_AT_ONCE = 1 << 20
Rebuild = Callable[[AttackContext, Coins], Rebuilt]


def pick(scores: Tensor, generator: torch.Generator, dim: int = 0) -> Tensor:
    """The place of the highest score; ties are broken at random."""
    noise = torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    best = scores == scores.amax(dim, keepdim=True)
    return torch.where(best, noise, -1.0).argmax(dim)


def named(context: AttackContext, coins: Coins) -> Rebuilt:
    """Updates that came with their senders' names. Raises: SpecError when they did not."""
    seen = context.seen
    if seen is None or seen.rows is None or seen.ids is None:
        raise SpecError("attack 'named' needs updates with their senders' names")
    return Rebuilt(seen.rows[[seen.ids.index(client) for client in context.knowledge.clients]])


def _rows(context: AttackContext) -> Tensor:
    if context.seen is None or context.seen.rows is None:
        raise SpecError("un-shuffling needs rows: a sum leaves none")
    return context.seen.rows


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


def _suits(context: AttackContext, candidates: Rebuilt, judge: Judge) -> Tensor:
    """How well each candidate (columns) does on each client's shadow set (rows)."""
    found = []
    for inputs, labels in context.knowledge.shadows:
        found.append(torch.stack([judge.whole(logits, labels) for logits in candidates.outputs(context, inputs)]))
    return torch.stack(found).double()


def _choose(judge: Judge, context: AttackContext, coins: Coins, candidates: Rebuilt, one_to_one: bool) -> Rebuilt:
    suits = _suits(context, candidates, judge)
    if one_to_one:
        # Every row is somebody's: the best assignment of all rows beats each client's own best row.
        # In a random order: where rows suit alike, the solver would keep the order in which they came.
        order = torch.from_numpy(coins.child("order").sampler().permutation(suits.shape[1]))
        chosen = order[torch.from_numpy(linear_sum_assignment(suits[:, order].numpy(), maximize=True)[1])]
    else:
        chosen = pick(suits, coins.child("match").fast(), 1)
    return Rebuilt(candidates.parts[chosen], candidates.trunk)


def models(judge: Judge, context: AttackContext, coins: Coins, one_to_one: bool = False) -> Rebuilt:
    """Algorithm 2: to each client the row that does best on its shadow set."""
    return _choose(judge, context, coins, Rebuilt(_rows(context)), one_to_one)


def layers(judge: Judge, context: AttackContext, coins: Coins, one_to_one: bool = False) -> Rebuilt:
    """Algorithm 3: the mean of all layers but the last; to each client the last layer that does best."""
    heads = _rows(context)[:, context.places]
    if context.head.apart(context.net.layout):
        # Weights and biases were permuted by themselves: a row's biases are another client's.
        heads[:, -context.knowledge.classes :] = context.joint[context.biases]
    return _choose(judge, context, coins, Rebuilt(heads, context.joint), one_to_one)


def parameters(judge: Judge, context: AttackContext, coins: Coins, cumulative: bool = False) -> Rebuilt:
    """Algorithm 5: the mean of all parameters; each one of the last layer replaced by the candidate that does best.

    `cumulative` keeps a replacement before it looks at the next parameter; the paper judges each on its own.
    """
    return _heads(context, _rows(context)[:, context.places], judge, cumulative, coins)


def _heads(context: AttackContext, rows: Tensor, judge: Judge, cumulative: bool, coins: Coins) -> Rebuilt:
    """A last layer for each client's shadow set, out of these candidates."""
    heads = [
        replaced(context, rows, shadow, judge, cumulative, coins.child("shadow", number))
        for number, shadow in enumerate(context.knowledge.shadows)
    ]
    return Rebuilt(torch.stack(heads), context.joint)


def carried(context: AttackContext, coins: Coins) -> Rebuilt:
    """Algorithm 5 where only counts came out: its candidates are the values that the carries make likely.

    Raises: SpecError when the view holds no counts.
    """
    counts = context.counts
    if counts is None:
        raise SpecError("attack 'carries' needs the counts of every parameter's ones, and clients that count alike")
    if not context.carried:
        # The same draws whichever attack comes first.
        context.carried.append(candidates(counts, context.places, context.quiet.child("carries").fast()))
    return _heads(context, context.carried[0], LOSS, False, coins)


def replaced(
    context: AttackContext, rows: Tensor, shadow: Sample, judge: Judge, cumulative: bool, coins: Coins
) -> Tensor:
    """The last layer, parameter by parameter; all candidates of one feature's weights are judged together."""
    device = context.net.weights.device
    hidden = context.hidden(context.joint, shadow[0]).to(device)
    outputs, labels = context.outputs(context.joint, shadow[0]).to(device), shadow[1].to(device)
    classes, features = outputs.shape[1], hidden.shape[1]
    rows, mean, draw = rows.to(device), context.joint[context.places].to(device), coins.fast()
    out = mean.clone()
    # Weights lie class by class; here by feature and class.
    columns, places = hidden.T, torch.arange(classes * features).reshape(classes, features).T
    if context.biases is not None:
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


def tuned(context: AttackContext, coins: Coins) -> Rebuilt:
    """The joint model trained on with each client's shadow set: what is left to try when only a sum came out."""
    known, device = context.knowledge, str(context.net.weights.device)
    shards = {str(number): TensorRecords(*shadow).to(device) for number, shadow in enumerate(known.shadows)}
    try:
        group = len(shards) if Network.parse(known.model).batchable else 1
        learner = Learner(known.module, known.trained, Fit.parse(known.fit), shards, device, group=group)
    except SpecError as error:
        if min(len(shard) for shard in shards.values()) > 1:
            raise
        raise Unsuited(
            "a network that normalises over batches cannot be trained on one record: raise --shadow"
        ) from error
    jobs = [(context.joint, name, coins.child("tune", name)) for name in shards]
    # Where training diverged the joint model stands in: every client keeps its place.
    return Rebuilt(torch.stack([got.vector if isinstance(got, Update) else context.joint for got in learner(jobs)]))
