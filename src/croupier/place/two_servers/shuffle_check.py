"""The check of a shuffle: that two lists of secret-shared fingerprints are the same up to their order.

It catches a malicious server that swaps, drops or alters rows while it shuffles. Both servers hold tagged shares of
each row's fingerprint, before and after the shuffle. For both lists they compute the product of (point - fingerprint)
over all rows, multiply the difference of the two products by a dealt random factor, and open only the result: it is 0
where the lists are equal up to order, and nearly never otherwise, as long as nobody knew `point` while rows could still
be changed.

`ServerFlow._sound` in `server_flow` is the only caller, and raises where the products differ. It also prepares the
fingerprints and the point: `mpc.dealer` hashes rows (`check = "hash"`), `mpc.tallies` takes inner products
(`check = "product"`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from croupier.core.flow import SubFlow
from croupier.kernels.field import Words
from croupier.mpc.authentic import TaggedShares, TagHolder
from croupier.place.two_servers.messages import levels


def products_differ(
    side: TagHolder,
    count: int,
    dealt: Mapping[str, TaggedShares],
    before: TaggedShares,
    after: TaggedShares,
    point: Words,
) -> SubFlow:
    """Whether the two products over so many rows differ: False means that the check has passed.

    `dealt` is what `ShuffleShare.dealt` gives for exactly `count` rows: triples (x, y, z), and one random factor
    ("blind"). Reveals: whether they differ, and nothing else. Raises: IntegrityError when tags do not fit.
    """
    none = TaggedShares(np.zeros_like(before.values), np.zeros_like(before.tags))
    # Both lists as (point - fingerprint); they go through the tree side by side, in the same letters.
    sides = [side.plus(side.sub(none, part), point) for part in (before, after)]
    tree = TaggedShares(
        np.concatenate([part.values.reshape(1, count, -1) for part in sides]),
        np.concatenate([part.tags.reshape(1, count, -1) for part in sides]),
    )
    used = 0
    for at, pairs in enumerate(levels(count)):
        left, right = (_part(tree, slice(start, 2 * pairs, 2)).shaped(2 * pairs) for start in (0, 1))
        triple = _triple(dealt, used, 2 * pairs)
        found: TaggedShares = yield from side.multiply(f"mul{at}", left, right, triple)
        tree, used = _joined(found.shaped(2, pairs), _part(tree, slice(2 * pairs, None))), used + 2 * pairs
    apart = side.sub(_flat(tree, 0), _flat(tree, 1))
    hiding = yield from side.multiply("blind", dealt["blind"], apart, _triple(dealt, used, 1))
    # Before the difference is opened: whether it is 0 may not depend on altered products.
    yield from side.check("v0")
    zero = yield from side.open("zero", hiding)
    yield from side.check("v1")
    return bool(side.over.total(zero).any())


def _part(tree: TaggedShares, columns: slice) -> TaggedShares:
    return TaggedShares(tree.values[:, columns], tree.tags[:, columns])


def _joined(one: TaggedShares, two: TaggedShares) -> TaggedShares:
    return TaggedShares(np.concatenate([one.values, two.values], 1), np.concatenate([one.tags, two.tags], 1))


def _flat(tree: TaggedShares, row: int) -> TaggedShares:
    return TaggedShares(tree.values[row], tree.tags[row])


def _triple(
    dealt: Mapping[str, TaggedShares], start: int, count: int
) -> tuple[TaggedShares, TaggedShares, TaggedShares]:
    part = slice(start, start + count)
    return dealt["x"].at(part), dealt["y"].at(part), dealt["z"].at(part)
