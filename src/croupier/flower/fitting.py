"""Which strategies of Flower's can be protected: those that use nothing of the updates but their mean.

A strategy is known by the function that aggregates, which an app's own subclass may inherit. What compares or orders
single updates is refused with the reason, and so is what nobody here has read.
"""

from __future__ import annotations

from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from croupier.errors import SpecError
from croupier.flower.trust import unfit
from croupier.pipeline import Pipeline

# Each takes a step from the mean and the last model.
_MEANS = (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi, FedProx)
_ROBUST = "a protocol that is robust and private is preset 'rain' (croupier explain rain)"
_COMPARED = f"compares single updates, which nobody has where only their sum is released; {_ROBUST}"
_NOISED = (
    "clips or noises single updates, which the server never has; noise is added by the node itself: describe it in the "
    "roster, as protocol.privacy (croupier explain intra-sum)"
)
_REASONS: dict[type[Strategy], str] = {
    Krum: _COMPARED,
    MultiKrum: _COMPARED,
    Bulyan: _COMPARED,
    FedMedian: _COMPARED,
    FedTrimmedAvg: _COMPARED,
    QFedAvg: "weighs single updates by their loss, which nobody has where only their sum is released; use FedAvg",
    FedXgbBagging: "collects single trees, which cannot be summed; there is no protected form",
    FedXgbCyclic: "hands one node's trees to the next, which cannot be summed; there is no protected form",
    DifferentialPrivacyServerSideFixedClipping: _NOISED,
    DifferentialPrivacyServerSideAdaptiveClipping: _NOISED,
    DifferentialPrivacyClientSideFixedClipping: _NOISED,
    DifferentialPrivacyClientSideAdaptiveClipping: _NOISED,
}


def check_strategy(strategy: Strategy) -> None:
    """Raises: SpecError when a strategy needs more than the mean, or nobody knows what it needs."""
    name = type(strategy).__name__
    for kind, why in _REASONS.items():
        if isinstance(strategy, kind):
            raise SpecError(f"strategy {name}: it {why}")
    rule = type(strategy).aggregate_train
    if not any(rule is kind.aggregate_train for kind in _MEANS):
        known = ", ".join(kind.__name__ for kind in _MEANS)
        raise SpecError(
            f"strategy {name}: it aggregates in a way of its own, which may need single updates; use one of {known}, "
            "or a subclass that keeps their aggregate_train"
        )


def check_protocol(pipeline: Pipeline) -> None:
    """Raises: SpecError when nodes would have to be there at the same time."""
    if why := unfit(pipeline):
        raise SpecError(why)


def check_rule(strategy: Strategy, pipeline: Pipeline) -> None:
    """Raises: SpecError when the roster's protocol and the strategy each have a rule of their own."""
    rule, own = pipeline.aggregate, type(strategy).aggregate_train is not FedAvg.aggregate_train
    if own and not (rule.linear and rule.anew):
        raise SpecError(
            f"strategy {type(strategy).__name__}: the roster's protocol makes the next model itself (aggregate = "
            f"{rule.use!r}), and so would the strategy; use FedAvg"
        )
