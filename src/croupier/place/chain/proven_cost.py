"""What a round of encrypted bits costs, from rates that are measured on some: so that `plan` can say it before a run.

Bits that are encrypted one by one take some hundred bytes and some hundred microseconds each. A small model's can be
mixed so; those of a large one are refused, with what they would cost and what to use.

`Proven.check_size` refuses by it before a run begins, and `Proven.costs` prints it in `croupier plan`;
`croupier bench mix` takes its counts of bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.mpc import curve, elgamal, shuffle_proof
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.mpc.fixed_points import base, shifted
from croupier.mpc.shuffle_proof import ShuffledBlock

T = TypeVar("T")
# More encrypted bits than these are not mixed in a round.
MOST = 1_000_000
# What rates are measured on: ciphertexts of a block, blocks, blocks that are proven, and bits that a client sends.
_BLOCK, _BLOCKS, _PROVEN, _SENT = 40, 75, 2, 500


@dataclass(frozen=True)
class BitRates:
    """Seconds a ciphertext, on this machine as busy as it is now."""

    encrypt: float
    check_bits: float
    mix: float
    prove_sums: float
    check_sums: float
    prove: float
    check: float
    open: float


@lru_cache(maxsize=1)
def rates() -> BitRates:
    """Measured, with the very functions that a round uses. Raises: SpecError when their library is not there."""
    coins, many = Coins.from_os(), _BLOCK * _BLOCKS
    key = MixKey.make(coins.child("key"))
    clock, context = _Clock(), b"rates"
    bits = np.zeros(_SENT, np.uint8)
    shown = clock.took("encrypt", _SENT, lambda: elgamal.encrypt(bits, key.public, context, coins.child("bits")))
    clock.took(
        "check_bits", _SENT,
        lambda: elgamal.check_bits(*shown, key.public, context, "a client", coins.child("check")),
    )  # fmt: skip
    rand, fresh = (curve.drawn(coins.child(name), many) for name in ("rand", "fresh"))
    before = Ciphertexts(base(rand), shifted(None, key.public, rand))
    after = clock.took("mix", many, lambda: elgamal.refreshed(before, key.public, fresh))
    blocks = [np.arange(many).reshape(_BLOCKS, _BLOCK)]
    proof = clock.took(
        "prove_sums", many,
        lambda: elgamal.prove_sums(before, after, blocks, key.public, context, fresh, coins.child("sums")),
    )  # fmt: skip
    clock.took(
        "check_sums", many,
        lambda: elgamal.check_sums(
            before, Ciphertexts.unpacked(after.packed(), "a server"), blocks, key.public, context, proof, "a server"
        ),
    )  # fmt: skip
    claims = [ShuffledBlock(before.at(rows), after.at(rows)) for rows in blocks[0][:_PROVEN]]
    proofs = clock.took("prove", _PROVEN * _BLOCK, lambda: [
        shuffle_proof.prove(
            claim, key.public, context, np.arange(_BLOCK), fresh[at * _BLOCK : (at + 1) * _BLOCK],
            coins.child("proof", at),
        )
        for at, claim in enumerate(claims)
    ])  # fmt: skip
    clock.took("check", _PROVEN * _BLOCK, lambda: shuffle_proof.check(
        claims, key.public, [context] * _PROVEN, proofs, "a server", coins.child("look")
    ))  # fmt: skip
    clock.took("open", many, lambda: elgamal.open_part(after, key, context, coins.child("open")))
    return BitRates(**clock.rates)


class _Clock:
    """Seconds a piece, by name."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}

    def took(self, name: str, many: int, work: Callable[[], T]) -> T:
        begun = time.perf_counter()
        done = work()
        self.rates[name] = (time.perf_counter() - begun) / many
        return done


@dataclass(frozen=True)
class MixSizes:
    """How much is mixed in a round, from which bytes and seconds follow.

    `slots` are the numbers of a row, `widths` the bits of a number by modulus, `share` is the share of the numbers that
    servers prove.
    """

    clients: int
    slots: int
    widths: tuple[int, ...]
    servers: int
    share: float

    @property
    def bits(self) -> int:
        """How many encrypted bits all clients send together."""
        return self.clients * self.slots * sum(self.widths)

    @property
    def client_bytes(self) -> int:
        """What a client sends each server of bits."""
        return self.bits // self.clients * (elgamal.BIT_POINTS + elgamal.BIT_SCALARS)

    @property
    def hop_bytes(self) -> int:
        """What a server sends each other party of bits."""
        return self.bits * elgamal.PAIR + elgamal.PROOF

    @property
    def proven(self) -> int:
        """How many numbers a server proves."""
        return math.ceil(self.share * self.slots)

    @property
    def proof_bytes(self) -> int:
        """What a server sends each other party of proofs."""
        each = self.clients * sum(self.widths) * shuffle_proof.EACH + len(self.widths) * shuffle_proof.WHOLE
        return self.proven * each

    def check(self) -> None:
        """Raises: SpecError when so many bits are not mixed, with what they would cost; or without the library."""
        curve.check_library()
        if self.bits <= MOST:
            return
        rate = rates()
        hours = self.bits * (rate.check_bits + rate.mix + rate.prove_sums + rate.open) / 3600
        raise SpecError(
            f"protocol.place.trust = 'malicious': {self.bits:.2g} bits a round, encrypted one by one, are "
            f"{_size(self.client_bytes)} a client and server, {_size(self.hop_bytes)} and {hours:.2g} hours a hop "
            f"on this machine; at most {MOST} are mixed: use a smaller network, fewer digits, or the preset "
            "rns-servers, whose clients check the sum"
        )

    def said(self) -> str:
        """What a round costs, in a sentence."""
        rate, proven, own = rates(), self.proven * self.bits // self.slots, self.bits // self.clients
        return (
            f"a round mixes {self.bits} encrypted bits: {_size(self.client_bytes)} and {own * rate.encrypt:.2g} s a "
            f"client, to each server; each of {self.servers} servers checks them in "
            f"{self.bits * rate.check_bits:.2g} s, mixes in {self.bits * (rate.mix + rate.prove_sums):.2g} s, proves "
            f"{self.proven} of {self.slots} numbers in {proven * rate.prove:.2g} s, sends {_size(self.hop_bytes)} and "
            f"{_size(self.proof_bytes)} of proofs to each other party, who check it in "
            f"{self.bits * rate.check_sums + proven * rate.check:.2g} s, and opens in {self.bits * rate.open:.2g} s; "
            "from rates of this machine as busy as it is now"
        )


def _size(many: int) -> str:
    return f"{many / 1e9:.3g} GB" if many >= 1e9 else f"{many / 1e6:.3g} MB"
