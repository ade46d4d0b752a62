"""Randomised response: the chance of each answer, its epsilon, and what a shuffle adds to it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.encode.floats import Floats
from croupier.errors import PrivacyError, RangeError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier.place.relay import Relay
from croupier.privacy import response
from croupier.privacy.amplify import amplified
from croupier.privacy.local import Guarantee, rounded_up
from croupier.privacy.response import Response, subset
from croupier.release.shuffle import Shuffle
from croupier.statement import explain

ROOT = Coins.from_seed(12)


def difference(values: list[float]) -> Update:
    """An update of one tensor, as a difference."""
    return Update(torch.tensor(values), Layout((Slice("w", (len(values),)),)), form="delta")


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 30.0, 45.0, 1000.0])
@pytest.mark.parametrize("coordinates", [1, 3])
def test_a_flip_is_never_rarer_than_epsilon_asks(epsilon: float, coordinates: int) -> None:
    part = Response(coordinates=coordinates, epsilon=epsilon)
    flip = part.below / response._DRAWS
    assert 0 < flip <= 0.5
    assert coordinates * math.log((1 - flip) / flip) <= epsilon
    if epsilon <= 30:
        assert coordinates * math.log((1 - flip) / flip) == pytest.approx(epsilon, rel=1e-2)


def test_every_row_of_signs_has_its_chance_for_both_neighbours() -> None:
    """All rows of three signs with two true ones: chances as computed by hand, and their ratio within e^epsilon."""
    part, runs = Response(coordinates=2, epsilon=2.0), 4000
    flip = 1 / (1 + math.e)

    def exact(row: tuple[int, ...], truth: tuple[int, ...]) -> float:
        each = [0.5 if t == 0 else 1 - flip if r == t else flip for r, t in zip(row, truth, strict=True)]
        pairs = [(0, 1), (0, 2), (1, 2)]
        return sum(each[a] * each[b] * 0.5 for a, b in pairs) / len(pairs)

    for number, truth in enumerate([(1, 1, -1), (-1, 0, 1)]):
        update = difference([0.1 * t for t in truth])
        seen = Counter(
            tuple(int(v) for v in part(update, ROOT.child(number, i))[0].vector.tolist()) for i in range(runs)
        )
        assert set(seen) <= {(a, b, c) for a in (1, -1) for b in (1, -1) for c in (1, -1)}
        for row, count in seen.items():
            chance = exact(row, truth)
            assert abs(count / runs - chance) < 5 * math.sqrt(chance / runs)
    rows = list(seen)
    worst = max(exact(row, (1, 1, -1)) / exact(row, (-1, -1, 1)) for row in rows)
    assert worst <= math.exp(2.0) + 1e-12


def test_coordinates_are_chosen_without_the_data_and_reported() -> None:
    part = Response(coordinates=5, epsilon=200.0)
    sent, spent = part(difference([1.0] * 50), ROOT)
    other, _ = part(difference([-1.0] * 50), ROOT)
    assert int((sent.vector != other.vector).sum()) == 5
    assert spent.facts == {"epsilon": 200.0, "coordinates": 5}
    assert not spent.noted


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_every_subset_is_as_likely(count: int) -> None:
    runs = 1000
    seen = Counter(tuple(subset(5, count, ROOT.child(count, i).secure()).tolist()) for i in range(runs))
    assert set(seen) == set(combinations(range(5), count))
    assert all(abs(many - runs / len(seen)) < 5 * math.sqrt(runs / len(seen)) + 1e-9 for many in seen.values())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RangeError, match=r"coordinates = 3: the update has only 2"):
        Response(coordinates=3, epsilon=1)(difference([1.0, 2.0]), ROOT)
    with pytest.raises(PrivacyError, match=r"encode\.form = 'delta'"):
        Response(coordinates=1, epsilon=1)(Update(torch.ones(1), Layout((Slice("w", (1,)),))), ROOT)
    with pytest.raises(SpecError, match="privacy = 'response'"):
        Pipeline(privacy=Response(coordinates=1, epsilon=1))
    with pytest.raises(SpecError, match="epsilon"):
        Response(coordinates=1, epsilon=0)


def test_the_claim_adds_up_over_participations() -> None:
    part = Response(coordinates=4, epsilon=2.0)
    assert part.guarantee() == Guarantee(2.0, 0.0)
    said = part.claims(10)
    for word in ("unit: a client", "replaced", "4 coordinates", "chance 0.3775", "eps = 2 for one", "20 for 10 part"):
        assert word in said
    assert "this run asks" not in part.claims()


def test_a_statement_amplifies_where_names_are_hidden_and_says_against_whom() -> None:
    pipeline = Pipeline(
        privacy=Response(coordinates=4, epsilon=1.0), encode=Floats(form="delta"), release=Shuffle(grain="model"),
        place=Relay(),
    )  # fmt: skip
    said = explain(pipeline, rounds=3, present=1000).amplification
    assert said.startswith("(0.1541, 1e-05) for one participation instead of 1, among 1000 clients")
    assert f"3 participations: ({rounded_up(3 * amplified(1000, 1.0, 1e-5))}, 3e-05)" in said
    assert "not against a party that permutes" in said
    assert said.endswith("nor against relay with server")
    chain = explain(pipeline.model_copy(update={"place": Chain()}), present=1000).amplification
    assert chain.endswith(
        "nor against one mix server with all the others; the dealer with any mix server or the server"
    )
    few = explain(pipeline, present=8).amplification
    assert few == "no amplification claimed: 8 honest clients are too few for a local epsilon of 1"
    slot = pipeline.model_copy(update={"encode": Floats(form="delta", weights="slot", cap=9), "release": Shuffle()})
    assert "can name them" in explain(slot, present=1000).amplification
