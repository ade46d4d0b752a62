"""Rules for layers that hold weights, and for pooling.

`tracer` looks a rule up by the operation's name. Each is told which operation ran, with which operands, and makes axes
equal that meet in it: a linear layer's columns with its input's features, a normalisation's weights with the channels.
What it cannot let move it fixes, with the reason, which a user later reads as the part of the network that stays
unpermuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from croupier.learn.axes.shapes import regroup
from croupier.learn.axes.terms import fix, new, unify
from croupier.learn.axes.tracer import TracedCall, label, numbers, rule

SLIDES = "a window slides along it"
KERNEL = "these are places in a window"
NUMBERS = "its rows are looked up by number"


@rule("linear")
def linear(call: TracedCall, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Columns meet the input's last axis; rows are the output's."""
    rows, columns = call.axes(weight)
    axes = call.axes(x)
    unify(columns, axes[-1])
    if bias is not None:
        unify(rows, call.axes(bias)[0])
    label(out, (*axes[:-1], rows))
    call.use(x, weight, bias, out)


@rule("conv1d", "conv2d", "conv3d")
def conv(
    call: TracedCall,
    out: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> None:
    """Channels in and out, in groups where there are groups; places stay, but where windows tile them."""
    rows, within, *kernel = call.axes(weight)
    many = len(kernel)
    *lead, channels = call.axes(input)[:-many]
    team = new(groups)
    unify(channels, (*team, *within))
    call.part(team)
    unify(rows, (*team, *new(weight.shape[0] // groups)))
    if bias is not None:
        unify(rows, call.axes(bias)[0])
    call.use(input, weight, bias)
    places = []
    for number, (term, window) in enumerate(zip(call.axes(input)[-many:], kernel, strict=True)):
        size, wide, done = input.shape[number - many], weight.shape[number + 2], out.shape[number - many]
        step = stride if isinstance(stride, int) else stride[number % len(stride)]
        far = dilation if isinstance(dilation, int) else dilation[number % len(dilation)]
        # Windows that touch and do not overlap cut an axis into tiles, and nothing else does.
        if step == wide and done * wide == size and (far == 1 or wide == 1) and not _padded(padding, number, wide):
            tile = new(done)
            unify(term, (*tile, *window))
            call.part(tile)
            places.append(tile)
        else:
            fix(term, SLIDES)
            fix(window, KERNEL)
            places.append(new(done, SLIDES))
    label(out, (*lead, rows, *places))
    call.use(out)


def _padded(padding: Any, number: int, wide: int) -> bool:
    if isinstance(padding, str):
        return padding != "valid" and wide > 1
    return bool(padding if isinstance(padding, int) else padding[number % len(padding)])


@rule("batch_norm", "instance_norm")
def batch_norm(call: TracedCall, out: Tensor, x: Tensor, *args: Any, **named: Any) -> None:
    """Statistics and weights of each channel."""
    for part in numbers(args, named):
        unify(call.axes(x)[1], call.axes(part)[0])
    call.use(x)
    label(out, call.axes(x))


@rule("layer_norm", "rms_norm")
def layer_norm(call: TracedCall, out: Tensor, x: Tensor, shape: Sequence[int], *args: Any, **named: Any) -> None:
    """Statistics over the last axes, whatever their order; weights by place."""
    axes = call.axes(x)
    for part in numbers(args, named):
        for term, other in zip(axes[-len(shape) :], call.axes(part), strict=True):
            unify(term, other)
    call.use(x)
    label(out, axes)


@rule("group_norm")
def group_norm(call: TracedCall, out: Tensor, x: Tensor, groups: int, *args: Any, **named: Any) -> None:
    """Whole groups change places, and channels within them alike."""
    channels = call.axes(x)[1]
    team, within = new(groups), new(x.shape[1] // groups)
    unify(channels, (*team, *within))
    call.part(team, within)
    for part in numbers(args, named):
        unify(channels, call.axes(part)[0])
    call.use(x)
    label(out, call.axes(x))


@rule("embedding")
def embedding(call: TracedCall, out: Tensor, x: Tensor, weight: Tensor, *_: Any, **__: Any) -> None:
    """Rows by number, so that they stay, unless all are read in their order; columns are the output's last axis."""
    rows, columns = call.axes(weight)
    if not hasattr(x, "_axes") and torch.equal(x.reshape(-1), torch.arange(len(weight))):
        label(out, (*regroup((rows,), tuple(x.shape)), columns))
    else:
        fix(rows, NUMBERS)
        label(out, (*call.axes(x), columns))
    call.use(weight, out)


@rule(
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "lp_pool1d",
    "lp_pool2d",
)  # fmt: skip
def pool(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """Over windows, which fix the places; over everything, which does not."""
    if not isinstance(out, Tensor):
        raise call.refuse("with indices")
    axes = list(call.axes(x))
    for back in range(1, int(call.name[-2]) + 1):
        if not (call.name.startswith("adaptive") and out.shape[-back] == 1):
            fix(axes[-back], SLIDES)
        axes[-back] = new(out.shape[-back], SLIDES)
    label(out, axes)
    call.use(x)
