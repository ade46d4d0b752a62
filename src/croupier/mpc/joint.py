"""A secret that no one of many parties chooses: everybody commits to a draw, and all draws together are the secret.

The steps are commit, agree on the commitments, reveal. A commitment names the occasion and the party, so that a copy of
another's cannot be opened; draws are joined by HKDF and never by XOR. A party that withholds its draw makes the others
start again, which gives another secret, once for each restart; it cannot choose which one.

`agree.commit_reveal` runs this among all clients of a roster, through a relay that sees commitments and sealed boxes
only. The other forms of agreement (`agree/pbft/`, `agree.welcome`) use its terms and boxes, and `agree.standing`
derives each round's rule (the order of hidden units) by `rule_seed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from croupier.core import canon
from croupier.core.coins import Coins, Label
from croupier.core.flow import Given
from croupier.errors import IntegrityError
from croupier.mpc.occasion import Occasion
from croupier.mpc.seal import EXTRA, Lock, seal, unseal

SECRET = 32
DRAW = 2 * SECRET


@dataclass(frozen=True)
class Terms:
    """What an agreement is about: an attempt (run, agreement's number, roster), and the rounds its outcome is for.

    Without a last round it holds until the next agreement.
    """

    occasion: Occasion
    start: int
    last: int | None = None

    @classmethod
    def of(cls, given: Given, start: int, last: int | None = None) -> Terms:
        """The terms that a party is told; an agreement's number takes the place of a round's."""
        return cls(Occasion.of(given), start, last)

    def label(self, purpose: str, *index: Label) -> bytes:
        """32 bytes that stand for this agreement and purpose, and for no other."""
        return self.occasion.label(f"agree {purpose}", self.start, -1 if self.last is None else self.last, *index)


@dataclass(frozen=True)
class Draw:
    """One party's part of a secret, and what hides it until it is shown."""

    value: bytes = field(repr=False)
    nonce: bytes = field(repr=False)

    @classmethod
    def make(cls, coins: Coins) -> Draw:
        """A fresh one; a node must not serve for two."""
        return cls(coins.child("draw").export(), coins.child("nonce").export())

    def commitment(self, terms: Terms, who: str) -> bytes:
        """The digest that binds the party to its draw, and hides it."""
        return terms.label("commit", who, self.value, self.nonce)


def box_size(message: int) -> int:
    """Bytes of a box."""
    return message + EXTRA


def close(terms: Terms, purpose: str, ends: tuple[str, str], public: bytes, message: bytes, coins: Coins) -> bytes:
    """A box from one party (the first of `ends`) for another, good for this agreement and purpose only."""
    return seal(public, message, terms.label(purpose, *ends), coins)


def opened(terms: Terms, purpose: str, ends: tuple[str, str], lock: Lock, box: bytes, size: int) -> bytes:
    """What lies in a box. Raises: IntegrityError when it was altered, or is from, for or about something else."""
    text = unseal(lock, box, terms.label(purpose, *ends))
    if len(text) != size:
        raise IntegrityError(f"a box with {len(text)} bytes, where {size} were to be")
    return text


def joined(terms: Terms, draws: Sequence[Draw]) -> bytes:
    """The secret, from everybody's draws in the order of the roster."""
    material = b"".join(draw.value for draw in draws)
    return HKDF(hashes.SHA256(), SECRET, b"croupier/1", terms.label("secret")).derive(material)


def rule_digest(run: bytes, number: int, secret: bytes) -> bytes:
    """The digest by which a secret is known in public; `number` is the agreement's."""
    return canon.digest(("croupier/1", "rule digest", run, number, secret))


def rule_seed(run: bytes, secret: bytes, number: int) -> bytes:
    """The seed of one round's rule: HKDF of the epoch's secret and the round, so that one tells nothing of another.

    Here `number` is the round's.
    """
    return Coins(secret).child("rule", run, "round", number).export()
