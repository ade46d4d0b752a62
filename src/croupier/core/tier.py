"""A privacy tier: what a client that noises its updates declares of them, in public.

Clients of one tier have the same epsilon and so the same noise. It lies here because mechanisms (`privacy.tiers`),
releases (`release.buckets`) and placements (`place.labels`) all speak of it, and rooms on one floor do not import each
other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Tier:
    """The epsilon of one participation, and the standard deviation of the noise on each coordinate that it takes."""

    epsilon: float
    sigma: float
