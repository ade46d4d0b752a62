"""Six words of a digest."""

from __future__ import annotations

import re

import pytest

from croupier.errors import RosterError
from croupier.service.words import BITS, COUNT, WORDS, check_words, words_of


def test_the_list_is_of_words_that_can_be_said_and_told_apart() -> None:
    assert len(WORDS) == len(set(WORDS)) == 1 << BITS
    assert all(re.fullmatch("[bfklmrst][aeio][bfklmrst][aeio][ls]", word) for word in WORDS)


def test_the_words_of_a_digest_stay_the_same() -> None:
    """Two versions of the program must read the same words to each other."""
    assert " ".join(words_of(bytes(32))) == "kikel rises tomil mefas bifol kelal"
    assert len(words_of(bytes(32))) == COUNT


def test_another_digest_has_other_words_in_every_place() -> None:
    found = [words_of(bytes([number]) * 32) for number in range(4)]
    assert all(len({words[place] for words in found}) > 1 for place in range(COUNT))


def test_words_are_compared_as_people_type_them() -> None:
    known = WORDS[:6]
    check_words([word.upper() + " " for word in known], known)


@pytest.mark.parametrize(
    "told", [WORDS[:5], (), (*WORDS[:5], WORDS[6]), (WORDS[1], WORDS[0], *WORDS[2:6]), (*WORDS[:6], WORDS[6])]
)  # fmt: skip
def test_other_words_are_refused(told: tuple[str, ...]) -> None:
    with pytest.raises(RosterError, match=r"not those of this roster.*do not accept it"):
        check_words(told, WORDS[:6])
