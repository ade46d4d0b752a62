"""Rules for what only moves numbers: reshaping, transposing, cutting and putting together.

Reshaping is where permutations are lost or found: flattening pictures makes one axis of three, and splitting heads
makes two of one. An axis is therefore a product of factors (`terms`), and these rules deal the factors to the axes of
the new shape. Where a factor would straddle two of them, all axes of the tensor are fixed, which is always safe.
`tracer` looks the rules up by the operation's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from croupier.learn.axes.pointwise import broadcast
from croupier.learn.axes.terms import MISFIT, Atom, Term, cut, fix, joined, leaves, new, size_of, split
from croupier.learn.axes.tracer import TracedCall, label, rule, same


@rule("flatten", "unflatten", "reshape", "view", "reshape_as", "view_as", "ravel", "_unsafe_view")
def reshape(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """The numbers in the same order: the factors of all axes are dealt to the new ones."""
    label(out, regroup(call.axes(x), tuple(out.shape)))


def regroup(axes: Sequence[Term], shape: Sequence[int]) -> list[Term]:
    """The factors of these axes as axes of another shape; where a factor straddles two of them all is fixed."""
    rest = [atom for term in axes for atom in leaves(term)]
    found: list[Term] = []
    for size in reversed(shape):
        taken: list[Atom] = []
        while size_of(taken) < size:
            atom = rest.pop()
            want = size // size_of(taken)
            if atom.size > want and (atom.size % want == 0 and split(atom, want)):
                rest += leaves((atom,))
                atom = rest.pop()
            taken.insert(0, atom)
            if size % size_of(taken):
                fix([atom for term in axes for atom in leaves(term)], MISFIT)
                return [new(size, MISFIT) for size in shape]
        found.insert(0, tuple(taken))
    return found


@rule("permute")
def permute(call: TracedCall, out: Tensor, x: Tensor, *dims: Any, **named: Any) -> None:
    """Axes in another order."""
    order = named.get("dims", dims[0] if dims and not isinstance(dims[0], int) else dims)
    axes = call.axes(x)
    label(out, [axes[number] for number in order])


@rule("transpose", "swapaxes", "swapdims", "t", "T", "mT", "adjoint")
def transpose(call: TracedCall, out: Tensor, x: Tensor, one: int = -2, two: int = -1) -> None:
    """Two axes change places."""
    axes = list(call.axes(x))
    if len(axes) > 1:
        axes[one], axes[two] = axes[two], axes[one]
    label(out, axes)


@rule("movedim", "moveaxis")
def movedim(call: TracedCall, out: Tensor, x: Tensor, source: int, target: int) -> None:
    """One axis to another place."""
    if not isinstance(source, int):
        raise call.refuse("of several axes at once")
    axes = list(call.axes(x))
    term = axes.pop(source)
    axes.insert(target % x.dim(), term)
    label(out, axes)


@rule("unsqueeze")
def unsqueeze(call: TracedCall, out: Tensor, x: Tensor, dim: int) -> None:
    """One more axis, of size 1."""
    axes = list(call.axes(x))
    axes.insert(dim % out.dim(), new(1))
    label(out, axes)


@rule("squeeze")
def squeeze(call: TracedCall, out: Tensor, x: Tensor, dim: Any = None) -> None:
    """Without axes of size 1."""
    axes = call.axes(x)
    dims = range(len(axes)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {number % len(axes) for number in dims if x.shape[number] == 1}
    label(out, [term for number, term in enumerate(axes) if number not in gone])


@rule("expand", "expand_as", "broadcast_to")
def expand(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """Repeated along new axes, whose order does not matter."""
    wild = tuple(new(size) for size in out.shape)
    axes = call.axes(x)
    kept = (*[new(1)] * (out.dim() - len(axes)), *axes)
    label(out, [term if size_of(term) > 1 else fresh for term, fresh in zip(kept, wild, strict=True)])


@rule("repeat", "tile")
def repeat(call: TracedCall, out: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    """As `expand`, where only axes of size 1 are repeated."""
    kept = (*[1] * (out.dim() - x.dim()), *x.shape)
    if any(before not in (1, after) for before, after in zip(kept, out.shape, strict=True)):
        raise call.refuse("of an axis that is longer than 1")
    expand(call, out, x)


@rule("cat", "concat", "concatenate", "hstack")
def cat(call: TracedCall, out: Tensor, tensors: Sequence[Tensor], dim: int = 0, **named: int) -> None:
    """One after the other along an axis; all other axes are the same."""
    dim = named.get("axis", 1 if call.name == "hstack" else dim) % out.dim()
    held = [call.axes(part) for part in tensors if part.numel()]
    axes = [
        joined([axes[number] for axes in held]) if number == dim else same(axes[number] for axes in held)
        for number in range(out.dim())
    ]
    call.use(*tensors)
    label(out, axes)


@rule("stack")
def stack(call: TracedCall, out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> None:
    """Side by side along a new axis, which keeps its order."""
    axes = list(broadcast([call.axes(part) for part in tensors], out.dim() - 1))
    axes.insert(dim % out.dim(), new(len(tensors), "tensors are put side by side along it"))
    label(out, axes)


@rule("chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split")
def pieces(call: TracedCall, out: Sequence[Tensor], x: Tensor, _: Any, dim: int = 0, **named: int) -> None:
    """An axis cut into pieces."""
    dim = named.get("dim", dim)
    axes = list(call.axes(x))
    for part, term in zip(out, cut(axes[dim], [part.shape[dim] for part in out]), strict=True):
        axes[dim] = term
        label(part, axes)


@rule("unbind", "__iter__")
def unbind(call: TracedCall, out: Any, x: Tensor, dim: int = 0) -> None:
    """Every place of an axis by itself."""
    if call.name == "__iter__":
        raise call.refuse("over a tensor; use unbind")
    for number, part in enumerate(out):
        select(call, part, x, dim, number)


@rule("select")
def select(call: TracedCall, out: Tensor, x: Tensor, dim: int, index: int) -> None:
    """One place of an axis, which stays where it is."""
    axes = list(call.axes(x))
    _piece(axes.pop(dim), index % x.shape[dim], 1)
    label(out, axes)


@rule("narrow")
def narrow(call: TracedCall, out: Tensor, x: Tensor, dim: int, start: int, length: int) -> None:
    """A stretch of an axis."""
    axes = list(call.axes(x))
    axes[dim] = _piece(axes[dim], start % x.shape[dim], length)
    label(out, axes)


def _piece(term: Term, start: int, length: int) -> Term:
    """A stretch of an axis, cut out of it."""
    sizes = [start, length, size_of(term) - start - length]
    found = iter(cut(term, [size for size in sizes if size]))
    return [next(found) if size else () for size in sizes][1]


@rule("__getitem__")
def getitem(call: TracedCall, out: Tensor, x: Tensor, index: Any) -> None:
    """Single places, stretches and new axes; anything else is refused."""
    states = getattr(x, "_states", None)
    keys = list(index) if isinstance(index, tuple) else [index]
    if states is not None and isinstance(keys[0], int):
        axes, keys = list(states[keys[0]]), keys[1:]
    else:
        axes = list(call.axes(x))
    if any(not (key is None or key is Ellipsis or isinstance(key, int | slice)) or key is True for key in keys):
        raise call.refuse("by an index that is no number and no stretch")
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        used = sum(key is not None for key in keys) - 1
        keys[at : at + 1] = [slice(None)] * (len(axes) - used)
    found: list[Term] = []
    for key in keys:
        if key is None:
            found.append(new(1))
        elif isinstance(key, int):
            term = axes.pop(0)
            _piece(term, key % size_of(term), 1)
        else:
            found.append(_stretch(axes.pop(0), key))
    label(out, [*found, *axes])


def _stretch(term: Term, key: slice) -> Term:
    size = size_of(term)
    start, stop, step = key.indices(size)
    if (start, stop, step) == (0, size, 1):
        return term
    if step == 1:
        return _piece(term, start, max(0, stop - start))
    why = "only every so many places of it are read"
    fix(term, why)
    return new(len(range(start, stop, step)), why)


@rule("flip", "roll", "pad", "interpolate", "upsample", "cumsum")
def ordered(call: TracedCall, out: Tensor, x: Tensor, *args: Any, **named: Any) -> None:
    """What depends on the order along axes: all that it may touch stay as they are, whether their sizes change or not.

    Padding by 1 at one end and by -1 at the other shifts an axis and keeps its size.
    """
    why = f"{call.name} depends on its order"
    axes = list(call.axes(x))
    for number in _touched(call.name, x.dim(), args, named):
        fix(axes[number], why)
        axes[number] = new(out.shape[number], why)
    label(out, axes)


def _touched(name: str, dims: int, args: Sequence[Any], named: dict[str, Any]) -> Iterable[int]:
    """The axes that an operation may change the order of: all, where it is not plain which."""
    if name == "pad":
        # Two numbers an axis, the last axis first.
        sides = list(named["pad"] if "pad" in named else args[0])
        return [dims - 1 - back for back in range(len(sides) // 2) if any(sides[2 * back : 2 * back + 2])]
    # Records and channels are each resized by themselves.
    return range(2, dims) if name in ("interpolate", "upsample") else range(dims)
