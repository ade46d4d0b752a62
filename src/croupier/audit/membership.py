"""Membership inference: was this record trained on at all? On the joint model, which every release gives away.

From: Yeom et al. (loss threshold); Carlini et al. (LiRA, offline form). An attack gives a score for each suspect; the
higher, the likelier a member.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from croupier.audit.knowledge import Sample, Scene, fits
from croupier.audit.source import Attack
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import RangeError, SpecError
from croupier.learn.data import Rows
from croupier.learn.fit import Fit
from croupier.learn.models import Network
from croupier.learn.train import Learner

# How many models the adversary trains itself, and for how many steps at least: its own data are few.
MODELS = 16
STEPS = 200


def prior(scene: Scene, coins: Coins) -> Tensor:
    """How easy a record is for models that were never trained on it, and no view."""
    return _outside(scene)[0]


def loss(scene: Scene, coins: Coins) -> Tensor:
    """The joint model's log-odds for the record's label."""
    return _odds(scene, scene.joint)


def rows(scene: Scene, coins: Coins) -> Tensor:
    """The highest log-odds of any client's whole model. Raises: SpecError where there are none."""
    if scene.seen is None or scene.seen.rows is None:
        raise SpecError("attack 'rows' needs whole models")
    return torch.stack([_odds(scene, row) for row in scene.seen.rows]).amax(0)


def lira(scene: Scene, coins: Coins) -> Tensor:
    """The joint model's log-odds, against those of models that were never trained on the record."""
    mean, spread = _outside(scene)
    return (_odds(scene, scene.joint) - mean) / spread


def _odds(scene: Scene, vector: Tensor) -> Tensor:
    inputs, labels = scene.knowledge.suspects
    return fits(scene.outputs(vector, inputs), labels)


def _outside(scene: Scene) -> tuple[Tensor, Tensor]:
    """Mean and spread of the log-odds under models trained on halves of the adversary's own data."""
    if "outside" not in scene.study:
        odds = torch.stack([_odds(scene, vector) for vector in _trained(scene, scene.quiet.child("outside"))])
        # A spread of few models is itself a guess: the mean spread steadies it.
        scene.study["outside"] = odds.mean(0), odds.std(0) + odds.std(0).mean()
    found: tuple[Tensor, Tensor] = scene.study["outside"]
    return found


def _trained(scene: Scene, coins: Coins) -> list[Tensor]:
    known = scene.knowledge
    pool = known.pool
    device = str(scene.net.weights.device)
    shards = {str(number): _half(pool, coins.child("half", number)).to(device) for number in range(MODELS)}
    recipe = Fit.parse(known.fit)
    epochs = max(recipe.epochs, math.ceil(STEPS * recipe.epochs / recipe.steps(len(shards["0"]))))
    learner = Learner(
        known.module, known.trained, recipe.model_copy(update={"epochs": epochs}), shards,
        device, group=MODELS if Network.parse(known.model).batchable else 1,
    )  # fmt: skip
    with coins.child("start").ambient():
        start = scene.net.layout.flatten(known.build().state_dict())
    got = learner([(start, name, coins.child("train", name)) for name in shards])
    # A model of its own that diverged tells the adversary nothing; with fewer than two there is no spread.
    whole = [update.vector for update in got if isinstance(update, Update)]
    if len(whole) < 2:
        raise RangeError(f"{len(whole)} of {MODELS} models of the adversary's own could be trained; lower task.fit.lr")
    return whole


def _half(pool: Sample, coins: Coins) -> Rows:
    order = torch.from_numpy(coins.sampler().permutation(len(pool[1])))[: max(1, len(pool[1]) // 2)]
    return Rows(pool[0][order], pool[1][order])


ATTACKS: Mapping[str, Attack] = {"prior": prior, "loss": loss, "rows": rows, "lira": lira}

TITLES: Mapping[str, str] = {
    "prior": "how easy the record is, no view",
    "loss": "loss threshold on the joint model (Yeom et al.)",
    "rows": "loss threshold on the best of all clients' models",
    "lira": "likelihood ratio on the joint model (LiRA, offline)",
}
