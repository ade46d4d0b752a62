"""What is found is tried out in training too: a network that does other things there is right, or an error."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.axes import difference, symmetry_of

SEED = bytes(range(32))
Act = Callable[[Any, Tensor], Tensor]


class Rows(nn.Module):
    """A hidden layer, and what is done to it in training."""

    def __init__(self, act: Act, **layers: nn.Module) -> None:
        super().__init__()
        self.a, self.fc = nn.Linear(6, 8), nn.Linear(8, 3)
        self.act = act
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        out: Tensor = self.fc(self.act(self, h) if self.training else h)
        return out


class Pictures(nn.Module):
    """A convolution, and what is done to its channels and places in training."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self.a, self.fc = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(6, 3)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        out: Tensor = self.fc((self.act(self, h) if self.training else h).mean((2, 3)))
        return out


def _rows(act: Act, **layers: nn.Module) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    return Rows(act, **layers), torch.randn(4, 6)


def _pictures(act: Act) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    return Pictures(act), torch.randn(4, 1, 7, 7)


def _attended(net: Any, h: Tensor) -> Tensor:
    parts = h.view(len(h), 1, 4, 2)
    return F.scaled_dot_product_attention(parts, parts, parts, None, 0.5).flatten(1)


# The network, its inputs, and the sizes of the groups that are found.
FOUND: dict[str, tuple[Callable[[], tuple[nn.Module, Tensor]], list[int]]] = {
    "channels shifted by padding": (lambda: _pictures(lambda m, h: F.pad(h, (1, 1, 0, 0, 1, -1))), []),
    "places shifted by padding": (lambda: _pictures(lambda m, h: F.pad(h, (1, -1, 0, 0))), [6]),
    "nothing padded": (lambda: _pictures(lambda m, h: F.pad(h, (0, 0, 0, 0, 0, 0))), [6]),
    "places resized to as many": (
        lambda: _pictures(lambda m, h: F.interpolate(h, scale_factor=1.1, mode="bilinear")), [6]
    ),
    "units rolled": (lambda: _rows(lambda m, h: h.roll(1, 1)), [6]),
    "units summed up": (lambda: _rows(lambda m, h: h.cumsum(1)), [6]),
    "halves exchanged": (lambda: _rows(lambda m, h: torch.cat([h[:, 4:], h[:, :4]], 1)), [6, 4]),
    "statistics": (lambda: _rows(lambda m, h: m.norm(h), norm=nn.BatchNorm1d(8)), [6, 8]),
    "statistics of what has none": (
        lambda: _rows(lambda m, h: m.two(m.one(h)), one=nn.BatchNorm1d(8), two=nn.BatchNorm1d(8)), [6, 8]
    ),
    "dropout as a module": (lambda: _rows(lambda m, h: m.drop(h), drop=nn.Dropout(0.5)), [6, 8]),
    "dropout as a function": (lambda: _rows(lambda m, h: F.dropout(h, 0.5, m.training)), [6, 8]),
    "dropout in place": (lambda: _rows(lambda m, h: F.alpha_dropout(h + 0, 0.5, True, True)), [6, 8]),
    "dropout in attention": (lambda: _rows(_attended), [6, 4, 2]),
    "dropout between layers": (
        lambda: _rows(lambda m, h: m.rnn(h.unsqueeze(1))[0][:, 0], rnn=nn.GRU(8, 8, 2, batch_first=True, dropout=0.5)),
        [6, 8, 8],
    ),
    "a branch at random": (lambda: _rows(lambda m, h: h + h.square() * torch.rand(len(h), 1).round()), [6, 8]),
    "noise": (lambda: _rows(lambda m, h: h + torch.randn(h.shape)), [6]),
    "numbers in float32": (lambda: _rows(lambda m, h: h @ torch.eye(8)), [6]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_is_right_in_training(name: str) -> None:
    make, sizes = FOUND[name]
    module, inputs = make()
    symmetry = symmetry_of(module, inputs)
    assert sorted(symmetry.groups.values()) == sorted(sizes)
    assert difference(module, symmetry, inputs, SEED) <= 1e-12
    assert difference(module, symmetry, inputs, SEED, training=True) <= 1e-12


def test_shifted_channels_stay_with_the_reason() -> None:
    module, inputs = FOUND["channels shifted by padding"][0]()
    held = {(held.tensor, held.axis): held.reason for held in symmetry_of(module, inputs).held}
    assert held["a.weight", 0] == "pad depends on its order"


def _behind(net: Any, h: Tensor) -> Tensor:
    # No operation that is seen ties what is read to what was written, and no gradient does.
    found = net.b(h).detach()
    held = torch.zeros(found.shape, dtype=found.dtype)
    seen = held.view(found.shape)
    held.add_(found)
    return seen


def _sometimes(net: Any, h: Tensor) -> Tensor:
    return _behind(net, h) if torch.rand(()) < 0.5 else h


REFUSED: dict[str, tuple[Act, str]] = {
    "behind the back": (_behind, r"in training, under a permutation .* differ by .*; Rows does something"),
    "now and then": (_sometimes, r"in training, under a permutation .* differ by .*; Rows does something"),
    "python's own draws": (lambda m, h: h * random.random(), "Rows draws at random in training, and not from torch's"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_training_does_unseen_is_refused(name: str) -> None:
    act, said = REFUSED[name]
    module, inputs = _rows(act, b=nn.Linear(8, 8))
    with pytest.raises(SpecError, match=said):
        symmetry_of(module, inputs)


class Counting(Rows):
    """Keeps something by place in training, unseen, which its outputs never show."""

    def __init__(self) -> None:
        super().__init__(lambda m, h: h)
        self.seen: Tensor
        self.register_buffer("seen", torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch._C.DisableTorchFunction():
                self.seen[0] += 1.0
        return super().forward(x) * self.seen.sum()


def test_statistics_that_do_not_follow_the_rule_are_refused() -> None:
    torch.manual_seed(3)
    with pytest.raises(SpecError, match=r"in training, .* outputs or statistics differ by .*; Counting does something"):
        symmetry_of(Counting(), torch.randn(4, 6))


def test_trying_changes_neither_the_network_nor_its_statistics_nor_the_draws() -> None:
    module, inputs = FOUND["statistics"][0]()
    before, drawn = {name: part.clone() for name, part in module.state_dict().items()}, torch.get_rng_state()
    symmetry = symmetry_of(module, inputs)
    difference(module, symmetry, inputs, SEED, training=True)
    assert all(torch.equal(part, before[name]) for name, part in module.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert module.training
