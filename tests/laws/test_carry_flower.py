"""carry, inside Flower: the strategy and the mod give the models and every party's views of the simulation."""

from __future__ import annotations

import pytest
import torch

from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.errors import SpecError
from tests.flowers import QUICK
from tests.laws.flower import FlowerScene
from tests.laws.pipelines import PIPELINES
from tests.laws.services import Deployment
from tests.laws.test_carry_services import views_of, views_seen
from tests.laws.toy import SEED, layout_for, play, task

# Where clients send in several turns, they have to be there at the same time.
NAMES = tuple(name for name, one in PIPELINES.items() if one.place.sends_once)


def scene(name: str, seed: int = SEED) -> FlowerScene:
    """A pipeline of the laws inside Flower."""
    pipeline = PIPELINES[name]
    made = Deployment(pipeline, task(layout=layout_for(pipeline)), Federation(rounds=2), Coins.from_seed(seed), QUICK)
    return FlowerScene(made)


@pytest.mark.parametrize("name", NAMES)
def test_through_flower(name: str) -> None:
    here, there = play(PIPELINES[name]), scene(name)
    there.run()
    assert views_seen(there.seen) == views_of(here), "Flower carried something else"
    assert all(torch.equal(got, one.state.model.vector) for got, one in zip(there.models[1:], here, strict=True))


@pytest.mark.parametrize("name", sorted(set(PIPELINES) - set(NAMES)))
def test_clients_that_must_be_there_together_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="in several turns"):
        scene(name).run()


def test_another_seed_is_caught_in_flower() -> None:
    there = scene("sum servers", SEED + 1)
    there.run()
    assert views_seen(there.seen) != views_of(play(PIPELINES["sum servers"]))
