"""IntraShuffler's attack in three stages with every denoiser, and beside them clusters and recombined values.

It is a pure function of bytes: views and declared knowledge. The product's attack (`audit.attacks.traits`), whose
stages it uses, has the same form. `attacks.tiers.experiment` runs `attack_bytes` in another process that is sent these
bytes and nothing else, so that no truth can leak into the attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit.attacks.traits import LINEAR, Studied, candidates, inferred, shown_views, trained
from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates, Directions
from croupier.audit.attacks.traits.views import RoundView, pool_rows, row_sigmas
from croupier.core import canon
from croupier.core.coins import Coins
from croupier_lab.attacks.tiers import recombine
from croupier_lab.attacks.tiers.denoise import denoisers

Plain = Mapping[str, Any]


def attack_bytes(known: bytes, asked: bytes) -> bytes:
    """The attack on canonical bytes of knowledge and views, which returns its answer as such bytes."""
    return canon.dump(attack(canon.load(known), canon.load(asked)))


def attack(known: Plain, asked: Plain) -> dict[str, Any]:
    """For each view and denoiser its rows, chances of classes, clusters and links, and the view's recombined values."""
    coins = Coins(asked["coins"])
    # Many small problems: threads would only wait for each other.
    with threadpool_limits(1):
        studied = study(known)
        return {
            name: _attacked(studied, views, coins.child("view", name)) for name, views in shown_views(asked).items()
        }


def study(known: Plain) -> dict[str, Studied]:
    """Prepare what follows from knowledge alone, for each denoiser: attacks trained on the auxiliary clients."""
    auxiliary, coins = AuxiliaryUpdates(**known["auxiliary"]), Coins(known["coins"])
    directions = Directions.of(auxiliary.updates)
    every = denoisers(auxiliary, directions, known["levels"], coins)
    return {name: trained(auxiliary, directions, (name, one), known["levels"], coins) for name, one in every.items()}


def _attacked(studied: Mapping[str, Studied], views: Sequence[RoundView], coins: Coins) -> dict[str, Any]:
    pooled = pool_rows(views)
    allowed = candidates(pooled)
    found = {}
    for name, one in studied.items():
        around, means = one.denoised(pooled)
        inside = around if name == "none" else one.directions.project(around)
        node = coins.child(name)
        found[name] = {
            "rows": (around + means).float(), "allowed": allowed,
            "clusters": {
                key: clusters(inside, count, node.child("cluster", key))
                for key, count in one.auxiliary.classes.items()
            },
            **inferred(one, around, means, pooled, allowed, node),
        }  # fmt: skip
    return {"denoisers": found, **_pieces(studied[LINEAR], views, coins.child("pieces"))}


def clusters(around: Tensor, count: int, coins: Coins) -> Tensor:
    """The cluster of each row, by k-means with so many clusters; fewer where there are fewer rows."""
    from sklearn.cluster import KMeans

    seed = int(coins.sampler().integers(1 << 31))
    found = KMeans(min(count, len(around)), n_init=5, random_state=seed).fit_predict(around.double().numpy())
    return torch.from_numpy(found).long()


def _pieces(studied: Studied, views: Sequence[RoundView], coins: Coins) -> dict[str, Any]:
    """Recombination where values of a bucket were shuffled: by prediction, and by scale where its tiers differ."""
    known: dict[str, list[Tensor]] = {}
    picked: list[dict[str, Any]] = []
    sorted_out: list[dict[str, Any]] = []
    for one in views:
        if one.named or one.intact or bool((one.counts > 1).any()):
            continue
        middle = studied.auxiliary.means(torch.tensor([one.number]))[0].double()
        for bucket, (members, tiers) in enumerate(zip(one.members, one.deviations, strict=True)):
            values = one.rows[one.bucket == bucket]
            predictions = torch.stack([middle + _average(known.get(who, []), middle) for who in members])
            if one.number in studied.auxiliary.numbers:
                node = coins.child(one.number, bucket)
                places = recombine.greedy(values, predictions, node).to(torch.int32)
                picked.append({"number": one.number, "bucket": bucket, "places": places})
                if len(set(tiers)) > 1 and min(tiers) > 0:
                    chances = recombine.by_scale(values, middle, torch.tensor(tiers)).float()
                    sorted_out.append({"number": one.number, "bucket": bucket, "chances": chances})
            joint = studied.denoise(values.double().mean(0, keepdim=True) - middle, row_sigmas(one)[:1])[0]
            for who in members:
                known.setdefault(who, []).append(joint)
    return {"greedy": tuple(picked), "scale": tuple(sorted_out)}


def _average(found: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(list(found)).mean(0) if found else torch.zeros_like(like)
