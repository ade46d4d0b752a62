"""How a party runs, apart from what the roster says: where its coins come from, what is kept, and who hears of it.

These are the operator's choices and a test's, not the federation's. `cli.serve`, `flower.station` and
`service.rehearsal` make `Options`; `service.party` and what it is built of read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.view import Kept, View
from croupier.service.member import Versions
from croupier.service.notice import Notice
from croupier.service.quota import FLOOR
from croupier.service.seated import Hook, nothing


class CoinSource(Protocol):
    """Where a party's coins of an attempt come from: fresh ones, or those of a simulation's seed."""

    def __call__(self, notice: Notice) -> bytes:
        """32 bytes."""


def fresh_coins(notice: Notice) -> bytes:
    """Coins of a deployment: from the operating system, for this attempt and no other."""
    return Coins.from_os().export()


@dataclass(frozen=True)
class Options:
    """How a party runs, apart from what the roster says.

    `shard` is a client's part of the data, `first_memory` what its flow remembers before the first round, `keep` how
    much of a view is kept, for `on_view` to take; `tell` hears every event for the operator, and `hook` every step
    (`service.seated`).
    """

    coins: CoinSource = fresh_coins
    shard: str = ""
    first_memory: Memory = field(default_factory=dict, repr=False)
    keep: Kept = "nothing"
    hook: Hook = nothing
    tell: Callable[..., None] = lambda event, **facts: None
    on_view: Callable[[Notice, View], None] = lambda notice, view: None
    # Which version of the roster holds in a round; the one it starts with in all of them unless said.
    versions: Versions | None = None
    # Bytes of the disk that letters leave free.
    floor: int = FLOOR
