"""Releases of residues in unary: the bits of each block shuffled, their number, or their number modulo the modulus.

Three ways to let out a sum of `encode.residues`, from the paper's own (RNS) to the one that tells least: `bits` lets
out every bit, shuffled inside its block; `counts` the same information in fewer bytes; `mod` the residues of the sum
and nothing more. What the first two tell beyond the sum is measured by the audit's question `carries`. `place.relay`
computes all three, and a mix network (`place.chain`) moves the bits. The preset `rns` has `mod`; `rns-bits`,
`rns-chain` and `rns-chain-proofs` have `bits`.

A row is a client's numbers (called slots here), one after the other, each as its residues in unary. A block of bits is
what all clients send for one number and one modulus. Work is done for runs of 2^16 numbers at a time, which
`release.release` calls `blocks`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Choices, Node
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field, bit_rows
from croupier.errors import ProtocolError
from croupier.kernels import residues
from croupier.kernels.threads import each
from croupier.release.release import Release, Shape, Table, blocks


class _Unary(Release):
    """A release that works on blocks of bits, each of one number and one modulus, from all clients."""

    shape: ClassVar[Shape] = "sums"
    hides: ClassVar[frozenset[str]] = frozenset({"ids", "rows"})
    least: ClassVar[int] = 2
    unary: ClassVar[bool] = True


class Bits(_Unary, use="bits"):
    """All bits, each block's permuted uniformly and independently.

    Algorithm 1 of the source-inference paper (RNS). The number of ones in a block is an integer, not a residue: the
    multiples of the modulus in it tell more than the sum.
    """

    counts_ones: ClassVar[bool] = True

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """As many rows of bits as clients; no row is anybody's."""
        return (bit_rows("rows", ("present",), slots, _moduli(modulus)),)

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Count the ones of each block of bits, and scatter as many at random."""
        moduli = _moduli(modulus)
        out = torch.empty((len(rows), len(rows[0])), dtype=torch.uint8)

        def scatter(start: int, stop: int, choices: Choices) -> None:
            span = _bytes(start, stop, moduli)
            ones = residues.counts([row[span].numpy() for row in rows], stop - start, moduli)
            out[:, span] = torch.from_numpy(choices.scatter(ones, len(rows), moduli))

        # Each run of numbers has coins of its own, named here and in order, so that it does not matter when it is done.
        each(
            [
                partial(scatter, start, stop, coins.child("block", number).secure())
                for number, start, stop in blocks(_slots(rows, moduli))
            ]
        )
        return {"rows": out}

    @property
    def permutes(self) -> bool:
        """True: scattering a block's ones anew has the same outcome as permuting it at random, which `moved` does."""
        return True

    def moved(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """Every block of bits by a permutation of its own."""
        return self._moved(rows, _moduli(modulus), coins, back=False)

    def moved_back(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """Every block as it was."""
        return self._moved(rows, _moduli(modulus), coins, back=True)

    def _moved(self, rows: Table, moduli: tuple[int, ...], coins: Node, *, back: bool) -> Table:
        out, slots = np.empty_like(rows), 8 * rows.shape[1] // sum(residues.widths(moduli))

        def move(start: int, stop: int, choices: Choices) -> None:
            span = _bytes(start, stop, moduli)
            out[:, span] = choices.permute_blocks(rows[:, span], stop - start, moduli, back=back)

        each(
            [partial(move, start, stop, coins.child("block", number).secure()) for number, start, stop in blocks(slots)]
        )
        return out

    def reveals(self) -> str:
        """More than a sum."""
        return (
            "for every coordinate and modulus m, how many ones all clients sent: the sum of their residues as an "
            "integer. That is the sum modulo m and, beside it, a carry: it tells, for example, (0, 0) from (1, -1), "
            "and so more than the sum"
        )


class Counts(_Unary, use="counts"):
    """The number of ones in each block: what shuffled bits tell, in fewer bytes."""

    counts_ones: ClassVar[bool] = True

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """One number a block."""
        # How many clients there will be is not known here, so neither is the largest count: four bytes hold any.
        return (Field("sums", "<i4", (slots, len(_moduli(modulus))), (1 << 31) - 1),)

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Count."""
        return {"sums": _folded(rows, _moduli(modulus), torch.int32, reduce=False)}

    def reveals(self) -> str:
        """The same as bits."""
        return Bits().reveals()


class Mod(_Unary, use="mod"):
    """The number of ones in each block modulo its modulus: the sum's residues, and nothing else."""

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """One residue a block, in no more bits than it needs."""
        moduli = _moduli(modulus)
        widths = tuple((m - 1).bit_length() for m in moduli)
        return (Field("sums", "|u1", (slots, len(moduli)), max(moduli) - 1, widths=widths),)

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Count, modulo."""
        return {"sums": _folded(rows, _moduli(modulus), torch.uint8, reduce=True)}

    def reveals(self) -> str:
        """The sum."""
        return "the sum of the encoded updates of the clients present, exact, coordinate by coordinate"


def _moduli(modulus: Modulus) -> tuple[int, ...]:
    if not isinstance(modulus, tuple):
        raise ProtocolError("only residues in unary have bits to shuffle; use encode = 'residues'")
    return modulus


def _slots(rows: Sequence[Tensor], moduli: tuple[int, ...]) -> int:
    """How many numbers lie in a row: the spare bits of its last byte are too few for another one."""
    bits = sum(residues.widths(moduli))
    if bits < 8:
        raise ProtocolError(f"moduli = {list(moduli)}: fewer than 8 bits a coordinate; use more digits or more clients")
    return 8 * len(rows[0]) // bits


def _bytes(start: int, stop: int, moduli: tuple[int, ...]) -> slice:
    """The bytes of a row in which a run of numbers lies: runs of 2^16 numbers begin on whole bytes."""
    bits = sum(residues.widths(moduli))
    return slice(start * bits // 8, -(-stop * bits // 8))


def _folded(rows: Sequence[Tensor], moduli: tuple[int, ...], kind: torch.dtype, *, reduce: bool) -> Tensor:
    """The number of ones of every block of bits, modulo its modulus with `reduce`.

    Done for 2^16 numbers at a time, so that the wide counts of the whole model never lie in memory at once.
    """
    slots = _slots(rows, moduli)
    out = torch.empty((slots, len(moduli)), dtype=kind)
    many = np.array(moduli)

    def fold(start: int, stop: int) -> None:
        span = _bytes(start, stop, moduli)
        ones = residues.counts([row[span].numpy() for row in rows], stop - start, moduli)
        out[start:stop] = torch.from_numpy(ones % many if reduce else ones)

    each([partial(fold, start, stop) for _, start, stop in blocks(slots)])
    return out
