"""Fuzzing: a short campaign finds nothing, and one of a planted decoder does."""

from __future__ import annotations

from croupier.errors import WireError
from croupier_lab.bench.services.fuzz import Decoder, FuzzSize, feed, measure
from croupier_lab.bench.services.fuzz_input import FuzzTally, Mutator


def test_a_short_campaign_finds_nothing() -> None:
    found = measure(FuzzSize(inputs=8000, calls=600), 2)
    assert found["inputs"] >= 7900
    assert (found["crashes"], found["hangs"]) == (0, 0), found["failures"]
    assert found["refused"] > 2000
    assert found["refused_calls"] > 200
    assert found["peak_bytes"] < 300e6


def test_a_decoder_that_trusts_a_length_is_caught() -> None:
    def trusting(data: bytes) -> bytes:
        if data[:1] != b"x":
            raise WireError("no")
        return data[1 : data[1]][data[1] - 2 :] or bytes([data[data[1]]])

    tally = FuzzTally()
    feed(Decoder("planted", trusting, (b"x\x02abc",), 1.0), 400, Mutator(b"seed"), tally)
    assert tally.counts["crashes"] > 0
    assert "planted" in tally.failures[0]
