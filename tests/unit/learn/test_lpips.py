"""LPIPS by a package that stands in for the real one: what is asked for when it is missing, and what it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.likeness import like
from croupier.learn.lpips import SIDE, learned

ASKED: list[tuple[Tensor, Tensor]] = []


class Stand(nn.Module):
    """The interface of the package's module: two batches from -1 to 1, one number a pair."""

    def __init__(self, net: str, verbose: bool) -> None:
        super().__init__()
        if net == "vgg":
            raise OSError("no network here")

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        ASKED.append((one, two))
        return (one - two).abs().mean((1, 2, 3), keepdim=True)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package: Any = ModuleType("lpips")
    package.LPIPS = Stand
    monkeypatch.setitem(sys.modules, "lpips", package)
    learned.cache_clear()
    ASKED.clear()
    yield
    learned.cache_clear()


def test_pictures_come_in_colour_from_minus_one_to_one_and_large_enough() -> None:
    black, white = torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8)
    assert learned("alex")(black, white).tolist() == [2.0, 2.0]
    ((one, two),) = ASKED
    assert one.shape == two.shape == (2, 3, SIDE, SIDE)
    assert (float(one.min()), float(two.max())) == (-1.0, 1.0)
    large = torch.rand(1, 3, 80, 70)
    assert float(learned("alex")(large, large)) == 0
    assert ASKED[-1][0].shape == large.shape


def test_it_stands_beside_the_other_measures_only_where_it_is_asked_for() -> None:
    one, two = torch.rand(64), torch.rand(64)
    assert set(like(one, two, (1, 8, 8))) == {"psnr", "ssim"}
    assert set(like(one, two, (1, 8, 8), learned("alex"))) == {"psnr", "ssim", "lpips"}
    assert set(like(one, two, None, learned("alex"))) == {"psnr"}


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(SpecError, match=r"pip install 'croupier\[lpips\]'"):
        learned("alex")


def test_networks_and_weights_that_are_not_there_are_named() -> None:
    with pytest.raises(SpecError, match="alex, vgg, squeeze"):
        learned("resnet")
    with pytest.raises(SpecError, match="checkpoints"):
        learned("vgg")
