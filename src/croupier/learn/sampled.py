"""Gradients of single records by Opacus: every layer leaves them behind in one backward pass over the whole batch.

`learn.private` takes them where a description says `task.fit.engine = "opacus"`: quicker than torch's vmap for LSTMs.
GRU layers go through it, too; for vmap they are written out first (`learn.unroll`). Clipping, noise and sampling stay
in `learn.private` and `learn.dp_fit`: Opacus gives gradients here, and nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.loss import losses_each

REMEDY = "use task.fit.engine = 'vmap'"


@dataclass
class Sampler:
    """A module whose layers are listened to; `parameters` stand in the order of the flat weights."""

    module: nn.Module
    parameters: list[nn.Parameter]
    goal: str
    checked: bool = False

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of every record alone, as rows. Raises: SpecError where they do not add up to the batch's."""
        for weight in self.parameters:
            weight.grad, weight.grad_sample = None, None  # type: ignore[attr-defined]
        try:
            loss_of(self.goal, self.module(inputs), targets, "sum").backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise SpecError(f"task.fit.engine = 'opacus' cannot take this model apart ({error}); {REMEDY}") from error
        scale = losses_each(self.goal, targets)
        rows = [getattr(weight, "grad_sample", None) for weight in self.parameters]
        found = [row / scale for row in rows if isinstance(row, Tensor) and len(row) == len(inputs)]
        if len(found) < len(rows):
            raise SpecError(f"task.fit.engine = 'opacus': a weight has no gradient for each record; {REMEDY}")
        if not self.checked:
            self._check(found, scale)
        return torch.cat([row.flatten(1) for row in found], 1)

    def _check(self, found: list[Tensor], scale: float) -> None:
        """Weights that are used outside of their layer are missed there, and the sum tells."""
        for row, weight in zip(found, self.parameters, strict=True):
            whole = torch.zeros_like(weight) if weight.grad is None else weight.grad / scale
            if not torch.allclose(row.sum(0), whole, rtol=1e-3, atol=1e-4 * float(1 + whole.abs().max())):
                raise SpecError(f"task.fit.engine = 'opacus': gradients of records do not add up; {REMEDY}")
        self.checked = True


@contextmanager
def sampling(net: FlatNet, goal: str) -> Iterator[Sampler]:
    """Listen to a net's layers; recurrent ones are played by Opacus's own on the same weights meanwhile.

    Raises: SpecError without the extra `opacus`, or for a model that it cannot take apart.
    """
    hooks, fixers = _library()
    weights, grads = dict(net.module.named_parameters()), [weight.grad for weight in net.module.parameters()]
    swapped = _swap(net.module, fixers, weights)
    try:
        try:
            heard = hooks(net.module, batch_first=True, loss_reduction="sum", strict=False)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise SpecError(f"task.fit.engine = 'opacus' cannot take this model apart ({error}); {REMEDY}") from error
        try:
            yield Sampler(net.module, [weight for weight in weights.values() if weight.requires_grad], goal)
        finally:
            heard.cleanup()
    finally:
        for parent, name, child in swapped:
            setattr(parent, name, child)
        for weight, grad in zip(net.module.parameters(), grads, strict=True):
            weight.grad = grad


def _swap(module: nn.Module, fixers: Any, weights: dict[str, nn.Parameter]) -> list[tuple[nn.Module, str, nn.Module]]:
    """Put Opacus's recurrent layers in the place of torch's, on the same memory; what was there before."""
    swapped: list[tuple[nn.Module, str, nn.Module]] = []
    for path, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, (nn.LSTM, nn.GRU)):
                continue
            twin = fixers[type(child)](child)
            for key, weight in child.named_parameters():
                own = getattr(twin, key)
                own.data = weight.data
                own.requires_grad_(weight.requires_grad)
                weights[".".join(part for part in (path, name, key) if part)] = own
            setattr(parent, name, twin)
            swapped.append((parent, name, child))
    return swapped


def _library() -> tuple[Any, Any]:
    try:
        from opacus.grad_sample import GradSampleHooks
        from opacus.validators import ModuleValidator
    except ImportError:
        raise SpecError(
            "task.fit.engine = 'opacus': Opacus is not installed; pip install 'croupier[opacus]', or "
            "use task.fit.engine = 'vmap'"
        ) from None
    # First layers have no input to go back to, and need none; a filter for one call only would not be thread-safe.
    warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
    return GradSampleHooks, ModuleValidator.FIXERS
