"""The user's own model, from a function that the description names.

The function is called with the shape of an input and the number of outputs, and the module that it gives is tried on
real records, in training mode, before anything trains it. Its dropout is taken over, its frozen parts stay at home, and
buffers that training does not change are treated as frozen, so that they are neither sent nor averaged.
"""

from __future__ import annotations

import copy

import torch
from pydantic import Field
from torch import Tensor, nn

from croupier.errors import OwnError, SpecError
from croupier.learn.data import Dataset
from croupier.learn.flat import train_mode
from croupier.learn.models.layers import draw_from, take_over
from croupier.learn.models.network import Network
from croupier.learn.own import call, error_in_own_code
from croupier.learn.own_names import Importable


class OwnNetwork(Network, use="own"):
    """What `make` gives when called with the shape of an input and the number of classes (of targets, where quantities
    are learnt): a function or class named as module:function, or in Python the function itself.
    """

    make: Importable = Field(description="your function, as `module:function`")

    @property
    def own_function(self) -> str:
        """`make`."""
        return self.make

    def build(self, dataset: Dataset) -> nn.Module:
        """A fresh model. Raises: SpecError when it cannot be had, or cannot be trained as it is."""
        module = call("task.model.make", self.make, dataset.shape, dataset.outputs, takes="shape, classes")
        if not isinstance(module, nn.Module):
            raise self._bad(f"it gave {type(module).__name__}", "return a torch.nn.Module")
        take_over(module)
        self._check_weights(module)
        self._check_pass(module, dataset)
        return module

    def _check_weights(self, module: nn.Module) -> None:
        held = list(module.named_parameters(remove_duplicate=False))
        if not held:
            raise self._bad("the model has no weights", "give it at least one layer to train")
        if not any(part.requires_grad for _, part in held):
            raise self._bad("all weights of the model are frozen", "leave at least one layer to train")
        if other := [name for name, part in held if part.dtype != torch.float32]:
            raise self._bad(f"{other[0]} is not float32", "call .float() on the model")
        if len(held) != len(list(module.parameters())):
            raise self._bad("one weight has two names", "give every layer weights of its own")
        if hidden := {name for name, _ in module.named_buffers()} - set(module.state_dict()):
            raise self._bad(f"the buffer {min(hidden)} is not persistent", "make it persistent or a plain attribute")

    def _check_pass(self, module: nn.Module, dataset: Dataset) -> None:
        """Pass two records through a copy in training, and then noise: statistics of the model itself must stay fresh.

        Buffers that training leaves alone are frozen as parameters are: they need not be sent.
        """
        twin = train_mode(copy.deepcopy(module))
        draw_from(twin, torch.Generator())
        inputs = _extremes(dataset)
        before = torch.get_rng_state()
        try:
            out = twin(inputs)
        except Exception as error:
            raise self._failed(error, dataset) from error
        if not isinstance(out, Tensor) or out.shape != (2, dataset.outputs):
            gave = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            remedy = f"return a tensor of shape (inputs, {dataset.outputs})"
            if gave in ((2,), (2, 1)) and dataset.outputs == 2:
                remedy += ": a logit for each class, whose softmax is the sigmoid of their difference"
            raise self._bad(f"for 2 inputs it gave {gave}", remedy)
        if not torch.equal(before, torch.get_rng_state()):
            raise self._random(module)
        if not dataset.worded:
            # Records may be all zeros, and leave statistics as they were; noise does not.
            twin(inputs + torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)))
        _freeze_constants(module, twin)

    def _failed(self, error: Exception, dataset: Dataset) -> SpecError:
        """What to say of a pass that failed: the user's own line where it was theirs."""
        at = f"task.model.make = {self.make!r}: on inputs of shape {dataset.shape}"
        whole = f"inputs are whole numbers below {dataset.tokens} (int64), as embeddings want them"
        hint = f"; {whole}; give floats where they are quantities" if dataset.worded else ""
        if own := error_in_own_code(error):
            return OwnError(f"{at}: {own}{hint}")
        return SpecError(f"{at} it failed with {error!r}{hint or '; mend it'}")

    def _random(self, module: nn.Module) -> SpecError:
        """Workers share torch's generator: results would depend on who comes first."""
        for name, part in module.named_modules():
            if isinstance(part, nn.RNNBase | nn.MultiheadAttention) and part.dropout:
                inside = f"{name or 'the model'} ({type(part).__name__}) drops out inside itself"
                return self._bad(inside, "set its dropout to 0, and put nn.Dropout behind it")
        drawn = "in training it draws from torch's global generator, which no seed of a client's governs"
        return self._bad(drawn, "use the module nn.Dropout, which is taken over, for what is random")

    def _bad(self, what: str, remedy: str) -> SpecError:
        return SpecError(f"task.model.make = {self.make!r}: {what}; {remedy}")


def _extremes(dataset: Dataset) -> Tensor:
    """Two inputs: of whole numbers those with the smallest and the largest, so that an embedding meets its ends."""
    if not dataset.worded:
        return dataset.train.batch(torch.arange(2) % len(dataset.train))[0]
    inputs = dataset.train.batch(torch.arange(len(dataset.train)))[0].flatten(1)
    ends = torch.stack([inputs.amin(1).argmin(), inputs.amax(1).argmax()])
    return dataset.train.batch(ends)[0]


def _freeze_constants(module: nn.Module, trained: nn.Module) -> None:
    """Make frozen parameters of the float buffers that are as they were before training; their names stay."""
    after = dict(trained.named_buffers())
    for path, buffer in list(module.named_buffers()):
        parent, _, name = path.rpartition(".")
        part = trained.get_submodule(parent)
        measures = isinstance(part, nn.modules.batchnorm._NormBase) and part.training
        if buffer.is_floating_point() and not measures and torch.equal(buffer, after[path]):
            owner = module.get_submodule(parent)
            del owner._buffers[name]
            owner.register_parameter(name, nn.Parameter(buffer, requires_grad=False))
