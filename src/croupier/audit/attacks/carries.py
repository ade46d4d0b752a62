"""Does a view tell more than the sum of updates? Asked of counts of ones, and of weighted sums that were opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from croupier.audit.attacks.separation import study as study
from croupier.audit.opened import opened, told
from croupier.audit.reveal import estimated
from croupier.audit.seen import counted
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.errors import RangeError, Unsuited
from croupier.pipeline import Pipeline
from croupier.release.scored import ScoredSum


def mount(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """At most how many bits a parameter a view tells (`bits`), and how many a plain sum does (`plain`).

    `asked` has the `views` of a round by party, the public `protocol`, the `attack` and `coins`. `unsuited` says why
    nothing can be told of it.
    """
    attacks = {"counts": _counts, "opened": _opened}
    try:
        found = attacks[asked["attack"]](layout, asked)
    except (RangeError, Unsuited) as error:
        return {"unsuited": str(error)}
    return {**found, "unsuited": ""}


def _counts(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What carries tell, for a sum needs none."""
    found = counted(asked["views"], asked["protocol"], layout)
    if found is None:
        raise Unsuited("its counts are not one of each parameter, in which all clients count alike")
    rate = estimated(found.ones.numpy(), found.clients, found.moduli, Coins(asked["coins"]))
    return {"bits": rate.rate, "plain": 0.0, "clients": found.clients, "moduli": found.moduli}


def _opened(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What weights, which follow from open distances, tell of the row that they tell most of."""
    release = Pipeline.parse(asked["protocol"]).release
    distances = next(_distances(asked["views"]["server"][0]), None)
    if distances is None or not isinstance(release, ScoredSum):
        raise Unsuited("its view holds no distances, from which weights would follow")
    weights = release.judge(distances, layout.size).weights
    near = weights > 0
    if not near.any():
        raise Unsuited("no row counted, so that there is no sum")
    flip = float(distances[near].mean() / layout.size)
    found, many = opened(weights[near].tolist(), flip), int(near.sum())
    plain = told([1] * many, [1 - flip] * many, 0).bits
    return {"bits": found["best_row"]["bits"], "plain": plain, "unique_columns": found["unique_columns"], "rows": many}


def _distances(view: Mapping[str, Any]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    for box in view["inputs"]:
        for letter in box if isinstance(box, tuple) else ():
            if isinstance(letter, Mapping) and "distances" in letter.get("body", {}):
                yield letter["body"]["distances"].numpy().astype(np.int64)
