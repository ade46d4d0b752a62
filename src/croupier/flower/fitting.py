"""Which Flower strategies and which protocols can be used together, checked before anything is played.

Under a protected protocol a strategy gets one reply, which holds the mean. So it must use nothing of the updates but
their mean (`check_strategy`), the protocol must suit nodes that are there for one message at a time (`check_protocol`),
and only one of the two may decide how the next model is made (`check_rule`). A strategy is recognised by the function
that aggregates, which an app's own subclass may inherit; one that compares or orders single updates is refused with the
reason, and so is one that is not known here. `flower.strategy` calls all three.
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

# Each uses the mean alone: as the next model (FedAvg, FedProx), or for a step from the last model (the others).
_MEANS = (FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi, FedProx)
_ROBUST = "a protocol that is robust and private is preset 'rain' (croupier explain rain)"
_COMPARED = f"compares single updates, which nobody has where only their sum is released; {_ROBUST}"
# Of the four wrappers for differential privacy two clip replies at the server, and two let an app's mod clip at the
# client. All noise the aggregate at the server, and compare replies with the clients that were sampled.
_AT_THE_NODE = (
    "noise is added by the node itself: describe it in the roster, as protocol.privacy (croupier explain intra-sum)"
)
_CLIPPED_AT_SERVER = f"clips single updates, which the server never has; {_AT_THE_NODE}"
_CLIPPED_AT_CLIENT = (
    "leaves clipping to a mod of the app's and noises the aggregate at the server, which expects a reply from each "
    f"client and gets a single one, their mean; {_AT_THE_NODE}"
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
    DifferentialPrivacyServerSideFixedClipping: _CLIPPED_AT_SERVER,
    DifferentialPrivacyServerSideAdaptiveClipping: _CLIPPED_AT_SERVER,
    DifferentialPrivacyClientSideFixedClipping: _CLIPPED_AT_CLIENT,
    DifferentialPrivacyClientSideAdaptiveClipping: _CLIPPED_AT_CLIENT,
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
    """Raises: SpecError when nodes would have to send in several turns, or be there at the same time."""
    if why := unfit(pipeline):
        raise SpecError(why)


def check_rule(strategy: Strategy, pipeline: Pipeline) -> None:
    """Raises: SpecError when the roster's protocol and the strategy would each make the next model.

    A strategy that does more than average, unlike FedAvg and FedProx, needs a protocol whose aggregator only averages
    (`linear`) and makes the model of this round's updates alone (`anew`, see `aggregate.aggregator`).
    """
    rule, own = pipeline.aggregate, type(strategy).aggregate_train is not FedAvg.aggregate_train
    if own and not (rule.linear and rule.anew):
        raise SpecError(
            f"strategy {type(strategy).__name__}: the roster's protocol makes the next model itself (aggregate = "
            f"{rule.use!r}), and so would the strategy; use FedAvg"
        )
