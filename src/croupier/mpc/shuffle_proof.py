"""A proof that ciphertexts were permuted and given fresh randomness, and nothing else.

It is the proof of Terelius and Wikstrom 2010, in the form that Haenni, Locher, Koenig and Dubuis 2017 write down. The
prover commits to its permutation (c), is asked random numbers u, shows by a chain of commitments that it knows u in
another order, and that this order turns the outputs' combination into the inputs'. In the notation below output i is
input p(i) under fresh randomness, and v_i = u_p(i):

    sum c_j - sum h_i         = s1 G            a row and column sum of 1 each
    last of chain - (prod u) h = s2 G           the v are the u, in some order
    sum u_j c_j               = s3 G + sum v_i h_i
    sum v_i out_i             = sum u_j in_j + an encryption of 0 by s4
    chain_i                   = k_i G + v_i chain_(i-1), from chain_0 = h

There is one proof for each block (all clients' bits of one number and one modulus, see `place.chain.bit_table`). All
blocks are checked as one random combination of all equations. `place.chain.mix_record` proves and checks with it, for
the mix whose servers prove what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.mpc import curve
from croupier.mpc.curve import ORDER, POINT, SCALAR, Points
from croupier.mpc.elgamal import Bytes, Ciphertexts
from croupier.mpc.fixed_points import base, shifted

# A ciphertext's part: c, chain and its commitment; two answers. A block's own part: five commitments, four answers.
EACH = 3 * POINT + 2 * SCALAR
WHOLE = 5 * POINT + 4 * SCALAR
# Bytes of each factor of the random combination in which equations are checked together.
_WEIGHT = 16
Order = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShuffledBlock:
    """What is proven of one block: what went in and what came out."""

    before: Ciphertexts
    after: Ciphertexts


def prove(block: ShuffledBlock, key: Points, context: bytes, order: Order, fresh: Sequence[int], coins: Coins
          ) -> tuple[Bytes, Bytes]:  # fmt: skip
    """A proof: a row for each ciphertext, and the rest."""
    many = len(order)
    # A statement never shares a nonce with another, whatever became of the coins.
    coins = coins.child(canon.digest(("shuffle nonces", context, *_statement(block, key))))
    first, *rest = np.split(curve.generators(many + 1), [1])
    spots = rest[0]
    blind, links, w_links, w_moved = (curve.drawn(coins.child(name), many) for name in ("s", "k", "wk", "wv"))
    w1, w2, w3, w4 = curve.drawn(coins.child("w"), 4)
    back = np.argsort(order)
    commits = curve.plus(curve.base(blind), spots[back])
    packed = curve.encode(commits)
    asked = _asked(block, key, context, packed)
    moved = [asked[place] for place in order.tolist()]
    chain_g, chain_h = _chain(links, moved)
    chain = _on_both(first, chain_g[1:], chain_h[1:])
    steps = _on_both(
        first,
        [(w + v * g) % ORDER for w, v, g in zip(w_links, w_moved, chain_g, strict=False)],
        [(v * h) % ORDER for v, h in zip(w_moved, chain_h, strict=False)],
    )
    said = [
        curve.base([w1]), curve.base([w2]), curve.joined(curve.base([w3]), curve.weighted(spots, w_moved)),
        curve.joined(curve.weighted(block.after.r, w_moved), curve.base([-w4])),
        curve.joined(curve.weighted(block.after.c, w_moved), curve.times(key, [-w4])),
    ]  # fmt: skip
    if any(one is None for one in said):
        raise IntegrityError("a commitment at infinity, which honest parties never meet")
    shown = curve.encode(np.concatenate([one for one in said if one is not None]))
    columns = np.concatenate([packed, curve.encode(chain), curve.encode(steps)], 1)
    c = _challenge(context, block, key, columns, shown)
    total = sum(blind), chain_g[-1], sum(u * s for u, s in zip(asked, blind, strict=True))
    renewed = sum(v * f for v, f in zip(moved, fresh, strict=True))
    whole = [w + c * secret for w, secret in zip((w1, w2, w3, w4), (*total, renewed), strict=True)]
    answers = [[w + c * k, x + c * v] for w, k, x, v in zip(w_links, links, w_moved, moved, strict=True)]
    tail = curve.scalar_bytes([one for pair in answers for one in pair]).reshape(many, 2 * SCALAR)
    return np.concatenate([columns, tail], 1), np.concatenate(
        [shown.reshape(-1), curve.scalar_bytes(whole).reshape(-1)]
    )


def _chain(links: Sequence[int], moved: Sequence[int]) -> tuple[list[int], list[int]]:
    """The chain of commitments as multiples of G and of h, from its beginning, h itself."""
    on_g, on_h = [0], [1]
    for link, value in zip(links, moved, strict=True):
        on_g.append((link + value * on_g[-1]) % ORDER)
        on_h.append(value * on_h[-1] % ORDER)
    return on_g, on_h


def _on_both(point: Points, on_g: Sequence[int], on_h: Sequence[int]) -> Points:
    return shifted(base(on_g), point, on_h)


def _asked(block: ShuffledBlock, key: Points, context: bytes, commits: Bytes) -> list[int]:
    """One number for each input, once the permutation is fixed."""
    said = canon.digest(("shuffle", context, *_statement(block, key), commits.tobytes()))
    return curve.challenges(said, len(block.before))


def _challenge(context: bytes, block: ShuffledBlock, key: Points, columns: Bytes, shown: Bytes) -> int:
    return curve.challenge("shuffle answer", context, *_statement(block, key), columns.tobytes(), shown.tobytes())


def _statement(block: ShuffledBlock, key: Points) -> tuple[bytes, bytes, bytes]:
    """What went in, what came out, and the key."""
    return block.before.packed().tobytes(), block.after.packed().tobytes(), curve.encode(key).tobytes()


class _Equation:
    """A sum of multiples of points that must come to nothing, gathered term by term."""

    def __init__(self) -> None:
        self.points: list[Points] = []
        self.scalars: list[int] = []

    def add(self, points: Points, scalars: Sequence[int]) -> None:
        self.points.append(points)
        self.scalars += [one % ORDER for one in scalars]

    def holds(self) -> bool:
        return curve.weighted(np.concatenate(self.points), self.scalars) is None


def check(blocks: Sequence[ShuffledBlock], key: Points, contexts: Sequence[bytes],
          proofs: Sequence[tuple[Bytes, Bytes]], who: str, coins: Coins) -> None:  # fmt: skip
    """Raises: IntegrityError that names who did not prove that it only moved what is in these blocks."""
    equation, longest = _Equation(), max(len(block.before) for block in blocks)
    fixed = [0] * (longest + 3)
    for number, (block, context, proof) in enumerate(zip(blocks, contexts, proofs, strict=True)):
        weights = curve.drawn(coins.child("block", number), len(block.before) + 5, _WEIGHT)
        _gather(equation, fixed, block, key, context, proof, who, [one or 1 for one in weights])
    equation.add(np.concatenate([curve.generators(longest + 1), curve.base([1]), key]), fixed)
    if not equation.holds():
        raise IntegrityError(f"{who} does not prove that it only moved what was challenged")


def _gather(equation: _Equation, fixed: list[int], block: ShuffledBlock, key: Points, context: bytes,
            proof: tuple[Bytes, Bytes], who: str, weights: list[int]) -> None:  # fmt: skip
    """One block's equations, each with its weight; `fixed` counts h, h_1, ..., G and the key."""
    rows, rest = proof
    many = len(block.before)
    columns, shown = rows[:, : 3 * POINT], rest[: 5 * POINT].reshape(5, POINT)
    commits, chain, steps = (curve.decode(columns[:, at : at + POINT], who) for at in range(0, 3 * POINT, POINT))
    said = curve.decode(shown, who)
    s1, s2, s3, s4 = curve.scalars_of(rest[5 * POINT :].reshape(-1, SCALAR), who)
    tail = curve.scalars_of(rows[:, 3 * POINT :].reshape(-1, SCALAR), who)
    links, moved = tail[::2], tail[1::2]
    asked = _asked(block, key, context, np.ascontiguousarray(columns[:, :POINT]))
    c = _challenge(context, block, key, np.ascontiguousarray(columns), shown)
    product = 1
    for u in asked:
        product = product * u % ORDER
    a, b, d, e, f = weights[:5]
    on = weights[5:]
    # Left sides minus right sides of the five kinds of equation.
    equation.add(commits, [-c * (a + d * u) for u in asked])
    at_chain = [-c * w for w in on]
    for place in range(1, many):
        at_chain[place - 1] += on[place] * moved[place]
    at_chain[-1] -= b * c
    equation.add(chain, at_chain)
    equation.add(steps, [-w for w in on])
    equation.add(said, [-a, -b, -d, -e, -f])
    for weight, out, into in ((e, block.after.r, block.before.r), (f, block.after.c, block.before.c)):
        equation.add(out, [weight * v for v in moved])
        equation.add(into, [-weight * c * u for u in asked])
    fixed[0] += b * c * product + on[0] * moved[0]
    for place in range(many):
        fixed[1 + place] += a * c + d * moved[place]
    fixed[-2] += a * s1 + b * s2 + d * s3 - e * s4 + sum(w * k for w, k in zip(on, links, strict=True))
    fixed[-1] -= f * s4
