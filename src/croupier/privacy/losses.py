"""Distributions of privacy losses (PLD), composed by Google's dp-accounting; without it an error, never a number.

Tighter than the closed forms where releases of different kinds are put together, and than `renyi` for noise on sampled
records. It needs the extra `dp`; a missing package is an error with the command to install it, because a looser number
under the same name would mislead. `privacy.ledger` asks it (`Ledger.epsilon` by "pld"), and `learn.budget` takes the
library from here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from croupier.errors import SpecError

# Privacy losses are rounded up to multiples of this.
GRID = 1e-4


def epsilon(
    gaussians: Sequence[tuple[float, float, int]], others: Sequence[tuple[float, float]], delta: float
) -> float:
    """An upper bound of the epsilon of Gaussians (mu, rate, steps) and (epsilon, delta) releases together.

    Raises: SpecError without the extra `dp`.
    """
    _, pld = library()
    if any(math.isinf(mu) for mu, _, _ in gaussians):
        return math.inf
    made = pld.privacy_loss_distribution
    parts = []
    for (mu, rate), steps in _counted(gaussians).items():
        one = made.from_gaussian_mechanism(1 / mu, value_discretization_interval=GRID, sampling_prob=rate)
        parts.append(one.self_compose(steps))
    for (spent, lost), times in Counter(others).items():
        one = made.from_privacy_parameters(
            pld.common.DifferentialPrivacyParameters(spent, lost), value_discretization_interval=GRID
        )
        parts.append(one.self_compose(times))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta))


def _counted(gaussians: Sequence[tuple[float, float, int]]) -> dict[tuple[float, float], int]:
    found: Counter[tuple[float, float]] = Counter()
    for mu, rate, steps in gaussians:
        found[mu, rate] += steps
    return dict(found)


def library() -> tuple[Any, Any]:
    """dp-accounting and its PLD package. Raises: SpecError without the extra `dp`."""
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        raise SpecError(
            "epsilon cannot be computed: dp-accounting is not installed; pip install 'croupier[dp]'"
        ) from None
    return dp_accounting, pld
