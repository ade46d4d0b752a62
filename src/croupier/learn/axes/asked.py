"""A network that `symmetry_of` is asked about, before it is watched: whether it runs at all, and gives a tensor.

`symmetry_of` is the public entrance to this folder; `learn.assemble` and Tazza's figures call it. Mistakes of whoever
asks (one record only, a network that fails or returns several tensors) are told here, before `trace` looks for
symmetries, so that its own errors are about symmetries alone. The network itself is not changed: copies are run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from croupier.encode.symmetry import Symmetry
from croupier.errors import SpecError
from croupier.learn.axes.trace import traced

# What torch, and networks, raise on inputs that they cannot take.
MISFITS = (RuntimeError, ValueError, TypeError, IndexError)


def symmetry_of(module: nn.Module, inputs: Tensor, opaque: Iterable[str] = ()) -> Symmetry:
    """The symmetries of a network that takes batches like `inputs` (at least two records) and nothing else.

    It is run on a copy, as in training and as in use, and every operation's rule says which axes are the same.
    `opaque` names modules whose axes all stay as they are, whatever they do. What was found is then tried out in
    float64, in training and in use, so that a network that the rules do not describe is an error and never a wrong
    model. A branch that is taken at random in training, and more rarely than one time in a few, may not be seen.
    `Symmetry.rule(secret, round)` makes a rule of it, and `Symmetry.permute_inputs(x, rule)` moves inputs.
    Raises: SpecError where the network does not take the inputs or gives anything but one tensor, on an operation that
    no rule is known for, naming it and the module, and where what was found fails the trial.
    """
    if isinstance(opaque, str):
        raise SpecError(f"opaque = {opaque!r}: one text, where names of modules are asked for; write [{opaque!r}]")
    if not isinstance(inputs, Tensor):
        raise SpecError(f"inputs: a tensor is asked for, not {type(inputs).__name__}; give a batch of records")
    _run(module, inputs)
    return traced(module, inputs, opaque)


def _run(module: nn.Module, inputs: Tensor) -> None:
    """Run a copy as in training and as in use."""
    copied, inputs = copy.deepcopy(module).cpu(), inputs.detach().cpu()
    for training in (True, False):
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                out = copied.train(training)(inputs.clone())
        except MISFITS as error:
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise SpecError(
                f"inputs of shape {tuple(inputs.shape)} and {inputs.dtype}: the network cannot take them "
                f"({'as in training' if training else 'as in use'}): {said}; give a batch as it is trained on, of at "
                "least two records"
            ) from error
        _check(out)


def _check(out: Any) -> None:
    if isinstance(out, Tensor):
        return
    raise SpecError(
        f"symmetry: the network returns a {type(out).__name__}, and one tensor is asked for; wrap it in a module whose "
        "forward returns only the tensor that is used, such as the first of what nn.GRU returns"
    )
