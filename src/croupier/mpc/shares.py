"""A vector split among servers: uniform shares from seeds, and one long share that makes them add up.

This is additive sharing with compressed shares: all servers but one get 32 bytes and stretch them themselves. Any set
of shares but all of them is uniform, whatever the vector is. A client of the sum servers does this with its update
(`place.servers`). In `place.masks` it adds pairwise masks instead (`hidden`), and the server adds up what comes
(`added`). Long shares and sums are packed as they travel, and are added that way (`kernels.packed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from croupier.core.coins import Choices, Coins
from croupier.kernels import packed
from croupier.kernels.packed import NO_KEY, Key
from croupier.kernels.shares import P


def stretched(seed: bytes) -> tuple[Choices, int]:
    """The share of a vector and of its tag that a seed stands for: numbers to be drawn, and an element of the field."""
    node = Coins(seed)
    return node.child("numbers").secure(), int(node.child("tag").secure().below(P)[0])


def rest(vector: Tensor, pad: int, seeds: Sequence[bytes], bits: int, key: Key = NO_KEY) -> tuple[Tensor, int]:
    """The long share, packed: the vector and its tag, without the shares of both that seeds stand for.

    The tag is the key's linear form of the vector, plus `pad` (see `tags`).
    """
    parts = [stretched(seed) for seed in seeds]
    share, form = packed.cover(vector.numpy(), bits, [numbers.packed(bits) for numbers, _ in parts], key=key)
    return torch.from_numpy(share), (form + pad - sum(part for _, part in parts)) % P


def hidden(vector: Tensor, masks: Iterable[tuple[Choices, bool]], bits: int) -> Tensor:
    """A vector with masks added to it, or taken away where the mark says so, packed: uniform while one is unknown."""
    marked = list(masks)
    minus, plus = ([mask.packed(bits) for mask, away in marked if away is side] for side in (True, False))
    return torch.from_numpy(packed.cover(vector.numpy(), bits, minus, plus)[0])


def added(rows: Iterable[Tensor], drawn: Iterable[Choices], count: int, bits: int) -> Tensor:
    """The sum of packed shares and of shares that are drawn, packed."""
    sources = [numbers.packed(bits) for numbers in drawn]
    return torch.from_numpy(packed.fold([row.numpy() for row in rows], sources, count, bits))


def joined(residues: Tensor, bits: int) -> Tensor:
    """Residues packed as they travel; of several rows a row each."""
    rows = [torch.from_numpy(packed.packed(row.numpy(), bits)) for row in residues.reshape(-1, residues.shape[-1])]
    return torch.stack(rows).reshape(*residues.shape[:-1], -1)


def unpacked(sums: Tensor, count: int, bits: int) -> Tensor:
    """Packed residues one by one; of several rows a row each."""
    rows = [packed.numbers(row.numpy(), count, bits) for row in sums.reshape(-1, packed.size(count, bits))]
    found = torch.from_numpy(rows[0]) if len(rows) == 1 else torch.stack([torch.from_numpy(row) for row in rows])
    return found.reshape(*sums.shape[:-1], count)
