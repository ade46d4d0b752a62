"""Try out what was found: the network under a rule computes what it did, in use and in training.

Rules are written by hand, and a wrong one would silently train a different network. So nothing that was found is used
before it was tried: random numbers are added to the weights, the network and its permuted twin run on the same inputs
and draws, and outputs and kept statistics must agree, in use and in training. `trace` calls `try_out` on all that it
found; `difference` measures the same for users of `learn.axes` and for tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from croupier.core.coins import Coins
from croupier.encode.symmetry import Symmetry
from croupier.errors import SpecError
from croupier.learn.models.layers import Dropout

# Far above what sums in another order do to float64 and float32, far below what a wrong permutation does.
CLOSE = {True: 1e-8, False: 1e-3}
# How often a network is tried that draws at random in training, so that what it does now and then is seen too.
DRAWS = 8


class SymmetryTrial:
    """A network and itself under a rule, without dropout, each run on the same inputs and the same random draws.

    The module becomes the trial's own: it is changed.
    """

    def __init__(self, module: nn.Module, symmetry: Symmetry, inputs: Tensor, seed: bytes, double: bool = True) -> None:
        self._double, kind = double, torch.float64 if double else torch.float32
        self._plain = still(module.cpu().to(kind))
        self._moved = copy.deepcopy(self._plain)
        self._layout, self._shuffled = symmetry.layout, symmetry.under(symmetry.rule(seed, 0))
        inputs = inputs.detach().cpu().to(kind) if inputs.is_floating_point() else inputs.detach().cpu()
        self._inputs = inputs, self._shuffled.permute(inputs)
        held = _tensors(self._plain)
        self._vector = torch.cat([held[part.name].detach().reshape(-1) for part in self._layout.carried])
        self._under = self._shuffled.apply(self._vector)
        moved = _tensors(self._moved)
        with torch.no_grad():
            for part, start, stop in self._layout.spans():
                moved[part.name].copy_(self._under[start:stop].view(part.shape))

    def in_use(self) -> float:
        """The largest difference of the outputs, in units of the largest output."""
        return _apart(self._run(self._plain, False), self._run(self._moved, False))

    def in_training(self, close: float = 0.0) -> float:
        """The same while training, and of the statistics that are kept.

        A network that draws at random is tried with several draws; it stops at the first that is not `close`, if given.
        """
        first, worst = torch.empty(0), 0.0
        for draw in range(DRAWS):
            before = self._run(self._plain, True, draw)
            if draw == 1 and torch.equal(before, first):
                break
            first = before
            after = self._run(self._moved, True, draw)
            # What is no number at all counts as the largest.
            worst = max(_apart(before, after), self._statistics(), worst, key=lambda off: (off != off, off))
            if close and not worst <= close:
                break
        return worst

    def repeats(self) -> bool:
        """Whether the network does the same again in training when it draws the same."""
        return torch.equal(*(self._run(copy.deepcopy(self._plain), True) for _ in range(2)))

    def _run(self, module: nn.Module, training: bool, draw: int = 0) -> Tensor:
        inputs = self._inputs[module is self._moved]
        with torch.no_grad(), Coins.from_seed(draw).child("draw").ambient(), Still(self._double):
            out: Tensor = module.train(training)(inputs)
        return out

    def _statistics(self) -> float:
        """How far those of one are from those of the other under the rule, in units of the largest of them all.

        One alone may be nothing but rounding: the mean of what was normalised just before.
        """
        plain, moved = dict(self._plain.named_buffers()), dict(self._moved.named_buffers())
        kept = [(part.name, start, stop) for part, start, stop in self._layout.spans() if part.name in plain]
        if not kept:
            return 0.0
        for name, start, stop in kept:
            self._vector[start:stop] = plain[name].reshape(-1)
        self._shuffled.apply(self._vector, out=self._under)
        under = torch.cat([self._under[start:stop] for _, start, stop in kept])
        return _apart(under, torch.cat([moved[name].reshape(-1) for name, _, _ in kept]))


def difference(
    module: nn.Module, symmetry: Symmetry, inputs: Tensor, seed: bytes, double: bool = True, training: bool = False
) -> float:
    """max |f(x) - f'(x')| / max |f(x)|, of the network and itself under a rule, on inputs under the rule.

    In `training` also of the statistics that it keeps. Dropout is off.
    """
    trial = SymmetryTrial(copy.deepcopy(module), symmetry, inputs, seed, double)
    return trial.in_training() if training else trial.in_use()


def try_out(module: nn.Module, symmetry: Symmetry, inputs: Tensor) -> None:
    """Let a network, its weights shaken at random, run under a random rule, in use and in training.

    Raises: SpecError where its outputs or its statistics are not what they are without the rule.
    """
    coins = Coins.from_seed(0).child("try")
    module = copy.deepcopy(module).cpu()
    with coins.child("weights").ambient(), torch.no_grad():
        # Fresh layers hold ones and zeros, under which a wrong permutation would not show.
        for part in module.parameters():
            part.add_(torch.randn_like(part), alpha=0.1)
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.mul_(torch.rand_like(buffer) + 0.5)
    seed = coins.child("rule").export()
    try:
        _judge(module, SymmetryTrial(module, symmetry, inputs, seed), CLOSE[True])
    except RuntimeError:
        # A network whose compiled code makes float32 numbers of its own runs in nothing else.
        _judge(module, SymmetryTrial(module, symmetry, inputs, seed, double=False), CLOSE[False])


def _judge(module: nn.Module, trial: SymmetryTrial, close: float) -> None:
    unseen = (
        f"{type(module).__name__} does something to its numbers that could not be watched; declare a Symmetry, or name "
        "the module that does it in `opaque`"
    )
    # Also where it is no number at all.
    if not (off := trial.in_use()) <= close:
        raise SpecError(f"symmetry: under a permutation of what was found the outputs differ by {off:.1e}; {unseen}")
    if (off := trial.in_training(close)) <= close:
        return
    if not trial.repeats():
        raise SpecError(
            f"symmetry: {type(module).__name__} draws at random in training, and not from torch's generator, so that "
            "what was found cannot be tried out; draw by torch.rand, or declare a Symmetry"
        )
    raise SpecError(
        f"symmetry: in training, under a permutation of what was found, outputs or statistics differ by {off:.1e}; "
        f"{unseen}"
    )


class Still(TorchFunctionMode):
    """Runs every operation without dropout, whose draws for one place would be another's under a rule.

    With `double`, numbers that a network makes in float32 become float64, so that they can meet its weights.
    """

    def __init__(self, double: bool) -> None:
        super().__init__()
        self._double = double

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name:
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs = {**kwargs, "dropout_p": 0.0}
        out = func(*args, **kwargs)
        return out.double() if self._double and isinstance(out, Tensor) and out.dtype == torch.float32 else out


def still(module: nn.Module) -> nn.Module:
    """Without the dropout that layers do inside, and without our own, whose draws would look like constants."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.rate = 0.0
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0
    return module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _apart(one: Tensor, two: Tensor) -> float:
    off = float((one - two).abs().max())
    return off / float(one.abs().max()) if off else off
