"""MobileNetV2 (Sandler et al. 2018) for small pictures, with torchvision's names for the weights.

The laboratory's rerun of IntraShuffler's Table 9 trains it, and its rerun of Table 7 takes a vector of as many values.
`norm` may replace batch normalisation, whose running statistics would travel beside the weights (`grouped`).
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.grouped import Norm, grouped
from croupier.learn.models.layers import Dropout, Standardise
from croupier.learn.models.network import Network
from croupier.learn.models.start import init_convolutions

# Of every stage how much wider a block is inside, its channels, its blocks, and the stride of the first of them. The
# paper has a stride of 2 in the stem and in the second stage too: 32 x 32 would end as 1 x 1, here they end as 4 x 4.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM, LAST = 32, 1280


class Inverted(nn.Module):
    """Wider by a 1 x 1 convolution (unless `expand` is 1), 3 x 3 in each channel alone, narrower again.

    The input is added where the output has its shape.
    """

    def __init__(self, before: int, after: int, stride: int, expand: int) -> None:
        super().__init__()
        inside = before * expand
        widen = [_convolved(before, inside, 1)] if expand > 1 else []
        each = _convolved(inside, inside, 3, stride, groups=inside)
        narrow = (nn.Conv2d(inside, after, 1, bias=False), nn.BatchNorm2d(after))
        self.conv = nn.Sequential(*widen, each, *narrow)
        self.adds_input = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, on top of its input where shapes allow."""
        out: Tensor = self.conv(x)
        return x + out if self.adds_input else out


class MobileNet(nn.Module):
    """Seventeen inverted residual blocks on RGB pictures; 2,236,682 weights for 10 classes at width 1.

    `first`, which has no weights, standardises the pictures before the network sees them.
    """

    def __init__(
        self, classes: int, width: float = 1.0, dropout: float = 0.0, first: Standardise | None = None
    ) -> None:
        super().__init__()
        self.first = first
        before, last = in_eights(STEM * width), in_eights(LAST * max(1.0, width))
        steps: list[nn.Module] = [_convolved(3, before, 3)]
        for expand, channels, blocks, stride in STAGES:
            after = in_eights(channels * width)
            for number in range(blocks):
                steps.append(Inverted(before, after, 1 if number else stride, expand))
                before = after
        self.features = nn.Sequential(*steps, _convolved(before, last, 1))
        self.classifier = nn.Sequential(Dropout(dropout), nn.Linear(last, classes))
        self.apply(init_convolutions)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x if self.first is None else self.first(x)
        out: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return out


class MobileNetV2(Network, use="mobilenet"):
    """MobileNetV2 without pretrained weights, with two strides of 2 made 1 so that it suits pictures of 32 x 32.

    `width` multiplies the channels, which are rounded to multiples of 8; the last layer's 1280 never become fewer.
    `standardise` brings pixels to [-1, 1]. `norm` may be by group: then nothing but weights travels, which updates that
    are clipped and noised need.
    """

    width: float = Field(1.0, gt=0, le=4, description="multiplies the channels")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout before the last layer")
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )
    norm: Norm = Field(
        "batch",
        description="normalise by `batch`, or by `group` of channels, which has no running statistics for noise to "
        "drown",
    )

    def build(self, dataset: Dataset) -> MobileNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of RGB pictures."""
        if dataset.goal != "classify" or len(dataset.shape) != 3 or dataset.shape[0] != 3:
            remedy = 'use data = "cifar10" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (3, height, width) to classify", remedy)
        first = Standardise(0.5, 0.5) if self.standardise else None
        made = MobileNet(dataset.classes, self.width, self.dropout, first)
        if self.norm == "group":
            grouped(made)
        return made


def in_eights(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and never less than nine tenths of what was asked for."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def _convolved(before: int, after: int, side: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, after, side, stride, padding=side // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())
