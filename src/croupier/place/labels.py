"""What everybody can know of the noise in what was released, and of who is put together with whom.

Where clients are in tiers, whoever knows who is present knows every bucket and every row's noise. The server works them
out itself, and `placement.read_released` has the release compare them with what a relay wrote beside the rows, so that
a relay cannot lie about them; rules weigh by them (`aggregate.budget`). Where rows are hidden in a way that parts them
from their noise, this says so and what to do about it (`unlabelled`).

`pipeline` labels what the server gathered, `servers` adds up by the groups of `together`, and `relay`, `servers` and
the chain raise `too_few`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.flow import Given
from croupier.core.tier import Tier
from croupier.core.update import Gathered
from croupier.core.wire import chosen
from croupier.encode.encoder import Released
from croupier.errors import TooFew
from croupier.place.placement import Mechanism, release_tiers
from croupier.release.buckets import Label

ANYBODY = "anybody"


def together(mechanism: Mechanism, present: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Whose updates are added up: everybody's, or those of each bucket."""
    found = mechanism.release.added_together(len(present), release_tiers(mechanism, present))
    return tuple(tuple(present[i] for i in members) for members in found)


def places_together(mechanism: Mechanism, roster: tuple[str, ...], present: Tensor) -> list[npt.NDArray[np.int64]]:
    """The same by places among those invited, from a bitmap: without names where there is one sum of all."""
    here = places_of(present)
    if not mechanism.release.grouped:
        return [here]
    names = chosen(roster, present)
    at = dict(zip(names, here.tolist(), strict=True))
    return [np.array([at[who] for who in group]) for group in together(mechanism, names)]


def places_of(present: Tensor) -> npt.NDArray[np.int64]:
    """The places that a bitmap marks; clients of one process, who are all shown the same one, hold one copy of them."""
    return _marked(present.numpy().tobytes())


@lru_cache(maxsize=1)
def _marked(bitmap: bytes) -> npt.NDArray[np.int64]:
    places = np.flatnonzero(np.frombuffer(bitmap, np.uint8))
    places.flags.writeable = False
    return places


def labels(mechanism: Mechanism, released: Released) -> tuple[Label, ...] | None:
    """The published noise of each row; None where none is, or where it differs and it is hidden whose row is whose."""
    if released.rows is None or unlabelled(mechanism):
        return None
    own = mechanism.release.labels(release_tiers(mechanism, released.present))
    if own is not None:
        return own
    names = released.ids or (ANYBODY,) * len(released.rows)
    tiers = (mechanism.privacy.tier(name) for name in names)
    return tuple(_own(tier) for tier in tiers if tier is not None)


def labelled(mechanism: Mechanism, released: Released, gathered: Gathered) -> Gathered:
    """What was gathered, with the published noise and budget of each row."""
    found = labels(mechanism, released)
    if found is None:
        return gathered
    noise = torch.tensor([one.noise for one in found], dtype=torch.float64)
    return replace(gathered, noise=noise, epsilons=torch.tensor([one.epsilon for one in found], dtype=torch.float64))


def unlabelled(mechanism: Mechanism) -> str:
    """Why nobody can know the noise of a row, and what to do about it; empty where it is known."""
    release, privacy = mechanism.release, mechanism.privacy
    if privacy.tier(ANYBODY) is None:
        return f"privacy = {privacy.use!r} publishes no noise; use privacy = 'tiers' or 'gaussian'"
    if mechanism.encode.signs_only:
        return f"encode = {mechanism.encode.use!r} leaves no values to weigh; use encode = 'floats' or 'fixed'"
    if release.shape not in ("rows", "bucketed"):
        return f"release = {release.use!r} lets out one sum of all noise; use release = 'bucket-sums' or 'buckets'"
    if privacy.differs and "ids" in release.hides and not release.tiered:
        return (
            f"release = {release.use!r} hides whose row is whose, and noise differs by client; use release = "
            "'buckets', or one tier"
        )
    return ""


def too_few(mechanism: Mechanism, given: Given, error: TooFew) -> TooFew:
    """The error of a round that lacks clients; where it is a bucket that needs them, with other remedies."""
    least = mechanism.release.least
    if not mechanism.release.tiered or least <= given.quorum:
        return error
    return TooFew(
        f"{error}. A bucket of fewer than {least} is not released, and so nothing is",
        error.missing,
        "bring the missing back, invite more clients (federation.cohort), lower protocol.release.smallest, or pass "
        "such rounds over (federation.carry)",
    )


def _own(tier: Tier) -> Label:
    return Label(tier.sigma**2, tier.epsilon)
