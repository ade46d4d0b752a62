"""Which strategies can be protected, and what is said of those that cannot."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NoReturn

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
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
from tests.flowers import numbers, numbers_app

import croupier
import croupier.flower
from croupier.errors import SpecError
from croupier.flower.fitting import check_rule
from croupier.flower.rehearse import RehearsalPlan
from croupier.flower.strategy import Protected
from croupier.flower.trust import sentences, unfit
from croupier_lab.bench.flower.grid import HereGrid

ROBUST = (Krum, MultiKrum, Bulyan, FedMedian, FedTrimmedAvg)
# All strategies of Flower's that wrap another one, with what they must be given.
WRAPPERS: dict[type[Any], dict[str, Any]] = {
    DifferentialPrivacyServerSideFixedClipping: {"clipping_norm": 0.1},
    DifferentialPrivacyClientSideFixedClipping: {"clipping_norm": 0.1},
    DifferentialPrivacyServerSideAdaptiveClipping: {"clipped_count_stddev": 1.0},
    DifferentialPrivacyClientSideAdaptiveClipping: {"clipped_count_stddev": 1.0},
}


def wrapped(kind: type[Any], strategy: Strategy) -> Strategy:
    """A strategy inside one of Flower's wrappers."""
    made: Strategy = kind(strategy, noise_multiplier=1.0, num_sampled_clients=2, **WRAPPERS[kind])
    return made


@pytest.mark.parametrize("kind", ROBUST)
def test_what_compares_updates_is_refused_and_rain_offered(kind: type[FedAvg]) -> None:
    with pytest.raises(SpecError, match=f"strategy {kind.__name__}: it compares single updates.*'rain'"):
        croupier.flower.protect(kind())


@pytest.mark.parametrize("kind", [QFedAvg, FedXgbBagging, FedXgbCyclic])
def test_what_needs_single_updates_is_refused(kind: type[FedAvg]) -> None:
    more: dict[str, Any] = {"client_learning_rate": 0.1, "q": 0.1} if kind is QFedAvg else {}
    with pytest.raises(SpecError, match=f"strategy {kind.__name__}: it"):
        croupier.flower.protect(kind(**more))


@pytest.mark.parametrize("kind", WRAPPERS)
def test_noise_of_the_servers_is_refused(kind: type[Any]) -> None:
    at_client = "ClientSide" in kind.__name__
    why = "it leaves clipping to a mod.*noises the aggregate" if at_client else "it clips single updates, which"
    with pytest.raises(SpecError, match=f"{why}.*noise is added by the node itself"):
        croupier.flower.protect(wrapped(kind, FedAvg()))


def test_no_wrapper_of_flowers_is_forgotten() -> None:
    from flwr.serverapp import strategy

    known = [getattr(strategy, name) for name in strategy.__all__]
    assert {kind for kind in known if "strategy" in inspect.signature(kind).parameters} == set(WRAPPERS)


class OpenedError(Exception):
    """A session was opened."""


def inner() -> Protected:
    """A protected strategy, and an error when it opens its session."""

    def opened(*given: Any) -> NoReturn:
        raise OpenedError

    return Protected(FedAvg(), RehearsalPlan(), opened)


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_wrapper_around_a_protected_strategy_is_refused(kind: type[Any]) -> None:
    grid = HereGrid(numbers_app([]), {node + 1: {"partition-id": node} for node in range(2)})
    with pytest.raises(SpecError, match=r"croupier\.flower\.protect must be the outermost.*clips nothing"):
        wrapped(kind, inner()).start(grid, numbers(), 1)
    assert grid.relayed == [], "no node was asked anything"
    with pytest.raises(OpenedError):
        inner().start(grid, numbers(), 1)


def test_rounds_are_played_by_start_alone() -> None:
    grid = HereGrid(numbers_app([]), {1: {"partition-id": 0}})
    strategy = inner()
    for _ in range(2):
        with pytest.raises(SpecError, match="must be the outermost"):
            strategy.configure_train(1, numbers(), ConfigRecord(), grid)
        with pytest.raises(SpecError, match="must be the outermost"):
            strategy.configure_evaluate(1, numbers(), ConfigRecord(), grid)
        with pytest.raises(SpecError, match="must be the outermost"):
            strategy.aggregate_train(1, [])
        # Nor is it so once its own rounds are over, however they ended.
        with pytest.raises(OpenedError):
            strategy.start(grid, numbers(), 1)


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
