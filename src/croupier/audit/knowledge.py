"""What an adversary knows besides its views, and what it reads in a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from croupier.core.update import Gathered
from croupier.encode.encoder import Released
from croupier.errors import SpecError
from croupier.learn.data import Dataset, Rows
from croupier.learn.flat import FlatNet
from croupier.learn.models import Network
from croupier.pipeline import Pipeline

Sample = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Knowledge:
    """Records known to be in the training data, and a shadow set of each client: its distribution, not its records.

    The protocol and the architecture are public.
    """

    clients: tuple[str, ...]
    protocol: Mapping[str, Any]
    model: Mapping[str, Any]
    classes: int
    records: Sample
    shadows: tuple[Sample, ...]

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def net(self) -> FlatNet:
        """A network of the public architecture, to load weights into."""
        inputs, _ = self.records
        stand_in = Rows(torch.zeros_like(inputs[:1]), torch.zeros(1, dtype=torch.int64))
        dataset = Dataset("audit", "classify", self.classes, stand_in, stand_in, "", "")
        return FlatNet(Network.parse(self.model).build(dataset))

    @cached_property
    def last(self) -> tuple[str, nn.Linear]:
        """The final fully connected layer and its name. Raises: SpecError when the network ends otherwise."""
        found = [(name, part) for name, part in self.net.module.named_modules() if isinstance(part, nn.Linear)]
        if not found:
            raise SpecError(f"task.model = {self.model!r}: un-shuffling needs a final fully connected layer")
        return found[-1]

    def losses(self, vector: Tensor, sample: Sample) -> Tensor:
        """Cross-entropy of each record under these weights."""
        return nn.functional.cross_entropy(self.outputs(vector, sample[0]), sample[1], reduction="none")

    def outputs(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """Logits under these weights."""
        self.net.load(vector)
        self.net.module.eval()
        with torch.no_grad():
            out: Tensor = self.net.module(inputs)
        return out

    def read(self, view: Mapping[str, Any]) -> Gathered:
        """What the server's view of a round holds, decoded as the public protocol says."""
        pipeline = Pipeline.parse(self.protocol)
        letters = [letter for box in view["inputs"] if isinstance(box, tuple) for letter in box if "kind" in letter]
        ups = [letter for letter in letters if letter["kind"] == "up"]
        if ups:
            names = tuple(letter["source"] for letter in ups)
            rows = torch.stack([letter["body"]["vector"] for letter in ups])
            beside = {f.name: torch.stack([u["body"][f.name] for u in ups]) for f in pipeline.encode.luggage()}
            return pipeline.encode.decode(Released(names, rows, luggage=beside, ids=names), {})
        body = next(letter["body"] for letter in letters if letter["kind"] == "released")
        roster = view["given"]["roster"]
        present = tuple(name for name, bit in zip(roster, body["present"].tolist(), strict=True) if bit)
        beside = {f.name: body[f.name] for f in pipeline.encode.luggage()}
        ids = present if "ids" not in pipeline.release.hides else None
        brief = next((box for box in view["inputs"] if isinstance(box, Mapping)), {})
        return pipeline.encode.decode(Released(present, body.get("rows"), body.get("sums"), beside, ids), brief)
