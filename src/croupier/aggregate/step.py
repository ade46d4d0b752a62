"""How the server moves its model by what the clients changed on average: all the way, or as an adaptive optimiser.

Parts for the key `step` of `aggregate.mean`; an adaptive one treats the mean change as a gradient. Presets
`intra-london` and `intra-london-sum` take `adam`. The steps are those of Reddi et al. 2021 (Adaptive Federated
Optimization), Algorithm 2, without a correction for the first rounds. The second moment starts at tau squared, the
least that the algorithm allows, not at 0.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.flow import Memory
from croupier.core.part import Part
from croupier.errors import ProtocolError


class Step(Part):
    """What the server makes of the mean difference.

    `aggregate.mean` calls a step only where it `adapts`: such a step may move the model another way than by the mean,
    and may remember moments of the weights.
    """

    verb: ClassVar[str] = "step"
    lies_in: ClassVar[str] = "croupier.aggregate"
    adapts: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Memory]:
        """How far the weights move, in float64, and what is remembered."""


class Average(Step, use="average"):
    """All the way: FedAvg."""

    adapts: ClassVar[bool] = False

    def __call__(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Memory]:
        """The mean itself."""
        return mean, memory


class Adaptive(Step):
    """A step of `lr` along the decaying mean of the differences, in units of how large they were and `tau`."""

    lr: float = Field(0.01, gt=0, description="about how far a weight moves in a round")
    beta1: float = Field(0.9, ge=0, lt=1, description="what the mean of earlier rounds counts for")
    tau: float = Field(1e-3, gt=0, description="how large a change counts as small; squares start at its square")

    def __call__(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Memory]:
        """Raises: ProtocolError when what is remembered belongs to other coordinates."""
        first, second = self._moments(mean, frame, memory)
        # Every product is rounded before it is added: a fused one rounds differently where a processor has it.
        first = first * self.beta1 + mean * (1 - self.beta1)
        second = self.second(second, mean * mean)
        moved = first * self.lr / (second.sqrt() + self.tau)
        return moved, {**memory, "step": {"first": first, "second": second, "frame": frame}}

    @abstractmethod
    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """The next second moment, from the one before and the squared differences."""

    def _moments(self, mean: Tensor, frame: bytes, memory: Memory) -> tuple[Tensor, Tensor]:
        held = memory.get("step")
        if held is None:
            return torch.zeros_like(mean), torch.full_like(mean, self.tau * self.tau)
        if held["frame"] != frame or len(held["first"]) != len(mean):
            raise ProtocolError(
                f"aggregate.step = {self.use!r} remembers moments in the order of coordinates of an earlier round, and "
                "this round's updates come in another; use step = 'average', or one frame for all rounds"
            )
        return held["first"], held["second"]


class FedAdam(Adaptive, use="adam"):
    """FedAdam: the second moment is a decaying mean of squares."""

    beta2: float = Field(0.99, ge=0, lt=1, description="what the squares of earlier rounds count for")

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """A decaying mean of the squares."""
        return before * self.beta2 + square * (1 - self.beta2)


class FedYogi(Adaptive, use="yogi"):
    """FedYogi: the second moment goes towards the squares by a share of them, so that it never falls at once."""

    beta2: float = Field(0.99, ge=0, lt=1, description="what the squares of earlier rounds count for")

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """Up or down by a share of the new square, whichever way the squares went."""
        return before - square * (1 - self.beta2) * (before - square).sign()


class FedAdagrad(Adaptive, use="adagrad"):
    """FedAdagrad: the second moment is the sum of squares; no decaying mean unless `beta1` is raised."""

    beta1: float = Field(0.0, ge=0, lt=1, description="what the mean of earlier rounds counts for")

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """The sum of all squares until now."""
        return before + square
