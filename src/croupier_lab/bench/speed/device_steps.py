"""What follows training, done where the updates are: rounding, masks, folds, shuffles and means in torch's operations.

Each step is to give the very bytes of the product's own, which runs on the CPU. Random words are drawn there, by the
cipher, and go to the device; what leaves comes back as bytes, because that is what messages are made of. Nothing of the
product calls this: `device_times` checks that bytes agree, and shows what a device would save.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from croupier.kernels import permute

# Coordinates that are rounded at a time: double precision takes twice the room.
SOME = 1 << 20
_LOW = (1 << 32) - 1
# Residues that end on a whole word, whatever their width.
_WHOLE = 64


def rounded(rows: Tensor, unit: int, top: int, bits: int) -> Tensor:
    """Values in units of a scale of 1 as residues of 2^bits, as `residues.wrapped` makes them."""
    out = torch.empty(rows.shape, dtype=torch.int32 if bits <= 31 else torch.int64, device=rows.device)
    for start in range(0, rows.shape[1], SOME):
        share = rows[:, start : start + SOME].double().clamp_(-1.0, 1.0).mul_(float(unit))
        out[:, start : start + SOME] = share.round_().clamp_(-top, top).long().bitwise_and_((1 << bits) - 1)
    return out


def unpacked(words: Tensor, count: int, bits: int) -> Tensor:
    """Residues that lie without gaps in 64-bit words."""
    at = torch.arange(count, device=words.device) * bits
    place, off = at >> 6, at & 63
    more = torch.cat([words, words.new_zeros(1)])
    # Shifting a signed word to the right brings in its sign: what lies above the bits that are left is cut off.
    low = (more[place] >> off) & ((1 << (64 - off).clamp_(max=bits)) - 1)
    high = more[place + 1] << (64 - off).clamp_(max=63)
    return torch.where(off + bits > 64, low | high, low) & ((1 << bits) - 1)


def joined(residues: Tensor, bits: int) -> Tensor:
    """Residues without gaps in 64-bit words, the last filled up with zeros."""
    lanes = -(-len(residues) // _WHOLE)
    full = residues.new_zeros(lanes * _WHOLE, dtype=torch.int64)
    full[: len(residues)] = residues
    each, out = full.view(lanes, _WHOLE), full.new_zeros(lanes, bits)
    for lane in range(_WHOLE):
        place, off = divmod(lane * bits, 64)
        out[:, place] |= each[:, lane] << off
        if off + bits > 64:
            out[:, place + 1] |= each[:, lane] >> (64 - off)
    return out.view(-1)


def covered(residues: Tensor, draws: Sequence[Tensor], bits: int) -> Tensor:
    """Residues less draws, packed, as `packed.cover` makes them; draws lie packed on the same device."""
    total = residues.long()
    for words in draws:
        total -= unpacked(words, len(residues), bits)
    return joined(total.bitwise_and_((1 << bits) - 1), bits)


def folded(rows: Sequence[Tensor], count: int, bits: int) -> Tensor:
    """The sum of packed rows, packed, as `packed.fold` makes it."""
    total = unpacked(rows[0], count, bits)
    for row in rows[1:]:
        total += unpacked(row, count, bits)
    return joined(total.bitwise_and_((1 << bits) - 1), bits)


def shuffled(rows: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Each column permuted by its own words, one a batch of choices, as `permute.columns` does it.

    Also which columns have a refused word: these must be permuted once more.
    """
    out, refused = rows.clone(), torch.zeros(rows.shape[1], dtype=torch.bool, device=rows.device)
    for batch, drawn in zip(permute.batches(len(rows)), words, strict=True):
        rest = drawn
        for span in range(batch.high, batch.low - 1, -1):
            high, low = (rest >> 32) & _LOW, rest & _LOW
            # The upper half of a product of 64 by 25 bits, from two that fit a word.
            choice = ((high * span + ((low * span) >> 32)) >> 32).unsqueeze(0)
            rest = rest * span
            last, other = out[span - 1].clone(), out.gather(0, choice)
            out[span - 1] = other[0]
            out.scatter_(0, choice, last.unsqueeze(0))
        # Unsigned: a word whose sign is set is larger than any least.
        refused |= (rest >= 0) & (rest < batch.least)
    return out, refused


def averaged(rows: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum in double precision, with what each addition rounds away carried along, as `Mean` adds."""
    out = torch.empty(rows.shape[1], dtype=torch.float64, device=rows.device)
    for start in range(0, rows.shape[1], SOME):
        total = rows[:, start : start + SOME].double() * weights.unsqueeze(1)
        lost = torch.zeros_like(total)
        while len(total) > 1:
            half, odd = len(total) // 2, len(total) % 2
            one, two = total[:half], total[half : 2 * half]
            sums = one + two
            part = sums - one
            off = (one - (sums - part)) + (two - part)
            kept = (lost[:half] + lost[half : 2 * half]) + off
            if odd:
                sums, kept = torch.cat([sums, total[-1:]]), torch.cat([kept, lost[-1:]])
            total, lost = sums, kept
        out[start : start + SOME] = total[0] + lost[0]
    return out
