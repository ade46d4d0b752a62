"""Compiled loops that carry rows of numbers from one place of a vector to another. Imported when first needed.

Only `kernels.moves` calls them; it says what is carried, and has the plain form. These loops wait for memory and not
for arithmetic, so they ask the cache for lines ahead of time, read several places at once, and write long runs as such.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from croupier.kernels.compiled import njit

# Numbers that are written at once: a processor stores one thing a cycle, be it one number or four. `runs` needs longer
# runs than this: `moves.SHORT` is the same number.
STORED = 4
# Numbers that are carried between two requests for a later row (`fetch`): those of 4 bytes fill a line of the cache.
TILE = 16
# How far ahead of what is written rows are sent for, in bytes: at least two rows ahead in `packed`, one in `runs`.
AHEAD = 1 << 12
# A line of the cache, in bytes.
LINE = 64


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


@intrinsic
def fetch(typing: Any, values: Any, at: Any) -> Any:
    """Send for the line of the cache that values[at] lies in, and do not wait for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        # To read it, and soon again, as data.
        builder.call(call, [builder.bitcast(place, byte), *(ir.Constant(number, flag) for flag in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(values, at), generate


def _numbers(builder: Any, line: Any, at: Any, bits: int) -> Iterator[Any]:
    """The next places in `line`, read a word of 64 bits at a time: reading, and nothing else, is what takes long."""
    far = ir.IntType(64)
    for first in range(0, STORED, 64 // bits):
        place = builder.gep(line, [builder.add(at, ir.Constant(at.type, first))])
        word = builder.load(builder.bitcast(place, far.as_pointer()))
        word.align = bits // 8
        shifts = range(0, 64, bits) if sys.byteorder == "little" else range(64 - bits, -1, -bits)
        for shift in shifts:
            part = builder.lshr(word, ir.Constant(far, shift)) if shift else word
            yield builder.and_(part, ir.Constant(far, (1 << bits) - 1)) if bits < 64 else part


@intrinsic
def lay(typing: Any, out: Any, to: Any, values: Any, source: Any, line: Any, at: Any) -> Any:
    """out[to + k] = values[source + line[at + k]] for the next few k, written at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        done, given, places = (_data(context, builder, signature.args[k], args[k]) for k in (0, 2, 4))
        several = ir.VectorType(context.get_data_type(signature.args[0].dtype), STORED)
        first, laid = builder.gep(given, [args[3]]), ir.Constant(several, ir.Undefined)
        for number, place in enumerate(_numbers(builder, places, args[5], signature.args[4].dtype.bitwidth)):
            one = builder.load(builder.gep(first, [place]))
            laid = builder.insert_element(laid, one, ir.Constant(ir.IntType(32), number))
        where = builder.bitcast(builder.gep(done, [args[1]]), several.as_pointer())
        builder.store(laid, where).align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(out, to, values, source, line, at), generate


@intrinsic
def move(typing: Any, out: Any, to: Any, values: Any, source: Any) -> Any:
    """out[to + k] = values[source + k] for the next few k, at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        done, given = (_data(context, builder, signature.args[k], args[k]) for k in (0, 2))
        several = ir.VectorType(context.get_data_type(signature.args[0].dtype), STORED).as_pointer()
        here, there = (
            builder.bitcast(builder.gep(array, [at]), several) for array, at in ((given, args[3]), (done, args[1]))
        )
        size = signature.args[0].dtype.bitwidth // 8
        held = builder.load(here)
        held.align = size
        builder.store(held, there).align = size
        return context.get_dummy_value()

    return types.void(out, to, values, source), generate


@njit(cache=True, nogil=True)
def carry(out: Any, values: Any, table: Any, to: Any, source: Any, line: Any) -> None:
    """Every way of the table in turn: its first row, how many rows, its first place in `line`, how many, and the run.

    Where the run is 0 the numbers do not lie together in `out`: `line` holds first where they go, then where they come
    from. Arrays must be contiguous and all places within them: nothing is checked here.
    """
    for number in range(len(table)):
        first, many, begin, width, run = table[number]
        there, here = to[first : first + many], source[first : first + many]
        if run == 0:
            after, before = line[begin : begin + width], line[begin + width : begin + 2 * width]
            scattered(out, values, there, here, after, before)
        elif run == 1:
            packed(out, values, there, here, line[begin : begin + width])
        else:
            runs(out, values, there, here, line[begin : begin + width], run)


@njit(cache=True, nogil=True)
def packed(out: Any, values: Any, to: Any, source: Any, line: Any) -> None:
    """Each row of `out` is a row of `values` in the order that `line` says.

    While a row is written, line by line of the cache, those of a later one are sent for: read in random order when
    its turn comes, each of them would be waited for.
    """
    width, many = len(line), len(to)
    ahead = max(2, AHEAD // (width * values.itemsize))
    whole = width // TILE * TILE
    for row in range(many):
        there, here, later = to[row], source[row], source[min(row + ahead, many - 1)]
        for place in range(0, whole, TILE):
            fetch(values, later + place)  # type: ignore[call-arg]
            if values.itemsize == 8:
                fetch(values, later + place + STORED * 2)
            # Four times, not in a loop: the compiler would make it one that is slower than what is in it.
            lay(out, there + place, values, here, line, place)
            lay(out, there + place + STORED, values, here, line, place + STORED)
            lay(out, there + place + STORED * 2, values, here, line, place + STORED * 2)
            lay(out, there + place + STORED * 3, values, here, line, place + STORED * 3)
        for place in range(whole, width):
            out[there + place] = values[here + line[place]]


@njit(cache=True, nogil=True)
def runs(out: Any, values: Any, to: Any, source: Any, line: Any, run: int) -> None:
    """As `packed`, where `line` says where runs begin that are longer than `STORED`."""
    many, step = len(to), LINE // values.itemsize
    ahead = max(1, AHEAD // (len(line) * run * values.itemsize))
    for row in range(many):
        at, here, later = to[row], source[row], source[min(row + ahead, many - 1)]
        sent = 0
        for number in range(len(line)):
            first = here + line[number]
            while sent < (number + 1) * run:
                fetch(values, later + sent)  # type: ignore[call-arg]
                sent += step
            for part in range(0, run - STORED, STORED):
                move(out, at + part, values, first + part)  # type: ignore[call-arg]
            # The last four numbers of the run: some of them may have been moved already.
            move(out, at + run - STORED, values, first + run - STORED)  # type: ignore[call-arg]
            at += run


@njit(cache=True, nogil=True)
def scattered(out: Any, values: Any, to: Any, source: Any, after: Any, before: Any) -> None:
    """Rows whose numbers do not lie together in `out`."""
    for row in range(len(to)):
        for place in range(len(after)):
            out[to[row] + after[place]] = values[source[row] + before[place]]
