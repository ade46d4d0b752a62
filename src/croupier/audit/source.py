"""Source inference: whose record is it? On named updates, and on what shuffles leave of them.

From: Hu et al. (source inference); the un-shuffling Algorithms 2, 3 and 5 of the source-inference paper. An attack
gives a score for each client (rows) and record (columns); the highest score is its guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.prior import label_posterior
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import SpecError

Attack = Callable[[Gathered | None, Knowledge, Coins], Tensor]


def pick(scores: Tensor, coins: Coins, dim: int = 0) -> Tensor:
    """The place of the highest score; ties are broken at random."""
    noise = torch.rand(scores.shape, generator=coins.fast(), dtype=torch.float64)
    best = scores == scores.amax(dim, keepdim=True)
    return torch.where(best, noise, -1.0).argmax(dim)


def prior(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
    """The shadow sets' labels, and no view."""
    return label_posterior(knowledge)


def _likelihood(knowledge: Knowledge, models: list[Tensor]) -> Tensor:
    """Log-probability of each record's label under each client's model."""
    return -torch.stack([knowledge.losses(model, knowledge.records) for model in models]).double()


def named(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
    """Updates with their senders' names: the client whose model has the lowest loss."""
    if seen is None or seen.rows is None or seen.ids is None:
        raise SpecError("attack 'named' needs updates with their senders' names")
    order = [seen.ids.index(client) for client in knowledge.clients]
    return _likelihood(knowledge, [seen.rows[i] for i in order])


def _rows(seen: Gathered | None) -> Tensor:
    if seen is None or seen.rows is None:
        raise SpecError("un-shuffling needs rows: a sum leaves none")
    return seen.rows


@dataclass(frozen=True)
class Judge:
    """How well weights do on a shadow set: `whole` from all logits, `single` when one logit of each record changes.

    `single(outputs, change, labels)`: `change` (candidates, classes, records) is added to that class's logit alone.
    """

    whole: Callable[[Tensor, Tensor], Tensor]
    single: Callable[[Tensor, Tensor, Tensor], Tensor]


def _right(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.argmax(-1) == labels).double().sum(-1)


def _right_single(outputs: Tensor, change: Tensor, labels: Tensor) -> Tensor:
    """Right when the changed logit wins for its own class, or fails to overtake a label that leads the others."""
    count, classes = outputs.shape
    others = outputs.expand(classes, count, classes).clone()
    others[torch.arange(classes), :, torch.arange(classes)] = -torch.inf
    lead, leader = others.max(-1)
    own = labels == torch.arange(classes).unsqueeze(1)
    moved = outputs.T + change
    return torch.where(own, moved > lead, (leader == labels) & (lead > moved)).double().sum(-1)


def _fit(outputs: Tensor, labels: Tensor) -> Tensor:
    return -nn.functional.cross_entropy(outputs.double(), labels, reduction="sum")


def _fit_single(outputs: Tensor, change: Tensor, labels: Tensor) -> Tensor:
    """Only one term of each record's normaliser changes, so the whole sum need not be taken again."""
    shares = torch.softmax(outputs.double(), -1).T
    own = labels == torch.arange(outputs.shape[1]).unsqueeze(1)
    grown = torch.log1p(shares * torch.expm1(change.double()))
    return (torch.where(own, change.double(), 0.0) - grown).sum(-1)


ACCURACY = Judge(_right, _right_single)
LOSS = Judge(_fit, _fit_single)


def _matched(judge: Judge, candidates: Tensor, knowledge: Knowledge, coins: Coins) -> Tensor:
    """To each client the candidate that does best on its shadow set, and what that model says of the records."""
    chosen = []
    for number, (inputs, labels) in enumerate(knowledge.shadows):
        fits = torch.stack([judge.whole(knowledge.outputs(row, inputs), labels) for row in candidates])
        chosen.append(candidates[int(pick(fits, coins.child("match", number)))])
    return _likelihood(knowledge, chosen)


def models(judge: Judge) -> Attack:
    """Algorithm 2: to each client the row that does best on its shadow set."""

    def attack(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
        return _matched(judge, _rows(seen), knowledge, coins)

    return attack


def layers(judge: Judge) -> Attack:
    """Algorithm 3: the mean of all layers but the last; to each client the last layer that does best."""

    def attack(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
        rows, span = _rows(seen), last_layer(knowledge)
        candidates = rows.double().mean(0).float().repeat(len(rows), 1)
        candidates[:, span] = rows[:, span]
        return _matched(judge, candidates, knowledge, coins)

    return attack


def parameters(judge: Judge, cumulative: bool = False) -> Attack:
    """Algorithm 5: the mean of all parameters; each one of the last layer replaced by the candidate that does best.

    `cumulative` keeps a replacement before it looks at the next parameter; the paper judges each on its own.
    """

    def attack(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
        rows = _rows(seen)
        base = rows.double().mean(0).float()
        span = last_layer(knowledge)
        chosen = []
        for number, shadow in enumerate(knowledge.shadows):
            model = base.clone()
            node = coins.child("shadow", number)
            model[span] = replaced(knowledge, base, rows[:, span], shadow, judge, cumulative, node)
            chosen.append(model)
        return _likelihood(knowledge, chosen)

    return attack


def replaced(
    knowledge: Knowledge, base: Tensor, rows: Tensor, shadow: Sample, judge: Judge, cumulative: bool, coins: Coins
) -> Tensor:
    """The last layer, parameter by parameter.

    What enters it is computed once, and all candidates of one feature's weights are judged together.
    """
    hidden, outputs = _before_last(knowledge, base, shadow[0])
    classes, features = outputs.shape[1], hidden.shape[1]
    mean = base[last_layer(knowledge)]
    out = mean.clone()
    # Weights lie class by class, then the biases: a bias is the weight of a feature that is always 1.
    columns = torch.cat([hidden, torch.ones(len(hidden), 1)], 1)
    for feature in range(features + 1):
        places = torch.arange(classes) * features + feature
        if feature == features:
            places = classes * features + torch.arange(classes)
        change = (rows[:, places] - mean[places]).unsqueeze(2) * columns[:, feature]
        best = pick(judge.single(outputs, change, shadow[1]), coins.child("feature", feature))
        out[places] = rows[best, places]
        if cumulative:
            outputs = outputs + columns[:, feature : feature + 1] * (out[places] - mean[places])
    return out


def _before_last(knowledge: Knowledge, vector: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the final layer, and what leaves it."""
    caught: list[Tensor] = []
    handle = knowledge.last[1].register_forward_pre_hook(lambda _, args: caught.append(args[0]))
    outputs = knowledge.outputs(vector, inputs)
    handle.remove()
    return caught[0], outputs


def last_layer(knowledge: Knowledge) -> slice:
    """Where the final layer lies in the vector: its weights, then its biases."""
    name = knowledge.last[0]
    spans = {part.name: (start, stop) for part, start, stop in knowledge.net.layout.spans()}
    start, middle = spans[f"{name}.weight"]
    first, stop = spans[f"{name}.bias"]
    if first != middle:
        raise SpecError("the final layer's weights and biases must lie together")
    return slice(start, stop)


def combined(attack: Attack) -> Attack:
    """Prior and view together: the posterior over sources when each model's word is taken as a likelihood."""

    def both(seen: Gathered | None, knowledge: Knowledge, coins: Coins) -> Tensor:
        return label_posterior(knowledge) + torch.log_softmax(attack(seen, knowledge, coins), 0)

    return both


ATTACKS: Mapping[str, Attack] = {
    "prior": prior,
    "named": named,
    "algorithm2": models(ACCURACY),
    "algorithm2-loss": models(LOSS),
    "algorithm3": layers(ACCURACY),
    "algorithm3-loss": layers(LOSS),
    "algorithm5": parameters(ACCURACY),
    "algorithm5-loss": parameters(LOSS),
    "algorithm5-cumulative": parameters(LOSS, cumulative=True),
    "named+prior": combined(named),
    "algorithm2+prior": combined(models(LOSS)),
    "algorithm3+prior": combined(layers(LOSS)),
    "algorithm5+prior": combined(parameters(LOSS, cumulative=True)),
}
