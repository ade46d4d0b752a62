"""What encrypted bits cost is said before a run; too many are refused with the cost and another way."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.laws.pipelines import PIPELINES, placed
from tests.laws.toy import CLIENTS, TINY, play

from croupier.errors import SpecError
from croupier.place.chain import proven_cost
from croupier.place.chain.chain import Chain
from croupier.place.chain.proven_cost import MOST, BitRates, MixSizes
from croupier.systems import rns

PLAUSIBLE = BitRates(**{one.name: 1e-4 for one in fields(BitRates)})


@pytest.fixture(autouse=True)
def _rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_cost, "rates", lambda: PLAUSIBLE)


def test_a_small_models_cost_is_said() -> None:
    pipeline = PIPELINES["bits, chain that proves"]
    (said,) = pipeline.place.costs(pipeline, TINY, 4)
    assert "a round mixes 36 encrypted bits" in said
    assert "proves 1 of 1 numbers" in said


def test_its_bytes_are_those_of_the_messages() -> None:
    pipeline, sizes = PIPELINES["bits, chain that proves"], MixSizes(4, 1, (2, 3, 4), 2, 0.5)
    schemas = pipeline.place.schemas(pipeline, play(pipeline, count=1)[0].views["server"].given)
    assert schemas["by-mix1"].most_bytes == sizes.hop_bytes + len(CLIENTS)
    assert schemas["shuffle"].most_bytes == sizes.proof_bytes + len(CLIENTS)
    assert schemas["bits"].most_bytes == sizes.client_bytes + 32


def test_a_cnns_bits_are_refused_with_the_cost_and_another_way() -> None:
    sizes = MixSizes(10, 643_850, (57,), 3, 0.05)
    with pytest.raises(SpecError) as error:
        sizes.check()
    said = str(error.value)
    assert "3.7e+08 bits a round" in said
    assert "24.2 GB" in said
    assert "hours a hop" in said
    assert "rns-servers" in said
    MixSizes(10, MOST // 10, (1,), 3, 0.05).check()


def test_a_run_is_refused_before_anything_is_trained() -> None:
    wide = placed(rns(8, release="bits"), Chain(trust="malicious"))
    with pytest.raises(SpecError, match="bits a round"):
        wide.place.check_size(wide, TINY, MOST)
