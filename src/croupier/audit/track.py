"""One training under noise by tiers: what every client sent, what it learnt, and what the server handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from croupier.aggregate.mean import Mean
from croupier.audit.knowledge import read
from croupier.core.coins import Coins
from croupier.core.norm import length
from croupier.core.sitting import Drive
from croupier.core.tier import Tier
from croupier.core.update import Update
from croupier.core.view import facts
from croupier.encode.floats import Floats
from croupier.errors import CroupierError, ProtocolError
from croupier.federate import Task, rounds
from croupier.federation import Federation
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of, mu_of
from croupier.privacy.tiers import Tiers
from croupier.release.rows import Rows


@dataclass(frozen=True)
class Turn:
    """One round: the start, who took part, and one noised row each. `clean` is truth: no attack is given it."""

    number: int
    start: Tensor
    names: tuple[str, ...]
    sent: Tensor
    clean: Tensor


@dataclass(frozen=True)
class Noise:
    """What clients add: their public tiers (which put them into buckets), and how much of that noise is really added.

    `share` is 1 for the tiers as they are, 0 for none at all.
    """

    title: str
    privacy: Tiers
    share: float = 1.0

    def tier(self, name: str) -> Tier:
        """The tier that buckets are formed by."""
        return self.privacy.tier(name)

    def sigma(self, name: str) -> float:
        """The deviation of what this client adds."""
        return self.share * self.privacy.tier(name).sigma

    @property
    def levels(self) -> Tensor:
        """Every deviation there may be, by rising epsilon."""
        each = [self.privacy.model_copy(update={"wishes": {"x": one}}).tier("x").sigma for one in self.privacy.tiers]
        return self.share * torch.tensor(each, dtype=torch.float64)


def louder(privacy: Tiers, factor: float) -> Tiers:
    """The same clients in the same order of tiers, each deviation times a factor, with the epsilons that this gives."""
    noise = Noise("", privacy)
    found = tuple(epsilon_of(mu_of(privacy.clip, factor * float(sigma)), privacy.delta) for sigma in noise.levels)
    by = dict(zip(privacy.tiers, found, strict=True))
    wishes = {who: by[max(one for one in privacy.tiers if one <= wish)] for who, wish in privacy.wishes.items()}
    return privacy.model_copy(update={"tiers": found, "wishes": wishes})


def alike(norms: Tensor, levels: Tensor, size: int, factor: float) -> float:
    """The mean cosine, over tiers and updates of these lengths, of an update with itself noised by factor times."""
    noise = (factor * levels.double()).pow(2) * size
    signal = norms.double().pow(2).unsqueeze(1)
    return float((signal / (signal + noise)).sqrt().mean())


def factor_for(norms: Tensor, levels: Tensor, size: int, cosine: float) -> float:
    """The factor on all tiers' deviations at which updates as received have this mean cosine with the clean ones."""
    low, high = 0.0, 1.0
    while alike(norms, levels, size, high) > cosine:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if alike(norms, levels, size, middle) > cosine else (low, middle)
    return high


def clipped(update: Tensor, clip: float) -> Tensor:
    """A difference as the mechanism clips it."""
    size = length(update)
    return update if size <= clip else (update.double() * (clip / size)).float()


def track(
    task: Task, plan: Federation, noise: Noise, coins: Coins, drive: Drive, watch: Callable[[str], None]
) -> list[Turn]:
    """Train on the real loop, every client counting alike, and take down each round."""
    # No noise is the same clipping with a deviation of nought.
    privacy = noise.privacy if noise.share else Gaussian(clip=noise.privacy.clip, sigma=0, delta=noise.privacy.delta)
    pipeline = Pipeline(
        privacy=privacy, encode=Floats(weights="uniform", form="delta"), release=Rows(), aggregate=Mean(),
        place=Direct(),
    )  # fmt: skip
    learnt: dict[str, Tensor] = {}

    def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        done = task.fit(jobs)
        learnt.update({job[1]: made.vector for job, made in zip(jobs, done, strict=True) if isinstance(made, Update)})
        return done

    # How well the model does is another question than what it tells.
    heard = replace(task, fit=fit, evaluate=lambda _: {})
    start, found = task.first.vector, []
    for done in rounds(pipeline, heard, plan, coins, drive, keep={"server": "keep"}):
        watch(f"{noise.title}: round {done.number + 1} of {plan.rounds}")
        seen = read(facts(done.views["server"]), pipeline.plain(), task.layout)
        if seen.rows is None or seen.ids is None:
            raise ProtocolError(f"round {done.number + 1}: no named rows to look at")
        clean = [clipped(learnt[task.shards[who]] - start, noise.privacy.clip) for who in seen.ids]
        found.append(Turn(done.number, start, seen.ids, seen.rows, torch.stack(clean)))
        start = done.state.model.vector
    return found
