"""The rival of RNS's paper: secure aggregation by Shamir's secret sharing, every coordinate to every client.

It is written plainly, to count real bytes at small sizes and to check that shares do add up; it is no protocol of ours.
RNS's tables of cost (`papers.rns.cost`) use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from croupier.core.coins import Coins
from croupier.core.wire import Field, Schema
from croupier.errors import RangeError

# A Mersenne prime: any sum that the paper encodes with up to 12 digits fits, and a share takes 61 bits.
PRIME = (1 << 61) - 1
BITS = 61
# Python's integers in arrays: products of two residues need 122 bits.
Shares = npt.NDArray[Any]


@dataclass(frozen=True)
class ShamirTally:
    """What one aggregation gave: the sums, and the bytes that one client sent to clients and to the server."""

    sums: list[int]
    to_clients: int
    to_server: int


def share(secrets: Sequence[int], clients: int, threshold: int, coins: Coins) -> Shares:
    """One share of every secret for each client.

    They are the values at 1 to n of a random polynomial whose value at 0 is the secret. Raises: RangeError for a
    threshold below 1 or above the number of clients.
    """
    if not 1 <= threshold <= clients:
        raise RangeError(f"threshold = {threshold}: 1 to {clients} shares can be asked for")
    rest = coins.secure().mask(PRIME, (threshold - 1) * len(secrets)).astype(object)
    points = np.arange(1, clients + 1).astype(object)[:, None]
    out = np.zeros((clients, len(secrets)), object)
    for row in rest.reshape(threshold - 1, len(secrets))[::-1]:
        out = (out + row) * points % PRIME
    shares: Shares = (out + np.array([secret % PRIME for secret in secrets], object)) % PRIME
    return shares


def reconstruct(points: Sequence[int], shares: Shares) -> list[int]:
    """The secrets, within half the prime on either side of 0, from shares at these points. By Lagrange."""
    total = np.zeros(shares.shape[1], object)
    for here, row in zip(points, shares, strict=True):
        above = below = 1
        for other in points:
            if other != here:
                above, below = above * other % PRIME, below * (other - here) % PRIME
        total = (total + row * (above * pow(below, -1, PRIME) % PRIME)) % PRIME
    return [int(value) - PRIME if value > PRIME // 2 else int(value) for value in total]


def aggregate(updates: Sequence[Sequence[int]], threshold: int, coins: Coins) -> ShamirTally:
    """Every client shares with every other, adds what it got, and sends the server its share of the sum."""
    count, slots = len(updates), len(updates[0])
    schema = Schema((Field("shares", "<i8", (slots,), PRIME - 1, widths=(BITS,)),))
    held, to_clients = np.zeros((count, slots), object), 0
    for who, secrets in enumerate(updates):
        shares = share(secrets, count, threshold, coins.child("client", who))
        for other in range(count):
            got = shares[other]
            if other != who:
                message = schema.pack({"shares": torch.tensor(got.tolist(), dtype=torch.int64)})
                to_clients += len(message) if who == 0 else 0
                got = schema.unpack(message)["shares"].numpy().astype(object)
            held[other] = (held[other] + got) % PRIME
    # The first n - t clients drop out after sharing: the t others suffice.
    there = range(count)[count - threshold :]
    up = [schema.pack({"shares": torch.tensor(held[i].tolist(), dtype=torch.int64)}) for i in there]
    opened = np.stack([schema.unpack(message)["shares"].numpy().astype(object) for message in up])
    return ShamirTally(reconstruct([i + 1 for i in there], opened), to_clients, len(up[0]))
