"""Rules for rounds in the clear: how a server turns stacked rows into a step. Each rule is a `ClearRule`.

RAIN in the clear (in several forms) and the plainest rules are here; `baseline_rules` has the others of the literature.
`clear_rounds` trains with a rule, and `robustness`, `malicious_shares` and `server_rate` choose among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from croupier.release.scored import ScoredSum

# RAIN's lambda: the default of its published code, because the paper gives none.
LAMBDA = ScoredSum().spread


@dataclass(frozen=True, eq=False)
class ServerKnowledge:
    """What the server itself has in a round: the model, and its direction on root records, plain and as signs.

    `bad` is how many malicious clients a rule is told to expect, which is how many there are.
    """

    vector: Tensor
    widths: tuple[int, ...]
    root: Tensor
    reference: Tensor
    records: Tensor
    bad: int
    generator: Generator


# A step, or none at all, and what the rule remembers.
Step = Callable[[Tensor, ServerKnowledge, Any], tuple[Tensor | None, Any]]


@dataclass(frozen=True)
class ClearRule:
    """A rule by name, and how clients and server play under it.

    `signs`: clients send signs only. `rate`: the server's, which multiplies the step. `loud`: the rate where clients
    add noise, if it is another: a mean of noised signs is short, and would hardly move. `shows`: what a client can see
    of the reference before it sends: this round's, the last round's, or never any. `fresh`: the reference comes from a
    new batch of the root records in every round, else from all of them. `fair`: a coordinate that is exactly 0 gets a
    random sign, else it counts as positive. `alone`: no client is asked.
    """

    name: str
    step: Step
    signs: bool = False
    rate: float = 0.2
    loud: float | None = None
    shows: Literal["now", "stale", "never"] = "never"
    fresh: bool = True
    fair: bool = True
    alone: bool = False


def mean(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    """FedAvg of clients that hold equally many records."""
    return rows.mean(0), memory


def root_only(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    """No clients at all: the server learns from its root data."""
    return sight.root, memory


def vote(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    """SignSGD: the sign of the sum of signs; a coordinate whose votes tie does not move."""
    return rows.sum(0).sign(), memory


def distances(rows: Tensor, reference: Tensor) -> Tensor:
    """Hamming distances of rows of -1 and 1, from their products; exact up to 2^24 coordinates."""
    return (rows.shape[1] - rows @ reference) / 2


@dataclass(frozen=True)
class Rain:
    """RAIN in the clear: the weighted mean of rows, with the weights that the release gives to their distances."""

    release: ScoredSum

    def __call__(self, rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor | None, Any]:
        """The step; None where no row counts."""
        away = distances(rows, sight.reference).round().long().cpu().numpy()
        weights = torch.from_numpy(self.release.judge(away, rows.shape[1]).weights).to(rows.device, rows.dtype)
        return (weights @ rows / weights.sum() if bool(weights.any()) else None), memory


# Server rates for means of signs, without and with noise.
SIGNED, LOUD = 0.01, 0.1
FEDAVG = ClearRule("FedAvg", mean)
ROOT_ONLY = ClearRule("root only", root_only, alone=True)
SIGNSGD = ClearRule("SignSGD", vote, signs=True, rate=SIGNED)
PRINTED = ClearRule(
    "RAIN as printed", Rain(ScoredSum(weights="relu", gate=False, floor=False)), signs=True, rate=SIGNED, loud=LOUD,
    shows="now", fresh=False, fair=False,
)  # fmt: skip
GATED = ClearRule("RAIN, half gate", Rain(ScoredSum(weights="relu")), signs=True, rate=SIGNED, loud=LOUD, shows="now")
PLUS = replace(GATED, name="RAIN, 0/1, zeros +1", step=Rain(ScoredSum()), fair=False)
EQUAL = replace(GATED, name="RAIN, 0/1", step=Rain(ScoredSum()))
LEVELS = replace(GATED, name="RAIN, 7 levels", step=Rain(ScoredSum(weights="levels")))
UNGATED = replace(GATED, name="RAIN, 0/1, no gate", step=Rain(ScoredSum(gate=False)))
HIDDEN = replace(EQUAL, name="RAIN, 0/1, hidden", shows="stale")
