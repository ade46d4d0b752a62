"""A task without learning, and the protocols that the benches of the services play: a round takes milliseconds.

Services do not care what is trained, so the benches draw updates from coins, and a simulation of the same seed draws
the same. `faults`, `fuzz`, `fuzz_input`, `fuzzed_hosts`, `killed_processes` and `load` use it, and so do tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from croupier.aggregate.mean import Scaled
from croupier.aggregate.signs import SignTrust
from croupier.core.coins import Coins
from croupier.core.update import Layout, Model, Slice, Update
from croupier.encode.fixed import FixedPoint
from croupier.encode.signs import Signs
from croupier.engine.task import Task
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.servers import SumServers
from croupier.place.two_servers.pair import Pair
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import BucketSums
from croupier.release.scored import ScoredSum
from croupier.release.sums import Sum
from croupier.systems import naive, plain

CLIENTS = ("c0", "c1", "c2", "c3", "c4", "c5")
# The most clients that fixed point leaves room to add up: more than there are.
MOST = 8
_WISHES = {name: (2.0, 8.0)[number % 2] for number, name in enumerate(CLIENTS)}
_GRID = FixedPoint(clients=MOST, form="delta", scale=64, steps=512)
# The rules that refuse what is too small are off: there are few clients and few coordinates.
_SCORES = ScoredSum(gate=False, among=1)

PIPELINES: Mapping[str, Pipeline] = {
    "plain": plain(),
    "relay": naive("parameter"),
    "sum servers": Pipeline(encode=FixedPoint(clients=MOST), release=Sum(), aggregate=Scaled(), place=SumServers()),
    "masks": Pipeline(encode=FixedPoint(clients=MOST), release=Sum(), aggregate=Scaled(), place=Masks()),
    "two servers": Pipeline(encode=Signs(), release=_SCORES, aggregate=SignTrust(), place=Pair(entropy=0)),
    "sums of buckets": Pipeline(
        privacy=Tiers(clip=1, tiers=(2, 8), wishes=_WISHES),
        encode=_GRID,
        release=BucketSums(smallest=2),
        place=SumServers(),
    ),
}


def toy_layout(parameters: int = 24) -> Layout:
    """Where an update's tensors lie: weights only, so that signs of all of them mean something."""
    return Layout((Slice("body.weight", (parameters - 2,)), Slice("head.weight", (2,))))


def toy_task(clients: Sequence[str] = CLIENTS, parameters: int = 24) -> Task:
    """Enrolled clients whose training is a draw from their own coins; the server can train, too."""
    layout = toy_layout(parameters)

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
        done = []
        for start, shard, coins in jobs:
            records = torch.tensor([float(10 + int(shard[-1]))], dtype=torch.float64)
            done.append(Update(_taught(start, coins.child("toy", shard)), layout, {"weight": records}))
        return done

    return Task(
        {who: f"shard of {who}" for who in clients}, layout, Model(torch.linspace(-0.5, 0.5, layout.size)), fit,
        lambda model: {"norm": float(model.vector.double().norm())}, _taught,
    )  # fmt: skip


def _taught(start: Tensor, coins: Coins) -> Tensor:
    drawn = torch.from_numpy(coins.secure().normal(len(start))).float() * 0.1
    return (start * 0.5 + drawn).clamp(-0.9, 0.9)
