"""A fixed share of the mean difference: what a server takes of updates that noise drowns.

Where noise drowns the difference, going all the way makes the model a random walk. A part for the key `step` of
`aggregate.mean`, beside the adaptive steps in `step`; `croupier reproduce` compares it with them for IntraShuffler.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from croupier.aggregate.step import Step
from croupier.core.flow import Memory


class Damped(Step, use="damped"):
    """The mean times `lr`: FedAvg with a server rate."""

    lr: float = Field(0.1, gt=0, description="the share of the way to the mean that the model goes")

    def __call__(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Memory]:
        """Part of the way; nothing is remembered."""
        return mean * self.lr, memory
