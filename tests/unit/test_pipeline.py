"""Five parts together: which combinations are refused when built, and what a round of the others gives."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from croupier import systems
from croupier.aggregate.mean import Mean, Scaled
from croupier.core.coins import Coins
from croupier.core.flow import Given
from croupier.core.update import Form, Layout, Model, Slice, Update
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.task import Task
from croupier.errors import CroupierError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.relay import Relay
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "pipeline.json").read_text("utf-8"))
SYSTEMS = {
    "plain": systems.plain(),
    "plain uniform": systems.plain("uniform"),
    "naive model": systems.naive("model"),
    "naive layer": systems.naive("layer"),
    "naive parameter": systems.naive("parameter"),
    "total 10": systems.total(10),
    "total 100 6": systems.total(100, 6),
    "slots": Pipeline(
        encode=FixedPoint(clients=10, digits=6, weights="slot", cap=50, form="delta"),
        release=Sum(),
        aggregate=Scaled(),
        place=Relay(),
    ),
}
LAYOUT = Layout((Slice("one.weight", (2, 2)), Slice("two.weight", (3,))))
CLIENTS = tuple(f"client{i}" for i in range(5))


class Named(Mean):
    """A rule that needs identities."""

    needs: ClassVar[frozenset[str]] = frozenset({"ids"})


class Middle(Mean):
    """A rule that is no mean."""

    linear: ClassVar[bool] = False


class Whole(Mean):
    """A rule that takes whole models only."""

    forms: ClassVar[frozenset[Form]] = frozenset({"weights"})


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            {"encode": FixedPoint(clients=3), "release": Sum(), "place": Direct()},
            r"place = 'direct' cannot compute release = 'sum' \(sums\); use place = 'relay'",
        ),
        (
            {"release": Shuffle(), "place": Direct()},
            "place = 'direct' shows the server what release = 'shuffle' should hide; use place = 'relay'",
        ),
        (
            {"release": Sum(), "place": Relay()},
            "'sum' adds integers only, and encode = 'floats' .*use encode = 'fixed'",
        ),
        (
            {"encode": Floats(weights="open"), "release": Shuffle(), "place": Relay()},
            "weights = 'open' would travel beside what release = 'shuffle' hides; use weights = 'slot' or 'uniform'",
        ),
        (
            {"encode": FixedPoint(clients=3, weights="open"), "release": Sum(), "place": Relay()},
            "encode.weights = 'open' would travel beside what release = 'sum' hides",
        ),
        (
            {"release": Shuffle(), "place": Relay(), "aggregate": Named()},
            "needs to know whose row is whose, and release = 'shuffle' hides it",
        ),
        ({"encode": Floats(form="delta"), "aggregate": Whole()}, "does not take updates as 'delta'"),
        ({"encode": Floats(weights="slot", cap=3), "aggregate": Middle()}, "is no mean, and encode.weights = 'slot'"),
    ],
)
def test_misfits_are_refused_with_their_remedy(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match="^protocol: .*" + says):
        Pipeline(**parts)


@pytest.mark.parametrize(
    "table",
    [
        {"release": "shuffle"},
        {"encode": {"use": "fixed", "clients": 3}, "release": "sum"},
        {"release": "sum", "place": "relay"},
        {"encode": {"use": "floats", "weights": "open"}, "release": "shuffle", "place": "relay"},
    ],
)
def test_misfits_are_refused_from_a_file_too(table: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^protocol: .*use "):
        Pipeline.parse(table)


def test_what_fits_is_built() -> None:
    Pipeline(aggregate=Named())
    Pipeline(encode=Floats(form="delta"))
    Pipeline(encode=FixedPoint(clients=3), release=Rows(), place=Direct())
    Pipeline(encode=FixedPoint(clients=3), release=Shuffle(), place=Relay())
    Pipeline(encode=FixedPoint(clients=3, weights="slot", cap=4), release=Sum(), place=Relay())
    Pipeline(encode=Floats(weights="open"), release=Rows(), place=Relay())
    Pipeline(encode=Floats(), aggregate=Middle())


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_digest_of_a_system_stays(name: str) -> None:
    assert SYSTEMS[name].digest().hex() == VECTORS[name]
    assert Pipeline.parse(SYSTEMS[name].plain()) == SYSTEMS[name]


def test_every_system_has_a_digest_of_its_own() -> None:
    assert set(VECTORS) == set(SYSTEMS)
    assert len(set(VECTORS.values())) == len(VECTORS)


@pytest.mark.parametrize("case", ["direct sum", "float sum", "open shuffle"])
def test_a_system_with_a_bad_part_has_none(case: str) -> None:
    table: Mapping[str, dict[str, Any]] = {
        "direct sum": {**SYSTEMS["total 10"].plain(), "place": "direct"},
        "float sum": {**SYSTEMS["total 10"].plain(), "encode": "floats"},
        "open shuffle": {**SYSTEMS["naive model"].plain(), "encode": {"use": "floats", "weights": "open"}},
    }
    with pytest.raises(SpecError):
        Pipeline.parse(table[case])


@pytest.mark.parametrize("name", SYSTEMS)
def test_everybody_who_takes_part_is_named(name: str) -> None:
    pipeline = SYSTEMS[name]
    middle = set() if isinstance(pipeline.place, Direct) else {"relay"}
    assert set(pipeline.parties(CLIENTS)) == {*CLIENTS, *middle, "server"}
    given = Given("server", bytes(16), 0, 0, CLIENTS, 2, LAYOUT)
    schemas = pipeline.schemas(given)
    public = ["scale"] if isinstance(pipeline.aggregate, Scaled) else []
    assert [field.name for field in schemas["model"].fields] == ["model", *public]
    assert schemas["model"].fields[0].shape == (7,)


def values_of(client: int) -> Tensor:
    return torch.tensor([0.1, -0.2, 0.3, 0.0, 0.5, -0.6, 0.25]) * (client + 1) / 5


def task() -> Task:
    def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        return [
            Update(values_of(int(shard)), LAYOUT, {"weight": torch.tensor([10.0 * (int(shard) + 1)]).double()})
            for _, shard, _ in jobs
        ]

    return Task({name: str(i) for i, name in enumerate(CLIENTS)}, LAYOUT, Model(torch.zeros(7)), fit, lambda model: {})


@pytest.mark.parametrize("through_bytes", [False, True])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_round_gives_the_mean(name: str, through_bytes: bool) -> None:
    links = Coins.from_seed(99) if through_bytes else None
    (done,) = rounds(SYSTEMS[name], task(), Federation(rounds=1), Coins.from_seed(1), Local(links))
    table = np.stack([values_of(i).numpy() for i in range(5)]).astype(float)
    weighted = name in ("plain", "slots")
    want = np.average(table, axis=0, weights=[1, 2, 3, 4, 5] if weighted else None)
    tolerance = {"total 10": 0.51e-4, "total 100 6": 0.6e-6, "slots": 3e-6}.get(name, 1e-7)
    np.testing.assert_allclose(done.state.model.vector.numpy(), want, atol=tolerance, rtol=0)
    assert done.present == CLIENTS
    assert done.refusals == ()


def refuse(*_args: Any, **_more: Any) -> Any:
    raise AssertionError("a library's generator was asked for something secret")


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_library_generator_is_reached(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = (
        "rand randn random randint random_sample permutation shuffle choice normal uniform seed default_rng bytes "
        "Generator Philox PCG64 SeedSequence RandomState standard_normal"
    )
    for wanted in drawing.split():
        monkeypatch.setattr(np.random, wanted, refuse)
    for wanted in [
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "bernoulli",
        "manual_seed",
        "Generator",
        "rand_like",
    ]:
        monkeypatch.setattr(torch, wanted, refuse)
    for wanted in ["random_", "normal_", "uniform_", "bernoulli_"]:
        monkeypatch.setattr(Tensor, wanted, refuse)
    for wanted in ["random", "randint", "shuffle", "sample", "choice", "getrandbits", "randrange", "seed"]:
        monkeypatch.setattr(random, wanted, refuse)
    (done,) = rounds(SYSTEMS[name], task(), Federation(rounds=1), Coins.from_seed(1), Local(Coins.from_os()))
    assert len(done.present) == 5
    rows = [values_of(i) for i in range(5)]
    for grain in ("model", "layer", "parameter"):
        Shuffle.parse({"grain": grain})(rows, LAYOUT, None, Coins.from_os())
    stream = Coins.from_os().secure()
    stream.normal(3)
    stream.mask(7, 3)


def test_the_guard_itself_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.random, "Generator", refuse)
    with pytest.raises(AssertionError, match="something secret"):
        Coins.from_seed(1).sampler()
