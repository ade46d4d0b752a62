"""The gradients of many stacked perceptrons, layer by layer and without torch's automatic differentiation.

Stacked training (`learn.batch`) takes tens of steps of some hundred microseconds each. Of such a step torch's automatic
gradients take more than half: they record every operation and claim fresh memory for every result. For linear layers
with ReLU between them and cross-entropy the same kernels are called here one after the other, into memory that is kept,
so that the gradients are the same to the last bit. `learn.models.mlp` offers them (`Perceptron.by_hand`), and
`learn.batch` takes them on a CPU; every other network, loss or device has the automatic ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

# Numbers that a processor handles at once: what is left over at the end goes another way, with other bits.
LANES = 16


@dataclass(frozen=True)
class _Layer:
    """A linear layer of many models: its weights, and the memory for one step's results. Models come first."""

    weight: Tensor
    bias: Tensor
    out: Tensor
    back: Tensor
    by_weight: Tensor
    by_bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, width: int) -> _Layer:
        """The layer for batches of so many records."""
        models, after, before = weight.shape
        out, back = torch.empty(models, width, after), torch.empty(models, width, after)
        by_weight, by_bias = torch.empty(models, before, after), torch.empty(models, after)
        return cls(weight.transpose(1, 2), bias.unsqueeze(1), out, back, by_weight, by_bias)

    def first(self, count: int) -> _Layer:
        """The layer of the first models alone."""
        return _Layer(*(getattr(self, field.name)[:count] for field in fields(self)))


class StackedPerceptrons:
    """The gradients of models of linear layers with ReLU between them.

    It looks at the models' own weights, which change from step to step, holds the memory for one step, and belongs to
    one thread.
    """

    def __init__(self, names: Sequence[str], leaves: Mapping[str, Tensor], width: int) -> None:
        """Of layers of these names, on batches of `width` records; each leaf has a leading side for the models."""
        self._all = [_Layer.of(leaves[f"{name}.weight"], leaves[f"{name}.bias"], width) for name in names]
        self._some, self._models = self._all, len(self._all[0].weight)

    def __call__(self, inputs: Tensor, targets: Tensor, share: Tensor) -> list[Tensor]:
        """The gradients of all losses times their shares, of each layer's weight and bias; valid until the next call.

        Inputs may be those of the first models alone: then only their gradients are computed.
        """
        if len(inputs) != self._models:
            self._models = len(inputs)
            self._some = [layer.first(self._models) for layer in self._all]
        layers, values = self._some, [inputs.flatten(2)]
        for layer in layers:
            if len(values) > 1:
                # ReLU in place: whether a value was above zero can still be read off it.
                values[-1].clamp_min_(0)
            values.append(torch.baddbmm(layer.bias, values[-1], layer.weight, out=layer.out))
        back = self._of_loss(values.pop(), targets, share)
        found: list[Tensor] = []
        for at in range(len(layers) - 1, -1, -1):
            layer = layers[at]
            torch.sum(back, 1, out=layer.by_bias)
            torch.bmm(values[at].transpose(1, 2), back, out=layer.by_weight)
            found += [layer.by_bias, layer.by_weight.transpose(1, 2)]
            if at:
                below = torch.bmm(back, layer.weight.transpose(1, 2), out=layers[at - 1].back)
                back = torch.ops.aten.threshold_backward.grad_input(below, values[at], 0, grad_input=below)
        return found[::-1]

    def _of_loss(self, outputs: Tensor, targets: Tensor, share: Tensor) -> Tensor:
        """Cross-entropy's gradient by the outputs; of fewer classes than `LANES`, with classes as rows."""
        count, classes = len(targets), outputs.shape[-1]
        back = self._some[-1].back
        each = back.view(count, classes)
        if classes >= LANES:
            logs = torch.log_softmax(outputs.view(count, classes), 1)
            each.zero_().scatter_(1, targets.unsqueeze(1), share.reshape(-1, 1).neg())
            torch.ops.aten._log_softmax_backward_data.out(each, logs, 1, torch.float32, out=each)
            return back
        turned = torch.zeros(classes, -(-count // LANES) * LANES)
        turned[:, :count] = outputs.view(count, classes).t()
        logs = torch.log_softmax(turned, 0)
        # A record's loss is the logarithm at its own class, with the sign turned.
        turned.zero_().scatter_(0, targets.unsqueeze(0), share.reshape(1, -1).neg())
        found = torch.ops.aten._log_softmax_backward_data(turned, logs, 0, torch.float32)
        each.copy_(found[:, :count].t())
        return back
