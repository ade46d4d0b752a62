"""What every client has spent of its privacy budget, as a run writes it down: by round, by tier, and at the end.

The ledgers themselves are the clients' (`privacy.ledger`); only a simulation may look at all of them. `engine.job.job`
alone calls these functions: `round_line` gives a line of ledger.jsonl, `by_tier` goes into metrics.jsonl, and `closing`
into summary.json, from which `cli.tables` prints a table at the end of a run. Epsilons are upper bounds and are written
in full; only the label of a tier is rounded, upwards and to four digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.engine.state import Round, State
from croupier.pipeline import Pipeline
from croupier.privacy.ledger import ADJACENCY, Ledger
from croupier.privacy.local import Guarantee, rounded_up

# The composition table's numbers of participations; the run's number of rounds is added.
COUNTS = (1, 5, 10, 50)
METHOD = "Gaussian DP for noise, exact; pure epsilons added up. Counted from the first round of this run"


@dataclass(frozen=True)
class Account:
    """One client: its tier, how often it took part, what that cost it, and its budget where it has one."""

    tier: str
    participations: int
    epsilon: float
    budget: float | None

    def plain(self) -> dict[str, Any]:
        """For a log."""
        return {"tier": self.tier, "participations": self.participations, "epsilon": self.epsilon}


def accounts(pipeline: Pipeline, state: State, names: Sequence[str]) -> dict[str, Account]:
    """What each of these clients has spent so far; empty where nothing is claimed for clients."""
    local = pipeline.privacy.guarantee()
    if local is None:
        return {}
    return {name: _account(pipeline, local, name, state.memories.get(name, {})) for name in names}


def _account(pipeline: Pipeline, local: Guarantee, name: str, memory: Mapping[str, Any]) -> Account:
    ledger, tier = Ledger.read(memory.get("ledger", ())), pipeline.privacy.tier(name)
    # Where there are no tiers, all clients stand under one label, the epsilon of a participation.
    label = rounded_up(tier.epsilon if tier else local.epsilon)
    return Account(label, len(ledger.events), ledger.epsilon(local.delta), pipeline.privacy.limit(name))


def round_line(pipeline: Pipeline, done: Round) -> dict[str, Any]:
    """The line of a round in ledger.jsonl: unit, adjacency, and every invited client's account."""
    local = pipeline.privacy.guarantee()
    everyone = sorted({*done.cohort, *done.overspent})
    return {
        "round": done.number + 1,
        "unit": "client",
        "adjacency": ADJACENCY["client"],
        "delta": local.delta if local else None,
        "clients": {name: one.plain() for name, one in accounts(pipeline, done.state, everyone).items()},
        "refused": dict(sorted(done.overspent.items())),
    }


def by_tier(found: Mapping[str, Account]) -> dict[str, dict[str, Any]]:
    """How many clients of each tier have spent something, and the most that one of them did."""
    spent = [one for one in found.values() if one.participations]
    return {
        tier: {
            "clients": sum(one.tier == tier for one in spent),
            "epsilon": max(one.epsilon for one in spent if one.tier == tier),
        }
        for tier in sorted({one.tier for one in spent}, key=float)
    }


def closing(
    pipeline: Pipeline, state: State, enrolled: Sequence[str], refused: Sequence[str], rounds: int
) -> dict[str, Any]:
    """The account of a whole run: what each tier spent of its budgets, and what participations of it add up to."""
    local = pipeline.privacy.guarantee()
    found = accounts(pipeline, state, enrolled)
    tiers = sorted({one.tier for one in found.values()}, key=float)
    counts = sorted({*COUNTS, rounds})
    composed = pipeline.privacy.composition(counts)
    return {
        "unit": "client",
        "adjacency": ADJACENCY["client"],
        "delta": local.delta if local else None,
        "method": METHOD,
        "tiers": [_row(tier, found, refused) for tier in tiers],
        **({"composition": composed} if composed else {}),
    }


def _row(tier: str, found: Mapping[str, Account], refused: Sequence[str]) -> dict[str, Any]:
    members = {name: one for name, one in found.items() if one.tier == tier}
    budgets = [one.budget for one in members.values() if one.budget is not None]
    return {
        "tier": float(tier),
        "clients": len(members),
        "participations": max(one.participations for one in members.values()),
        "epsilon": max(one.epsilon for one in members.values()),
        "budget": [min(budgets), max(budgets)] if budgets else None,
        "unlimited": len(members) - len(budgets),
        "refused": sum(name in members for name in refused),
    }
