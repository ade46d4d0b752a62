"""A printed form of weight shuffling, kept to show how it fails."""

from __future__ import annotations

import torch
from torch import nn


def literal_listing1(module: nn.Module, rule: int) -> nn.Module:
    """Shuffle every linear layer in place as the paper prints it: each layer's two orders drawn anew from one seed.

    The order of a layer's outputs is the second draw, and the order that the next layer's inputs are read in is the
    first: they do not match, so the network computes something else. The classes are shuffled too.
    From: Tazza, Listing 1.
    """
    for layer in (part for part in module.modules() if isinstance(part, nn.Linear)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rule)
            hidden, width = layer.weight.shape
            columns = torch.randperm(width)
            rows = torch.randperm(hidden)
        layer.weight = nn.Parameter(layer.weight[rows][:, columns])
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias[rows])
    return module
