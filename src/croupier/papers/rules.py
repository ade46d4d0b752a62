"""Rules for the arena: how a server turns stacked rows into a step, as small values.

RAIN in the clear and the plainest rules are here; `baselines` has those that the house aggregates with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

Floats = npt.NDArray[np.float64]
# Scales a median of absolute deviations to a normal's standard deviation.
NORMAL = 1.4826
# RAIN's lambda: the artifact's default, the paper gives none.
LAMBDA = 2.2


@dataclass(frozen=True, eq=False)
class Sight:
    """What the server itself has in a round: the model, its direction on root data, as it is and as signs.

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
Step = Callable[[Tensor, Sight, Any], tuple[Tensor | None, Any]]


@dataclass(frozen=True)
class Rule:
    """A rule by name. `signs`: clients send signs only. `rate`: the server's, which multiplies the step.

    `loud`: the rate where clients add noise, if another: a mean of noised signs is short, and would hardly move.
    `shows`: what a client can see of the reference before it sends: this round's, the last round's, or never any.
    `fresh`: the root data are a new batch of the root set in every round, else all of it. `fair`: a coordinate that is
    exactly 0 gets a sign by a coin, else it counts as positive. `alone`: no client is asked.
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


def mean(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    """FedAvg of clients of one size."""
    return rows.mean(0), memory


def root_only(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    """No clients at all: the server learns from its root data."""
    return sight.root, memory


def vote(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    """SignSGD: the sign of the sum of signs; no move where it ties."""
    return rows.sum(0).sign(), memory


def distances(rows: Tensor, reference: Tensor) -> Tensor:
    """Hamming distances of rows of -1 and 1, from their products; exact up to 2^24 coordinates."""
    return (rows.shape[1] - rows @ reference) / 2


@dataclass(frozen=True)
class Rain:
    """RAIN in the clear: a row counts when its distance is below median + 1.4826 lambda MAD.

    `weights`: alike (`equal`), in seven `levels`, or by how much (`relu`, as printed). `gate`: also nearer than half
    of the coordinates less 1.5 roots of their number. `floor`: MAD is at least that of independent coordinates, else
    1e-9 is added to it as a share, as the artifact has it.
    """

    weights: Literal["equal", "levels", "relu"] = "equal"
    gate: bool = True
    floor: bool = True
    spread: float = LAMBDA
    levels: int = 7

    def __call__(self, rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor | None, Any]:
        """The weighted mean of the rows."""
        away = distances(rows, sight.reference).double().cpu().numpy()
        weights = torch.from_numpy(self.judge(away, rows.shape[1])).to(rows.device, rows.dtype)
        return (weights @ rows / weights.sum() if bool(weights.any()) else None), memory

    def judge(self, away: Floats, size: int) -> Floats:
        """A weight for each distance."""
        limit = self._limit(away, size)
        near = np.maximum(limit - away, 0)
        if self.weights == "equal":
            return (near > 0).astype(np.float64)
        if self.weights == "relu" or not near.any():
            return near / size
        steps: Floats = np.ceil(self.levels * near / near.max())
        return steps

    def _limit(self, away: Floats, size: int) -> float:
        middle = float(np.median(away))
        spread = float(np.median(np.abs(away - middle)))
        share = min(max(middle / size, 0.0), 1.0)
        least = math.sqrt(size * share * (1 - share)) / NORMAL
        spread = max(spread, least) if self.floor else spread + 1e-9 * size
        limit = middle + NORMAL * self.spread * spread
        return min(limit, size / 2 - 1.5 * math.sqrt(size)) if self.gate else limit


SIGNED, LOUD = 0.01, 0.1
FEDAVG = Rule("FedAvg", mean)
ROOT_ONLY = Rule("root only", root_only, alone=True)
SIGNSGD = Rule("SignSGD", vote, signs=True, rate=SIGNED)
PRINTED = Rule(
    "RAIN as printed", Rain("relu", gate=False, floor=False), signs=True, rate=SIGNED, loud=LOUD, shows="now",
    fresh=False, fair=False,
)  # fmt: skip
GATED = Rule("RAIN, half gate", Rain("relu"), signs=True, rate=SIGNED, loud=LOUD, shows="now")
PLUS = replace(GATED, name="RAIN, 0/1, zeros +1", step=Rain(), fair=False)
EQUAL = replace(GATED, name="RAIN, 0/1", step=Rain())
LEVELS = replace(GATED, name="RAIN, 7 levels", step=Rain("levels"))
UNGATED = replace(GATED, name="RAIN, 0/1, no gate", step=Rain(gate=False))
HIDDEN = replace(EQUAL, name="RAIN, 0/1, hidden", shows="stale")
