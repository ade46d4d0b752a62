"""Turn bits that two servers share by XOR into numbers that they share by addition modulo 2^32.

It uses daBits: a dealer shares random bits r both ways. The servers open e = x xor r, which is uniform, and
x = e + (1 - 2e) r is linear in r. So no product of shares is needed: each server sends one message, a bit for each bit.

A shuffle moves bits, and sums need numbers: this is the step between the two where the shuffle is another one than the
dealer's own. `place.two_servers.shuffles` deals for it, `place.two_servers.shuffle_flows` plays it, and
`croupier bench shuffles` times it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins, Node
from croupier.errors import RangeError
from croupier.mpc.group import Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talk

Numbers = npt.NDArray[np.uint32]
# Bits that are unpacked at a time: the working set stays small beside the result.
_PART = 1 << 20


@dataclass(frozen=True)
class DaBits:
    """One server's shares of the same random bits: by XOR, packed in rows, and by addition, one number a bit."""

    bits: Rows
    numbers: Numbers

    def __repr__(self) -> str:
        return "DaBits(...)"


@dataclass(frozen=True)
class ConversionDeal:
    """What the dealer sends: a seed to server 0; a seed and its numbers, four bytes each, to server 1."""

    seed0: bytes
    seed1: bytes
    numbers: bytes

    def __repr__(self) -> str:
        return "ConversionDeal(...)"


def deal(group: Xor, rows: int, coins: Coins) -> ConversionDeal:
    """Random bits, shared both ways, from a dealer who must side with neither server."""
    one, two = coins.child("server", 0), coins.child("server", 1)
    random = group.add(_bits(group, rows, one), _bits(group, rows, two))
    numbers = _numbers(group, rows, one)
    np.negative(numbers, out=numbers)
    for part, bits in _parts(group, random):
        numbers.reshape(-1)[part] += bits
    return ConversionDeal(one.export(), two.export(), numbers.astype("<u4", copy=False).tobytes())


def open_seed(group: Xor, rows: int, seed: bytes) -> DaBits:
    """What the dealer's seed stands for, at server 0."""
    node = Coins(seed)
    return DaBits(_bits(group, rows, node), _numbers(group, rows, node))


def open_numbers(group: Xor, rows: int, seed: bytes, numbers: bytes) -> DaBits:
    """What the dealer's message stands for, at server 1."""
    if len(numbers) != 4 * rows * group.width:
        raise RangeError(f"{len(numbers)} bytes of numbers, where {4 * rows * group.width} were to come")
    return DaBits(_bits(group, rows, Coins(seed)), np.frombuffer(numbers, "<u4").reshape(rows, group.width))


def convert(group: Xor, share: Rows, material: SingleUse[DaBits], first: bool, occasion: Occasion) -> Talk[Numbers]:
    """One server's share of the bits as numbers; `first` is the server that adds what is public.

    Reveals: uniform bits.
    """
    mine = material.take(occasion)
    if share.shape != mine.bits.shape:
        raise RangeError(f"bits of shape {share.shape} do not fit daBits of shape {mine.bits.shape}")
    masked = group.add(share, mine.bits)
    opened = group.add(masked, group.unpack((yield group.pack(masked)), len(share)))
    out = np.empty((len(share), group.width), np.uint32)
    flat, numbers = out.reshape(-1), mine.numbers.reshape(-1)
    for part, bits in _parts(group, opened):
        # Where e is 1, minus the share: in two's complement all bits flipped, and one more.
        np.add(numbers[part] ^ -bits, bits, out=flat[part])
        if first:
            flat[part] += bits
    return out


def _bits(group: Xor, rows: int, node: Node) -> Rows:
    return group.draw(rows, node.child("bits").secure())


def _numbers(group: Xor, rows: int, node: Node) -> Numbers:
    out = np.zeros(rows * group.width, np.uint32)
    node.child("numbers").secure().blind(out, 32)
    return out.reshape(rows, group.width)


def _parts(group: Xor, rows: Rows) -> Iterator[tuple[slice, Numbers]]:
    """Packed rows as numbers 0 and 1, some rows at a time, and where they stand among all."""
    step = max(1, _PART // group.width)
    for start in range(0, len(rows), step):
        bits = np.unpackbits(rows[start : start + step], axis=1, count=group.width, bitorder="little")
        at = start * group.width
        yield slice(at, at + bits.size), bits.reshape(-1).astype(np.uint32)
