"""A vector split among servers: uniform shares from seeds, and one long share that makes them add up.

From: additive sharing with compressed shares. Any set of shares but all of them is uniform, whatever the vector is.

This is what a client of the sum servers does with its update (`place.servers`), and what a client with pairwise masks
does (`place.masks`): all servers but one get 32 bytes and stretch them themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Choices, Coins
from croupier.kernels import shares
from croupier.kernels.shares import P


def stretched(seed: bytes) -> tuple[Choices, int]:
    """The share of a vector and of its tag that a seed stands for: numbers to be drawn, and an element of the field."""
    node = Coins(seed)
    return node.child("numbers").secure(), int(node.child("tag").secure().below(P)[0])


def rest(vector: Tensor, tag: int, seeds: Sequence[bytes], bits: int) -> tuple[Tensor, int]:
    """The long share: the vector and its tag without the shares that the seeds stand for."""
    parts = [stretched(seed) for seed in seeds]
    return hidden(vector, ((numbers, True) for numbers, _ in parts), bits), (tag - sum(part for _, part in parts)) % P


def hidden(vector: Tensor, masks: Iterable[tuple[Choices, bool]], bits: int) -> Tensor:
    """A vector with masks added to it, or taken away where the mark says so: uniform while one of them is unknown."""
    total = shares.total(len(vector), bits)
    shares.add(vector.numpy(), total)
    for mask, minus in masks:
        mask.blind(total, bits, minus=minus)
    return reduced(total, bits)


def reduced(total: np.ndarray, bits: int) -> Tensor:
    """A total modulo 2^bits, as the wire carries it."""
    total &= total.dtype.type((1 << bits) - 1)
    return torch.from_numpy(total.view(np.int32) if bits <= 31 else total.astype(np.int64))
