"""Eight words at a time in compiled loops: a vector that LLVM keeps in registers, whatever the processor's are.

A loop over eight words of an array is not always turned into vector instructions by the compiler, because two arrays
might overlap; these operations are vector instructions from the start. Only `_lanes_jit` uses them, in the compiled
loops of `kernels.lanes`, which permute the bits inside small blocks of residues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, register_model

_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, 8)
_BYTES = ir.VectorType(ir.IntType(8), 8)
# What it decorates is called by compiled loops only, and without the first argument; for mypy it is any callable.
intrinsic: Callable[[Any], Any] = numba_intrinsic


class _EightType(types.Type):
    """The type of such a vector, for numba."""


EIGHT = _EightType("Eight")


@register_model(_EightType)
class _EightModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        begin: Any = super().__init__
        begin(manager, kind, _VECTOR)


def _place(context: Any, builder: Any, array: Any, args: Any, kind: Any) -> Any:
    """The address of number args[1] of the array args[0], as that of a vector of this kind.

    Neither strides nor bounds are looked at: the array must be contiguous, with eight numbers left from there.
    """
    data = context.make_array(array)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer())


def _filled(builder: Any, word: Any) -> Any:
    out = ir.Constant(_VECTOR, ir.Undefined)
    for at in range(8):
        out = builder.insert_element(out, word, ir.Constant(ir.IntType(32), at))
    return out


@intrinsic
def zeros(typing: Any) -> Any:
    """Eight times 0."""
    return EIGHT(), lambda context, builder, signature, args: ir.Constant(_VECTOR, None)


@intrinsic
def spread(typing: Any, word: Any) -> Any:
    """One word, eight times."""
    return EIGHT(word), lambda context, builder, signature, args: _filled(builder, args[0])


@intrinsic
def load(typing: Any, array: Any, at: Any) -> Any:
    """The eight words of an array that begin at a place."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], args, _VECTOR), align=8)

    return EIGHT(array, at), code


@intrinsic
def store(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write a vector to the eight words of an array that begin at a place."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _place(context, builder, signature.args[0], args, _VECTOR), align=8)
        return context.get_dummy_value()

    return types.void(array, at, vector), code


@intrinsic
def store_bytes(typing: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write the lowest byte of each word to the eight bytes that begin at a place of an array of bytes."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args, _BYTES)
        builder.store(builder.trunc(args[2], _BYTES), place, align=1)
        return context.get_dummy_value()

    return types.void(array, at, vector), code


def _of_two(name: str, second: Callable[[Any, Any], Any] = lambda builder, value: value) -> Any:
    """LLVM's operation of that name on two vectors, word by word; `second` may make a vector of its second argument."""

    @intrinsic
    def operation(typing: Any, one: Any, other: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, name)(args[0], second(builder, args[1]))

        return EIGHT(one, other), code

    return operation


xor = _of_two("xor")
both = _of_two("and_")
either = _of_two("or_")
plus = _of_two("add")
times = _of_two("mul")
# Shifts by one number for all words.
left = _of_two("shl", _filled)
right = _of_two("lshr", _filled)


@intrinsic
def below(typing: Any, one: Any, other: Any) -> Any:
    """1 where a word of the first vector is less than that of the second, else 0; words have no sign."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.icmp_unsigned("<", args[0], args[1]), _VECTOR)

    return EIGHT(one, other), code
