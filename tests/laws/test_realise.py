"""realise: every placement gives the ideal release's output, bit for bit on integers, as the same sets on rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.signs import SignTrust
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Model
from croupier.engine.state import Round
from croupier.pipeline import Pipeline
from croupier.place.placement import tiers_of
from croupier.release.bucketed import Tiered
from croupier.release.scored import ScoredSum
from tests.laws.pipelines import COMPLETING, PIPELINES
from tests.laws.toy import CLIENTS, absent, play
from tests.places.two_hop import TwoHopPlusOne


class Listening(Scaled, use="listening"):
    """The mean, with what was gathered written into the rule's memory."""

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """Aggregate and remember."""
        models, _ = super().__call__(gathered, desk, memory)
        kept = {name: getattr(gathered, name) for name in ("rows", "sums", "weights", "present")}
        return models, kept


class Attentive(SignTrust, use="listening-to-signs"):
    """The step along the votes, with what was gathered written into the rule's memory."""

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """Aggregate and remember."""
        models, after = super().__call__(gathered, desk, memory)
        kept = {name: getattr(gathered, name) for name in ("rows", "sums", "weights", "present")}
        return models, {**after, **kept}


def listening(pipeline: Pipeline) -> Pipeline:
    """The same pipeline with a server that takes notes; where no brief was sent, none is sent now."""
    if isinstance(pipeline.aggregate, SignTrust):
        return pipeline.model_copy(update={"aggregate": Attentive(**dict(pipeline.aggregate))})
    if isinstance(pipeline.aggregate, Scaled):
        return pipeline.model_copy(update={"aggregate": Listening()})
    return pipeline.model_copy(update={"aggregate": Quiet()})


class Quiet(Listening, use="listening-quietly"):
    """The same without a brief."""

    def public(self, layout: Any) -> tuple[Any, ...]:
        """Nothing."""
        return Mean.public(self, layout)

    def brief(self, desk: Desk, memory: Memory) -> dict[str, Any]:
        """Nothing."""
        return {}

    def verify(self, model: Model, brief: Any, layout: Any) -> None:
        """Nothing to check."""


def ideal(pipeline: Pipeline, done: Round) -> Gathered:
    """The release as a function: computed here from the clients' own views, in one place, in the clear."""
    payloads, brief = [], {}
    for who in done.present:
        inbox, update = done.views[who].inputs[:2]
        brief = {name: values for name, values in inbox[0].body.items() if name != "model"}
        if pipeline.encode.form == "delta":
            vector = update.vector - inbox[0].body["model"]
            update = type(update)(vector, update.layout, update.luggage, form="delta")
        own = done.views[who].coins.child("participation", done.views[who].given.participation)
        chance = own.child("privacy")
        if pipeline.privacy.use != "none":
            told = canon.digest(inbox[0].body["model"])
            chance = chance.child("model", told, "update", canon.digest(update.vector))
        update, _ = pipeline.privacy.of(who)(update, chance)
        payloads.append(pipeline.encode.encode(update, brief, own.child("encode")))
    rows = [payload.vector for payload in payloads]
    layout = done.views["server"].given.layout
    if isinstance(pipeline.release, ScoredSum):
        shown = next(box for box in done.views["server"].inputs if isinstance(box, dict))
        arrays = pipeline.release.against(rows, shown["reference"], Coins.from_seed(1))
    elif isinstance(pipeline.release, Tiered):
        tiers = tiers_of(pipeline, done.present)
        arrays = pipeline.release.within(rows, layout, pipeline.encode.modulus, Coins.from_seed(1), tiers)
    else:
        arrays = pipeline.release(rows, layout, pipeline.encode.modulus, Coins.from_seed(1))
    beside = {
        field.name: torch.stack([payload.luggage[field.name] for payload in payloads])
        for field in pipeline.encode.luggage()
    } | {name: arrays[name] for name in ("total",) if name in arrays}
    from croupier.encode.encoder import Released

    by_size = pipeline.release.shape == "bucketed"
    released = Released(
        done.present, arrays.get("rows"), arrays.get("sums"), beside, None, layout, arrays.get("sizes"), by_size
    )
    return pipeline.encode.decode(released, brief)


def by_bucket(pipeline: Pipeline, done: Round, *rows: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """Rows that may have changed places: all of them, or those of one bucket, or none where each is a bucket's sum."""
    if not isinstance(pipeline.release, Tiered):
        return [rows]
    buckets = pipeline.release.buckets(tiers_of(pipeline, done.present))
    sizes = [1 if pipeline.release.shape == "bucketed" else bucket.size for bucket in buckets]
    return list(zip(*(one.split(sizes) for one in rows), strict=True))  # type: ignore[no-untyped-call]


def check(pipeline: Pipeline, missing: tuple[str, ...] = ()) -> None:
    """Compare what the server gathered with the ideal."""
    heard = listening(pipeline)
    for done in play(heard, threat=absent(*missing)):
        rule = done.state.memories["server"]["rule"]
        want = ideal(heard, done)
        assert rule["present"] == tuple(c for c in CLIENTS if c not in missing)
        if want.sums is not None:
            assert torch.equal(rule["sums"], want.sums), "not the ideal release"
            assert want.weights is None or torch.equal(rule["weights"], want.weights), "not the ideal release"
        elif want.rows is not None:
            for own, ideally in by_bucket(heard, done, rule["rows"], want.rows):
                assert torch.equal(own.sort(0)[0], ideally.sort(0)[0]), "not the ideal release"
            if not pipeline.release.hides:
                assert torch.equal(rule["rows"], want.rows)


@pytest.mark.parametrize(
    ("name", "missing"), [*((name, ()) for name in PIPELINES), *((name, ("c3",)) for name in COMPLETING)]
)
def test_realise(name: str, missing: tuple[str, ...]) -> None:
    check(PIPELINES[name], missing)


@pytest.mark.parametrize("name", ["two hops, rows", "two hops, shuffle", "two hops, sum"])
def test_a_hop_that_adds_one_is_caught(name: str) -> None:
    with pytest.raises(AssertionError, match="not the ideal release"):
        check(PIPELINES[name].model_copy(update={"place": TwoHopPlusOne()}))


def test_a_placement_changes_no_result() -> None:
    relay = play(PIPELINES["sum"])[-1].state.model.vector
    hops = play(PIPELINES["two hops, sum"])[-1].state.model.vector
    assert torch.equal(relay, hops)
