"""Who learns what, as `explain` computes it from a pipeline's parts: nothing more is claimed than they give."""

from __future__ import annotations

import json

import pytest

from croupier import systems
from croupier.aggregate.mean import Scaled
from croupier.encode.fixed import FixedPoint
from croupier.encode.hidden import HiddenUnits
from croupier.encode.residues import Residues
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.privacy.gaussian import Gaussian
from croupier.release.release import Release
from croupier.release.shuffle import Grain, Shuffle
from croupier.release.sums import Sum
from croupier.statement import explain

ALL = {
    "plain": systems.plain(),
    "model": systems.naive("model"),
    "layer": systems.naive("layer"),
    "parameter": systems.naive(),
    "total": systems.total(10),
    "slot": Pipeline(encode=FixedPoint(clients=4, weights="slot", cap=9), release=Sum(), place=Relay()),
}


@pytest.mark.parametrize("name", ALL)
def test_a_statement_is_made_of_what_the_parts_say(name: str) -> None:
    pipeline = ALL[name]
    said = explain(pipeline)
    for verb in ("privacy", "encode", "release", "place", "aggregate"):
        assert f"{verb} {getattr(pipeline, verb).use}" in said.backend
    assert said.encoding == pipeline.encode.says()
    assert said.differential_privacy == pipeline.privacy.claims()
    assert said.robustness == pipeline.aggregate.tolerates()
    assert said.privacy_threshold == pipeline.place.tolerance.privacy
    assert said.integrity_threshold == pipeline.place.tolerance.integrity
    assert said.liveness_threshold == pipeline.place.tolerance.liveness
    assert pipeline.release.reveals() in said.learns["server"]
    assert {"each client", "the network"} <= set(said.learns)
    assert all(value for key, value in said.plain().items() if key not in ("must_not_collude", "warnings"))
    assert said.warnings == {}
    assert json.loads(json.dumps(said.plain()))["learns"] == said.learns


def test_a_plain_run_hides_nothing_and_says_so() -> None:
    said = explain(systems.plain())
    assert said.must_not_collude == ()
    assert "relay" not in said.learns
    assert said.privacy_threshold.startswith("none")
    assert said.anonymity.startswith("none")
    assert "in the clear" in said.encoding[0]


@pytest.mark.parametrize("name", ["model", "layer", "parameter", "total", "slot"])
def test_a_relay_is_named_with_all_it_learns(name: str) -> None:
    said = explain(ALL[name])
    assert "whole update" in said.learns["relay"]
    assert "whose" in said.learns["relay"]
    assert said.must_not_collude == (("relay", "server"),)
    assert "trusted" in said.privacy_threshold
    assert "collude" in said.anonymity
    assert not said.anonymity.startswith("none")


def test_rows_and_sums_claim_different_anonymity() -> None:
    rows, sums = explain(systems.naive()).anonymity, explain(systems.total(5)).anonymity
    assert "Values themselves can still tell" in rows
    assert "a sum of" in sums


def test_a_sum_does_not_claim_rows_and_a_shuffle_does_not_claim_a_sum() -> None:
    assert "sum" in explain(systems.total(5)).learns["server"]
    grains: tuple[Grain, ...] = ("model", "layer", "parameter")
    said = [explain(systems.naive(grain)).learns["server"] for grain in grains]
    assert len(set(said)) == 3
    assert "whole update" in said[0]
    assert all("whole update" not in text for text in said[1:])
    assert Shuffle().reveals() in said[2]


def test_no_noise_claims_no_privacy() -> None:
    for pipeline in ALL.values():
        assert "no differential privacy is claimed" in explain(pipeline).differential_privacy
        assert explain(pipeline).robustness.startswith("none")


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(
            privacy=Gaussian(clip=1, sigma=0.2), encode=Residues(clients=10, digits=4, form="delta"),
            release=Release.parse(release), aggregate=Scaled(), place=Relay(),
        )
        for release in ("bits", "counts", "mod")
    ] + [systems.intra(), systems.intra(grain="model"), systems.intra_sum(20)],
    ids=["bits", "counts", "mod", "values in buckets", "rows in buckets", "sums of buckets"],
)  # fmt: skip
def test_what_comes_after_noise_leaves_its_promise_as_it_is(pipeline: Pipeline) -> None:
    """Residues, shuffles, buckets and their sums are post-processing: what a client is promised is its noise's."""
    for rounds in (1, 9):
        said = explain(pipeline, rounds=rounds, present=20).differential_privacy
        assert said == pipeline.privacy.claims(rounds)
        assert "unit: a client" in said
        assert "eps" in said


def test_a_permutation_is_said_to_be_obfuscation_with_what_undoes_it() -> None:
    said = explain(systems.tazza()).warnings
    assert list(said) == ["permutation", "matching", "a leak", "instead"]
    assert said["permutation"].startswith("obfuscation, not encryption")
    assert "croupier audit" in said["matching"]
    assert "one client" in said["a leak"]
    assert "rns-servers" in said["instead"]
    known, drawn = (explain(systems.tazza(first=first)).warnings["matching"] for first in ("open", "clients"))
    assert "would hold without a permutation" in known
    assert "stays unknown" in drawn
    assert "once for the epoch" in explain(systems.tazza(kept=True)).warnings["matching"]
    # Nothing measured is said here as if it followed from the description.
    assert not any(character.isdigit() for text in said.values() for character in text)


@pytest.mark.parametrize(
    ("encode", "said"),
    [
        (HiddenUnits(), "before the first round, and when clients join, all enrolled clients must come and agree"),
        (HiddenUnits(newcomers="welcome"), "; before the first round, all enrolled clients must come and agree"),
        (HiddenUnits(agree="round"), "a round also needs a client that knows the last rule"),
    ],
)
def test_who_must_come_to_agree_is_said(encode: HiddenUnits, said: str) -> None:
    assert said in explain(Pipeline(encode=encode)).liveness_threshold
    assert explain(Pipeline()).liveness_threshold.endswith("above the quorum")
