"""The three-stage attack as one pure function: denoise what was seen, infer attributes, link across rounds.

It is called in a process that is sent canonical bytes of views and declared knowledge and nothing else
(`attacks.traits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from croupier.audit import recombine
from croupier.audit.denoise import DENOISERS, Denoiser, Directions, Learned, Wiener, kept_as_is
from croupier.audit.glimpse import Glimpse, Outside, Stack, scales, stacked
from croupier.audit.linkage import candidates, link
from croupier.audit.surrogate import Surrogate, clusters
from croupier.core.coins import Coins

Glimpses = tuple[Glimpse, ...]


@dataclass(frozen=True)
class Studied:
    """What follows from knowledge and the public tiers alone, before any view."""

    outside: Outside
    directions: Directions
    denoisers: Mapping[str, Denoiser]
    surrogates: Mapping[tuple[str, str], Surrogate]


def study(outside: Outside, levels: Tensor, coins: Coins, wanted: Sequence[str] = DENOISERS) -> Studied:
    """Denoisers and surrogates for these deviations of noise, from auxiliary clients."""
    clean = outside.updates.double() - outside.updates.double().mean(1, keepdim=True)
    directions = Directions.of(outside.updates)
    denoisers: dict[str, Denoiser] = {"none": kept_as_is, "wiener": Wiener(directions)}
    denoisers["learned"] = denoisers["wiener"]
    if "learned" in wanted and float(levels.max()) > 0:
        flat = clean.reshape(-1, clean.shape[-1])
        denoisers["learned"] = Learned.trained(directions, flat, levels, coins.child("learned"))
    surrogates = {
        (name, attribute): Surrogate.trained(
            directions, clean, outside.labels[attribute], outside.classes[attribute], denoisers[name], levels,
            coins.child("surrogate", name, attribute),
        )
        for name in wanted for attribute in outside.labels
    }  # fmt: skip
    return Studied(outside, directions, {name: denoisers[name] for name in wanted}, surrogates)


def mount(studied: Studied | None, glimpses: Glimpses, coins: Coins, pieces: bool = True) -> dict[str, Any]:
    """Every stage on all rounds together: for each denoiser the rows it gives, chances of classes, clusters and links.

    Without auxiliary clients there is nothing to denoise with and nothing to learn attributes from: rows are linked
    as they are, and around the mean of their round. `pieces` are put together again, where rows came in such.
    """
    stack = stacked(glimpses)
    allowed = candidates(stack)
    if studied is None:
        around = torch.cat([one.rows.double() - one.rows.double().mean(0) for one in glimpses])
        raw = {
            "links": link(stack.rows, allowed, coins.child("link")),
            "links_centred": link(around, allowed, coins.child("link centred")),
        }
        return {"denoisers": {"none": raw}, "greedy": (), "scale": (), "allowed": allowed}
    means = studied.outside.means(stack.rounds).double()
    around = stack.rows.double() - means
    found = {
        name: _stages(studied, name, denoise(around, stack.sigmas), means, stack, allowed, coins.child(name))
        for name, denoise in studied.denoisers.items()
    }
    joined = _pieces(studied, glimpses if pieces else (), coins.child("pieces"))
    return {"denoisers": found, "allowed": allowed, **joined}


def _stages(
    studied: Studied, name: str, around: Tensor, means: Tensor, stack: Stack, allowed: Tensor, coins: Coins
) -> dict[str, Any]:
    classes = studied.outside.classes
    inside = around if name == "none" else studied.directions.seen_in(around)
    return {
        "rows": (around + means).float(),
        "chances": {key: _chances(studied, name, key, around, stack, coins.child("crowd", key)) for key in classes},
        "clusters": {key: clusters(inside, count, coins.child("cluster", key)) for key, count in classes.items()},
        "links": link(around + means, allowed, coins.child("link")),
        "links_centred": link(around, allowed, coins.child("link centred")),
    }


def _chances(studied: Studied, name: str, key: str, around: Tensor, stack: Stack, coins: Coins) -> Tensor:
    """The chance of each class for each row; a mean of several is judged by who learnt on means of as many."""
    found = studied.surrogates[name, key](around, stack.sigmas)
    crowd = stack.counts > 1
    if bool(crowd.any()):
        size = int(stack.counts[crowd].double().median())
        own = Surrogate.of_means(studied.outside, key, studied.directions, studied.denoisers[name], stack.sigmas[crowd],
                                 size, coins)  # fmt: skip
        found[crowd] = own(around[crowd], stack.sigmas[crowd])
    return found.float()


def _pieces(studied: Studied, glimpses: Glimpses, coins: Coins) -> dict[str, Any]:
    """Recombination where values of a bucket were permuted: by prediction, and by scale in merged buckets."""
    known: dict[str, list[Tensor]] = {}
    picked: list[dict[str, Any]] = []
    sorted_out: list[dict[str, Any]] = []
    for one in glimpses:
        if one.named or one.intact or bool((one.counts > 1).any()):
            continue
        middle = studied.outside.means(torch.tensor([one.number]))[0].double()
        for bucket, (members, tiers) in enumerate(zip(one.members, one.tiers, strict=True)):
            values = one.rows[one.bucket == bucket]
            predictions = torch.stack([middle + _average(known.get(who, []), middle) for who in members])
            if one.number in studied.outside.numbers:
                node = coins.child(one.number, bucket)
                places = recombine.greedy(values, predictions, node).to(torch.int32)
                picked.append({"number": one.number, "bucket": bucket, "places": places})
                if len(set(tiers)) > 1 and min(tiers) > 0:
                    chances = recombine.by_scale(values, middle, torch.tensor(tiers)).float()
                    sorted_out.append({"number": one.number, "bucket": bucket, "chances": chances})
            joint = studied.denoisers["wiener"](values.double().mean(0, keepdim=True) - middle, scales(one)[:1])[0]
            for who in members:
                known.setdefault(who, []).append(joint)
    return {"greedy": tuple(picked), "scale": tuple(sorted_out)}


def _average(found: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(list(found)).mean(0) if found else torch.zeros_like(like)
