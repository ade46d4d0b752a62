"""Where a network ends and begins, found by running it: the layer that gives the logits, and one that reads records.

Names, types and the order in which layers are registered say little about either: a head may be a bare parameter, be
registered first or have no bias. What counts is what gradients show, and whether the network then does as claimed.
Attacks need both layers: source inference (`audit.context`), reconstruction (`audit.attacks.reconstruction`,
`learn.layer_gradients`), membership (`audit.membership`) and the laboratory's; `audit.stage` lets `check_logits` refuse
networks that they cannot attack.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.update import Layout
from croupier.errors import SpecError, Unsuited
from croupier.learn.data import Records
from croupier.learn.flat import frozen_of, layout_of

# Far above what float32 rounds, far below what another layer's gradient is off by.
_CLOSE = 1e-3
_RECORDS = 4
Grads = dict[str, Tensor]


@dataclass(frozen=True)
class Head:
    """A linear last layer: every logit is one slice of `weight` times the same features, plus its `bias` if any.

    The slices lie along the axis `across`. `layer` names the torch.nn.Linear that the weights belong to, if one does.
    """

    weight: str
    across: int
    bias: str | None
    layer: str | None = None

    def places(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """The places in a flat vector of its weights (classes, features), and of its biases (classes, or none)."""
        spans = {part.name: (part, start) for part, start, _ in layout.spans()}
        part, start = spans[self.weight]
        weights = start + torch.arange(part.size).view(part.shape).movedim(self.across, 0).flatten(1)
        if self.bias is None:
            return weights, torch.zeros(0, dtype=torch.int64)
        part, start = spans[self.bias]
        return weights, start + torch.arange(part.size)

    def features(self, net: nn.Module, inputs: Tensor) -> Tensor:
        """What enters it, read at the outputs: with weights that pick one feature for each class at a time.

        The network's own weights are put back. For heads that are no module of their own, which could be listened to.
        """
        held = dict(net.named_parameters())
        parts = [held[name] for name in (self.weight, self.bias) if name]
        kept = [part.detach().clone() for part in parts]
        slices = parts[0].detach().movedim(self.across, 0)
        classes, size = len(slices), slices[0].numel()
        out = []
        with torch.no_grad():
            for part in parts:
                part.zero_()
            for start in range(0, size, classes):
                chosen = torch.eye(classes, size + classes, device=slices.device).roll(start, 1)[:, :size]
                slices.copy_(chosen.reshape(slices.shape))
                out.append(net(inputs)[:, : size - start])
            for part, before in zip(parts, kept, strict=True):
                part.copy_(before)
        return torch.cat(out, 1)

    def apart(self, layout: Layout) -> bool:
        """Whether weights and biases belong to two layers, which a shuffle of layers permutes by themselves."""
        layers = {part.name: part.layer for part in layout.carried}
        return self.bias is not None and layers[self.weight] != layers[self.bias]


@dataclass(frozen=True)
class Entrance:
    """A linear layer with biases that reads whole records: its weights' gradient is the biases' times the record.

    `flipped`: whether its units lie along the columns.
    """

    weight: str
    bias: str
    flipped: bool


def find_head(module: nn.Module, inputs: Tensor) -> Head:
    """The layer that gives the logits, as tried on a few inputs. Raises: Unsuited with what was found instead."""
    net, inputs = loosened(module), inputs[:_RECORDS].cpu()
    with torch.random.fork_rng(devices=[]):
        out = net(inputs)
        found = list(_slices(_gradients(net, out), out.shape[1]))
        bias = next((name for name, _, fed in found if fed.dim() == 1 and _alike(fed, torch.ones_like(fed))), None)
        if not any(fed.dim() > 1 for _, _, fed in found):
            raise Unsuited(_without(module, out))
        for name, across, fed in found:
            head = Head(name, across, bias)
            if fed.dim() > 1 and _gives(net, head, fed, inputs, out.detach()):
                return replace(head, layer=_layer(net, name, inputs))
    raise Unsuited("its logits are more than one layer's outputs: something is added to them, or follows")


def head_of(module: nn.Module, shape: Sequence[int]) -> Head:
    """The layer that gives the logits of records of this shape, which are numbers. Raises: Unsuited."""
    return find_head(module, torch.rand((_RECORDS, *shape), generator=Coins.from_seed(0).child("head").fast()))


def last_gradient(module: nn.Module, gradient: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """The last layer's part of a gradient: weights, one row a class, and biases where it has them. Raises: Unsuited."""
    head = head_of(module, shape)
    weights, biases = head.places(layout_of(module))
    return gradient[weights], gradient[biases] if head.bias else None


def last_layer(module: nn.Module, shape: Sequence[int]) -> str:
    """The layer that gives the logits, by the name under which it is shuffled. Raises: Unsuited."""
    weight = head_of(module, shape).weight
    return next(part.layer for part in layout_of(module).carried if part.name == weight)


def _without(module: nn.Module, out: Tensor) -> str:
    """Why a network has no linear head, for an error."""
    if _even(out.detach().exp().sum(1)):
        return "it ends in a log-softmax; leave that out, the loss has its own"
    layer = "layer that is trained" if frozen_of(module) else "layer"
    return f"no {layer} gives each logit by weights of its own from the same features"


def _even(sums: Tensor) -> bool:
    return bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-4))


def check_logits(module: nn.Module, records: Records, network: Part) -> None:
    """What attacks take for granted: logits of two classes or more.

    Raises: SpecError for one class, and for probabilities, which a cross-entropy would take for logits.
    """
    name = f"task.model = {getattr(network, 'make', network.use)!r}"
    inputs, _ = records.batch(torch.arange(_RECORDS) % len(records))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        out = loosened(module)(inputs.cpu())
    if out.shape[1] < 2:
        raise SpecError("task.data: all records are of one class, so that there is nothing to infer; give two or more")
    if bool((out >= 0).all()) and _even(out.sum(1)):
        remedy = "return logits: leave the softmax out, the loss has its own"
        raise SpecError(f"{name}: it gives probabilities, which add up to 1; {remedy}")


def find_entrance(module: nn.Module, shape: Sequence[int]) -> Entrance | None:
    """A linear layer with biases that records of this shape enter whole; None where there is none."""
    net, draw = loosened(module), Coins.from_seed(0).child("entrance").fast()
    records = torch.randn((2 * _RECORDS, 1, *shape), generator=draw)
    with torch.random.fork_rng(devices=[]):
        # Whatever the loss is: it changes the biases' gradient, and the weights' with it.
        by = [_gradient(net, net(one).square().sum()) for one in records]
    # Those that are trained: of a frozen layer no gradient is sent.
    size, shapes = prod(shape), {name: tuple(part.shape) for name, part in by[0].items()}
    for name, bias, flipped in _pairs(shapes, size):
        read = [(one[name].T if flipped else one[name], one[bias]) for one in by]
        # A record that no unit answers to says nothing either way.
        felt = any(bool(biases.any()) for _, biases in read)
        if felt and all(_alike(w, torch.outer(b, x.flatten())) for (w, b), x in zip(read, records, strict=True)):
            return Entrance(name, bias, flipped)
    return None


def _pairs(shapes: Mapping[str, tuple[int, ...]], size: int) -> Iterator[tuple[str, str, bool]]:
    """Names of what may be the weights and biases of a layer of so many inputs, and whether its units are columns."""
    for name, sides in shapes.items():
        for flipped in (False, True):
            if len(sides) == 2 and sides[0 if flipped else 1] == size:
                units = sides[1 if flipped else 0]
                yield from ((name, other, flipped) for other, also in shapes.items() if also == (units,))


def is_felt(module: nn.Module, inputs: Tensor) -> bool:
    """Whether outputs have a gradient in the inputs: words, and numbers that are rounded first, give none."""
    net = loosened(module)
    if not inputs.is_floating_point():
        return False
    asked = inputs[:_RECORDS].cpu().clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        out = net(asked).square().sum()
    (found,) = torch.autograd.grad(out, asked, allow_unused=True)
    return found is not None and bool(found.any())


def in_order_of_use(module: nn.Module, inputs: Tensor) -> list[str]:
    """The modules that hold weights of their own, in the order in which they first run."""
    net, found = loosened(module), list[str]()
    holders = [(name, part) for name, part in net.named_modules() if any(True for _ in part.parameters(recurse=False))]
    for name, part in holders:
        part.register_forward_pre_hook(lambda *_, name=name: found.append(name))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        net(inputs.cpu())
    return list(dict.fromkeys(found))


def loosened(module: nn.Module) -> nn.Module:
    """A copy in evaluation on the CPU, its weights a little off: first ones may all be 0, and hide everything."""
    net, draw = copy.deepcopy(module).cpu().eval(), Coins.from_seed(0).child("loosened").fast()
    for part in net.parameters():
        noise = torch.randn(part.shape, generator=draw, dtype=torch.float32).to(part.dtype)
        part.data = part.data + 0.1 * (part.data.abs().mean() + 0.1) * noise
        part.grad = None
    return net


def _gradient(net: nn.Module, value: Tensor) -> Grads:
    """The gradient of one number; nothing where it does not depend on a weight."""
    # Frozen weights are in no update.
    named = {name: part for name, part in net.named_parameters() if part.requires_grad}
    parts = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
    return {
        name: torch.zeros_like(part) if got is None else got
        for (name, part), got in zip(named.items(), parts, strict=True)
    }


def _gradients(net: nn.Module, out: Tensor) -> list[dict[int, Grads]]:
    """Of some logits of each record, by class: of several for the first two records, as more would say the same."""
    if not out.requires_grad:
        raise Unsuited("its outputs do not depend on its weights")
    some = sorted({0, min(1, out.shape[1] - 1), out.shape[1] - 1})
    return [
        {label: _gradient(net, one[label]) for label in (some if record < 2 else some[:1])}
        for record, one in enumerate(out)
    ]


def _slices(by: Sequence[Mapping[int, Grads]], classes: int) -> Iterator[tuple[str, int, Tensor]]:
    """Weights of which each logit has a slice of its own, fed alike: their name, the axis, and what is fed."""
    for name, first in by[0][0].items():
        for across in (axis for axis, size in enumerate(first.shape) if size == classes):
            fed = [[grads[name].select(across, label) for label, grads in one.items()] for one in by]
            alone = all(_is_slice(grads[name], across, label) for one in by for label, grads in one.items())
            if alone and all(_alike(each, one[0]) for one in fed for each in one) and any(one[0].any() for one in fed):
                yield name, across, torch.stack([one[0] for one in fed])


def _is_slice(gradient: Tensor, across: int, label: int) -> bool:
    """Whether nothing lies beside the class's own slice."""
    rest = gradient.clone()
    rest.select(across, label).zero_()
    return bool(rest.abs().max() <= _CLOSE * gradient.abs().max())


def _alike(one: Tensor, two: Tensor) -> bool:
    return bool((one - two).abs().max() <= _CLOSE * two.abs().max().clamp(min=1e-12))


def _layer(net: nn.Module, weight: str, inputs: Tensor) -> str | None:
    """The torch.nn.Linear with these weights, where it runs once and is fed one row for each record."""
    path, _, own = weight.rpartition(".")
    part = net.get_submodule(path)
    if own != "weight" or not isinstance(part, nn.Linear):
        return None
    fed: list[tuple[int, ...]] = []
    hook = part.register_forward_pre_hook(lambda _, args: fed.append(tuple(args[0].shape)))
    with torch.no_grad():
        net(inputs)
    hook.remove()
    return path if fed == [(len(inputs), part.in_features)] else None


def _gives(net: nn.Module, head: Head, fed: Tensor, inputs: Tensor, out: Tensor) -> bool:
    """Whether the outputs are what is fed times the weights, plus the biases, and change sign with these."""
    held = dict(net.named_parameters())
    parts = [held[name] for name in (head.weight, head.bias) if name]
    with torch.no_grad():
        said = fed.flatten(1) @ parts[0].movedim(head.across, 0).flatten(1).T + sum(parts[1:])
        for part in parts:
            part.neg_()
        other = net(inputs)
        for part in parts:
            part.neg_()
    return _alike(said, out) and _alike(-other, out)
