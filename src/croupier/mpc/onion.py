"""Rows in boxes within boxes: two servers shuffle rows and end with XOR shares, without dealt material for the shuffle.

A client's row x is the XOR of PRG(seed) and a rest. The client closes three boxes. The inner one holds the seed and is
for server 0; the middle one holds the rest and the inner box and is for server 1; the outer one holds the middle box
and is for server 0, which opens it, permutes and passes the middle boxes on. Server 1 opens these, permutes, keeps the
rests and hands the inner boxes back. Server 0 sees inner boxes only after server 1 has permuted them, and server 1
never sees the order from before server 0 permuted: row i of the result is x_{π0(π1(i))}, and neither knows the other's
factor.

For servers that follow the protocol. A server 0 that replaces all rows but one finds that one again, and nothing here
would show it. Any bit string is a valid row. A row that is not what it should be below the first layer ends the
attempt and names nobody: whose it is, nobody knows any more.

One of the shuffles that `place.two_servers` offers (`shuffle = "onion"`, in `place.two_servers.shuffle_flows`). There a
dealer is still needed after the shuffle, to turn XOR shares into numbers that can be added (`convert`).
`place.chain.boxes` is the form for a chain of servers (`chain` names it `onion`, too), in which the federation's own
server gets the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from croupier.core.coins import Coins, Node
from croupier.errors import IntegrityError, ProtocolError, WireError
from croupier.mpc.group import Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.seal import EXTRA, Lock, refuse_repeats, seal, unseal
from croupier.mpc.talk import Talk
from croupier.mpc.translate import draw_order

SEED, LABEL = 32, 32
OUTER, MIDDLE, INNER = "onion outer", "onion middle", "onion inner"
_INNER = LABEL + SEED + EXTRA


def size(group: Xor) -> int:
    """Bytes of a box that a client sends."""
    return LABEL + _middle(group) + EXTRA


def passed(group: Xor) -> tuple[int, int]:
    """Bytes a row that the first server passes on, and that the second hands back."""
    return _middle(group), _INNER


def wrap(group: Xor, row: Rows, publics: tuple[bytes, bytes], occasion: Occasion, coins: Coins) -> bytes:
    """A client's row, for the servers' public keys of this attempt. `coins` must not serve for two rows."""
    seed = coins.child("seed").export()
    rest = group.pack(group.subtract(group.unpack(group.pack(row), 1), _stretched(group, [seed])))
    inner = _close(publics[0], INNER, seed, occasion, coins)
    middle = _close(publics[1], MIDDLE, rest + inner, occasion, coins)
    return _close(publics[0], OUTER, middle, occasion, coins)


def sound(group: Xor, box: bytes, key: Lock, occasion: Occasion) -> bool:
    """Whether server 0 can open a client's outer layer: clients of whom it cannot are left out before the shuffle.

    What lies below that layer shows only when nobody knows whose it is.
    """
    try:
        _open(key, OUTER, box, size(group), occasion)
    except (IntegrityError, WireError):
        return False
    return True


def enter(
    group: Xor, arrived: Mapping[str, bytes], lock: SingleUse[Lock], occasion: Occasion, node: Node
) -> Talk[Rows]:
    """Server 0: its share of the shuffled rows.

    Raises: ProtocolError that names a client whose outer layer does not open, which `sound` should have left out;
    IntegrityError or WireError, which name nobody, for copies and for what is wrong below that layer.

    Reveals: to server 0 its own order, and seeds in the final order, which are uniform.
    """
    key = lock.take(occasion)
    refuse_repeats([*arrived.values()])
    middles = []
    for client, box in arrived.items():
        try:
            middles.append(_open(key, OUTER, box, size(group), occasion))
        except (IntegrityError, WireError) as error:
            raise ProtocolError(f"{client}: {error}") from error
    refuse_repeats(middles)
    order = draw_order(len(middles), node)
    if (yield b"".join(middles[i] for i in order)):
        raise WireError("the second server has nothing to say before it has all rows, and said something")
    inners = _cut((yield b""), len(middles), _INNER)
    refuse_repeats(inners)
    return _stretched(group, [_open(key, INNER, box, _INNER, occasion) for box in inners])


def leave(group: Xor, rows: int, lock: SingleUse[Lock], occasion: Occasion, node: Node) -> Talk[Rows]:
    """Server 1: its share of the shuffled rows.

    Reveals: to server 1 its own order, and rests in server 0's order, which are uniform.
    """
    key = lock.take(occasion)
    boxes = _cut((yield b""), rows, _middle(group))
    refuse_repeats(boxes)
    opened = [_open(key, MIDDLE, box, _middle(group), occasion) for box in boxes]
    order = draw_order(rows, node)
    if (yield b"".join(opened[i][group.size :] for i in order)):
        raise WireError("the first server has nothing to say while it waits for its seeds, and said something")
    return group.unpack(b"".join(opened[i][: group.size] for i in order), rows)


def unwrap(group: Xor, box: bytes, keys: tuple[Lock, Lock], occasion: Occasion) -> Rows:
    """A client's row, by both servers' keys together: what they could read if they colluded.

    `place.two_servers.pooled` computes it for audits of that coalition. Raises: WireError, IntegrityError.
    """
    middle = _open(keys[0], OUTER, box, size(group), occasion)
    text = _open(keys[1], MIDDLE, middle, _middle(group), occasion)
    seed = _open(keys[0], INNER, text[group.size :], _INNER, occasion)
    row: Rows = group.add(group.unpack(text[: group.size], 1), _stretched(group, [seed]))[0]
    return row


def _middle(group: Xor) -> int:
    return LABEL + group.size + _INNER + EXTRA


def _close(public: bytes, purpose: str, message: bytes, occasion: Occasion, coins: Coins) -> bytes:
    return seal(public, occasion.label(purpose) + message, purpose.encode(), coins.child(purpose))


def _open(key: Lock, purpose: str, box: bytes, length: int, occasion: Occasion) -> bytes:
    """What lies in a box. Raises: WireError, IntegrityError."""
    if len(box) != length:
        raise WireError(f"a box of {len(box)} bytes, where one of {length} was to come")
    text = unseal(key, box, purpose.encode())
    if text[:LABEL] != occasion.label(purpose):
        raise IntegrityError(f"a box that was closed for another run, round, attempt or roster than {occasion}")
    return text[LABEL:]


def _cut(data: bytes, rows: int, length: int) -> list[bytes]:
    if len(data) != rows * length:
        raise WireError(f"{len(data)} bytes, where {rows} boxes of {length} were to come")
    return [data[start : start + length] for start in range(0, len(data), length)]


def _stretched(group: Xor, seeds: Sequence[bytes]) -> Rows:
    """The rows that seeds stand for."""
    return np.concatenate([group.draw(1, Coins(seed).secure()) for seed in seeds])
