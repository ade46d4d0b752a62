"""The rule for recurrent layers, whose rows come in gates and whose columns meet their own states.

Torch runs a whole recurrent layer as one operation, so that nothing inside can be watched: its equations are written
down here as a rule instead, which `tracer` looks up by the operation's name. The hidden state is one axis; input,
forget and output gates are blocks of rows that all follow it, and so do the columns that the state meets one step
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from croupier.learn.axes.terms import Term, fix, joined, new, size_of, unify
from croupier.learn.axes.tracer import TracedCall, close, label, rule

TIME = "time runs along it"
GATES = "gates keep their order"


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(
    call: TracedCall,
    out: Sequence[Any],
    x: Tensor,
    start: Any,
    weights: Any,
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    both: bool,
    first: bool,
) -> None:
    """One permutation a layer and direction, the same in each gate, of rows and of the columns that states meet."""
    if not isinstance(layers, int) or not isinstance(first, bool) or x.dim() != 3:
        raise call.refuse("of packed or unbatched sequences")
    axes, gates = call.axes(x), {"lstm": 4, "gru": 3}.get(call.name, 1)
    batch, time = (axes[0], axes[1]) if first else (axes[1], axes[0])
    fix(time, TIME)
    held, per = list(weights), len(weights) // (layers * (1 + both))
    into, ends, cells = axes[2], [], []
    for _ in range(layers):
        states = []
        for _ in range(1 + both):
            state, cell = _cell(call, [call.axes(held.pop(0)) for _ in range(per)], into, gates, biased)
            states.append(state)
            ends.append((batch, state))
            cells.append((batch, cell))
        into = joined(states) if both else states[0]
    begun = [start] if isinstance(start, Tensor) else list(start)
    for part, found in zip(begun, (ends, cells), strict=False):
        for _, state in found:
            unify(call.axes(part)[2], state) if hasattr(part, "_axes") else unify(_like(part), state)
    label(out[0], (batch, time, into) if first else (time, batch, into))
    call.use(x, *weights, out[0])
    for part, found in zip(out[1:], (ends, cells), strict=False):
        _states(part, found)


def _cell(call: TracedCall, weights: list[Any], into: Term, gates: int, biased: bool) -> tuple[Term, Term]:
    """The axis of a cell's state as others see it, and as the cell itself does, which a projection sets apart."""
    (rows, columns), (again, back), *rest = weights
    cell = new(size_of(rows) // gates)
    for term in (rows, again, *(bias[0] for bias in rest[: 2 * biased])):
        unify(term, (*new(gates, GATES), *cell))
    state = cell
    if len(rest) > 2 * biased:
        state, inner = rest[-1]
        unify(inner, cell)
    unify(back, state)
    unify(columns, into)
    return state, cell


def _like(part: Tensor) -> Term:
    even = bool((part == part.narrow(2, 0, 1)).all())
    return new(part.shape[2], "" if even else "the first state is written into the network")


def _states(part: Tensor, found: list[tuple[Term, Term]]) -> None:
    """The states after the last step: one layer and direction after the other, each with an axis of its own."""
    if len(found) == 1:
        label(part, (new(1), *found[0]))
    else:
        close(part, "the last states of several layers at once; take one layer's by its number")
        part._states = found  # type: ignore[attr-defined]
