"""Plain recurrent and GRU layers written out step by step, so that each record can be given a gradient of its own.

Gradients of single records are taken by torch's `vmap`, which cannot go through torch's own `nn.RNN` and `nn.GRU`.
`unrolled` makes a copy of a network in which these are replaced by plain operations on the very same weights, under the
same names. The network itself is left alone and serves for everything else, because torch's own layers are faster.

`learn.private` trains on such a copy under DP-SGD, as for `model = "rnn"`. `audit.membership` asks for one, too, though
the networks of which it takes many gradients at once have no such layers so far, and come back as they are.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class Unrolled(nn.Module):
    """An `nn.RNN` or `nn.GRU` on the same weights under the same names, made of plain operations.

    It begins with a state of 0, and gives None for the last state: a network that hands in or reads one cannot use it.
    """

    def __init__(self, layer: nn.RNN | nn.GRU) -> None:
        super().__init__()
        self.layers, self.hidden = layer.num_layers, layer.hidden_size
        self.both, self.first = layer.bidirectional, layer.batch_first
        self.gated = isinstance(layer, nn.GRU)
        self.bent = torch.relu if getattr(layer, "nonlinearity", "tanh") == "relu" else torch.tanh
        for name, weight in layer.named_parameters():
            self.register_parameter(name, weight)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """The states of the last layer after every step."""
        x = x if self.first else x.transpose(0, 1)
        for layer in range(self.layers):
            ways = [self._pass(x, f"l{layer}", back) for back in (False, True)[: 1 + self.both]]
            x = torch.cat(ways, -1)
        return x if self.first else x.transpose(0, 1), None

    def _pass(self, x: Tensor, layer: str, back: bool) -> Tensor:
        """One layer in one direction."""
        name = layer + ("_reverse" if back else "")
        fed = nn.functional.linear(x, self._get("weight_ih", name), self._get("bias_ih", name))
        state, out = x.new_zeros(len(x), self.hidden), []
        for now in fed.flip(1).unbind(1) if back else fed.unbind(1):
            kept = nn.functional.linear(state, self._get("weight_hh", name), self._get("bias_hh", name))
            state = self._gates(now, kept, state) if self.gated else self.bent(now + kept)
            out.append(state)
        return torch.stack(out[::-1] if back else out, 1)

    def _get(self, kind: str, name: str) -> Any:
        return getattr(self, f"{kind}_{name}", None)

    @staticmethod
    def _gates(now: Tensor, kept: Tensor, state: Tensor) -> Tensor:
        """A gated unit's next state, in torch's order of gates: reset, update, new."""
        (reset, update, new), (r, z, n) = now.chunk(3, 1), kept.chunk(3, 1)
        update = torch.sigmoid(update + z)
        return (1 - update) * torch.tanh(new + torch.sigmoid(reset + r) * n) + update * state


def unrolled(module: nn.Module) -> nn.Module:
    """The module with its recurrent layers written out, on the very same weights; itself where there are none.

    Layers with dropout between them stay as they are, and so do LSTMs, through which `vmap` over records can go.
    """
    if not any(_fits(part) for part in module.modules()):
        return module
    shared = {id(one): one for one in (*module.parameters(), *module.buffers())}
    twin = copy.deepcopy(module, shared)
    if _fits(twin):
        return Unrolled(twin)  # type: ignore[arg-type]
    for parent in list(twin.modules()):
        for name, child in list(parent.named_children()):
            if _fits(child):
                setattr(parent, name, Unrolled(child))  # type: ignore[arg-type]
    return twin


def _fits(part: nn.Module) -> bool:
    return isinstance(part, (nn.RNN, nn.GRU)) and not part.dropout
