"""What a client's defences cost in one participation: permuting once, pruning or DP-SGD at every batch.

Tazza's claim is that permuting once a round costs less than defences that work at every batch. This times them on the
same batches, for Tazza's Figures 14 to 16 (`papers.tazza.cost`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.learn.fit import Adam, prune
from croupier_lab.bench.speed.model_permutation import KEPT, Subject, privately, ruled, stepper

TAZZA, PRUNING, DPSGD, NONE = "Tazza", f"pruning {1 - KEPT:.0%}", "DP-SGD", "no defence"
Work = Callable[[], Any]
Clock = Callable[[], float]
# Which clock to time by. On one thread of an idle machine both tell the same; on a busy one the processor's time is the
# work's own.
CLOCKS: Mapping[str, Clock] = {"processor": time.process_time, "wall": time.perf_counter}


def costs(made: Subject, updates: int, repeats: int, coins: Coins, clock: Clock) -> dict[str, Any]:
    """Seconds of each defence over so many batches: the whole participation (`total`), and the defence alone.

    Totals are timed as they run. Alone, Tazza is to derive the rule, restore the model it is handed and permute the one
    it sends, once. Pruning alone is to cut every batch's gradient, and `pruned_once` to cut one. DP-SGD alone is its
    total less plain training; it is None where a network has no gradients of single records.
    """
    net, vector, out = made.net, made.vector, torch.empty_like(made.vector)

    def trained(fresh: Callable[[], Work]) -> None:
        # Every participation begins anew: gradients of a batch that was learnt by heart are tiny, and slow.
        net.load(vector)
        step = fresh()
        for _ in range(updates):
            step()

    def permuted(between: Work = lambda: None) -> None:
        rule = ruled(made.symmetry, made.seed)
        rule.invert(vector, out)
        between()
        rule.apply(vector, out)

    def plain() -> Work:
        return stepper(net, made.rows, Adam())

    def pruned() -> Work:
        return stepper(net, made.rows, Adam(), lambda grads: prune(grads, KEPT))

    trained(plain)
    gradient = net.grads.clone()
    works: dict[str, Work] = {
        NONE: lambda: trained(plain),
        TAZZA: lambda: permuted(lambda: trained(plain)),
        PRUNING: lambda: trained(pruned),
        "permuting": permuted,
        "cutting": lambda: prune(gradient, KEPT),
    }
    private = privately(net, made.rows, coins)
    if private is not None:
        works[DPSGD] = lambda: trained(lambda: private)
    took = race(works, repeats, clock)
    noised = took.get(DPSGD)
    alone = {
        TAZZA: took["permuting"],
        PRUNING: updates * took["cutting"],
        DPSGD: None if noised is None else noised - took[NONE],
    }
    total = {name: took.get(name) for name in (NONE, TAZZA, PRUNING, DPSGD)}
    return {"parameters": len(vector), "total": total, "alone": alone, "pruned_once": took["cutting"]}


def race(works: Mapping[str, Work], repeats: int, clock: Clock) -> dict[str, float]:
    """The least seconds of each, in turns, so that a busy machine hinders all alike; the first turn does not count."""
    took = dict.fromkeys(works, float("inf"))
    for turn in range(repeats + 1):
        for name, work in works.items():
            start = clock()
            work()
            spent = clock() - start
            took[name] = min(took[name], spent) if turn else took[name]
    return took
