"""The slot for models.

The architectures beside this file derive from `Network`, and a description's `task.model` is one of them by name
(`layers`, `grouped` and `start` hold what several of them share). Such a part is small and frozen; `build` gives the
torch module, and checks that the dataset has the shape that the architecture needs. Its weights come from torch's
global generator, which `learn.assemble` sets from the run's coins while it calls `build`.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from croupier.core.part import Part
from croupier.errors import SpecError
from croupier.learn.data import Dataset


class Network(Part):
    """What is trained."""

    verb = "model"
    lies_in = "croupier.learn.models"

    @property
    def own_function(self) -> str:
        """The function of the user's own that makes the model; nothing where none is called."""
        return ""

    @property
    def batchable(self) -> bool:
        """Whether many clients' copies can be trained as one stacked model: no running state, no branch, no dropout."""
        return False

    @abstractmethod
    def build(self, dataset: Dataset) -> nn.Module:
        """A fresh model, its weights drawn from torch's global generator. Raises: SpecError on a misfit."""

    def _misfit(self, dataset: Dataset, needs: str, remedy: str) -> SpecError:
        given = f"{dataset.name!r} has inputs of shape {dataset.shape} to {dataset.goal}"
        return SpecError(f"task.model = {self.use!r}: needs {needs}, but {given}; {remedy}")
