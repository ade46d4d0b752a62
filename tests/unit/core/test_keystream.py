"""Both ways to the stream give the bytes of AES-256 in counter mode, wherever it begins and however it is cut."""

from __future__ import annotations

import pickle

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from croupier.core import keystream
from croupier.core.keystream import Keystream

KEY = bytes(range(32))
LONG = 1 << 16
BORDER = 1 << 32


def plain(block: int, count: int) -> bytes:
    """The bytes as the standard has them, each block's counter enciphered by itself."""
    first = [(block + number).to_bytes(16, "big") for number in range(-(-count // 16))]
    cipher = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    return cipher.update(b"".join(first))[:count]


@pytest.fixture(params=[True, False], ids=["gcm", "ctr"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is quicker here."""
    monkeypatch.setattr(keystream, "by_gcm", lambda: request.param)


@pytest.mark.parametrize("block", [0, 1, 2, 3, 1000, BORDER - 5, BORDER - 1, BORDER, BORDER + 1, 7 * BORDER])
@pytest.mark.parametrize("cuts", [[LONG], [5, LONG, 3], [LONG, 7, LONG + 1], [80, LONG], [1, 15, 16, 100]])
def test_the_bytes_are_those_of_counter_mode(block: int, cuts: list[int]) -> None:
    stream, parts = Keystream(KEY, block), []
    for size in cuts:
        out = bytearray(size)
        stream.fill(memoryview(out))
        parts.append(bytes(out))
    assert b"".join(parts) == plain(block, sum(cuts))


def test_more_than_a_piece_of_zeros_at_a_time() -> None:
    out = bytearray((1 << 20) + 33)
    Keystream(KEY).fill(memoryview(out))
    assert bytes(out) == plain(0, len(out))


def test_past_the_last_block_of_a_nonce_the_next_one_goes_on() -> None:
    """Under the true border lie 64 GiB: the rest of them is counted as drawn."""
    stream, out = Keystream(KEY, 3 * BORDER), bytearray(2 * LONG)
    stream._left = 0
    stream.fill(memoryview(out))
    assert bytes(out) == plain(4 * BORDER, len(out))


def test_a_stream_is_neither_shown_nor_pickled() -> None:
    assert repr(Keystream(KEY)) == "Keystream(...)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Keystream(KEY))
