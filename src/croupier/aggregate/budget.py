"""What a row counts for by the noise on it, or by the budget it was noised for, as both are published.

`aggregate.mean` (its key `by`) and `aggregate.projected` ask it. Noisier rows should count less; how noisy a row is, is
public where clients are in tiers (`privacy.tiers`), and `place.labels` puts it beside the rows.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from croupier.core.update import Gathered
from croupier.errors import ProtocolError

By = Literal["records", "variance", "epsilon"]


def factors(gathered: Gathered, by: By, signal: float, use: str) -> Tensor | None:
    """What to multiply each row's weight by, the largest 1; None where rows count as the encoder says.

    A row that is the mean of several clients has their number in its weight, and one client's noise as its label: its
    own noise is that much less, so that the product is right for it too.
    Raises: ProtocolError where nothing is published, or not for every row, or where a variance of 0 would divide.
    """
    if by == "records":
        return None
    labels = published(gathered, "noise" if by == "variance" else "epsilons", f"aggregate = {use!r} with by = {by!r}")
    if by == "variance":
        spread = labels + signal
        if not bool((spread > 0).all()):
            raise ProtocolError(
                f"aggregate = {use!r} with by = 'variance' cannot weigh a row without noise against the others; set "
                "protocol.aggregate.signal to the variance of a coordinate of an honest update"
            )
        # In units of the least: rows with equal labels then count exactly alike.
        return spread.min() / spread
    return labels / labels.max()


def published(gathered: Gathered, label: Literal["noise", "epsilons"], who: str) -> Tensor:
    """The published noise or budget of every row. Raises: ProtocolError where there is none, with what to do."""
    rows, labels = gathered.rows, gathered.noise if label == "noise" else gathered.epsilons
    what = "noise" if label == "noise" else "budget"
    if rows is None:
        raise ProtocolError(f"{who} weighs rows, and one sum of all clients was released; release rows or buckets")
    if labels is None:
        raise ProtocolError(
            f"{who} needs the published {what} of every row, and this release tells none; use privacy = 'tiers' or "
            "'gaussian', and a release that labels its rows"
        )
    if labels.shape != (len(rows),):
        raise ProtocolError(f"{who}: {labels.numel()} published labels for {len(rows)} rows")
    labels = labels.double()
    if not bool(torch.isfinite(labels).all()) or bool((labels < 0).any()) or (label == "epsilons" and not labels.all()):
        raise ProtocolError(f"{who}: a published {what} is not a finite number above 0")
    return labels
