"""Bits under ElGamal encryption that many servers mix: keys, bits with proofs, fresh randomness, and joint opening.

A bit b is (R, C) = (r G, b G + r K), where K is the sum of all servers' keys. Every proof is made non-interactive by
hashing all that it is about, and `context`, which the caller makes: it names the attempt, the roster and who proves,
and for all but a key's own proof the keys (`place.chain.mix_record`).

A client proves of every bit that it is 0 or 1 (Cramer, Damgard and Schoenmakers 1994). The context names the client, so
that nobody can send another's bit as its own; the place of the bit is hashed too, so that none can be moved. All
equations of a client are checked as one random combination: a wrong one passes with probability 2^-128. Clients of
`place.chain.proven` encrypt by it, `place.chain.proven_flow` and `place.chain.mix_record` play and check the servers'
part, and `place.chain.proven_cost` times it to say beforehand what a round costs.

What a proof draws hangs on what it is about, too, and not on coins alone: two statements never share a nonce, which
would show the secret, whatever became of the coins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.mpc import curve
from croupier.mpc.curve import ORDER, Points
from croupier.mpc.fixed_points import base, shifted

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
# What a bit is sent as: a ciphertext and four commitments; three scalars.
BIT_POINTS, BIT_SCALARS = 6 * curve.POINT, 3 * curve.SCALAR
PAIR = 2 * curve.POINT
PROOF = 2 * curve.SCALAR
# Bytes of each factor of the random combination in which equations are checked together.
_WEIGHT = 16


@dataclass(frozen=True)
class Ciphertexts:
    """Encrypted bits: R and C of each."""

    r: Points
    c: Points

    def __len__(self) -> int:
        return len(self.r)

    def at(self, places: npt.NDArray[np.int64]) -> Ciphertexts:
        """The ciphertexts at these places, in that order."""
        return Ciphertexts(self.r[places], self.c[places])

    def packed(self) -> Bytes:
        """The ciphertexts as they travel."""
        return np.concatenate([curve.encode(self.r), curve.encode(self.c)], 1)

    @classmethod
    def unpacked(cls, data: Bytes, who: str) -> Ciphertexts:
        """Off the wire. Raises: IntegrityError when they are none."""
        data = data.reshape(-1, PAIR)
        return cls(curve.decode(data[:, : curve.POINT], who), curve.decode(data[:, curve.POINT :], who))

    @classmethod
    def joined(cls, parts: Sequence[Ciphertexts]) -> Ciphertexts:
        """One list after the other."""
        return cls(np.concatenate([one.r for one in parts]), np.concatenate([one.c for one in parts]))


@dataclass(frozen=True)
class MixKey:
    """A server's key of one attempt."""

    secret: int = field(repr=False)
    public: Points

    @classmethod
    def make(cls, coins: Coins) -> MixKey:
        """A fresh one."""
        (secret,) = curve.drawn(coins, 1)
        return cls(secret, curve.base([secret]))


def same_log(context: bytes, second: Points, shown: tuple[Points, Points], secret: int, coins: Coins) -> Bytes:
    """A proof that log_G of the one shown is log_second of the other (Chaum and Pedersen)."""
    (nonce,) = curve.drawn(coins.child(_said("nonce", context, second, *shown)), 1)
    commits = (curve.base([nonce]), curve.times(second, [nonce]))
    asked = _asked(context, second, shown, commits)
    return curve.scalar_bytes([asked, nonce + asked * secret]).reshape(-1)


def check_same_log(context: bytes, second: Points, shown: tuple[Points, Points], proof: Bytes, who: str) -> None:
    """Raises: IntegrityError that names who made a proof that does not hold."""
    asked, answer = curve.scalars_of(proof.reshape(-1, curve.SCALAR), who)
    if not asked or not answer:
        raise IntegrityError(f"{who}: a proof of 0")
    first = curve.joined(curve.base([answer]), curve.times(shown[0], [-asked]))
    other = curve.joined(curve.times(second, [answer]), curve.times(shown[1], [-asked]))
    if first is None or other is None or _asked(context, second, shown, (first, other)) != asked:
        raise IntegrityError(f"{who}: the proof does not hold")


def _asked(context: bytes, second: Points, shown: tuple[Points, Points], commits: tuple[Points, Points]) -> int:
    return curve.challenge("same log", _said("same log", context, second, *shown, *commits))


def _said(purpose: str, context: bytes, *points: Points) -> bytes:
    """The digest of a purpose, a context and points."""
    return canon.digest((purpose, context, *(curve.encode(one).tobytes() for one in points)))


def prove_key(key: MixKey, context: bytes, coins: Coins) -> Bytes:
    """A proof that a server knows its key: else it could take a key less the sum of all others', and open alone."""
    point = curve.generators(1)
    return np.concatenate([
        curve.encode(curve.times(point, [key.secret])).reshape(-1),
        same_log(context, point, (key.public, curve.times(point, [key.secret])), key.secret, coins),
    ])  # fmt: skip


KEY_PROOF = curve.POINT + PROOF


def check_key(public: Points, context: bytes, proof: Bytes, who: str) -> None:
    """Raises: IntegrityError when a server does not show that it knows its key."""
    shown = curve.decode(proof[: curve.POINT], who)
    check_same_log(context, curve.generators(1), (public, shown), proof[curve.POINT :], who)


def encrypt(bits: Bytes, key: Points, context: bytes, coins: Coins) -> tuple[Bytes, Bytes]:
    """Bits with proofs: what travels of points and of scalars, a row a bit."""
    many, own = len(bits), coins.child(canon.digest(("bits", context, curve.encode(key).tobytes(), bits.tobytes())))
    rand, nonce, other, answer = (curve.drawn(own.child(name), many) for name in ("r", "w", "e", "z"))
    r, keyed = base(rand), shifted(None, key, rand)
    c = _shifted(keyed, bits.astype(np.int64))
    # The branch that is not the bit's: made backwards from a challenge and an answer of one's own choice.
    back = [(z - e * s) % ORDER for z, e, s in zip(answer, other, rand, strict=True)]
    real = (base(nonce), shifted(None, key, nonce))
    signs = [e if bit == 0 else -e for e, bit in zip(other, bits.tolist(), strict=True)]
    fake = (base(back), shifted(base(signs), key, back))
    chosen = bits.astype(bool)[:, None]
    # Columns: R, C, then both commitments of the branch 0 and of the branch 1.
    columns = [r, c, *(np.where(chosen, f, t) for t, f in zip(real, fake, strict=True))]
    columns += [np.where(chosen, t, f) for t, f in zip(real, fake, strict=True)]
    points = np.concatenate([curve.encode(one) for one in columns], 1)
    scalars = []
    for place, bit in enumerate(bits.tolist()):
        asked = (_bit_challenge(context, place, points[place].tobytes()) - other[place]) % ORDER
        real_z = nonce[place] + asked * rand[place]
        scalars += [other[place], answer[place], real_z] if bit else [asked, real_z, answer[place]]
    return points, curve.scalar_bytes(scalars).reshape(many, BIT_SCALARS)


def _shifted(points: Points, bits: npt.NDArray[np.int64]) -> Points:
    """Points plus G where the bit is 1. The sum is computed for either bit, so that its time does not tell which."""
    one = np.repeat(curve.base([1]), len(points), 0)
    return np.where(bits.astype(bool)[:, None], curve.plus(points, one), points)


def _bit_challenge(context: bytes, place: int, said: bytes) -> int:
    return int.from_bytes(sha256(b"bit" + context + place.to_bytes(8, "big") + said).digest(), "big") % ORDER


def check_bits(points: Bytes, scalars: Bytes, key: Points, context: bytes, who: str, coins: Coins) -> Ciphertexts:
    """A client's encrypted bits. Raises: IntegrityError when one is not proved to be 0 or 1."""
    many = len(points)
    columns = [curve.decode(points[:, at : at + curve.POINT], who) for at in range(0, BIT_POINTS, curve.POINT)]
    given = curve.scalars_of(scalars.reshape(-1, curve.SCALAR), who)
    weights = [one or 1 for one in curve.drawn(coins, 4 * many, _WEIGHT)]
    base = keyed = 0
    on_r, on_c = [], []
    for place in range(many):
        e0, z0, z1 = given[3 * place : 3 * place + 3]
        a, b, c, d = weights[4 * place : 4 * place + 4]
        e1 = (_bit_challenge(context, place, points[place].tobytes()) - e0) % ORDER
        base += a * z0 + c * z1 + d * e1
        keyed += b * z0 + d * z1
        on_r.append((a * e0 + c * e1) % ORDER)
        on_c.append((b * e0 + d * e1) % ORDER)
    long = curve.weighted(np.concatenate([*columns[:2], curve.base([1]), key]), [*on_r, *on_c, -base, -keyed])
    short = curve.weighted(
        np.concatenate(columns[2:]), [weights[4 * place + at] for at in range(4) for place in range(many)], 8 * _WEIGHT
    )
    if curve.joined(long, short) is not None:
        raise IntegrityError(f"{who} does not prove that what it sent are bits")
    return Ciphertexts(columns[0], columns[1])


def refreshed(ciphers: Ciphertexts, key: Points, fresh: Sequence[int]) -> Ciphertexts:
    """The same bits under fresh randomness."""
    return Ciphertexts(shifted(ciphers.r, curve.base([1]), fresh), shifted(ciphers.c, key, fresh))


def prove_sums(before: Ciphertexts, after: Ciphertexts, blocks: list[npt.NDArray[np.int64]], key: Points,
               context: bytes, fresh: Sequence[int], coins: Coins) -> Bytes:  # fmt: skip
    """A proof that no block's sum changed, for all blocks at once."""
    about, weights, shown = _sum_statement(before, after, blocks, key, context)
    at = iter(weights)
    secret = sum(next(at) * sum(fresh[i] for i in row) for rows in blocks for row in rows.tolist())
    return same_log(about, key, shown, secret % ORDER, coins)


def check_sums(before: Ciphertexts, after: Ciphertexts, blocks: list[npt.NDArray[np.int64]], key: Points,
               context: bytes, proof: Bytes, who: str) -> None:  # fmt: skip
    """Raises: IntegrityError when a server does not prove that it kept every block's sum."""
    try:
        about, _, shown = _sum_statement(before, after, blocks, key, context)
        check_same_log(about, key, shown, proof, who)
    except IntegrityError:
        raise IntegrityError(f"{who} does not prove that it kept the sum of every block") from None


def _sum_statement(before: Ciphertexts, after: Ciphertexts, blocks: list[npt.NDArray[np.int64]], key: Points,
                   context: bytes) -> tuple[bytes, list[int], tuple[Points, Points]]:  # fmt: skip
    """The digest of the whole claim, a weight for each block, and the two points that must have one logarithm."""
    lie = [(rows.shape, np.ascontiguousarray(rows, "<i8").tobytes()) for rows in blocks]
    said = (before.packed().tobytes(), after.packed().tobytes(), curve.encode(key).tobytes())
    about = canon.digest(("sums", context, lie, *said))
    weights = curve.challenges(about, sum(len(rows) for rows in blocks))
    found = []
    for old, new in ((before.r, after.r), (before.c, after.c)):
        sums = [np.concatenate([curve.summed(points, rows) for rows in blocks]) for points in (new, old)]
        whole = curve.joined(
            curve.weighted(sums[0], weights, 8 * _WEIGHT), curve.weighted(curve.minus(sums[1]), weights, 8 * _WEIGHT)
        )
        if whole is None:
            raise IntegrityError("what came out of a mix was not given fresh randomness")
        found.append(whole)
    return about, weights, (found[0], found[1])


def open_part(ciphers: Ciphertexts, key: MixKey, context: bytes, coins: Coins) -> tuple[Points, Bytes]:
    """What one server contributes to opening, and a proof that it used its key."""
    parts = curve.times(ciphers.r, [key.secret] * len(ciphers))
    about, second, shown = _open_statement(ciphers, parts, key.public, context)
    return parts, same_log(about, second, shown, key.secret, coins)


def check_part(ciphers: Ciphertexts, parts: Points, public: Points, context: bytes, proof: Bytes, who: str) -> None:
    """Raises: IntegrityError when a server does not prove that it opened with its key."""
    try:
        about, second, shown = _open_statement(ciphers, parts, public, context)
        check_same_log(about, second, shown, proof, who)
    except IntegrityError:
        raise IntegrityError(f"{who} does not prove that it opened with its key") from None


def _open_statement(ciphers: Ciphertexts, parts: Points, public: Points, context: bytes
                    ) -> tuple[bytes, Points, tuple[Points, Points]]:  # fmt: skip
    about = _said("open", context, ciphers.r, ciphers.c, parts, public)
    weights = curve.challenges(about, len(parts))
    second, opened = (curve.weighted(points, weights, 8 * _WEIGHT) for points in (ciphers.r, parts))
    if second is None or opened is None:
        raise IntegrityError("what is opened adds up to nothing")
    return about, second, (public, opened)


def opened(hidden: Points, parts: Sequence[Points]) -> tuple[Bytes, Flags]:
    """The bits, from each ciphertext's C (`hidden`) and all servers' parts; and where what comes out is no bit."""
    mask = parts[0]
    for one in parts[1:]:
        mask = curve.plus(mask, one)
    seen = curve.encode(hidden)
    zero = (curve.encode(mask) == seen).all(1)
    one_more = (curve.encode(_shifted(mask, np.ones(len(mask), np.int64))) == seen).all(1)
    return one_more.astype(np.uint8), ~(zero | one_more)
