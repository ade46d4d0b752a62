"""What training makes small: cross-entropy, errors of quantities, or a function of the user's own.

The name in `task.loss` decides, else the dataset's goal. `loss_of` gives the mean unless it is asked otherwise:
`learn.batch` asks for each record's loss and weighs records itself, `learn.sampled` and `learn.evaluate` ask for the
sum. A user's own function must therefore give each record's loss, and not their mean. `learn.train`, `learn.private`
and others import `loss_of` by way of `learn.flat`; `learn.assemble` calls `check_loss` before a run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import PlainValidator
from torch import Tensor, nn

from croupier.errors import OwnError, SpecError, nearest
from croupier.learn.data import Dataset
from croupier.learn.own import error_in_own_code, load_own
from croupier.learn.own_names import as_named

# By goal, unless another one is named.
USUAL = {"classify": "cross-entropy", "forecast": "mse"}
OF_QUANTITIES: dict[str, Callable[..., Tensor]] = {"huber": F.huber_loss, "mae": F.l1_loss, "mse": F.mse_loss}
NAMES = ("cross-entropy", *OF_QUANTITIES)


def _known(name: Any) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or ":" in name:
        return as_named(name)
    if name not in NAMES:
        raise ValueError(f"no loss has that name; {nearest(name, NAMES)}, or write module:function")
    return name


LossName = Annotated[str | None, PlainValidator(_known)]


def loss_of(goal: str, outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The loss for a goal (`classify`, `forecast`), a loss's name, or the user's own function as `module:function`.

    `none` gives the loss of each record, or of each of its targets; `sum` adds all of these up (see `losses_each`).
    """
    name = USUAL.get(goal, goal)
    if name == "cross-entropy":
        return F.cross_entropy(outputs, targets, reduction=reduction)
    if name in OF_QUANTITIES:
        return OF_QUANTITIES[name](outputs, targets, reduction=reduction)
    each = _own(name, outputs, targets)
    return each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each


def losses_each(goal: str, targets: Tensor) -> float:
    """How many losses of a record the reduction `sum` of `loss_of` adds up: one for each of its targets.

    There is one a class, and one a record of the user's own function, however many targets that compares.
    """
    return targets.numel() / len(targets) if USUAL.get(goal, goal) in OF_QUANTITIES else 1.0


def check_loss(name: str, module: nn.Module, dataset: Dataset) -> None:
    """Raises: SpecError when a loss does not fit the data, or the user's own cannot be trained by."""
    if (name == "cross-entropy" and not dataset.classes) or (name in OF_QUANTITIES and dataset.classes):
        what, usual = "classes" if dataset.classes else "quantities", USUAL[dataset.goal]
        raise SpecError(f"task.loss = {name!r}: {dataset.name!r} has {what} to learn; use {usual!r}")
    if ":" not in name:
        return
    inputs, targets = dataset.train.batch(torch.arange(2) % len(dataset.train))
    before = torch.get_rng_state()
    with torch.enable_grad():
        outputs = module.eval()(inputs).detach().requires_grad_()
        each = _own(name, outputs, targets)
    module.train()
    if not each.requires_grad or not bool(each.isfinite().all()):
        raise SpecError(f"task.loss = {name!r}: no gradient can be had of it; compute it from the outputs, in torch")
    if not torch.equal(before, torch.get_rng_state()):
        raise SpecError(f"task.loss = {name!r}: it draws at random, and no seed could repeat that; let it draw nothing")


def _own(path: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss for each record. Raises: SpecError when the function fails or gives something else."""
    try:
        each: Any = _function(path, Path.cwd())(outputs, targets)
    except SpecError:
        raise
    except Exception as error:
        if own := error_in_own_code(error):
            raise OwnError(f"task.loss = {path!r}: {own}") from error
        raise SpecError(f"task.loss = {path!r}: the function failed with {error!r}; mend it") from error
    if not isinstance(each, Tensor) or each.dim() < 1 or len(each) != len(outputs):
        gave = f"a tensor of shape {tuple(each.shape)}" if isinstance(each, Tensor) else type(each).__name__
        remedy = "return one loss for each record, as reduction='none' does"
        raise SpecError(f"task.loss = {path!r}: for {len(outputs)} records it gave {gave}; {remedy}")
    return each.flatten(1).mean(1) if each.dim() > 1 else each


@cache
def _function(path: str, here: Path) -> Callable[..., Any]:
    """Found once in a directory: a client asks at every batch."""
    return load_own("task.loss", path)
