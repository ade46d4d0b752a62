"""What a round begins with and what it gives, as values: the state, who misbehaves, and the round itself.

`engine.loop` makes them. Run directories keep states as checkpoints, and `accounts`, `engine.job.result`, audits and
the laboratory read rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from croupier.core.attempt import Attempt, Traffic
from croupier.core.coins import Coins
from croupier.core.flow import Change, Coalition, Memory, Party, Refusal
from croupier.core.update import Model
from croupier.core.view import View
from croupier.errors import (
    StoreError,
)


@dataclass(frozen=True)
class State:
    """Everything the next round depends on. Views may be dropped; this may not."""

    round: int
    # Clients' memories hold secrets.
    memories: Mapping[str, Memory] = field(repr=False)
    participations: Mapping[str, int]

    def plain(self) -> dict[str, Any]:
        """As plain values, for a checkpoint."""
        return {"round": self.round, "memories": dict(self.memories), "participations": dict(self.participations)}

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The server's current models: one, or one for each cluster."""
        return tuple(Model(**plain) for plain in self.memories["server"]["models"])

    @property
    def model(self) -> Model:
        """The server's current model; the largest cluster's where there are several."""
        return max(self.models, key=lambda model: len(model.recipients or ()))


@dataclass(frozen=True)
class Threat:
    """Who misbehaves: absent in a round, sending something else, rushing together, or following another flow.

    `tamper` is what goes wrong while clients agree on a secret before a round.
    """

    absent: Callable[[int], frozenset[str]] = lambda _: frozenset()
    corrupted: Mapping[str, Change] = field(default_factory=dict)
    coalition: Coalition | None = None
    parties: Mapping[str, Party] = field(default_factory=dict)
    tamper: Callable[[Attempt], Attempt] = lambda attempt: attempt


@dataclass(frozen=True)
class Round:
    """What one round did. `noted` is each client's own note: truth for an experiment, in nobody else's view.

    `overspent` names the clients that took no part because their budget is spent, and says why. Where clients agree on
    a rule (an order of hidden units) every round, the clients in `without_rule` came and could not open the model meant
    for them; it is None elsewhere. `lost` says why a round was not held. `before` is what the server saw of agreements
    before the round.
    """

    number: int
    attempt: int
    cohort: tuple[str, ...]
    present: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    metrics: Mapping[str, float]
    traffic: Traffic
    views: Mapping[str, View]
    noted: Mapping[str, Mapping[str, int]]
    state: State
    overspent: Mapping[str, str] = field(default_factory=dict)
    without_rule: tuple[str, ...] | None = None
    lost: str = ""
    before: tuple[View, ...] = ()


def run_id(coins: Coins) -> bytes:
    """Sixteen bytes that name a simulated run in every header and in its parties' coins of each round.

    They depend on the root alone: two protocols simulated from one seed train on the same draws and can be compared.
    """
    return coins.child("run").export()[:16]


def state_from(plain: Mapping[str, Any]) -> State:
    """A state from a checkpoint's plain values."""
    try:
        return State(plain["round"], plain["memories"], plain["participations"])
    except (KeyError, TypeError):
        raise StoreError(
            "a checkpoint is whole but holds no state of a run; remove it to resume from the one before"
        ) from None


def view_digests(done: Round) -> dict[str, str]:
    """By party, the digest of its view of a round, where views or their digests are kept."""
    return {name: view.digest().hex() for name, view in done.views.items() if view.kept != "nothing"}


HONEST = Threat()
