"""What one party knows from before the first round: its own long-lived keys, and everybody's public ones.

In a deployment each organisation makes its own key pairs (`service.identity`), one client draws the clients' common
secret (`service.group`), and public keys come from the cards in the accepted roster (`service.member`). In a simulation
all are drawn from the run's coins (`simulated`, by `Placement.enrol`). A placement says which kinds it needs (`Need`),
and turns one party's `Secrets` into the keys that its flow uses (`Placement.own_keys`), so that no flow has another's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from croupier.core.coins import Coins

# "group": one secret that all clients share; "pair": a key pair (`box`), by which two clients agree on a common key;
# "identity": a key pair for signatures.
Need = Literal["group", "pair", "identity"]


@dataclass(frozen=True)
class Secrets:
    """One party's private keys and the clients' common secret, and everybody's public keys by name.

    `box` and `boxes` are for pairs. What a placement does not need may be empty.
    """

    identity: bytes = field(default=b"", repr=False)
    box: bytes = field(default=b"", repr=False)
    group: bytes = field(default=b"", repr=False)
    identities: Mapping[str, bytes] = field(default_factory=dict)
    boxes: Mapping[str, bytes] = field(default_factory=dict)


def simulated(needs: Collection[Need], holders: tuple[str, ...], coins: Coins) -> dict[str, Secrets]:
    """Everybody's secrets, as a simulation draws them: only there does one place know them all."""
    group = coins.child("group").export() if "group" in needs else b""
    identity = {name: coins.child("identity", name).export() for name in holders if "identity" in needs}
    box = {name: coins.child("pair", name).export() for name in holders if "pair" in needs}
    identities = {
        name: Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        for name, seed in identity.items()
    }
    boxes = {
        name: X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() for name, seed in box.items()
    }
    return {
        name: Secrets(identity.get(name, b""), box.get(name, b""), group, identities, boxes)
        for name in (holders if needs else ())
    }
