"""A server step that goes only part of the way: the model moves by a fixed share of the clients' mean change.

Where privacy noise drowns that change, going all the way makes the model wander at random. It is one choice for the key
`step` of `aggregate.mean`, beside those in `aggregate.step`. `croupier reproduce` uses it for IntraShuffler
(`papers.intra.protocols`), where noise asks for smaller steps.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from croupier.aggregate.step import Step
from croupier.core.flow import Memory


class Damped(Step, use="damped"):
    """The mean times `lr`: FedAvg with a server rate.

    The mean is that of the changes, not of the models. `adapts` is inherited as true, because `aggregate.mean` calls
    no step that does not adapt; but nothing is remembered. With `lr` above 1 the model goes beyond the mean.
    """

    lr: float = Field(0.1, gt=0, description="the share of the way to the mean that the model goes")

    def __call__(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Memory]:
        """Part of the way; the memory is handed back as it came."""
        return mean * self.lr, memory
