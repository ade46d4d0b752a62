"""A box that anybody can close for one key, and only that key's holder can open.

It is RFC 9180 (HPKE), base mode, one message: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305. Written out
here so that the ephemeral key can come from a party's coins, and what a party sent can be computed again.

Boxes carry what one reader alone may know: draws of a joint secret and a secret handed to a newcomer (`agree`, by
`joint`), layers of boxes within boxes (`onion`, `place.chain.boxes`), the clients' group secret and views that a party
keeps (`service`). `info` binds what a box is for, so that it cannot be moved to another place.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, WireError

POINT, TAG = 32, 16
# What a box is longer than what lies in it.
EXTRA = POINT + TAG
_KEM, _KDF, _AEAD = (number.to_bytes(2, "big") for number in (0x0020, 0x0001, 0x0003))


@dataclass(frozen=True)
class Lock:
    """A key pair: the public half closes boxes, the private one opens them."""

    public: bytes
    private: X25519PrivateKey = field(repr=False)

    @classmethod
    def make(cls, coins: Coins) -> Lock:
        """A key pair from a node of its own."""
        private = X25519PrivateKey.from_private_bytes(coins.export())
        return cls(private.public_key().public_bytes_raw(), private)


def seal(public: bytes, message: bytes, info: bytes, coins: Coins) -> bytes:
    """Close a box; a node must not serve for two boxes."""
    own = Lock.make(coins)
    try:
        agreed = own.private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise WireError("a public key that no private one belongs to") from None
    key, nonce = _schedule(agreed, own.public, public, info)
    return own.public + ChaCha20Poly1305(key).encrypt(nonce, message, None)


def unseal(lock: Lock, box: bytes, info: bytes) -> bytes:
    """Open a box. Raises: IntegrityError when it was altered, or closed for another key or purpose."""
    try:
        agreed = lock.private.exchange(X25519PublicKey.from_public_bytes(box[:POINT]))
        key, nonce = _schedule(agreed, box[:POINT], lock.public, info)
        return ChaCha20Poly1305(key).decrypt(nonce, box[POINT:], None)
    except (InvalidTag, ValueError):
        raise IntegrityError("a box was altered, or closed for another key or purpose") from None


def refuse_repeats(boxes: Sequence[bytes]) -> None:
    """Raises: IntegrityError when two boxes of a shuffle are the same."""
    if len(set(boxes)) < len(boxes):
        raise IntegrityError("two boxes are the same: one of them is a copy, which would mark its row in the result")


def _schedule(agreed: bytes, ephemeral: bytes, public: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the one message."""
    kem, suite = b"KEM" + _KEM, b"HPKE" + _KEM + _KDF + _AEAD
    shared = _stretch(kem, _extract(kem, b"", b"eae_prk", agreed), b"shared_secret", ephemeral + public, 32)
    context = b"\0" + _extract(suite, b"", b"psk_id_hash", b"") + _extract(suite, b"", b"info_hash", info)
    secret = _extract(suite, shared, b"secret", b"")
    return _stretch(suite, secret, b"key", context, 32), _stretch(suite, secret, b"base_nonce", context, 12)


def _extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def _stretch(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """Up to one block, which is all that is needed here."""
    text = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, text + b"\x01", "sha256")[:size]
