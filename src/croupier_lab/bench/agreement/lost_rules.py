"""Rounds whose clients agree anew each time: how many are lost because nobody who came knows the last rule.

A model lies in the order of the rule of the round before. A cohort that shares no client with that round cannot open
it, so that the round is lost. These are rounds of the real loop with the real agreements, on a tiny network without
training. `faults_and_cost` (`croupier bench agree`) calls `played` and prints the counted share beside the computed
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.core.epoch import disjoint_cohort_chance
from croupier.core.update import Layout, Model, Slice, Update
from croupier.encode.axes import fixed, free
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Symmetry
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.task import Task
from croupier.pipeline import Pipeline

UNITS = 8
LAYOUT = Layout((Slice("body.weight", (UNITS, 4)), Slice("head.weight", (2, UNITS))))


def _trained(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
    """Training that learns nothing: each client returns the model it was given."""
    return [Update(start, LAYOUT) for start, _, _ in jobs]


def bare_task(clients: int) -> Task:
    """A task with this many clients, a tiny network and no records."""
    axes = {
        "body.weight": (free("units", UNITS), fixed(4, "not looked at")),
        "head.weight": (fixed(2, "labels"), free("units", UNITS)),
    }
    symmetry = Symmetry(LAYOUT, axes, (fixed(4, "not looked at"),))
    first = torch.linspace(-1, 1, LAYOUT.size)
    return Task(
        {f"c{number:03}": str(number) for number in range(clients)}, LAYOUT, Model(first), _trained, lambda _: {},
        symmetry=lambda: symmetry, fresh=lambda _: first,
    )  # fmt: skip


def played(enrolled: int, cohort: int, count: int, coins: Coins) -> dict[str, Any]:
    """Play so many rounds of a cohort out of all enrolled, and count the lost ones beside their expected share.

    A cohort is drawn without regard to those before, so rounds are lost independently of each other, and the interval
    (95 %) is that of a binomial. The first round has no model to open and does not count. Both shares are for `fetch` =
    "cohort", by which clients outside the cohort do not hand the last rule on.
    """
    from scipy.stats import binomtest

    pipeline = Pipeline(encode=HiddenUnits(agree="round", fetch="cohort"))
    plan = Federation(rounds=count + 1, cohort=cohort)
    done = list(rounds(pipeline, bare_task(enrolled), plan, coins, Local()))[1:]
    lost = sum(bool(one.lost) for one in done)
    span = binomtest(lost, count).proportion_ci()
    return {
        "enrolled": enrolled, "cohort": cohort, "share": disjoint_cohort_chance(enrolled, cohort),
        "rounds": count, "lost": lost, "measured": lost / count, "low": float(span.low), "high": float(span.high),
    }  # fmt: skip
