"""Which strategies can be protected, and what is said of those that cannot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

import croupier
import croupier.flower
from croupier.errors import SpecError
from croupier.flower.fitting import check_rule
from croupier.flower.trust import sentences, unfit

ROBUST = (Krum, MultiKrum, Bulyan, FedMedian, FedTrimmedAvg)


@pytest.mark.parametrize("kind", ROBUST)
def test_what_compares_updates_is_refused_and_rain_offered(kind: type[FedAvg]) -> None:
    with pytest.raises(SpecError, match=f"strategy {kind.__name__}: it compares single updates.*'rain'"):
        croupier.flower.protect(kind())


@pytest.mark.parametrize("kind", [QFedAvg, FedXgbBagging, FedXgbCyclic])
def test_what_needs_single_updates_is_refused(kind: type[FedAvg]) -> None:
    more: dict[str, Any] = {"client_learning_rate": 0.1, "q": 0.1} if kind is QFedAvg else {}
    with pytest.raises(SpecError, match=f"strategy {kind.__name__}: it"):
        croupier.flower.protect(kind(**more))


def test_noise_of_the_servers_is_refused() -> None:
    with pytest.raises(SpecError, match="noise is added by the node itself"):
        croupier.flower.protect(DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 2))


class Gentle(FedAvg):
    """A subclass that aggregates as FedAvg does."""


class Greedy(FedAvg):
    """One with a rule of its own."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the first."""
        return next(iter(replies)).content.array_records["arrays"], None


@pytest.mark.parametrize("strategy", [FedAvg(), FedProx(), Gentle()])
def test_what_takes_a_mean_is_kept(strategy: Strategy) -> None:
    assert croupier.flower.protect(strategy).strategy is strategy


def test_a_rule_that_nobody_has_read_is_refused() -> None:
    with pytest.raises(SpecError, match="Greedy: it aggregates in a way of its own"):
        croupier.flower.protect(Greedy())


def test_two_rules_for_the_next_model_are_refused() -> None:
    rain = croupier.load("rain").protocol
    with pytest.raises(SpecError, match="the roster's protocol makes the next model itself"):
        check_rule(FedAdam(), rain)
    check_rule(FedAvg(), rain)
    check_rule(FedAdam(), croupier.load("flower").protocol)


@pytest.mark.parametrize("name", ["flower", "rns-servers", "rns", "rns-masks", "rain", "intra", "intra-sum"])
def test_presets_that_fit_are_explained(name: str) -> None:
    pipeline = croupier.load(name).protocol
    assert unfit(pipeline) == ""
    said = dict(sentences(pipeline))
    assert "ship other code" in said["the SuperLink could"]
    assert all(host in said["nodes dial"] for host in pipeline.place.middle(pipeline))


def test_agreements_among_clients_are_refused_with_the_reason() -> None:
    pipeline = croupier.load("tazza").protocol
    assert "one message at a time; run it as services" in unfit(pipeline)
    assert dict(sentences(pipeline))["inside Flower"].startswith("refused:")
