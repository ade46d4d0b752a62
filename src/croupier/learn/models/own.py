"""The user's own model, from a function that the description names."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.layers import draw_from
from croupier.learn.models.network import Network
from croupier.learn.own import Importable, call


class OwnNetwork(Network, use="own"):
    """What `make`, a function named as package.module:function, gives when called with the shape of an input and the
    number of classes (1 for a forecast).
    """

    make: Importable

    def build(self, dataset: Dataset) -> nn.Module:
        """A fresh model. Raises: SpecError when it cannot be had, or cannot be trained as it is."""
        module = call("task.model.make", self.make, dataset.shape, dataset.outputs)
        if not isinstance(module, nn.Module):
            raise self._bad(f"it gave {type(module).__name__}", "return a torch.nn.Module")
        self._check_weights(module)
        self._check_pass(module, dataset)
        return module

    def _check_weights(self, module: nn.Module) -> None:
        held = list(module.named_parameters(remove_duplicate=False))
        if not held:
            raise self._bad("the model has no weights", "give it at least one layer to train")
        if other := [name for name, part in held if part.dtype != torch.float32]:
            raise self._bad(f"{other[0]} is not float32", "call .float() on the model")
        if len(held) != len(list(module.parameters())):
            raise self._bad("one weight has two names", "give every layer weights of its own")
        if hidden := {name for name, _ in module.named_buffers()} - set(module.state_dict()):
            raise self._bad(f"the buffer {min(hidden)} is not persistent", "make it persistent or a plain attribute")

    def _check_pass(self, module: nn.Module, dataset: Dataset) -> None:
        """One pass over two records in training, on a copy: statistics of the model itself must stay fresh."""
        module = copy.deepcopy(module).train()
        draw_from(module, torch.Generator())
        inputs, _ = dataset.train.batch(torch.arange(2) % len(dataset.train))
        before = torch.get_rng_state()
        try:
            out = module(inputs)
        except Exception as error:
            raise self._bad(f"on inputs of shape {dataset.shape} it failed with {error!r}", "mend it") from error
        if not isinstance(out, Tensor) or out.shape != (2, dataset.outputs):
            gave = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise self._bad(f"for 2 inputs it gave {gave}", f"return a tensor of shape (inputs, {dataset.outputs})")
        if not torch.equal(before, torch.get_rng_state()):
            # Workers share that generator: results would depend on who comes first.
            remedy = "use croupier.learn.models.Dropout, which draws from each client's own"
            raise self._bad("in training it draws from torch's global generator, as torch.nn.Dropout does", remedy)

    def _bad(self, what: str, remedy: str) -> SpecError:
        return SpecError(f"task.model.make = {self.make!r}: {what}; {remedy}")
