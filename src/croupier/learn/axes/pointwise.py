"""Rules for what is done number by number, along an axis, or between axes of matrices.

The plainest rules, and the ones most often met. An operation on single numbers asks nothing of the axes; one that adds
two tensors makes the axes that meet the same; one that sums over an axis does not mind its order. `tracer` looks them
up by name.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from croupier.learn.axes.terms import Term, cut, new, unify
from croupier.learn.axes.tracer import Labels, TracedCall, close, label, numbers, rule, same

ALONE = (
    "relu relu_ relu6 gelu sigmoid sigmoid_ tanh tanh_ silu elu elu_ leaky_relu leaky_relu_ hardtanh hardtanh_ "
    "hardswish hardsigmoid softplus softsign mish selu celu logsigmoid log_sigmoid exp log log1p expm1 sqrt rsqrt abs "
    "neg __neg__ square reciprocal sin cos erf sign round floor ceil to float double half bool long int type type_as "
    "contiguous clone detach data cpu cuda logical_not bitwise_not __invert__ isfinite isnan nan_to_num threshold "
    "dropout feature_dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout hardshrink "
    "softshrink tanhshrink"
)
TOGETHER = (
    "add add_ __add__ __radd__ __iadd__ sub sub_ subtract __sub__ __rsub__ __isub__ rsub mul mul_ multiply __mul__ "
    "__rmul__ __imul__ div div_ divide true_divide __truediv__ __rtruediv__ __itruediv__ pow __pow__ __rpow__ maximum "
    "minimum where eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ logical_and logical_or __and__ __or__ "
    "masked_fill masked_fill_ clamp clamp_ clip clamp_min clamp_max lerp addcmul addcdiv fmod remainder"
)


@rule(*ALONE.split())
def alone(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """Every number by itself: nothing is asked of the axes."""
    label(out, call.axes(x))


@rule("softmax", "log_softmax", "softmin", "normalize")
def along(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """Computed along one axis, whatever its order: the axes stay, and that each is used by itself is noted."""
    label(out, call.axes(x))
    call.use(x)


@rule(*TOGETHER.split())
def together(call: TracedCall, out: Tensor, *operands: Any, **named: Any) -> None:
    """Number by number after broadcasting: axes that meet are the same."""
    held = numbers(operands, named)
    label(out, broadcast([call.axes(part) for part in held], out.dim()))
    if any(part.shape != out.shape for part in held):
        call.use(*held)


def broadcast(held: list[Labels], dims: int) -> Labels:
    """Axes from the last on, made the same where they meet; an axis of size 1 gives way."""
    found: list[Term] = []
    for back in range(dims, 0, -1):
        meet = [axes[-back] for axes in held if len(axes) >= back]
        wide = [term for term in meet if _wide(term)]
        found.append(same(wide) if wide else meet[0] if meet else new(1))
    return tuple(found)


def _wide(term: Term) -> bool:
    return any(atom.size > 1 for atom in term)


@rule("matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "dot")
def matmul(call: TracedCall, out: Tensor, one: Tensor, two: Tensor) -> None:
    """The last axis of one and the last but one of the other are summed over, so they are the same."""
    if call.name == "__rmatmul__":
        one, two = two, one
    left, right = call.axes(one), call.axes(two)
    if min(len(left), len(right)) < 2:
        if not left or not right:
            raise call.refuse("of a bare number")
        unify(left[-1], right[-2] if len(right) > 1 else right[-1])
        label(out, (*left[:-1], *right[:-2], *right[-1:]) if len(right) > 1 else left[:-1])
    else:
        unify(left[-1], right[-2])
        label(out, (*broadcast([left[:-2], right[:-2]], out.dim() - 2), left[-2], right[-1]))
    call.use(one, two, out)


@rule("einsum")
def einsum(call: TracedCall, out: Tensor, spec: str, *operands: Any) -> None:
    """Axes of one letter are the same."""
    held = numbers(operands)
    given, arrow, wanted = spec.replace(" ", "").partition("->")
    if "." in spec or not arrow:
        raise call.refuse(f"{spec!r}, which has dots or no arrow")
    letters: dict[str, Term] = {}
    for word, part in zip(given.split(","), held, strict=True):
        for letter, term in zip(word, call.axes(part), strict=True):
            unify(letters.setdefault(letter, term), term)
    label(out, [letters[letter] for letter in wanted])
    call.use(*held, out)


@rule("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "norm", "nanmean", "any", "all", "prod")
def reduce(call: TracedCall, out: Tensor, x: Tensor, *args: Any, **named: Any) -> None:
    """Over all places of some axes, whatever their order."""
    at = 1 if call.name == "norm" else 0
    # Between the axes and whether they are kept, these two take whether to divide by one less.
    after = at + 1 + (call.name in ("var", "std"))
    dim = named.get("dim", named.get("axis", args[at] if len(args) > at and not isinstance(args[at], bool) else None))
    kept = named.get("keepdim", args[after] if len(args) > after else False)
    label(out, _without(call.axes(x), dim, bool(kept)))
    call.use(x)


def _without(axes: Labels, dim: Any, kept: bool) -> Labels:
    every = range(len(axes))
    gone = {number % len(axes) for number in ((dim,) if isinstance(dim, int) else every if dim is None else dim)}
    if kept:
        return tuple(new(1) if number in gone else axes[number] for number in every)
    return tuple(axes[number] for number in every if number not in gone)


@rule("max", "min")
def extreme(call: TracedCall, out: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> None:
    """As `reduce`; where the extreme was found is nothing that can be followed."""
    if isinstance(dim, Tensor):
        together(call, out, x, dim)
        return
    values = out if isinstance(out, Tensor) else out[0]
    label(values, _without(call.axes(x), dim, keepdim))
    call.use(x)
    if not isinstance(out, Tensor):
        close(out[1], "positions that a maximum was found at")


@rule("prelu")
def prelu(call: TracedCall, out: Tensor, x: Tensor, weight: Tensor) -> None:
    """One slope for all, or one a channel."""
    if weight.numel() > 1:
        unify(call.axes(x)[1], call.axes(weight)[0])
        call.use(x, weight)
    label(out, call.axes(x))


@rule("glu")
def glu(call: TracedCall, out: Tensor, x: Tensor, dim: int = -1) -> None:
    """The first half of an axis times gates from the second: place by place, so the halves are the same."""
    axes = list(call.axes(x))
    half = x.shape[dim] // 2
    first, second = cut(axes[dim], [half, half])
    unify(first, second)
    axes[dim] = first
    call.use(x)
    label(out, axes)
