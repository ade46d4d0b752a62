"""The first weights of convolutions (He et al. 2015), shared by the deep convolutional networks."""

from __future__ import annotations

from torch import nn


def init_convolutions(module: nn.Module) -> None:
    """Draw a convolution's weights anew, in place, so that gradients keep their size through many layers.

    Any other module is left as torch began it. For `Module.apply`.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
