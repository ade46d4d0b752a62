"""Source inference: whose record is it? From named updates, from what a shuffle leaves of them, or from no view.

Guessing the client whose model has the lowest loss is due to Hu et al., un-shuffling first to the paper that the
laboratory reruns as `rns`; joining both with the prior as one posterior is this project's own. An attack gives a score
for each client (rows) and record (columns). `audit.blind` calls `study` once for the same knowledge and `mount` for
each view; `audit.questions.source` asks for attacks by name (`ATTACKS`), and for those of `audit.membership`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from croupier.audit import membership, unshuffle
from croupier.audit.context import Attack, AttackContext
from croupier.audit.knowledge import Knowledge, fits, log_odds
from croupier.audit.prior import DOUBTS, Prior, by_label, counts, learn_prior, settled, shares
from croupier.audit.seen import begun, counted, seen
from croupier.audit.unshuffle import ACCURACY, LOSS, Rebuild, Rebuilt, pick
from croupier.core.coins import Coins
from croupier.errors import SpecError, Unsuited, nearest
from croupier.learn.flat import FlatNet

# How steeply shares of classes may rise with a sign of them (see `_signs`), in units of the sign's spread.
SLOPES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
# Models that are rebuilt with shadow sets are judged on every fourth record, left out in turn.
FOLDS = 4
# How much what a whole model remembers of a record may count beside a prior that records carry.
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0)


def prior(context: AttackContext, coins: Coins) -> Tensor:
    """The best guess from labels and records of shadow sets, and no view."""
    return prior_of(context).scores


def prior_of(context: AttackContext) -> Prior:
    """The prior, learnt once for all views that the same knowledge is held against."""
    if "prior" not in context.study:
        context.study["prior"] = learn_prior(context.knowledge, context.quiet.child("prior"))
    found: Prior = context.study["prior"]
    return found


def lowest_loss(rebuild: Rebuild, context: AttackContext, coins: Coins) -> Tensor:
    """The client whose model gives the record's label the highest probability, or its target the lowest error."""
    inputs, labels = context.knowledge.records
    outputs = rebuild(context, coins).outputs(context, inputs)
    if not context.knowledge.classes:
        return fits(outputs, labels)
    return torch.log_softmax(outputs.double(), -1)[:, torch.arange(len(labels)), labels]


def posterior(rebuild: Rebuild, context: AttackContext, coins: Coins, fitted: bool = True) -> Tensor:
    """Prior and view together.

    A client's model is sure of the classes that the client has many of, and its last biases lean to them. How much
    that tells is learnt by leaving out shadow records; where models are rebuilt with shadow sets (`fitted`), these are
    rebuilt without them. The record's own log-odds count where a whole model may remember it.
    """
    known, base = context.knowledge, prior(context, coins)
    inputs, labels = known.records
    models = rebuild(context, coins.child("whole"))
    # Only a whole model that a client trained can remember a record; one that was put together cannot.
    whole = models.trunk is None and not fitted
    if not known.classes:
        return _joined(context, base, _lower(fits(models.outputs(context, inputs), labels))) if whole else base
    signs = _signs(models, context)
    slopes, doubt = _calibrated(_folds(rebuild, context, coins) if fitted else _left_out(signs, context))
    if any(slopes):
        held = counts(tuple(y for _, y in known.shadows), known.classes)
        # The view tells of labels; what records tell beyond their labels stands.
        base = by_label(settled(held, _lean(signs, slopes), doubt, labels), labels) + prior_of(context).beyond
    return _joined(context, base, _own(log_odds(models.outputs(context, inputs), labels), labels)) if whole else base


def _joined(context: AttackContext, base: Tensor, own: Tensor) -> Tensor:
    """The base, joined with how well each model fits a record.

    Where the prior rests on records, that fit partly repeats it, or is noise; then it is weighed.
    """
    return base + (_weight(prior_of(context).scores, own) if bool(prior_of(context).beyond.any()) else 1.0) * own


def _lower(fit: Tensor) -> Tensor:
    """How far a record's error under each model lies below those under the others, in units usual for the model."""
    apart = fit - fit.mean(0)
    return apart / apart.square().mean(1, keepdim=True).sqrt().clamp(min=1e-9)


def _own(odds: Tensor, labels: Tensor) -> Tensor:
    """How far a record's log-odds under each model lie above those under the others, in units usual for its class."""
    apart = odds - odds.mean(0)
    hot = torch.nn.functional.one_hot(labels).double()
    usual = (apart**2 @ hot / hot.sum(0).clamp(min=1)).sqrt()
    return apart / usual[:, labels].clamp(min=1e-9)


def _weight(known: Tensor, own: Tensor) -> float:
    """How much the records' own log-odds may count beside a prior that knows much, by how well the two agree.

    Of a record whose client the prior names, a log-odds that tells anything is above the usual for that client. If it
    is drawn without regard to the client, no weight but 0 makes it likelier on average.
    """
    known = torch.log_softmax(known, 0)

    def likely(weight: float) -> float:
        usual = torch.logsumexp(weight * own, (0, 1)) - math.log(own.numel())
        return float((torch.logsumexp(known + weight * own, 0) - usual).mean())

    return max(WEIGHTS, key=likely)


def _signs(models: Rebuilt, context: AttackContext) -> tuple[Tensor, Tensor]:
    """Two signs of a client's classes, by client and class: log-odds over all records at hand, and last biases."""
    known = context.knowledge
    parts = [known.records, *known.shadows]
    odds = torch.cat([log_odds(models.outputs(context, x), y) for x, y in parts], 1)
    hot = torch.nn.functional.one_hot(torch.cat([y for _, y in parts]), known.classes).double()
    seen, biases = _even(odds @ hot / hot.sum(0).clamp(min=1)), models.biases(context)
    # A network without last biases shows one sign only.
    return seen, torch.zeros_like(seen) if biases is None else _even(biases.double())


def _even(signs: Tensor) -> Tensor:
    """Against the other clients, and in units of its own spread, so that one set of slopes serves all networks."""
    apart = signs - signs.mean(0)
    return apart / apart.std().clamp(min=1e-12)


def _lean(signs: tuple[Tensor, Tensor], slopes: tuple[float, float]) -> Tensor:
    """Each client's (rows) shares of classes (columns) as models show them: by the two signs at these slopes."""
    return torch.softmax(slopes[0] * signs[0] + slopes[1] * signs[1], 1)


# What models show of the classes, what is counted, and what is to be foretold; the last two by client and class.
Foretelling = tuple[tuple[Tensor, Tensor], Tensor, Tensor]


def _folds(rebuild: Rebuild, context: AttackContext, coins: Coins) -> Iterator[Foretelling]:
    """Models rebuilt without every fourth record of each shadow set, to foretell those."""
    shadows, classes = context.knowledge.shadows, context.knowledge.classes
    for at in range(FOLDS):
        out = [torch.arange(len(y)) % FOLDS == at for _, y in shadows]
        left = tuple((x[~gone], y[~gone]) for (x, y), gone in zip(shadows, out, strict=True))
        models = rebuild(context.with_shadows(left), coins.child("fold", at))
        asked = tuple(y[gone] for (_, y), gone in zip(shadows, out, strict=True))
        yield _signs(models, context), counts(tuple(y for _, y in left), classes), counts(asked, classes)


def _left_out(signs: tuple[Tensor, Tensor], context: AttackContext) -> Iterator[Foretelling]:
    """Every record of a shadow set foretold from the others of its client; one of a class stands for all its like."""
    held = counts(tuple(y for _, y in context.knowledge.shadows), context.knowledge.classes)
    for label in range(held.shape[1]):
        one = torch.nn.functional.one_hot(torch.tensor(label), held.shape[1])
        yield signs, held - (held[:, label : label + 1] > 0) * one, held * one


def _calibrated(trials: Iterable[Foretelling]) -> tuple[tuple[float, float], float]:
    """The slopes and the doubt that foretell best."""
    pairs, likely = list(product(SLOPES, SLOPES)), torch.zeros(len(SLOPES) ** 2, len(DOUBTS), dtype=torch.float64)
    doubts = torch.tensor(DOUBTS, dtype=torch.float64).reshape(-1, 1, 1)
    for signs, held, asked in trials:
        leans = torch.stack([_lean(signs, pair) for pair in pairs]).unsqueeze(1)
        likely += (asked * torch.log(shares(held, leans, doubts))).sum((2, 3))
    best, doubt = divmod(int(likely.argmax()), len(DOUBTS))
    return pairs[best], DOUBTS[doubt]


def _by_loss(rebuild: Callable[..., Rebuilt], *how: Any, **more: Any) -> Attack:
    return partial(lowest_loss, partial(rebuild, *how, **more))


_MATCHED_ROWS = partial(unshuffle.models, LOSS, one_to_one=True)
_MATCHED_HEADS = partial(unshuffle.layers, LOSS, one_to_one=True)
_LIKELIEST = partial(unshuffle.parameters, LOSS)
# By name: what a report calls an attack, and the attack.
_KNOWN: Mapping[str, tuple[str, Attack]] = {
    "prior": ("the adversary's knowledge, no view", prior),
    "named": ("lowest loss over the named updates (Hu et al.)", _by_loss(unshuffle.named)),
    "named+prior": ("named updates and prior, as one posterior", partial(posterior, unshuffle.named, fitted=False)),
    "algorithm2": ("Algorithm 2: the row most accurate on the shadow set", _by_loss(unshuffle.models, ACCURACY)),
    "algorithm2-loss": ("Algorithm 2, by loss", _by_loss(unshuffle.models, LOSS)),
    "algorithm2-matched": ("Algorithm 2, by loss, rows assigned one to one", _by_loss(_MATCHED_ROWS)),
    "algorithm2+prior": (
        "rows assigned one to one, and prior, as one posterior", partial(posterior, _MATCHED_ROWS, fitted=False)),
    "algorithm3": (
        "Algorithm 3: mean layers, last layer most accurate on the shadow set", _by_loss(unshuffle.layers, ACCURACY)),
    "algorithm3-loss": ("Algorithm 3, by loss", _by_loss(unshuffle.layers, LOSS)),
    "algorithm3-matched": ("Algorithm 3, by loss, last layers assigned one to one", _by_loss(_MATCHED_HEADS)),
    "algorithm3+prior": ("last layers assigned one to one, and prior, as one posterior",
                         partial(posterior, _MATCHED_HEADS, fitted=False)),
    "algorithm5": ("Algorithm 5: each parameter of the last layer replaced on its own, by accuracy",
                   _by_loss(unshuffle.parameters, ACCURACY)),
    "algorithm5-loss": ("Algorithm 5, by loss", _by_loss(_LIKELIEST)),
    "algorithm5-cumulative": ("Algorithm 5, by loss, replacements kept", _by_loss(_LIKELIEST, cumulative=True)),
    "algorithm5+prior": ("Algorithm 5, by loss, and prior, as one posterior", partial(posterior, _LIKELIEST)),
    "tuned": ("joint model trained on with each shadow set", _by_loss(unshuffle.tuned)),
    "tuned+prior": ("joint model trained on with each shadow set, and prior, as one posterior",
                    partial(posterior, unshuffle.tuned)),
    "carries": ("Algorithm 5, by loss, on values that the carries of counted ones make likely",
                _by_loss(unshuffle.carried)),
    "carries+prior": ("values that the carries of counted ones make likely, and prior, as one posterior",
                      partial(posterior, unshuffle.carried)),
}  # fmt: skip
ATTACKS: dict[str, Attack] = {name: attack for name, (_, attack) in _KNOWN.items()}
TITLES = {name: title for name, (title, _) in _KNOWN.items()}
# Attacks that read how many ones each block has, which only residues in unary let out.
ON_COUNTS = ("carries", "carries+prior")


def study(known: Mapping[str, Any], device: str = "cpu") -> AttackContext:
    """What is known, before any view."""
    knowledge = Knowledge(**known["knowledge"])
    return AttackContext(knowledge, None, FlatNet(knowledge.module, device), Coins(known["quiet"]))


def mount(context: AttackContext, asked: Mapping[str, Any]) -> dict[str, Any]:
    """By attack, the place of the guessed client for each record (`guesses`), or a score for each suspect (`scores`).

    `asked` has `views`, by party, of the round, or none at all, and the model `start` that was handed out in it; the
    public `protocol`; names of attacks (`source`, `membership`); and `coins`.
    """
    views, protocol, layout = asked["views"], asked["protocol"], context.net.layout
    viewed = context.with_view(None)
    if views:
        got = seen(views, protocol, layout, asked["start"])
        viewed = context.with_view(got, counted(views, protocol, layout), begun(views, protocol, asked["start"]))
    coins = Coins(asked["coins"])
    guesses, scores, unsuited = dict[str, Tensor](), dict[str, Tensor](), dict[str, str]()
    for name in asked["source"]:
        node, attack = coins.child("source", name), _named(name, ATTACKS)
        try:
            guesses[name] = pick(attack(viewed, node.child("attack")), node.child("ties").fast())
        except Unsuited as error:
            unsuited[name] = str(error)
    for name in asked["membership"]:
        attack = _named(name, membership.ATTACKS)
        try:
            scores[name] = attack(viewed, coins.child(name))
        except Unsuited as error:
            unsuited[name] = str(error)
    carried = prior_of(viewed).carried if "prior" in asked["source"] else ""
    return {"guesses": guesses, "scores": scores, "unsuited": unsuited, "carried": carried}


def _named(name: str, attacks: Mapping[str, Attack]) -> Attack:
    if name not in attacks:
        raise SpecError(f"no attack is called {name!r}; {nearest(name, attacks)}")
    return attacks[name]
