"""A digest as six words that people can read to each other on the telephone.

The 2,048 words are made here by a rule, not taken from a list: five letters, consonant and vowel in turn, from sounds
of which the commonest confusions are left out. Six of them are 66 bits. Whoever makes two rosters could vary both until
their words agree (about 2^33 tries), so the words come from the digest by scrypt, which makes each try slow and in need
of memory.

Used by `roster` (`Roster.words`) and by `croupier accept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from croupier.errors import RosterError

COUNT = 6
BITS = 11
# b without p, d and v; k without g; m without n; s without z: the commonest confusions are left out.
_STARTS, _VOWELS, _ENDS = "bfklmrst", "aeio", "ls"
WORDS = tuple("".join(letters) for letters in product(_STARTS, _VOWELS, _STARTS, _VOWELS, _ENDS))
# 64 MiB and a fifth of a second for whoever compares; tens of years of a core for 2^33 tries.
_COST, _BLOCK = 1 << 16, 8


def words_of(digest: bytes) -> tuple[str, ...]:
    """The six words of a digest."""
    stretched = Scrypt(salt=b"croupier/1 roster words", length=9, n=_COST, r=_BLOCK, p=1).derive(digest)
    number = int.from_bytes(stretched, "big")
    return tuple(WORDS[number >> BITS * place & len(WORDS) - 1] for place in range(COUNT))


def check_words(told: Sequence[str], known: Sequence[str]) -> None:
    """Raises: RosterError when words that somebody was told are not those of the roster here."""
    if [word.strip().lower() for word in told] != list(known):
        raise RosterError(
            f"words = {' '.join(told)!r:.80}: they are not those of this roster; read them once more, and if they "
            "differ still, somebody was given another roster: do not accept it"
        )
