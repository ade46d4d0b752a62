"""Buckets in whole rounds: who is refused, what clients check, labels, and one model at equal noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from tests.laws.pipelines import DELTAS, GRID, PIPELINES, TIERS, bucketed
from tests.laws.toy import CLIENTS, absent, play, task
from torch import Tensor

from croupier import systems
from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.median import Median
from croupier.core.flow import Change, Letter, Memory
from croupier.core.update import Gathered, Model
from croupier.core.view import View
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.engine.state import Threat
from croupier.errors import IntegrityError, ProtocolError, SpecError
from croupier.mpc.shares import added
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.masks import Masks
from croupier.place.relay import Relay
from croupier.place.servers import SumServers
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.local import NoNoise
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets, BucketSums
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum
from croupier.statement import explain

SERVERS = PIPELINES["sums of buckets, sum servers"]
NOISE = {name: TIERS.tier(name).sigma ** 2 for name in CLIENTS}


def changed(kind: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Change:
    """A party that alters its letters of one kind."""

    def corrupt(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(
            replace(m, body={**m.body, **change(dict(m.body))})
            if m.kind == kind and not isinstance(m.body, bytes)
            else m
            for m in letters
        )

    return corrupt


class Noting(Mean, use="noting"):
    """The mean, with labels written into the rule's memory."""

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """Aggregate and remember."""
        models, _ = super().__call__(gathered, desk, memory)
        return models, {"noise": gathered.noise, "epsilons": gathered.epsilons, "weights": gathered.weights}


def noted(pipeline: Pipeline, **more: Any) -> dict[str, Any]:
    """What the rule was told in the last of two rounds."""
    done = play(pipeline.model_copy(update={"aggregate": Noting()}), **more)
    found: dict[str, Any] = done[-1].state.memories["server"]["rule"]
    return found


def test_labels_of_buckets_and_of_their_sums() -> None:
    rows = noted(bucketed(Relay(), "parameter"))
    assert rows["epsilons"].tolist() == [2, 2, 8, 8]
    for got, want in zip(rows["noise"].tolist(), (NOISE["c0"],) * 2 + (NOISE["c1"],) * 2, strict=True):
        assert want <= got <= want * 2 ** (1 / 8)
    assert rows["weights"].tolist() == [1] * 4
    for place in (Relay(), SumServers()):
        sums = noted(bucketed(place))
        assert sums["epsilons"].tolist() == [2, 8]
        assert sums["weights"].tolist() == [2, 2]
        assert sums["noise"].tolist() == rows["noise"].tolist()[::2]
        merged = noted(bucketed(place), threat=absent("c3"))
        assert merged["epsilons"].tolist() == [2]
        assert merged["weights"].tolist() == [3]


@pytest.mark.parametrize(
    ("pipeline", "want"),
    [
        (Pipeline(privacy=TIERS, encode=DELTAS), [NOISE[name] for name in CLIENTS]),
        (Pipeline(privacy=TIERS, encode=DELTAS, place=Relay()), [NOISE[name] for name in CLIENTS]),
        (Pipeline(privacy=TIERS, encode=DELTAS, release=Shuffle(), place=Relay()), None),
        (Pipeline(privacy=TIERS, encode=GRID, release=Sum(), place=Relay()), None),
        (Pipeline(encode=DELTAS), None),
        (
            Pipeline(privacy=Gaussian(clip=1, sigma=3), encode=DELTAS, release=Shuffle(), place=Relay()),
            [9.0] * 4,
        ),
        (
            Pipeline(privacy=Tiers(clip=1, tiers=(2,)), encode=DELTAS, release=Shuffle(), place=Relay()),
            [NOISE["c0"]] * 4,
        ),
    ],
)
def test_labels_of_other_releases(pipeline: Pipeline, want: list[float] | None) -> None:
    found = noted(pipeline)["noise"]
    assert found is None if want is None else found.tolist() == pytest.approx(want)


class Weighing(Mean):
    """A rule that weighs by noise."""

    needs: ClassVar[frozenset[str]] = frozenset({"labels"})


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"release": Shuffle(), "place": Relay()}, "noise differs by client; use release = 'buckets', or one tier"),
        ({"release": Sum(), "encode": GRID, "place": Relay()}, "lets out one sum.*use release = 'bucket-sums'"),
        ({"privacy": NoNoise()}, "privacy = 'none' publishes no noise; use privacy = 'tiers'"),
        ({"privacy": Gaussian(clip=1, sigma=0)}, "privacy = 'gaussian' publishes no noise"),
    ],
)
def test_a_rule_that_weighs_by_noise_needs_labels(parts: dict[str, Any], says: str) -> None:
    own = {"privacy": TIERS, "encode": DELTAS, "aggregate": Weighing(), **parts}
    with pytest.raises(SpecError, match=f"weighs rows by their published noise, and .*{says}"):
        Pipeline(**own)
    Pipeline(privacy=TIERS, encode=DELTAS, aggregate=Weighing())
    Pipeline(privacy=TIERS, encode=DELTAS, aggregate=Weighing(), release=Buckets(smallest=2), place=Relay())
    Pipeline(privacy=TIERS, encode=GRID, aggregate=Weighing(), release=BucketSums(smallest=2), place=SumServers())


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"privacy": NoNoise(), "release": Buckets()}, "publishes no tiers; use privacy = 'tiers'"),
        ({"release": BucketSums()}, "adds integers only.*use encode = 'fixed'"),
        ({"encode": GRID, "release": BucketSums(), "place": Masks()}, "place = 'masks' cannot compute"),
        ({"encode": GRID, "release": BucketSums(), "place": Direct()}, "place = 'direct' cannot compute"),
        ({"encode": GRID, "release": Buckets(), "place": SumServers()}, r"cannot compute release = 'buckets' \(rows\)"),
        ({"encode": GRID, "release": BucketSums(), "aggregate": Median()}, "lets out a sum only"),
        (
            {"encode": FixedPoint(clients=8, form="delta", weights="slot", cap=9), "release": BucketSums()},
            "counts every client alike; use encode.weights = 'uniform'",
        ),
        ({"encode": Floats(form="delta", weights="open"), "release": Buckets()}, "would travel beside"),
    ],
)
def test_misfits(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        Pipeline(**{"privacy": TIERS, "encode": DELTAS, "place": Relay(), **parts})


@pytest.mark.parametrize("place", [Relay(), SumServers()])
def test_fewer_than_a_bucket_release_nothing_and_say_what_to_do(place: Any) -> None:
    pipeline = bucketed(place).model_copy(update={"release": BucketSums(smallest=4)})
    assert len(play(pipeline)) == 2
    with pytest.raises(ProtocolError, match=r"fewer than 4 is not released.*lower protocol\.release\.smallest") as said:
        play(pipeline, threat=absent("c1"))
    assert "federation.quorum" not in str(said.value)
    with pytest.raises(SpecError, match="needs at least 5 of them; invite more"):
        play(pipeline.model_copy(update={"release": BucketSums(smallest=5)}))


def test_the_quorum_of_the_run_is_still_the_quorum() -> None:
    with pytest.raises(ProtocolError, match=r"bring the missing back, or lower federation\.quorum"):
        play(bucketed(Relay()), threat=absent("c1", "c2"), quorum=0.75)


@pytest.mark.parametrize(("name", "by"), [("bucket", 1), ("noise", 1.0), ("epsilon", 0.5), ("noise", 1e-6)])
def test_a_relay_that_labels_wrongly_is_refused(name: str, by: float) -> None:
    relay = changed("released", lambda body: {name: body[name] + by})
    with pytest.raises(
        ProtocolError, match=f"round 1 cannot go on: {name} of the release is not what the public tiers"
    ):
        play(bucketed(Relay(), "parameter"), threat=Threat(corrupted={"relay": relay}))


def off(body: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last bucket's sum is wrong by one."""
    vector = body["vector"].clone()
    vector[-1, 0] ^= 1
    return {"vector": vector}


def swapped(body: dict[str, Tensor]) -> dict[str, Tensor]:
    """Two buckets have changed places, with their tags."""
    return {"vector": body["vector"].flip(0), "tag": body["tag"].flip(0)}


def merged(body: dict[str, Tensor]) -> dict[str, Tensor]:
    """One true sum of everybody in place of two."""
    count = 8 * body["vector"].shape[1] // GRID.bits
    vector = added(body["vector"], (), count, GRID.bits).unsqueeze(0)
    grouped = torch.tensor([1, 0, 0, 0], dtype=torch.uint8)
    tag = torch.tensor([sum(body["tag"].tolist()) % ((1 << 61) - 1)])
    return {"vector": vector, "grouped": grouped, "tag": tag}


@pytest.mark.parametrize(
    ("change", "says"), [(off, "its tag does not fit"), (swapped, "its tag does not fit"), (merged, "give 2 buckets")]
)
def test_clients_refuse_wrong_sums_of_buckets(change: Any, says: str) -> None:
    with pytest.raises(IntegrityError, match=f"round 1 is refused: .*{says}"):
        play(SERVERS, threat=Threat(corrupted={"server": changed("published", change)}))


def test_sum_servers_that_add_otherwise_end_the_round() -> None:
    with pytest.raises(IntegrityError, match="its tag does not fit"):
        play(SERVERS, threat=Threat(corrupted={"sum2": changed("sum", off)}))
    with pytest.raises(ProtocolError, match="did not add as the buckets"):
        play(SERVERS, threat=Threat(corrupted={"sum2": changed("sum", merged)}))


MANY = tuple(f"c{number}" for number in range(12))


def trained(release: Any, place: Any, encode: Any = DELTAS, count: int = 3) -> Tensor:
    """The model after some rounds of twelve clients, all from one seed."""
    own = {"clip": 1.0, "tiers": (0.5, 1, 2, 4, 8)}
    pipeline = Pipeline(privacy=Tiers(**own), encode=encode, release=release, place=place)
    return play(pipeline, count=count, of=task(MANY))[-1].state.model.vector


def test_at_equal_noise_and_equal_weights_the_model_is_the_same() -> None:
    """Plain, Shuffle-DP and IntraShuffler differ in what is seen, not in what is learned."""
    plain = trained(Rows(), Direct())
    for grain in ("model", "layer", "parameter"):
        for smallest in (2, 12):
            release = Buckets.parse({"use": "buckets", "smallest": smallest, "grain": grain})
            assert torch.allclose(trained(release, Relay()), plain, rtol=0, atol=1e-6)
    assert torch.allclose(trained(Shuffle(), Relay()), plain, rtol=0, atol=1e-6)
    grid = FixedPoint(clients=12, form="delta", scale=256, steps=1 << 20)
    for place in (Relay(), SumServers()):
        # Of one round: clients noise afresh for every other model, even one that differs in its last bits.
        summed, once = trained(BucketSums(smallest=4), place, grid, 1), trained(Rows(), Direct(), count=1)
        # Half a step: a mean of values that are each off by no more.
        assert torch.allclose(summed, once, rtol=0, atol=0.51 * 256 / (1 << 20))
        assert not torch.equal(summed, once)
    assert not torch.allclose(trained(Rows(), Direct(), DELTAS), trained_otherwise(), rtol=0, atol=1e-3)


def trained_otherwise() -> Tensor:
    """With less noise another model comes out: the comparison above can fail."""
    pipeline = Pipeline(privacy=Tiers(clip=1.0, tiers=(8,)), encode=DELTAS)
    return play(pipeline, count=3, of=task(MANY))[-1].state.model.vector


def test_the_statement() -> None:
    said = explain(systems.intra(), rounds=5, present=20)
    assert said.amplification.startswith("no amplification claimed: values are shuffled among 8 honest clients")
    assert "effective size of 8" in said.anonymity
    sums = explain(systems.intra_sum(20, colluders=3), rounds=5, present=20)
    assert "among the 5 honest members of a bucket of 8" in sums.amplification
    assert "tier 8: one participation (3.126, 1e-05)" in sums.amplification
    assert "published sums of all buckets" in sums.learns["each client"]
    base = systems.intra_sum(20)
    coarse = base.encode.model_copy(update={"steps": 64})
    for changes, why in (
        ({"encode": coarse}, "use a finer grid"),
        ({"aggregate": Scaled()}, "the grid follows the model"),
        ({"encode": base.encode.model_copy(update={"rounding": "stochastic"})}, "use rounding = 'even'"),
    ):
        assert why in explain(base.model_copy(update=changes)).amplification


def test_a_grid_for_every_list_of_tiers_is_claimed() -> None:
    for tiers in ((0.5, 1, 2, 4, 8), (0.1, 16), (1,)):
        for clip in (0.01, 1.0, 30.0):
            said = explain(systems.intra_sum(200, clip, tiers), rounds=50)
            assert said.amplification.startswith("central, of one client"), (tiers, clip, said.amplification)
