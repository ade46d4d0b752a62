"""MLP-Mixer (Tolstikhin et al. 2021), small: patches of a picture, mixed by linear layers only.

No convolution and no attention: a network whose symmetries differ from both, which is why Tazza's experiments have it
and why the search in `learn.axes` is tested on it. `PicturePatches`, which cuts the picture, is also the first layer of
`vit`.
"""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.layers import Standardise
from croupier.learn.models.network import Network


class PicturePatches(nn.Module):
    """A picture cut into square patches, each a row of its pixels of all colours.

    By moving numbers only: every patch, and every pixel within a patch, has a place of its own.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """(batch, colours, height, width) to (batch, patches, pixels)."""
        batch, colours, height, width = x.shape
        x = x.reshape(batch, colours, height // self.side, self.side, width // self.side, self.side)
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3, 5).flatten(1, 2)


class Mixing(nn.Module):
    """Two linear layers along the patches, then two along the channels, each normalised before and added."""

    def __init__(self, patches: int, width: int, across: int, within: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.across1 = nn.Linear(patches, across)
        self.across2 = nn.Linear(across, patches)
        self.norm2 = nn.LayerNorm(width)
        self.within1 = nn.Linear(width, within)
        self.within2 = nn.Linear(within, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, patches, width) to the same."""
        mixed = self.across2(functional.gelu(self.across1(self.norm1(x).transpose(1, 2))))
        x = x + mixed.transpose(1, 2)
        out: Tensor = x + self.within2(functional.gelu(self.within1(self.norm2(x))))
        return out


class PatchMixer(nn.Module):
    """Patches as vectors, blocks of mixing, the mean over the patches, logits. `first` is done before all else."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        patch: int,
        width: int,
        across: int,
        within: int,
        layers: int,
        first: Standardise | None = None,
    ) -> None:
        super().__init__()
        colours, height, wide = shape
        patches = (height // patch) * (wide // patch)
        self.first = first
        self.patches = PicturePatches(patch)
        self.embed = nn.Linear(colours * patch * patch, width)
        self.blocks = nn.ModuleList(Mixing(patches, width, across, within) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.embed(self.patches(x if self.first is None else self.first(x)))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.fc(self.norm(x).mean(1))
        return out


class Mixer(Network, use="mixer"):
    """MLP-Mixer for pictures: 569,994 weights for 10 classes of CIFAR-10. `standardise` brings pixels to [-1, 1]."""

    patch: PositiveInt = Field(4, description="side of a patch in pixels")
    width: PositiveInt = Field(128, description="width of a patch's vector")
    across: PositiveInt = Field(64, description="width between, along patches")
    within: PositiveInt = Field(512, description="width between, along channels")
    layers: PositiveInt = Field(4, description="how many layers")
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )

    @property
    def batchable(self) -> bool:
        """Always: it normalises within a record, and keeps no statistics of several."""
        return True

    def build(self, dataset: Dataset) -> PatchMixer:
        """A fresh model. Raises: SpecError unless the dataset has classes of pictures that patches tile."""
        colours, height, wide = check_tiles(self, dataset, self.patch)
        first = Standardise(0.5, 0.5) if self.standardise else None
        return PatchMixer(
            (colours, height, wide),
            dataset.classes,
            self.patch,
            self.width,
            self.across,
            self.within,
            self.layers,
            first,
        )


def check_tiles(network: Network, dataset: Dataset, patch: int) -> tuple[int, int, int]:
    """The shape of a picture. Raises: SpecError unless the dataset has classes of pictures that patches tile."""
    if dataset.goal != "classify" or len(dataset.shape) != 3:
        remedy = 'use data of pictures ("mnist", "cifar10") or model = "mlp"'
        raise network._misfit(dataset, "inputs of shape (channels, height, width) to classify", remedy)
    colours, height, wide = dataset.shape
    if height % patch or wide % patch:
        sides = f"does not divide the pictures' sides, {height} and {wide}"
        raise SpecError(f"task.model.patch = {patch}: {sides}; use one that does, such as 4")
    return colours, height, wide
