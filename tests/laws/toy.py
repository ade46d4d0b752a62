"""A task without learning: each client's update is a draw from its own coins, so laws run in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Change, Letter
from croupier.core.update import Layout, Model, Slice, Update
from croupier.core.view import View
from croupier.encode.axes import fixed, free
from croupier.encode.symmetry import Symmetry
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round, Threat
from croupier.engine.task import Task
from croupier.pipeline import Pipeline

LAYOUT = Layout(
    (
        Slice("body.weight", (5, 3)),
        Slice("body.bias", (5,)),
        Slice("head.weight", (2, 5)),
        Slice("norm.running_mean", (2,), "statistic"),
        Slice("norm.count", (), "counter"),
    )
)
# Signs of running statistics mean nothing: where updates travel as signs, the toy has none.
BARE = Layout(tuple(part for part in LAYOUT.slices if part.role == "weight"))
# Bits that are encrypted one by one are dear: the toy has one number there.
TINY = Layout((Slice("body.weight", (1, 1)), Slice("norm.count", (), "counter")))
# A dozen of them, for what is only done to some.
DOZEN = Layout((Slice("body.weight", (12, 1)), Slice("norm.count", (), "counter")))
CLIENTS = ("c0", "c1", "c2", "c3")
SEED = 11


def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
    """An update that depends on the start, the shard and the coins, and on nothing else."""
    done = []
    for start, shard, coins in jobs:
        records = torch.tensor([float(10 + len(shard) + ord(shard[-1]) % 7)], dtype=torch.float64)
        layout = {one.size: one for one in (BARE, TINY, DOZEN, LAYOUT)}[len(start)]
        done.append(Update(taught(start, coins.child("toy", shard)), layout, {"weight": records}))
    return done


def taught(start: torch.Tensor, coins: Coins) -> torch.Tensor:
    """What training makes of a start."""
    drawn = torch.from_numpy(coins.secure().normal(len(start))).float() * 0.1
    return (start * 0.5 + drawn).clamp(-0.9, 0.9)


def task(clients: Sequence[str] = CLIENTS, shards: Mapping[str, str] | None = None, layout: Layout = LAYOUT) -> Task:
    """Enrolled clients with a shard each, and a server that has something to train on too."""
    named = dict(shards or {who: f"shard of {who}" for who in clients})
    first = Model(torch.linspace(-0.5, 0.5, layout.size))
    return Task(
        named, layout, first, fit, lambda model: {"norm": float(model.vector.double().norm())}, taught,
        symmetry=lambda: symmetry(layout), fresh=lambda coins: taught(first.vector, coins),
    )  # fmt: skip


def symmetry(layout: Layout) -> Symmetry:
    """Every first axis of the body is one group, its inputs another; all else stays."""
    axes = {
        part.name: tuple(
            (free("hidden", size) if number == 0 else free("input", size))
            if part.layer == "body"
            else fixed(size, "of the toy")
            for number, size in enumerate(part.shape)
        )
        for part in layout.carried
    }
    return Symmetry(layout, axes, (free("input", 3),))


def layout_for(pipeline: Pipeline) -> Layout:
    """The toy's layout for a pipeline."""
    if getattr(pipeline.place, "trust", "") == "malicious":
        return TINY
    return BARE if pipeline.encode.use == "signs" else LAYOUT


def play(
    pipeline: Pipeline,
    *,
    count: int = 2,
    coins: Coins | None = None,
    drive: Local | None = None,
    threat: Threat | None = None,
    of: Task | None = None,
    quorum: float = 0.5,
) -> list[Round]:
    """Some rounds with every view kept."""
    plan = Federation(rounds=count, quorum=quorum)
    root = coins or Coins.from_seed(SEED)
    keep = {"*": "keep"}
    done: Iterator[Round] = rounds(
        pipeline,
        of or task(layout=layout_for(pipeline)),
        plan,
        root,
        drive or Local(),
        threat=threat or Threat(),
        keep=keep,  # type: ignore[arg-type]
    )
    return list(done)


def through_bytes(**more: Any) -> Local:
    """The driver that seals, sends and parses every message."""
    return Local(Coins.from_seed(99), **more)


def absent(*names: str) -> Threat:
    """Clients that never come."""
    return Threat(absent=lambda _: frozenset(names))


def tap(pipeline: Pipeline, clients: Sequence[str] = CLIENTS) -> tuple[Threat, dict[tuple[str, int], list[Letter]]]:
    """A threat that changes nothing and writes down what every party sends, by party and round."""
    log: dict[tuple[str, int], list[Letter]] = {}

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        log.setdefault((view.party, view.given.round), []).extend(letters)
        return letters

    taps: dict[str, Change] = dict.fromkeys(pipeline.parties(clients), listen)
    return Threat(corrupted=taps), log
