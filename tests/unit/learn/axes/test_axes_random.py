"""Random networks from the supported modules: whatever is put together, the permuted network computes the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.learn.axes import difference, symmetry_of

SEED = bytes(range(32))
FEW = settings(examples(25), suppress_health_check=[HealthCheck.too_slow])


class Residue(nn.Module):
    """The input, plus what some layers make of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


class Beside(nn.Module):
    """The input, and beside it what a layer makes of it, along an axis."""

    def __init__(self, layer: nn.Module, dim: int) -> None:
        super().__init__()
        self.layer, self.dim = layer, dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(x)], self.dim)


class Gated(nn.Module):
    """A gate times a projection, and back."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class Heads(nn.Module):
    """torch's own attention of a sequence to itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


class States(nn.Module):
    """A recurrent layer's outputs at every step."""

    def __init__(self, kind: type[nn.RNN | nn.GRU | nn.LSTM], width: int, hidden: int, layers: int, both: bool) -> None:
        super().__init__()
        self.rnn = kind(width, hidden, layers, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(x)[0]
        return out


class Turned(nn.Module):
    """A layer along the other axis of a sequence."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.transpose(1, 2)).transpose(1, 2)
        return out


class Mean(nn.Module):
    """The mean over the steps."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


SMOOTH = (nn.Tanh, nn.GELU, nn.Sigmoid, nn.ReLU, nn.SiLU)


@st.composite
def rows(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """Layers on plain vectors."""
    width = draw(st.sampled_from([4, 6, 8]))
    x = torch.randn(5, width)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["linear", "norm", "residue", "beside", "gated", "act", "batch", "group", "glu"]))
        if kind == "linear":
            after = draw(st.sampled_from([3, 4, 6, 8, 12]))
            layers.append(nn.Linear(width, after, bias=draw(st.booleans())))
            width = after
        elif kind == "norm":
            layers.append(draw(st.sampled_from([nn.LayerNorm, nn.RMSNorm]))(width))
        elif kind == "residue":
            hidden = draw(st.sampled_from([3, 5, 8]))
            layers.append(Residue(nn.Linear(width, hidden), draw(st.sampled_from(SMOOTH))(), nn.Linear(hidden, width)))
        elif kind == "beside":
            layers.append(Beside(nn.Linear(width, 4), 1))
            width += 4
        elif kind == "gated":
            layers.append(Residue(Gated(width, 5)))
        elif kind == "batch":
            layers.append(nn.BatchNorm1d(width))
        elif kind == "group" and width > 1:
            # Not one number a group: of that only rounding is left, and then made large.
            groups = [count for count in (1, 2, 3) if width % count == 0 and width > count]
            layers.append(nn.GroupNorm(draw(st.sampled_from(groups)), width))
        elif kind == "glu" and width % 2 == 0:
            layers.append(nn.GLU())
            width //= 2
        else:
            layers.append(draw(st.sampled_from(SMOOTH))())
    return nn.Sequential(*layers, nn.Linear(width, 3)), x


@st.composite
def pictures(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """Convolutions, then a linear layer on what is left, flattened or pooled."""
    width, side = draw(st.sampled_from([2, 4])), 8
    x = torch.randn(5, width, side, side)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "groups", "depth", "batch", "group", "pool", "residue", "beside", "act"]))
        if kind == "conv":
            after, kernel = draw(st.sampled_from([4, 6, 8])), draw(st.sampled_from([1, 3]))
            layers.append(nn.Conv2d(width, after, kernel, padding=kernel // 2))
            width = after
        elif kind == "groups":
            groups = draw(st.sampled_from([g for g in (1, 2, 4) if width % g == 0]))
            layers.append(nn.Conv2d(width, 2 * width, 3, padding=1, groups=groups))
            width *= 2
        elif kind == "depth":
            layers.append(nn.Conv2d(width, width, 3, padding=1, groups=width))
        elif kind == "batch":
            layers.append(nn.BatchNorm2d(width))
        elif kind == "group":
            layers.append(nn.GroupNorm(2, width))
        elif kind == "pool" and side > 2:
            layers.append(draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))(2))
            side //= 2
        elif kind == "residue":
            layers.append(Residue(nn.Conv2d(width, 3, 1), nn.Tanh(), nn.Conv2d(3, width, 3, padding=1)))
        elif kind == "beside":
            layers.append(Beside(nn.Conv2d(width, 2, 3, padding=1), 1))
            width += 2
        else:
            layers.append(draw(st.sampled_from(SMOOTH))())
    if draw(st.booleans()):
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * side * side, 3)), x
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)), x


@st.composite
def sequences(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """Attention, recurrence and mixing over steps."""
    width, steps = draw(st.sampled_from([4, 8])), 6
    x = torch.randn(5, steps, width)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["heads", "mix", "gated", "norm", "rnn", "linear", "act"]))
        if kind == "heads":
            heads = draw(st.sampled_from([h for h in (1, 2, 4) if width % h == 0]))
            layers.append(Residue(nn.LayerNorm(width), Heads(width, heads)))
        elif kind == "mix":
            layers.append(Residue(Turned(nn.Sequential(nn.Linear(steps, 5), nn.GELU(), nn.Linear(5, steps)))))
        elif kind == "gated":
            layers.append(Residue(Gated(width, 5)))
        elif kind == "norm":
            layers.append(nn.LayerNorm(width))
        elif kind == "rnn":
            cell, both = draw(st.sampled_from([nn.RNN, nn.GRU, nn.LSTM])), draw(st.booleans())
            layers.append(States(cell, width, 4, draw(st.integers(1, 2)), both))
            width = 4 * (1 + both)
        elif kind == "linear":
            layers.append(nn.Linear(width, 8))
            width = 8
        else:
            layers.append(draw(st.sampled_from(SMOOTH))())
    last = [nn.Flatten(), nn.Linear(width * steps, 3)] if draw(st.booleans()) else [Mean(), nn.Linear(width, 3)]
    return nn.Sequential(*layers, *last), x


@pytest.mark.parametrize("networks", [rows, pictures, sequences])
def test_any_network_of_supported_modules(networks: object) -> None:
    @FEW
    @given(made=networks(), draw=st.integers(0, 1000))  # type: ignore[operator]
    def holds(made: tuple[nn.Module, Tensor], draw: int) -> None:
        module, x = made
        with Coins.from_seed(draw).ambient(), torch.no_grad():
            for part in (part for part in module.parameters() if part.dim() < 2):
                part.add_(torch.randn_like(part), alpha=0.1)
            x = torch.randn_like(x)
        symmetry = symmetry_of(module, x)
        assert difference(module, symmetry, x, SEED) <= 1e-12
        assert difference(module, symmetry, x, SEED, double=False) <= 1e-5
        shuffled = symmetry.under(symmetry.rule(SEED, draw))
        vector = torch.arange(symmetry.layout.size, dtype=torch.float32)
        assert torch.equal(shuffled.invert(shuffled.apply(vector)), vector)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        holds()
    finally:
        torch.set_num_threads(before)
