"""An agreement as it is announced: what is done before which round, by whom, and the public terms of it.

Whoever conducts agreements makes one (`conduct`), and each party computes its own seat from it (`seats`). In a
deployment it travels as a notice (`service.notice`), and each party first checks that its description has such a thing
(`service.guard`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from croupier.agree.agreement import AgreementCall
from croupier.core.epoch import Epoch
from croupier.errors import WireError

# JOINT: agree on a secret that nobody chooses. PBFT: agree on a head's. WELCOME: hand an epoch's secret to those who
# lack it while the epoch goes on. HAND_ON: the same when it is over. MOVE: move a model to a new epoch. FIRST: draw the
# first model.
JOINT, PBFT, WELCOME, HAND_ON, MOVE, FIRST = "joint", "pbft", "welcome", "hand on", "move", "first model"
_NUMBERED = {"number": int, "start": int, "last": (int, type(None)), "attempt": int}
_EPOCH = {"epoch": Mapping, "new": tuple}
_TERMS: Mapping[str, Mapping[str, Any]] = {
    JOINT: _NUMBERED,
    PBFT: {**_NUMBERED, "previous": bytes},
    WELCOME: _EPOCH,
    HAND_ON: _EPOCH,
    MOVE: {"at": int, "frame": bytes},
    FIRST: {},
}


@dataclass(frozen=True)
class Called:
    """One attempt at something that clients do before a round; rounds are counted from 0.

    Raises WireError when built from terms that are not those of its kind.
    """

    what: str
    before: int
    roster: tuple[str, ...]
    terms: Mapping[str, Any]

    def __post_init__(self) -> None:
        kinds = _TERMS.get(self.what)
        if kinds is None or set(kinds) != set(self.terms):
            raise WireError(f"{self.what!r:.40}: nothing that clients agree on has such a name and such terms")
        for name, kind in kinds.items():
            value = self.terms[name]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise WireError(f"{self.what!r}: its term {name!r} is not what it should be")
        if not all(isinstance(who, str) for who in self.terms.get("new", ())):
            raise WireError(f"{self.what!r}: its term 'new' names no clients")

    @classmethod
    def agreement(cls, what: str, before: int, call: AgreementCall, **more: bytes) -> Called:
        """What is announced for a call under a number."""
        terms = {"number": call.number, "start": call.start, "last": call.last, "attempt": call.attempt}
        return cls(what, before, call.roster, {**terms, **more})

    @classmethod
    def handing(
        cls, what: str, before: int, epoch: Epoch, new: tuple[str, ...], holders: tuple[str, ...] | None = None
    ) -> Called:
        """Those whom the epoch names, or those of them who are still there, hand its secret to others."""
        there = epoch.roster if holders is None else holders
        return cls(what, before, tuple(sorted((*there, *new))), {"epoch": epoch.plain(), "new": new})

    @property
    def numbered(self) -> tuple[int, int] | None:
        """The number and the attempt of an outcome that clients sign; None where they sign none."""
        return (self.terms["number"], self.terms["attempt"]) if self.what in (JOINT, PBFT) else None


@dataclass(frozen=True)
class AttemptReport:
    """What a party lets others know of how an attempt ended for it: its signed complaints.

    `reason` is why it ended early. A deployed client keeps its own to itself; a simulation knows everybody's.
    """

    complaints: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    reason: str = ""


Reports = Mapping[str, AttemptReport]
