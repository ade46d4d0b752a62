"""What a client's own view holds: the model that it was handed and, where coordinates are hidden, their order.

Whoever takes part in hidden coordinates (`encode.hidden`) knows the rule behind them. Its view holds what its own work
gave: the model in plain order before it trains, its update as it left after that. From these a coalition with such a
client puts in order what its other parties see. `audit.seen` reads views by this, and attacks take models from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.core.update import Gathered


def letters(view: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All letters in a view, in their order."""
    boxes = (box for box in view["inputs"] if isinstance(box, tuple))
    return (one for box in boxes for one in box if isinstance(one, Mapping) and "kind" in one)


def handed(view: Mapping[str, Any]) -> Tensor:
    """The model that a client was handed, in its view. Raises: StopIteration where it was handed none."""
    model: Tensor = next(one["body"]["model"] for one in letters(view) if one["kind"] == "model")
    return model


def trained_from(view: Mapping[str, Any]) -> Tensor:
    """The model that a client was handed, as it trains it: in hidden coordinates its own work makes it plain."""
    before, _, _ = _around_training(view)
    return before[0] if before else handed(view)


def order_known(views: Sequence[Mapping[str, Any]]) -> Tensor | None:
    """For each plain coordinate where it lay in what travelled in a round, by a client's views of it and of the next.

    Values tell: the client's update before and after it was permuted, unless noise came between, and the next model in
    plain order and as it was handed out. Coordinates that are equal in both are not told apart. None where the views
    hold neither.
    """
    pairs = list[tuple[Tensor, Tensor]]()
    before, trained, after = _around_training(views[0])
    if trained is not None and after:
        start = before[0] if before else handed(views[0])
        pairs += [(plain, after[0]) for plain in (trained, trained - start) if _same_values(plain, after[0])][:1]
    if len(views) > 1 and _around_training(views[1])[0]:
        pairs += [(plain, moved)] if _same_values(plain := trained_from(views[1]), moved := handed(views[1])) else []
    if not pairs:
        return None
    plains, moves = (np.lexsort([one.numpy() for one in each]) for each in zip(*pairs, strict=True))
    order = np.empty(len(plains), np.int64)
    order[plains] = moves
    return torch.from_numpy(order)


def _same_values(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.sort().values, other.sort().values)


def in_order(got: Gathered, order: Tensor | None) -> Gathered:
    """What was seen, with its coordinates in plain order where that is known, and else as they came."""
    if order is None:
        return got
    rows = None if got.rows is None else got.rows[:, order]
    return replace(got, rows=rows, sums=None if got.sums is None else got.sums[order])


def _around_training(view: Mapping[str, Any]) -> tuple[list[Tensor], Tensor | None, list[Tensor]]:
    """What the client's work on vectors gave before it trained, the weights that it trained, and what it gave after."""
    inputs = view["inputs"]
    at = next((at for at, one in enumerate(inputs) if isinstance(one, Mapping) and "vector" in one), len(inputs))
    before, after = ([one for one in some if isinstance(one, Tensor)] for some in (inputs[:at], inputs[at + 1 :]))
    return before, inputs[at]["vector"] if at < len(inputs) else None, after
