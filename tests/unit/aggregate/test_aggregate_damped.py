"""A damped step goes part of the way, and remembers nothing."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.damped import Damped
from croupier.aggregate.mean import Mean
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.errors import SpecError


def test_the_model_moves_by_a_share_of_the_mean() -> None:
    layout = Layout((Slice("w", (2,)), Slice("running", (1,), "statistic")))
    rows = torch.tensor([[1.0, -2.0, 4.0], [3.0, -4.0, 8.0]])
    gathered = Gathered(("a", "b"), rows, weights=torch.ones(2, dtype=torch.float64), form="delta")
    desk = Desk((Model(torch.ones(3)),), layout, Coins.from_seed(0))
    (model,), memory = Mean(step=Damped(lr=0.25))(gathered, desk, {})
    # Statistics are no gradients: they are averaged all the way.
    assert model.vector.tolist() == [1.5, 0.25, 7.0]
    assert memory == {}


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises((SpecError, ValidationError), match="lr"):
        Damped.parse({"use": "damped", "lr": 0})
