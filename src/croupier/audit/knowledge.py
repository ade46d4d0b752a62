"""What an adversary knows besides its views, as values that can be sent to the attacks' own process.

Attacks on source and membership are told nothing else beside a view, the model that was handed out and the public
protocol; reconstruction is told averages of public records, too. `audit.setting` and `audit.recorded.audited` make a
`Knowledge`; `audit.attacks.source`, `audit.membership`, `audit.prior`, `audit.records`, `audit.unshuffle` and
`audit.attacks.reconstruction` work with it. `log_odds` and `fits` say how well outputs fit a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.models.network import Network
from croupier.learn.own_names import carried, revived

# Inputs of records, and their labels or targets.
Sample = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Knowledge:
    """What is known of the records and of the training: architecture (`model`) and recipe (`fit`) are public.

    `records` were trained on, and it is asked whose they are; `shadows` has for each client a sample of its
    distribution that nobody trains on. Of `suspects` it is asked whether they were trained on.
    """

    clients: tuple[str, ...]
    model: Mapping[str, Any]
    fit: Mapping[str, Any]
    classes: int
    records: Sample
    shadows: tuple[Sample, ...]
    suspects: Sample
    # What of the network is neither trained nor sent; as public as the rest of it.
    frozen: Mapping[str, Tensor] = field(default_factory=dict)
    # The loss that clients train by: a goal's usual one, or the one that the description names.
    by: Mapping[str, str] = field(default_factory=lambda: {"loss": "classify"})
    # How many models it trains itself, to see how records do that were not trained on; 0 for the usual number.
    models: int = 0

    def __post_init__(self) -> None:
        # A function of the user's own came as its name and folder, which another process wrote down: find it again.
        object.__setattr__(self, "model", revived(self.model))
        object.__setattr__(self, "by", revived(self.by))

    @property
    def trained(self) -> str:
        """The name of the loss that clients minimise."""
        return self.by["loss"]

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "model": carried(self.model), "by": carried(self.by),
        }  # fmt: skip

    @property
    def pool(self) -> Sample:
        """All shadow sets together."""
        return torch.cat([x for x, _ in self.shadows]), torch.cat([y for _, y in self.shadows])

    @cached_property
    def module(self) -> nn.Module:
        """A network of the public architecture, to load weights into."""
        return self.build()

    def build(self) -> nn.Module:
        """A fresh network, its weights drawn from torch's global generator."""
        inputs, targets = self.records
        stand_in = TensorRecords(torch.zeros_like(inputs[:1]), torch.zeros_like(targets[:1]))
        goal: Literal["classify", "forecast"] = "classify" if self.classes else "forecast"
        dataset = Dataset("audit", goal, self.classes, stand_in, stand_in, "", "")
        module = Network.parse(self.model).build(dataset)
        module.load_state_dict(dict(self.frozen), strict=False)
        return module


def log_odds(said: Tensor, labels: Tensor) -> Tensor:
    """Log-odds of each record's label, from logits whose last two dimensions are records and classes."""
    own = nn.functional.one_hot(labels, said.shape[-1]).bool().expand_as(said)
    rest = torch.logsumexp(said.double().masked_fill(own, -torch.inf), -1)
    return said[own].double().reshape(rest.shape) - rest


def fits(said: Tensor, targets: Tensor) -> Tensor:
    """How well outputs fit each record's target: the log-odds of its class, or minus the mean squared error."""
    if not targets.is_floating_point():
        return log_odds(said, targets)
    return -(said.double() - targets.double()).square().mean(-1)
