"""Watch a network run, read the axes of its tensors off, and try out what was found.

`asked.symmetry_of` calls `traced`. It runs the network under the `Tracer`, once as in training and once as in use,
names the groups of free axes in a fixed order (so that every client finds the same ones), and hands the result to
`trial`, which must confirm it by running the network under a random rule.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from croupier.encode.axes import Axis, Factor
from croupier.encode.symmetry import Symmetry
from croupier.errors import SpecError
from croupier.learn.axes import attention, layers, pointwise, recurrent, shapes
from croupier.learn.axes.terms import Atom, Term, blocks, fix, new
from croupier.learn.axes.tracer import Tracer, label
from croupier.learn.axes.trial import still, try_out
from croupier.learn.flat import layout_of

# Importing them makes their rules known.
_RULES = (attention, layers, pointwise, recurrent, shapes)
BATCH, OUTPUT = "records are not mixed", "outputs keep their order"


def traced(module: nn.Module, inputs: Tensor, opaque: Iterable[str] = ()) -> Symmetry:
    """What `symmetry_of` finds in a network that is known to run. Raises: SpecError."""
    closed = tuple(opaque)
    copied = still(copy.deepcopy(module).cpu())
    if unknown := set(closed) - {path for path, _ in copied.named_modules()}:
        raise SpecError(f"opaque = {min(unknown)!r}: the network has no module of that name")
    tracer = Tracer()
    layout = layout_of(module)
    if not layout.carried and any(True for _ in module.parameters()):
        remedy = "unfreeze parameters with requires_grad_(True)"
        raise SpecError(f"symmetry: every parameter of the network is frozen, and none is trained or sent; {remedy}")
    tensors = {part.name: tuple(new(size) for size in part.shape) for part in layout.carried}
    for name, tensor in (*copied.named_parameters(), *copied.named_buffers()):
        if name in tensors:
            label(tensor, tensors[name])
            tracer.used += tensors[name]
    shown = [new(size) for size in inputs.shape[1:]]
    for training in (True, False):
        _watch(tracer, copied.train(training), inputs.detach().cpu().clone(), shown, closed)
    _settle([*(term for terms in tensors.values() for term in terms), *shown])
    names = _names(tensors, shown, tracer.used)
    axes = {name: tuple(_axis(term, names) for term in terms) for name, terms in tensors.items()}
    found = Symmetry(layout, axes, tuple(_axis(term, names) for term in shown))
    try_out(module, found, inputs)
    return found


def _watch(tracer: Tracer, module: nn.Module, inputs: Tensor, shown: list[Term], opaque: tuple[str, ...]) -> None:
    label(inputs, [new(len(inputs), BATCH), *shown])
    with torch.random.fork_rng(devices=[]), tracer.watching(module, opaque):
        out = module(inputs)
    if not isinstance(out, Tensor) or not hasattr(out, "_axes"):
        raise SpecError("symmetry: the network gives no tensor that depends on its inputs")
    for term in out._axes:
        fix(term, OUTPUT)


def _settle(terms: list[Term]) -> None:
    """Let `terms.blocks` fix what it must, before any axis is read off."""
    for term in terms:
        blocks(term)


def _names(tensors: dict[str, tuple[Term, ...]], shown: list[Term], used: list[Term]) -> dict[Atom, tuple[str, int]]:
    """Each free atom's group, and its place (digit) among the group's atoms: the input's first, then by tensor."""
    found: dict[Atom, tuple[str, int]] = {}
    runs = _runs([atom for term in shown for block in blocks(term) for atom in block if atom.open], used)
    for number, run in enumerate(runs):
        for digit, atom in enumerate(run):
            found[atom] = (f"input.{number}", digit)
    for name, terms in tensors.items():
        for number, term in enumerate(terms):
            fresh = dict.fromkeys(atom for block in blocks(term) for atom in block if atom.open and atom not in found)
            for count, atom in enumerate(fresh):
                found[atom] = (f"{name}.{number}" + (f".{count}" if len(fresh) > 1 else ""), 0)
    return found


def _runs(atoms: list[Atom], used: list[Term]) -> list[list[Atom]]:
    """The input's atoms, those together that every operation met side by side and in one order: they are one group."""
    after: dict[Atom, set[Atom | None]] = {}
    before: dict[Atom, set[Atom | None]] = {}
    for term in used:
        for block in blocks(term):
            for atom, following in zip([None, *block], [*block, None], strict=True):
                if atom is not None:
                    after.setdefault(atom, set()).add(following)
                if following is not None:
                    before.setdefault(following, set()).add(atom)

    def next_of(atom: Atom) -> Atom | None:
        found = after.get(atom, set())
        (one,) = found if len(found) == 1 else (None,)
        return one if one is not None and one in atoms and before[one] == {atom} else None

    follow = {atom: next_of(atom) for atom in dict.fromkeys(atoms)}
    runs = []
    for atom in (atom for atom in follow if atom not in set(follow.values())):
        run: list[Atom] = [atom]
        while (following := follow[run[-1]]) is not None:
            run.append(following)
        runs.append(run)
    return runs


def _axis(term: Term, names: dict[Atom, tuple[str, int]]) -> Axis:
    alone = (Factor(1, reason="it has one place"),)
    return Axis(tuple(tuple(_factor(atom, names) for atom in block) or alone for block in blocks(term)))


def _factor(atom: Atom, names: dict[Atom, tuple[str, int]]) -> Factor:
    if atom in names:
        group, digit = names[atom]
        return Factor(atom.size, group, digit=digit)
    return Factor(atom.size, reason=atom.reason)
