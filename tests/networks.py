"""Networks whose symmetries are tested: the library's own, and small ones that hold one supported module each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.learn.models import (
    AttentionBlocks,
    ConvNet,
    Forecaster,
    Listener,
    PatchMixer,
    PatchReader,
    Perceptron,
    Reader,
    ResidualNet,
    SigmoidNet,
    Standardise,
    TimeNet,
)
from croupier.learn.models.rnn import Cell

RECORDS = 8
Case = tuple[nn.Module, Tensor]


class Encoder(nn.Module):
    """torch's own transformer, with places of its own."""

    def __init__(self, before: bool = False) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=before)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.layers(x + self.places).mean(1))
        return out


class Attending(nn.Module):
    """torch's own attention with widths of its own for keys and values, and a mask that may be causal."""

    def __init__(self, causal: bool = False, other: int | None = None) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True, kdim=other, vdim=other)
        self.memory = nn.Linear(8, other or 8)
        self.causal = causal
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        seen = self.memory(x)
        found, _ = self.attention(x, seen, seen, attn_mask=mask, need_weights=False)
        out: Tensor = self.fc(found.mean(1))
        return out


class Packed(nn.Module):
    """Queries, keys and values from one layer, dot-product attention, then a gated block; normalised by RMS."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        records, places, _ = x.shape
        q, k, v = (part.reshape(records, places, 2, 4).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        found = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        x = x + self.down(functional.silu(self.gate(x)) * self.up(x))
        out: Tensor = self.fc(x.amax(1))
        return out


class Dense(nn.Module):
    """Channels put beside those that were there before, as in DenseNet, then flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, torch.tanh(self.conv1(x))], 1)
        x = torch.cat([x, self.conv2(x)], 1)
        out: Tensor = self.fc(functional.avg_pool2d(self.norm(x), 2).flatten(1))
        return out


class Ends(nn.Module):
    """Reads the states that a stacked network of both directions ends in."""

    def __init__(self, project: int = 0) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, proj_size=project)
        self.fc = nn.Linear(2 * (project or 6), 3)

    def forward(self, x: Tensor) -> Tensor:
        _, (ends, _) = self.rnn(x)
        out: Tensor = self.fc(torch.cat([ends[-2], ends[-1]], 1))
        return out


def _sequence(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def _pictures(side: int, colours: int = 3) -> Tensor:
    return torch.randn(RECORDS, colours, side, side)


def _listener(cell: Cell, both: bool = False) -> Case:
    return Listener(cell, 5, 7, 2, 4, both), torch.randn(RECORDS, 6, 5)


CASES: dict[str, Callable[[], Case]] = {
    "mlp": lambda: (Perceptron((48, 20, 16, 4)), _pictures(4)),
    "cnn": lambda: (ConvNet(1, 28, 4, first=Standardise(0.1, 0.3)), _pictures(28, 1)),
    "lenet": lambda: (SigmoidNet(3, 16, 16, 4), _pictures(16)),
    "resnet": lambda: (ResidualNet(4), _pictures(32)),
    "lstm": lambda: (Forecaster(7, 2), torch.randn(RECORDS, 6, 1)),
    "activity": lambda: (TimeNet(6, 4, first=Standardise((1.0, 0, 0, 0, 0, 0), 0.5)), torch.randn(RECORDS, 6, 64)),
    "text": lambda: (Reader(30, 6, 4, 8, 2, 2, 5, 0.0), torch.randint(0, 30, (RECORDS, 6))),
    "mixer": lambda: (PatchMixer((3, 8, 8), 4, 4, 12, 5, 9, 2), _pictures(8)),
    "vit": lambda: (PatchReader((3, 8, 8), 4, 4, AttentionBlocks(12, 3, 2, 10)), _pictures(8)),
    "vit-token": lambda: (PatchReader((3, 8, 8), 4, 4, AttentionBlocks(12, 3, 2, 10), token=True), _pictures(8)),
    "rnn": lambda: _listener("rnn"),
    "gru": lambda: _listener("gru"),
    "lstm-classes": lambda: _listener("lstm"),
    "rnn-both": lambda: _listener("rnn", both=True),
    "gru-both": lambda: _listener("gru", both=True),
    "lstm-both": lambda: _listener("lstm", both=True),
    "encoder": lambda: (Encoder(), torch.randn(RECORDS, 5, 8)),
    "encoder-before": lambda: (Encoder(before=True), torch.randn(RECORDS, 5, 8)),
    "attention": lambda: (Attending(), torch.randn(RECORDS, 5, 8)),
    "attention-causal": lambda: (Attending(causal=True), torch.randn(RECORDS, 5, 8)),
    "attention-apart": lambda: (Attending(other=6), torch.randn(RECORDS, 5, 8)),
    "packed": lambda: (Packed(), torch.randn(RECORDS, 5, 8)),
    "dense": lambda: (Dense(), _pictures(8)),
    "ends": lambda: (Ends(), torch.randn(RECORDS, 6, 4)),
    "ends-projected": lambda: (Ends(4), torch.randn(RECORDS, 6, 4)),
    "groups": lambda: (
        _sequence(
            nn.Conv2d(4, 8, 3), nn.GroupNorm(4, 8), nn.Tanh(), nn.Conv2d(8, 16, 3, groups=4), nn.BatchNorm2d(16),
            nn.Conv2d(16, 32, 3, groups=16), nn.LeakyReLU(), nn.Conv2d(32, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(6, 8), nn.GLU(), nn.PReLU(4), nn.Linear(4, 3),
        ),
        _pictures(12, 4),
    ),
    "series": lambda: (
        _sequence(
            nn.Conv1d(4, 8, 3, groups=2), nn.InstanceNorm1d(8, affine=True), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(8, 5, 2), nn.ELU(), nn.Flatten(), nn.LayerNorm(15), nn.Linear(15, 3),
        ),
        torch.randn(RECORDS, 4, 10),
    ),
    "tiles": lambda: (
        _sequence(nn.Conv2d(3, 8, 4, 4), nn.GELU(), nn.Flatten(2), nn.Linear(4, 5), nn.Flatten(), nn.Linear(40, 3)),
        _pictures(8),
    ),
}  # fmt: skip


def build(name: str) -> Case:
    """A network whose every weight and statistic is random, and inputs for it."""
    with Coins.from_seed(1).child(name).ambient():
        module, inputs = CASES[name]()
        with torch.no_grad():
            # Layers start with plain zeros and ones in their biases and norms, which show no order.
            for part in (part for part in module.parameters() if part.dim() < 2):
                part.add_(torch.randn_like(part), alpha=0.05)
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.mul_(torch.rand_like(buffer) + 0.5)
    return module, inputs
