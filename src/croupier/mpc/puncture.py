"""A tree of seeds that can be handed over with one leaf missing, and whoever grew it does not learn which.

It is the tree of Goldreich, Goldwasser and Micali, used as a puncturable function. A node s has the children AES_k0(s)
xor s and AES_k1(s) xor s, with two fixed public keys, which is as good as AES is an ideal cipher. At every level the
path to the missing leaf takes one side, left or right. Who learns, level by level, the sum of all nodes on the other
side can compute every leaf but that one.

Many trees grow side by side: a level of all of them is one call of the cipher.

Used by `correlate`, with one tree for each row that is shuffled; `place.two_servers.shuffles` counts bytes by `depth`.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from croupier.core.coins import Coins, Ints
from croupier.errors import RangeError

NODE = 16
# (trees, nodes, bytes of a node)
Level = npt.NDArray[np.uint8]
_KEYS = [sha256(f"croupier/1 tree side {side}".encode()).digest()[:NODE] for side in (0, 1)]


def depth(leaves: int) -> int:
    """Levels below the root of a tree with at least so many leaves."""
    if leaves < 2:
        raise RangeError(f"leaves = {leaves}: a tree has at least two")
    return (leaves - 1).bit_length()


def plant(trees: int, coins: Coins) -> Level:
    """The roots of so many trees."""
    return np.frombuffer(coins.secure().bytes(trees * NODE), np.uint8).reshape(trees, 1, NODE)


def grow(roots: Level, leaves: int) -> tuple[Level, npt.NDArray[np.uint8]]:
    """All leaves, and the sums of each level's left and right nodes: (trees, depth, 2, bytes)."""
    level, sums = roots, []
    for _ in range(depth(leaves)):
        level = _children(level)
        sums.append(np.stack([_total(level[:, side::2]) for side in (0, 1)], 1))
    return level[:, :leaves], np.stack(sums, 1)


def sides(missing: Ints, leaves: int) -> npt.NDArray[np.uint8]:
    """Which sum to ask for at each level, so that just this leaf of each tree stays unknown: (trees, depth)."""
    shifts = np.arange(depth(leaves))[::-1]
    return (1 - (missing[:, None] >> shifts & 1)).astype(np.uint8)


def regrow(sums: npt.NDArray[np.uint8], missing: Ints, leaves: int) -> Level:
    """All leaves from the sums that were asked for, (trees, depth, bytes); each tree's missing leaf is 0."""
    trees, levels = sums.shape[:2]
    if levels != depth(leaves):
        raise RangeError(f"sums of {levels} levels for a tree that has {depth(leaves)}")
    every = np.arange(trees)
    level = np.zeros((trees, 1, NODE), np.uint8)
    for step in range(levels):
        level = _children(level)
        path = missing >> (levels - 1 - step)
        beside = path ^ 1
        # What grew from the unknown node is wrong: one of the two is found from the sum, the other stays unknown.
        level[every, path] = 0
        level[every, beside] = 0
        same = np.where((beside & 1)[:, None].astype(bool), _total(level[:, 1::2]), _total(level[:, 0::2]))
        level[every, beside] = sums[:, step] ^ same
    return level[:, :leaves]


def _children(level: Level) -> Level:
    """The next level, left and right children in turn."""
    trees, nodes = level.shape[:2]
    out = np.empty((trees, nodes, 2, NODE), np.uint8)
    data = np.ascontiguousarray(level)
    for side, key in enumerate(_KEYS):
        # Each block on its own and fed forward: the cipher is used as a public permutation, not to encrypt.
        cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        mixed = np.frombuffer(cipher.update(data.data.cast("B")), np.uint8).reshape(data.shape)
        np.bitwise_xor(mixed, data, out=out[:, :, side])
    return out.reshape(trees, 2 * nodes, NODE)


def _total(nodes: Level) -> npt.NDArray[np.uint8]:
    out: npt.NDArray[np.uint8] = np.bitwise_xor.reduce(nodes, axis=1)
    return out
