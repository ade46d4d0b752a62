"""A group of prime order in which discrete logarithms are hard: the curve secp256k1, by the library libsecp256k1.

This is the one place that calls the library (through coincurve, the extra `proofs`); nothing of the curve's arithmetic
is written here. Points are rows of 64 bytes in the library's own form, and travel in 33 bytes, of which the library
accepts exactly one encoding a point. The group has no small subgroups, so that what decodes is in it. The point at
infinity has no encoding: where a sum may be it, the answer is None. `elgamal`, `fixed_points` and `shuffle_proof` work
on it, and with them the mix whose servers prove what they do (`place.chain.proven`).

Multiplication by the base point takes the same time for all scalars, that of other points does not: who shares a
machine with a mix server might learn from its timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from hashlib import sha256, sha512
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import IntegrityError, SpecError
from croupier.kernels.threads import each

Points = npt.NDArray[np.uint8]
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT, SCALAR = 33, 32
# Bytes of a point in memory, and the library's flag for an encoding of 33 bytes.
_OWN, _COMPRESSED = 64, 258
# Fewer points than this are multiplied one by one: below it buckets are dearer.
_FEW = 400
_STEP = 2048


@lru_cache(maxsize=1)
def _library() -> tuple[Any, Any, Any]:
    try:
        from coincurve._libsecp256k1 import ffi, lib
    except ImportError:
        raise SpecError(
            "proofs of a mix need coincurve: pip install croupier[proofs], or use a mix without proofs"
        ) from None
    return ffi, lib, lib.secp256k1_context_create(1)


def check_library() -> None:
    """Raises: SpecError when the library is not there."""
    _library()


def _at(points: Points) -> Any:
    ffi = _library()[0]
    return ffi.cast("secp256k1_pubkey *", ffi.from_buffer(points))


def empty(count: int) -> Points:
    """Room for so many points."""
    return np.zeros((count, _OWN), np.uint8)


def _spread(count: int, work: Any) -> None:
    """In ranges, on all cores: the library lets other threads run meanwhile."""
    each([partial(work, start, min(count, start + _STEP)) for start in range(0, count, _STEP)])


def _bytes(scalar: int) -> bytes:
    return (scalar % ORDER).to_bytes(SCALAR, "big")


def base(scalars: Sequence[int]) -> Points:
    """Multiples of the base point. Raises: IntegrityError on a multiple of 0, which no honest party draws."""
    _, lib, ctx = _library()
    out = empty(len(scalars))
    at, create = _at(out), lib.secp256k1_ec_pubkey_create

    def work(start: int, stop: int) -> None:
        for place in range(start, stop):
            _must(create(ctx, at + place, _bytes(scalars[place])))

    _spread(len(scalars), work)
    return out


def times(points: Points, scalars: Sequence[int]) -> Points:
    """Each point times its scalar."""
    _, lib, ctx = _library()
    out = np.ascontiguousarray(points).copy()
    at, multiply = _at(out), lib.secp256k1_ec_pubkey_tweak_mul

    def work(start: int, stop: int) -> None:
        for place in range(start, stop):
            _must(multiply(ctx, at + place, _bytes(scalars[place])))

    _spread(len(scalars), work)
    return out


def multiples(point: Points, scalars: Sequence[int]) -> Points:
    """One point times each of the scalars."""
    return times(np.repeat(point.reshape(1, _OWN), len(scalars), 0), scalars)


def plus(one: Points, two: Points) -> Points:
    """Sums, point by point."""
    ffi, lib, ctx = _library()
    one, two = np.ascontiguousarray(one), np.ascontiguousarray(two)
    out, pairs = empty(len(one)), np.empty((len(one), 2), np.uint64)
    pairs[:, 0] = one.ctypes.data + _OWN * np.arange(len(one))
    pairs[:, 1] = two.ctypes.data + _OWN * np.arange(len(two))
    at, add = _at(out), lib.secp256k1_ec_pubkey_combine
    places = ffi.cast("secp256k1_pubkey const * const *", ffi.from_buffer(pairs))

    def work(start: int, stop: int) -> None:
        for place in range(start, stop):
            _must(add(ctx, at + place, places + 2 * place, 2))

    _spread(len(one), work)
    return out


def minus(points: Points) -> Points:
    """The negative of each point: the two add up to infinity."""
    _, lib, ctx = _library()
    out = np.ascontiguousarray(points).copy()
    at = _at(out)
    for place in range(len(out)):
        _must(lib.secp256k1_ec_pubkey_negate(ctx, at + place))
    return out


def total(points: Points, order: npt.NDArray[np.int64] | None = None) -> Points | None:
    """The sum of all, or of those at the places given; None at infinity."""
    ffi, lib, ctx = _library()
    points = np.ascontiguousarray(points)
    chosen = np.arange(len(points)) if order is None else order
    if not len(chosen):
        return None
    places = (points.ctypes.data + _OWN * chosen).astype(np.uint64)
    out = empty(1)
    held = ffi.cast("secp256k1_pubkey const * const *", ffi.from_buffer(places))
    return out if lib.secp256k1_ec_pubkey_combine(ctx, _at(out), held, len(chosen)) else None


def summed(points: Points, order: npt.NDArray[np.int64]) -> Points:
    """The sum of the points that each row of `order` names."""
    found = [total(points, row) for row in order]
    _must(all(one is not None for one in found))
    return np.concatenate([one for one in found if one is not None])


def sums_at(points: Points, places: npt.NDArray[np.int64], more: Points | None = None) -> Points:
    """For each row of `places` the sum of the points there, and of its point of `more` where those are given."""
    ffi, lib, ctx = _library()
    points, (count, many) = np.ascontiguousarray(points), places.shape
    held = np.empty((count, many + (more is not None)), np.uint64)
    held[:, :many] = points.ctypes.data + _OWN * places
    if more is not None:
        more = np.ascontiguousarray(more)
        held[:, many] = more.ctypes.data + _OWN * np.arange(count)
    out = empty(count)
    at, add, wide = _at(out), lib.secp256k1_ec_pubkey_combine, held.shape[1]
    where = ffi.cast("secp256k1_pubkey const * const *", ffi.from_buffer(held))

    def work(start: int, stop: int) -> None:
        for place in range(start, stop):
            _must(add(ctx, at + place, where + wide * place, wide))

    _spread(count, work)
    return out


def joined(*points: Points | None) -> Points | None:
    """The sum of a few, of which some may be at infinity."""
    there = [one for one in points if one is not None]
    return total(np.concatenate(there)) if there else None


def weighted(points: Points, scalars: Sequence[int], bits: int = 256) -> Points | None:
    """The sum of each point times its scalar, of at most so many bits; None at infinity.

    Of many points it sorts equal digits of the scalars into buckets, which the library adds up.
    """
    if len(points) < _FEW:
        there = [place for place, scalar in enumerate(scalars) if scalar % ORDER]
        return total(times(points[there], [scalars[place] for place in there])) if there else None
    points = np.ascontiguousarray(points)
    # So wide a digit that putting points into buckets and adding the buckets up take about as long.
    width = max(3, min(12, len(points).bit_length() - 7))
    raw = np.frombuffer(b"".join([_bytes(scalar)[::-1] for scalar in scalars]), np.uint8).reshape(-1, SCALAR)
    flags = np.unpackbits(raw, axis=1, bitorder="little")[:, :bits]
    flags = np.pad(flags, ((0, 0), (0, -bits % width)))
    digits = flags.reshape(len(points), -1, width) @ (1 << np.arange(width, dtype=np.int64))
    found: list[Points | None] = [None] * digits.shape[1]

    def window(number: int) -> None:
        found[number] = _window(points, digits[:, number])

    each([partial(window, number) for number in range(len(found))])
    out: Points | None = None
    for one in reversed(found):
        out = joined(times(out, [1 << width]) if out is not None else None, one)
    return out


def _window(points: Points, digits: npt.NDArray[np.int64]) -> Points | None:
    """The sum of multiples by small numbers: buckets of equal ones, added from the largest down."""
    order = np.argsort(digits, kind="stable")
    sorted_digits = digits[order]
    running: Points | None = None
    out: Points | None = None
    for digit in range(int(sorted_digits[-1]), 0, -1):
        start, stop = np.searchsorted(sorted_digits, (digit, digit + 1))
        running = joined(running, total(points, order[start:stop]))
        out = joined(out, running)
    return out


def encode(points: Points) -> npt.NDArray[np.uint8]:
    """Points as they travel."""
    ffi, lib, ctx = _library()
    points = np.ascontiguousarray(points)
    out, size = np.zeros((len(points), POINT), np.uint8), ffi.new("size_t *", POINT)
    at, to = _at(points), ffi.cast("unsigned char *", ffi.from_buffer(out))
    for place in range(len(points)):
        size[0] = POINT
        lib.secp256k1_ec_pubkey_serialize(ctx, to + POINT * place, size, at + place, _COMPRESSED)
    return out


def decode(data: npt.NDArray[np.uint8], who: str) -> Points:
    """Points off the wire. Raises: IntegrityError that names the sender when one is none of the group."""
    ffi, lib, ctx = _library()
    data = np.ascontiguousarray(data).reshape(-1, POINT)
    out = empty(len(data))
    at, source = _at(out), ffi.cast("unsigned char const *", ffi.from_buffer(data))
    good = np.ones(len(data), bool)

    def work(start: int, stop: int) -> None:
        for place in range(start, stop):
            good[place] = lib.secp256k1_ec_pubkey_parse(ctx, at + place, source + POINT * place, POINT)

    _spread(len(data), work)
    if not good.all():
        raise IntegrityError(f"{who} sent {int((~good).sum())} points that are none of the group")
    return out


@lru_cache(maxsize=8)
def generators(count: int) -> Points:
    """Points whose discrete logarithms nobody knows: hashes that happen to be encodings."""
    _, lib, ctx = _library()
    out = empty(count)
    at, trial, place = _at(out), 0, 0
    while place < count:
        body = b"\x02" + sha256(b"croupier/1 generator" + trial.to_bytes(8, "big")).digest()
        place += lib.secp256k1_ec_pubkey_parse(ctx, at + place, body, POINT)
        trial += 1
    out.setflags(write=False)
    return out


def drawn(coins: Coins, count: int, size: int = 48) -> list[int]:
    """Scalars from a node of coins: of 48 bytes, uniform to within 2^-128."""
    raw = bytes(coins.secure().bytes(size * count))
    return [int.from_bytes(raw[at : at + size], "big") % ORDER for at in range(0, len(raw), size)]


def challenge(*said: Any) -> int:
    """The scalar that a transcript stands for."""
    return int.from_bytes(sha512(canon.digest(said)).digest(), "big") % ORDER


def challenges(seed: bytes, count: int, size: int = 16) -> list[int]:
    """Many scalars of so many bytes that one digest stands for."""
    return [one or 1 for one in drawn(Coins(seed), count, size)]


def scalars_of(data: npt.NDArray[np.uint8], who: str) -> list[int]:
    """Scalars off the wire. Raises: IntegrityError when one is not below the order."""
    raw = np.ascontiguousarray(data).tobytes()
    found = [int.from_bytes(raw[at : at + SCALAR], "big") for at in range(0, len(raw), SCALAR)]
    if found and max(found) >= ORDER:
        raise IntegrityError(f"{who} sent a scalar that is not below the order of the group")
    return found


def scalar_bytes(scalars: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Scalars as they travel."""
    return np.frombuffer(b"".join(map(_bytes, scalars)), np.uint8).reshape(-1, SCALAR).copy()


def _must(good: Any) -> None:
    if not good:
        raise IntegrityError("a sum or multiple of points is at infinity, which honest parties never meet")
