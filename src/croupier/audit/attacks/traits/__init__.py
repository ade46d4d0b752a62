"""What is a client like, and is it the same as before? The attack on all rounds together that an adversary saw.

It has the three stages of IntraShuffler's section 5: denoise what was seen, infer attributes, link rows across rounds.
`audit.traits.scores` asks it in the blind process as the topic `traits`; the laboratory's `attacks/tiers` uses the
stages one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Denoiser, Directions, TraitClassifier, Wiener
from croupier.audit.attacks.traits.views import PooledRows, RoundView, pool_rows, read_rounds
from croupier.core.coins import Coins

# The name, among the answers, of what was read off real views (`read_rounds`).
READ = "seen"
# The name of the denoiser that verdicts look at; it labels coins, too.
LINEAR = "wiener"
# Links go back fewer rounds than this.
WINDOW = 10


@dataclass(frozen=True)
class Studied:
    """What follows from knowledge and the public tiers alone: a denoiser, and classifiers of denoised rows."""

    auxiliary: AuxiliaryUpdates
    directions: Directions
    denoise: Denoiser
    classifiers: Mapping[str, TraitClassifier]

    def denoised(self, pooled: PooledRows) -> tuple[Tensor, Tensor]:
        """Rows around the auxiliary clients' mean, without the noise that can be taken off; and that mean."""
        means = self.auxiliary.means(pooled.rounds).double()
        return self.denoise(pooled.rows.double() - means, pooled.sigmas), means


def study(known: Mapping[str, Any], device: str = "cpu") -> Studied | None:
    """A denoiser and classifiers from `auxiliary` clients for these `levels` of noise; nothing without any."""
    if known["auxiliary"] is None:
        return None
    # Many small problems: threads would only wait for each other.
    with threadpool_limits(1):
        auxiliary = AuxiliaryUpdates(**known["auxiliary"])
        directions = Directions.of(auxiliary.updates)
        return trained(auxiliary, directions, (LINEAR, Wiener(directions)), known["levels"], Coins(known["coins"]))


def trained(
    auxiliary: AuxiliaryUpdates, directions: Directions, denoiser: tuple[str, Denoiser], levels: Tensor, coins: Coins
) -> Studied:
    """A classifier for each attribute, of rows that this denoiser (with its name) gives at these deviations."""
    clean, (name, denoise) = auxiliary.centred(), denoiser
    classifiers = {
        key: TraitClassifier.trained(
            directions, clean, labels, auxiliary.classes[key], denoise, levels, coins.child("surrogate", name, key)
        )
        for key, labels in auxiliary.labels.items()
    }  # fmt: skip
    return Studied(auxiliary, directions, denoise, classifiers)


def mount(studied: Studied | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """For each view the chances of classes and the links that the three stages come to, and which were `allowed`.

    `asked` has views of rounds by the view's name (`shown`), or `rounds` of parties' views to read (see
    `views.read_rounds`); and `coins`.
    """
    coins = Coins(asked["coins"])
    with threadpool_limits(1):
        return {
            name: _attacked(studied, views, coins.child("view", name)) for name, views in shown_views(asked).items()
        }


def shown_views(asked: Mapping[str, Any]) -> dict[str, tuple[RoundView, ...]]:
    """The views that are attacked, by name."""
    if "rounds" in asked:
        return {READ: read_rounds(asked)}
    return {name: tuple(RoundView(**one) for one in each) for name, each in asked["shown"].items()}


def _attacked(studied: Studied | None, views: Sequence[RoundView], coins: Coins) -> dict[str, Any]:
    """All stages on all rounds of a view.

    Without auxiliary clients nothing is denoised: rows are linked as they are, and around their round's mean.
    """
    pooled = pool_rows(views)
    allowed = candidates(pooled)
    if studied is None:
        around = torch.cat([one.rows.double() - one.rows.double().mean(0) for one in views])
        return linked(pooled.rows, around, allowed, coins) | {"allowed": allowed}
    around, means = studied.denoised(pooled)
    return inferred(studied, around, means, pooled, allowed, coins.child(LINEAR)) | {"allowed": allowed}


def inferred(
    studied: Studied, around: Tensor, means: Tensor, pooled: PooledRows, allowed: Tensor, coins: Coins
) -> dict[str, Any]:
    """Stages 2 and 3 on rows that were denoised `around` the `means`."""
    chances = {key: _chances(studied, key, around, pooled, coins.child("crowd", key)) for key in studied.classifiers}
    return {"chances": chances, **linked(around + means, around, allowed, coins)}


def linked(rows: Tensor, around: Tensor, allowed: Tensor, coins: Coins) -> dict[str, Tensor]:
    """Stage 3, of rows as they are and around the mean."""
    return {
        "links": link(rows, allowed, coins.child("link")),
        "links_centred": link(around, allowed, coins.child("link centred")),
    }


def candidates(pooled: PooledRows, window: int = WINDOW) -> Tensor:
    """Which earlier rows (columns) each row (rows) may be linked to: within the window, of a tier that it may have."""
    ago = pooled.rounds.unsqueeze(1) - pooled.rounds
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(pooled.tiers))}
    meet = torch.tensor([[bool(one & other) for other in kinds] for one in kinds])
    place = torch.tensor([kinds[kind] for kind in pooled.tiers])
    return (ago > 0) & (ago < window) & meet[place][:, place]


def link(rows: Tensor, allowed: Tensor, coins: Coins) -> Tensor:
    """The place of the most similar allowed row by cosine, ties at random; -1 where none is allowed.

    Names and rosters are left out of it.
    """
    sizes = rows.double().norm(dim=1, keepdim=True).clamp_min(1e-300)
    unit = rows.double() / sizes
    likeness = (unit @ unit.T).masked_fill(~allowed, -torch.inf)
    best = likeness == likeness.max(1, keepdim=True).values
    lots = torch.rand(best.shape, generator=coins.fast(), dtype=torch.float64)
    chosen = lots.masked_fill(~(best & allowed), -1.0).argmax(1)
    return torch.where(allowed.any(1), chosen, -1)


def _chances(studied: Studied, key: str, around: Tensor, pooled: PooledRows, coins: Coins) -> Tensor:
    """The chance of each class for each row; a mean of several is judged by who learnt on means of as many."""
    found = studied.classifiers[key](around, pooled.sigmas)
    crowd = pooled.counts > 1
    if bool(crowd.any()):
        size = int(pooled.counts[crowd].double().median())
        own = TraitClassifier.of_means(studied.auxiliary, key, studied.directions, studied.denoise,
                                       pooled.sigmas[crowd], size, coins)  # fmt: skip
        found[crowd] = own(around[crowd], pooled.sigmas[crowd])
    return found.float()
