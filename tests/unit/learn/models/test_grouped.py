"""Networks normalised by groups have no statistics that travel, and say the same of a picture alone or among others."""

from __future__ import annotations

import pytest
import torch

from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.flat import layout_of
from croupier.learn.models import DenseNet121, MobileNetV2, Network

PICTURES = TensorRecords(torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(4))
DATA = Dataset("pictures", "classify", 4, PICTURES, PICTURES, "-", "-", labels=PICTURES.y)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("network", [MobileNetV2(width=0.25), DenseNet121(growth=8, blocks=(2, 2))])
def test_only_weights_travel(network: Network, norm: str) -> None:
    module = network.model_copy(update={"norm": norm}).build(DATA)
    roles = {part.role for part in layout_of(module).slices}
    assert roles == ({"weight"} if norm == "group" else {"weight", "statistic", "counter"})
    alone, among = module(PICTURES.x[:2])[:1], module(PICTURES.x)[:1]
    assert torch.allclose(alone, among, atol=1e-4) == (norm == "group")
