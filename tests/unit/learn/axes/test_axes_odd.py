"""Networks that do unusual things: what is found of their symmetries is right, or an error says what is not known."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.axes import difference, symmetry_of

RECORDS = 6


class Odd(nn.Module):
    """A first layer `a`, a last layer `fc`, any others, and what is done with them."""

    def __init__(self, act: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.a: nn.Module = nn.Linear(6, 8)
        self.fc = nn.Linear(8, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self, x)


class Back(torch.autograd.Function):
    """An operation of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.flip(1)


class TiedWords(nn.Module):
    """The words that go in are those that come out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden, self.out = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(torch.tanh(self.hidden(self.words(x))).mean(1))
        return found


def _again(net: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.tanh(net.square(x))
    return net.fc(net.a(x))  # type: ignore[no-any-return]


def _channels(net: Any, x: Tensor) -> Tensor:
    x = torch.relu(net.one(x))
    mixed = x.view(len(x), 2, 4, 4, 4).transpose(1, 2).reshape(len(x), 8, 4, 4)
    return net.fc(net.two(mixed).mean((2, 3)))  # type: ignore[no-any-return]


def _causal(net: Any, x: Tensor) -> Tensor:
    q = net.a(x)
    seen = (q @ q.mT).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -1e9)
    return net.fc((seen.softmax(-1) @ q).mean(1))  # type: ignore[no-any-return]


def _rotary(net: Any, x: Tensor) -> Tensor:
    q = net.a(x)
    return net.fc(torch.stack((-q[..., 1::2], q[..., ::2]), -1).flatten(-2).mean(1))  # type: ignore[no-any-return]


def _own_cell(net: Any, x: Tensor) -> Tensor:
    state = x.new_zeros(len(x), 8)
    for step in range(x.shape[1]):
        state = torch.tanh(net.a(x[:, step]) + net.again(state))
    return net.fc(state)  # type: ignore[no-any-return]


def _shortcut(net: Any, x: Tensor) -> Tensor:
    x = net.one(x)
    return net.fc((F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)) + net.two(x)).mean((2, 3)))  # type: ignore[no-any-return]


def _own(net: Any, x: Tensor) -> Tensor:
    h = net.a(x)
    return net.fc(h + Back.apply(h))  # type: ignore[no-any-return,no-untyped-call]


def _records() -> Tensor:
    return torch.randn(RECORDS, 6)


def _series(wide: int = 6) -> Tensor:
    return torch.randn(RECORDS, 5, wide)


def _pictures() -> Tensor:
    return torch.randn(RECORDS, 4, 4, 4)


Case = tuple[Callable[[], nn.Module], Callable[[], Tensor], int]
# The network, its inputs, and how many groups are found at least: finding none would be right, and of no use.
RIGHT: dict[str, Case] = {
    "weights used both ways": (
        lambda: Odd(lambda m, x: m.six(F.linear(m.a(x).tanh(), m.a.weight.t())), six=nn.Linear(6, 3)), _records, 2
    ),
    "tied embedding": (TiedWords, lambda: torch.randint(0, 20, (RECORDS, 5)), 1),
    "one layer three times": (lambda: Odd(_again, square=nn.Linear(6, 6)), _records, 2),
    "channel shuffle": (
        lambda: Odd(_channels, one=nn.Conv2d(4, 8, 1, groups=2), two=nn.Conv2d(8, 8, 1, groups=4)), _pictures, 3
    ),
    "attention, batch second": (
        lambda: Odd(lambda m, x: m.fc(m.att(*[x.mT.movedim(2, 0)] * 3, need_weights=False)[0].mean(0)),
                    att=nn.MultiheadAttention(8, 2)), lambda: _series(8), 4
    ),
    "whole transformer": (
        lambda: Odd(lambda m, x: m.fc(m.both(x, x[:, :3]).mean(1)),
                    both=nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True)), lambda: _series(8), 8
    ),
    "own causal attention": (lambda: Odd(_causal), _series, 2),
    "rotary, interleaved": (lambda: Odd(_rotary), _series, 1),
    "own recurrent cell": (lambda: Odd(_own_cell, again=nn.Linear(8, 8)), _series, 2),
    "gates by slices": (lambda: Odd(lambda m, x: m.four(m.a(x)[:, :4] * m.a(x)[:, 4:].sigmoid()),
                                    four=nn.Linear(4, 3)), _records, 2),
    "choice by sign": (lambda: Odd(lambda m, x: m.fc(torch.where(m.a(x) > 0, m.a(x), m.b(x))),
                                   b=nn.Linear(6, 8)), _records, 2),
    "choice by place": (
        lambda: Odd(lambda m, x: m.fc(torch.where(torch.arange(8) < 3, m.a(x), torch.zeros(())))), _records, 1
    ),
    "upsampled": (lambda: Odd(lambda m, x: m.fc(F.interpolate(m.one(x), scale_factor=2).mean((2, 3))),
                              one=nn.Conv2d(4, 8, 3)), _pictures, 2),
    "pooled to places": (lambda: Odd(lambda m, x: m.last(F.adaptive_avg_pool2d(m.one(x), (2, 3)).flatten(1)),
                                     one=nn.Conv2d(4, 8, 1), last=nn.Linear(48, 3)), _pictures, 2),
    "padded shortcut": (lambda: Odd(_shortcut, one=nn.Conv2d(4, 4, 1), two=nn.Conv2d(4, 8, 3, 2, 1)), _pictures, 1),
    "outer product": (lambda: Odd(lambda m, x: m.last(torch.einsum("bi,bj->bij", m.a(x), m.b(x)).flatten(1)),
                                  b=nn.Linear(6, 5), last=nn.Linear(40, 3)), _records, 3),
    "diagonal": (lambda: Odd(lambda m, x: m.four(torch.einsum("bii->bi", m.b(x).view(-1, 4, 4))),
                             b=nn.Linear(6, 16), four=nn.Linear(4, 3)), _records, 2),
    "angles": (lambda: Odd(lambda m, x: torch.mm(F.normalize(m.a(x), dim=-1), F.normalize(m.fc.weight, dim=-1).t())),
               _records, 2),
    "spread": (lambda: Odd(lambda m, x: m.fc(m.a(x) / (m.a(x).var(1, False, True) + 1))), _records, 2),
    "an operation of one's own": (lambda: Odd(_own), _records, 1),
    "records and steps as one": (
        lambda: Odd(lambda m, x: m.fc(m.a(x.flatten(0, 1)).tanh().view(RECORDS, 5, 8).mean(1))), _series, 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_found_is_right(name: str) -> None:
    torch.manual_seed(1)
    make, draw, least = RIGHT[name]
    module, inputs = make(), draw()
    symmetry = symmetry_of(module, inputs)
    assert len(symmetry.groups) >= least
    # Other weights, and other inputs, than those on which it was found.
    with torch.no_grad():
        for part in module.parameters():
            part.add_(torch.randn_like(part), alpha=0.3)
    fresh = draw()
    for number in range(3):
        assert difference(module, symmetry, fresh, bytes([number]) * 32, double=False) <= 1e-5
        assert difference(module, symmetry, fresh, bytes([number]) * 32) <= 1e-12


def _pack(net: Any, x: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 5, 4, 3, 2, 2]), batch_first=True)
    found, _ = net.rnn(packed)
    return net.fc(nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0][:, 0])  # type: ignore[no-any-return]


def _filled(net: Any, x: Tensor) -> Tensor:
    out = torch.zeros(len(x), 8)
    out[:, 4:] = net.a(x)[:, :4]
    return net.fc(out)  # type: ignore[no-any-return]


def _scripted(x: Tensor) -> Tensor:
    return x.flip(1) + x


def _compiled(net: Any, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return net.fc(torch.jit.script(_scripted)(net.a(x)))  # type: ignore[no-any-return]


REFUSED: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], str]] = {
    "packed": (lambda: Odd(_pack, rnn=nn.LSTM(6, 8, batch_first=True)), _series, "'_pack_padded_sequence'"),
    "bilinear": (lambda: Odd(lambda m, x: m.fc(m.two(x, x)), two=nn.Bilinear(6, 6, 8)), _records,
                 r"'bilinear', which module 'two' \(Bilinear\)"),
    "pixel shuffle": (lambda: Odd(lambda m, x: m.fc(m.up(x).mean((1, 2))), up=nn.PixelShuffle(2)), _pictures,
                      r"'pixel_shuffle', which module 'up' \(PixelShuffle\)"),
    "attention's weights": (lambda: Odd(lambda m, x: m.fc((m.att(x, x, x)[1] @ x).mean(1)),
                                        att=nn.MultiheadAttention(8, 2, batch_first=True)), lambda: _series(8),
                            "attention's weights"),
    "layers' states": (lambda: Odd(lambda m, x: m.fc(m.rnn(x)[1].mean(0)), rnn=nn.GRU(6, 8, 2, batch_first=True)),
                       _series, "last states of several layers at once"),
    "written into": (lambda: Odd(_filled), _records, "'__setitem__'"),
    "by a number": (lambda: Odd(lambda m, x: m.fc(m.a(x)) * m.a(x)[0, 0].item()), _records, "'item'"),
    "by a list": (lambda: Odd(lambda m, x: m.fc(m.a(x)[:, [1, 0, 2, 3, 4, 5, 6, 7]])), _records, "no number and no"),
    "by a maximum": (lambda: Odd(lambda m, x: m.fc(m.a(x)) + m.a(x).argmax(1, True)), _records, "'argmax'"),
    "compiled": (lambda: Odd(_compiled), _records, r"module 'fc' \(Linear\) is given the result of something"),
    "a weight with a norm of its own": (lambda: Odd(lambda m, x: m.fc(m.a(x)), a=nn.utils.parametrizations.weight_norm(
        nn.Linear(6, 8))), _records, "'_weight_norm', which module 'a.parametrizations.weight.0'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_said(name: str) -> None:
    make, draw, said = REFUSED[name]
    with pytest.raises(SpecError, match=said):
        symmetry_of(make(), draw())
