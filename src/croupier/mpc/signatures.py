"""Signatures of parties (Ed25519), and what the two servers of a round sign to fix who takes part in it.

Signatures fix things before anything that depends on them is opened. Two servers must mean the same round before they
act on it: a client computes what binds a round (`root_of`) from what it knows itself, and wants both servers'
signatures of it (`place.two_servers`). `signed` and `verified` serve all others who sign: the agreements of `agree/`,
the receipts of `place/chain`, the cards, notices and countersignatures of `service`, and `flower.letters`.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from torch import Tensor

from croupier.core import canon
from croupier.core.flow import Given, roster_digest


def root_of(given: Given, identity: bytes, bound: bytes, digests: Tensor) -> bytes:
    """What binds a round: the attempt, the dealt material, what was handed out and committed to, and every row."""
    head = ("root", given.run, given.round, given.attempt, roster_digest(given.roster))
    return canon.digest((*head, identity, bound, digests))


def signed(identity: bytes, message: bytes) -> bytes:
    """A signature under a party's key."""
    return Ed25519PrivateKey.from_private_bytes(identity).sign(message)


@lru_cache(maxsize=1 << 12)
def verified(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is this party's, of this message. Kept: clients of a simulation ask about the same."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
