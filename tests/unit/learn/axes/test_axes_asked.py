"""What `symmetry_of` says to those who ask it wrongly."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn import axes
from croupier.learn.axes import symmetry_of

DENSE = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
NORMED = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def test_the_example_holds() -> None:
    failed, tried = doctest.testmod(axes)
    assert (failed, tried) == (0, 6)


@pytest.mark.parametrize(
    ("module", "inputs", "words"),
    [
        (DENSE, torch.randn(4, 5), r"inputs of shape \(4, 5\) and torch.float32: .*4x5 and 8x16"),
        (DENSE, torch.randn(4, 8).double(), r"torch.float64: the network cannot take them .*dtype"),
        (
            NORMED,
            torch.randn(1, 8),
            r"\(as in training\): Expected more than 1 value .*at least two records",
        ),
        (nn.Embedding(3, 2), torch.tensor([[4], [1]]), "the network cannot take them"),
        (nn.Bilinear(4, 4, 3), torch.randn(2, 4), "cannot take them .* missing 1 required positional argument"),
        (nn.GRU(4, 3, batch_first=True), torch.randn(2, 5, 4), "returns a tuple, and one tensor is asked for; wrap it"),
        (DENSE, torch.randn(4, 8).numpy(), "inputs: a tensor is asked for, not ndarray"),
    ],
)
def test_what_cannot_be_run_is_said_so_in_one_line(module: nn.Module, inputs: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        symmetry_of(module, inputs)
    assert "\n" not in str(caught.value)


def test_one_text_is_not_names_of_modules() -> None:
    with pytest.raises(SpecError, match=r"opaque = '2': .* write \['2'\]"):
        symmetry_of(DENSE, torch.randn(4, 8), opaque="2")


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(x, -1).values * torch.arange(5)


def test_the_outermost_module_is_called_the_network() -> None:
    with pytest.raises(SpecError, match=r"'sort', which the network \(Sorted\) calls"):
        symmetry_of(Sorted(), torch.randn(3, 5))
