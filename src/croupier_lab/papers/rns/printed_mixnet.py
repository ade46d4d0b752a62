"""The mix network as RNS's paper prints it, small, kept to show how it fails; nothing here protects anything.

It is that of Algorithms 8 and 9: every bit in an onion of its own, a layer for each server. The paper claims that
"MixNets can still shuffle and release the output even if all but one server drops out". Its proofs are left out because
they cannot be built as printed: a server verifies the one before it over decrypted messages, whose relation to what
that one was sent is exactly what no proof of a decryption onion shows, and nobody verifies the last. Use `place.chain`
instead. `papers.rns.mixnets` takes `expansion` from here, and tests show the failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier.mpc.seal import EXTRA, TAG, Lock, seal, unseal

FLOAT = 4
# A constant nonce, because each key of the printed form is used for one message.
_NONCE = bytes(12)
_INFO = b"printed onion"
Messages = list[bytes]
Cheat = Callable[[int, Messages], Messages]


def bytes_of_a_bit(servers: int, keys: str = "public") -> int:
    """Bytes of a bit in its onion: one, and what each layer adds to it."""
    return 1 + servers * (EXTRA if keys == "public" else TAG)


def expansion(bits: int, servers: int, keys: str = "public") -> float:
    """How many times as many bytes as a float a parameter of so many bits takes."""
    return bits * bytes_of_a_bit(servers, keys) / FLOAT


def wrapped(bit: int, publics: Sequence[bytes], coins: Coins) -> bytes:
    """The client's side: seal the bit layer by layer, the last server's first."""
    text = bytes([bit])
    for number, public in reversed(list(enumerate(publics))):
        text = seal(public, text, _INFO, coins.child("layer", number))
    return text


def mixed(messages: Messages, locks: Sequence[Lock | None], coins: Coins, cheat: Cheat | None = None) -> list[int]:
    """What the last server puts out; `cheat(server, opened)` is what a server makes of messages before it shuffles.

    Raises: ProtocolError where a server is gone (None): its layer cannot be opened by anybody else.
    """
    for number, lock in enumerate(locks):
        if lock is None:
            raise ProtocolError(f"server {number + 1} is gone, and nobody else can open its layer")
        opened = [unseal(lock, box, _INFO) for box in messages]
        if cheat is not None:
            opened = cheat(number, opened)
        order = coins.child("order", number).secure().permutation(len(opened))
        messages = [opened[place] for place in order]
    if any(len(text) != 1 for text in messages):
        raise ProtocolError("a layer is left that nobody opened")
    return [text[0] for text in messages]


def replaced_but(place: int, publics: Sequence[bytes], marker: int, coins: Coins) -> Cheat:
    """The first server's way to single out one message: it replaces all others by marked messages of its own.

    Nobody compares what it passes on with what clients sent, so that nothing shows. Whoever sees the output then finds
    the only message that carries no mark.
    """

    def cheat(server: int, opened: Messages) -> Messages:
        if server:
            return opened
        own = [wrapped(marker, publics[1:], coins.child("own", number)) for number in range(len(opened))]
        return [text if number == place else own[number] for number, text in enumerate(opened)]

    return cheat


# --- keys that each client shares with each server, which would make a layer 16 bytes instead of 48 -------------------


def locked(bit: int, keys: Sequence[bytes]) -> bytes:
    """A bit under its client's own keys, one a server. A key is good for one message."""
    text = bytes([bit])
    for key in reversed(keys):
        text = ChaCha20Poly1305(key).encrypt(_NONCE, text, None)
    return text


def owners(messages: Messages, keys: Mapping[str, bytes]) -> list[str]:
    """Whose each message is, found by a server behind the first: only its sender's key opens it.

    The server must do this to go on at all, so that the shuffle before it hid nothing from it.
    """
    return [next(who for who, key in keys.items() if _opens(key, text)) for text in messages]


def _opens(key: bytes, text: bytes) -> bool:
    try:
        ChaCha20Poly1305(key).decrypt(_NONCE, text, None)
    except InvalidTag:
        return False
    return True
