"""Membership inference: was this record trained on at all? Attacks on whole updates, or on the joint model alone.

An attack gives a score for each suspect; the higher, the likelier a member. Where quantities are learnt, minus the
squared error stands for log-odds. The loss threshold is that of Yeom et al., the likelihood ratio that of LiRA (Carlini
et al.) in its offline form; attacks by gradients and by spans are this project's own. `audit.attacks.source` runs the
attacks (`ATTACKS`) in the blind process; the question `membership` (`audit.questions.source`) and the laboratory's
`source_inference/experiment` score them by `area` and `caught`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from croupier.audit.context import Attack, AttackContext
from croupier.audit.knowledge import fits
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import RangeError, SpecError, Unsuited
from croupier.learn.data import TensorRecords
from croupier.learn.ends import find_entrance
from croupier.learn.fit import Fit
from croupier.learn.gradients import gradient_of
from croupier.learn.layer_gradients import at_entrance
from croupier.learn.loss import loss_of
from croupier.learn.models.network import Network
from croupier.learn.private import each
from croupier.learn.train import Learner, fewest
from croupier.learn.unroll import unrolled

# How many models the adversary trains itself, and for how many steps at least: its own data are few.
MODELS = 16
STEPS = 200
# The ridge of a regression on gradients, each of length 1: how strongly small weights are preferred.
RIDGE = 0.01
# What part of a change may be rounding: models travel as single floats.
ROUNDED = 1e-5
# Numbers of gradients that are computed at once.
TOGETHER = 1 << 22
# Numbers that gradients of single records may take together; of longer ones random coordinates are kept.
ROOM = 1 << 24


def prior(context: AttackContext, coins: Coins) -> Tensor:
    """The prior: how well models that were never trained on a record fit it, without any view."""
    return _outside(context)[0]


def loss(context: AttackContext, coins: Coins) -> Tensor:
    """The joint model's log-odds for the record's label."""
    return _odds(context, context.joint)


def rows(context: AttackContext, coins: Coins) -> Tensor:
    """The highest log-odds of any client's whole model. Raises: SpecError where there are none."""
    return torch.stack([_odds(context, row) for row in _whole(context, "rows")]).amax(0)


def lira(context: AttackContext, coins: Coins) -> Tensor:
    """The joint model's log-odds, against those of models that were never trained on the record."""
    mean, spread = _outside(context)
    return (_odds(context, context.joint) - mean) / spread


def gradients(context: AttackContext, coins: Coins) -> Tensor:
    """How much of what the joint model learnt is the suspect's own gradient."""
    return _explained(context, context.joint.unsqueeze(0))[0]


def row_gradients(context: AttackContext, coins: Coins) -> Tensor:
    """The same of each client's whole model: the largest share, in units usual for the client."""
    shares = _explained(context, _whole(context, "row-gradients"))
    return (shares / shares.std(1, keepdim=True).clamp(min=1e-300)).amax(0)


def spans(context: AttackContext, coins: Coins) -> Tensor:
    """Does the record lie in the span of a change of the first layer, of any client's change or of all together?

    A linear layer that reads records changes by a sum of products, one for each step and record, and each product holds
    a record that the client trained on. So such a record can be written with the rows of the change at little cost.
    Another record cannot be written so at all where the client has fewer records than the layer has units and inputs,
    and only at more cost where it has more. A score says how far the cost lies below the median record's. Raises:
    Unsuited where no such layer reads records.
    """
    inputs, joint = context.knowledge.suspects[0], context.joint.unsqueeze(0)
    if "entrance" not in context.study:
        known = find_entrance(context.net.module, inputs.shape[1:]) if inputs.is_floating_point() else None
        context.study["entrance"] = known
    if (first := context.study["entrance"]) is None:
        raise Unsuited("no linear layer with biases reads whole records")
    start = context.joint if context.start is None else context.start
    rows = joint if context.seen is None or context.seen.rows is None else torch.cat([context.seen.rows, joint])
    flat, found = torch.nn.functional.normalize(inputs.flatten(1).double()), []
    for row in rows:
        change = at_entrance(row.double() - start.double(), context.net.module, first)[0]
        _, sizes, spanned = torch.linalg.svd(change, full_matrices=False)
        floor = (ROUNDED * sizes[0]).square().clamp(min=1e-30)
        cost = ((flat @ spanned.T).square() / (sizes.square() + floor)).sum(1).clamp(min=1e-300).log()
        found.append(cost.median() - cost)
    return torch.stack(found).amax(0)


def _whole(context: AttackContext, attack: str) -> Tensor:
    if context.seen is None or context.seen.rows is None:
        raise SpecError(f"attack {attack!r} needs whole models")
    return context.seen.rows


def _explained(context: AttackContext, models: Tensor) -> Tensor:
    """By model and suspect, the suspect's weight where the update is explained by gradients of single records.

    What training adds is close to a sum of its records' gradients at the model that was handed out, or where that is
    not known at the joint model; records not trained on get a weight near 0, and known members explain their own share.
    """
    start = context.joint if context.start is None else context.start
    key = "gradients", hashlib.blake2b(canon.tensor_bytes(start)).digest()
    # Of the last model that was handed out: other defences often hand out the same.
    if context.study.get("gradients", (None, None))[0] != key:
        context.study["gradients"] = key, _gradients(context, start)
    directions, alike, kept = context.study["gradients"][1]
    changes = (start - models)[:, kept].double()
    weights: Tensor = torch.linalg.solve(alike, directions @ changes.T)
    return weights[: len(context.knowledge.suspects[1])].T


def _gradients(context: AttackContext, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of suspects, then of known members, at a model, each of length 1, on some coordinates.

    With them how alike they are, ridge included, and which coordinates they have.
    """
    known = context.knowledge
    inputs, targets = (torch.cat(parts) for parts in zip(known.suspects, known.records, strict=True))
    context.net.load(start)
    module, device = context.net.module.eval(), context.net.weights.device
    size = sum(part.numel() for part in module.parameters() if part.requires_grad)
    order = context.quiet.child("coordinates").sampler().permutation(size)[: max(1, ROOM // len(targets))]
    kept = torch.from_numpy(order).sort().values
    loss = partial(loss_of, known.trained)
    # In place: these are the largest arrays that an attack has.
    directions = torch.empty(len(targets), len(kept), dtype=torch.float64)
    at_once = max(1, TOGETHER // size) if Network.parse(known.model).batchable and ":" not in known.trained else 1
    for at in range(0, len(targets), at_once):
        x, y = (part[at : at + at_once].to(device) for part in (inputs, targets))
        some = (
            each(unrolled(module), known.trained, x, y)
            if at_once > 1
            else gradient_of(module, x, y, loss=loss).unsqueeze(0)
        )
        directions[at : at + at_once] = some.cpu()[:, kept]
    directions /= directions.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return directions, _products(directions) + RIDGE * torch.eye(len(targets), dtype=torch.float64), kept


def _products(rows: Tensor) -> Tensor:
    """The product of every two rows; each two are multiplied once."""
    from scipy.linalg.blas import dsyrk
    from threadpoolctl import threadpool_limits

    # One thread: sums must not depend on how many there are, and the other cores have work of their own.
    with threadpool_limits(1):
        half = torch.from_numpy(dsyrk(1.0, rows.numpy().T, trans=1, lower=1))
    return half.tril() + half.tril(-1).T


def _odds(context: AttackContext, vector: Tensor) -> Tensor:
    inputs, labels = context.knowledge.suspects
    return fits(context.outputs(vector, inputs), labels)


def _outside(context: AttackContext) -> tuple[Tensor, Tensor]:
    """Mean and spread of the log-odds under models trained on halves of the adversary's own data."""
    if "outside" not in context.study:
        odds = torch.stack([_odds(context, vector) for vector in _trained(context, context.quiet.child("outside"))])
        # A spread of few models is itself a guess: the mean spread steadies it.
        context.study["outside"] = odds.mean(0), odds.std(0) + odds.std(0).mean()
    found: tuple[Tensor, Tensor] = context.study["outside"]
    return found


def _trained(context: AttackContext, coins: Coins) -> list[Tensor]:
    known = context.knowledge
    pool, count = known.pool, known.models or MODELS
    device = str(context.net.weights.device)
    halves = [coins.child("half", number).sampler().permutation(len(pool[1])) for number in range(count)]
    kept = [torch.from_numpy(order)[: max(1, len(order) // 2)] for order in halves]
    shards = {str(at): TensorRecords(pool[0][some], pool[1][some]).to(device) for at, some in enumerate(kept)}
    recipe = Fit.parse(known.fit)
    steps = recipe.steps(len(shards["0"]), fewest(known.module))
    epochs = max(recipe.epochs, math.ceil(STEPS * recipe.epochs / steps))
    learner = Learner(
        known.module, known.trained, recipe.model_copy(update={"epochs": epochs}), shards,
        device, group=count if Network.parse(known.model).batchable else 1,
    )  # fmt: skip
    with coins.child("start").ambient():
        start = context.net.layout.flatten(known.build().state_dict())
    got = learner([(start, name, coins.child("train", name)) for name in shards])
    # A model of its own that diverged tells the adversary nothing; with fewer than two there is no spread.
    whole = [update.vector for update in got if isinstance(update, Update)]
    if len(whole) < 2:
        raise RangeError(f"{len(whole)} of {count} models of the adversary's own could be trained; lower task.fit.lr")
    return whole


def area(members: Tensor, others: Tensor) -> float:
    """The chance that a member scores above another record, ties counting half: the area under the ROC curve."""
    above = (members.unsqueeze(1) > others).double() + 0.5 * (members.unsqueeze(1) == others).double()
    return float(above.mean())


def caught(members: Tensor, others: Tensor, false_alarms: float = 0.01) -> float:
    """The share of members found when at most the share `false_alarms` of the others is falsely accused."""
    allowed = math.floor(false_alarms * len(others))
    return float((members > others.sort(descending=True).values[allowed]).double().mean())


_KNOWN: Mapping[str, tuple[str, Attack]] = {
    "prior": ("how easy the record is, no view", prior),
    "loss": ("loss threshold on the joint model (Yeom et al.)", loss),
    "rows": ("loss threshold on the best of all clients' models", rows),
    "lira": ("likelihood ratio on the joint model (LiRA, offline)", lira),
    "gradients": ("the joint model's change explained by gradients of single records", gradients),
    "row-gradients": ("each client's change explained by gradients of single records", row_gradients),
    "spans": ("how well changes of the first layer, each client's or the joint one, span the record", spans),
}
ATTACKS: dict[str, Attack] = {name: attack for name, (_, attack) in _KNOWN.items()}
TITLES = {name: title for name, (title, _) in _KNOWN.items()}
