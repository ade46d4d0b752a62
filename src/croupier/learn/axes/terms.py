"""Axes of tensors as terms, by which `learn.axes` finds out which of them may be permuted, and which only together.

An *atom* is one permutation that is not known yet. It is free, or fixed for a reason, or stands for a product of other
atoms (an axis that was split), or for terms one after the other (an axis that was concatenated). A *term* is an axis: a
product of atoms, the most significant first.

The whole search is unification: where the network brings two axes together, their atoms are made the same. Rules
(`layers`, `pointwise`, ...) call `unify`, `split` and `fix` while the network runs. Whatever is still free at the end
is a permutation that the network does not notice; `trace` reads it off. Fixing too much only leaves more axes as they
are. Fixing too little would change what the network computes, which `trial` would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

Term = tuple["Atom", ...]
MISFIT = "it is cut in two ways that do not fit together"


class Atom:
    """One permutation that is to be found, over `size` places."""

    __slots__ = ("bound", "parts", "reason", "size")

    def __init__(self, size: int, reason: str = "", parts: Sequence[Term] = ()) -> None:
        self.size = size
        self.reason = reason
        self.parts: tuple[Term, ...] = tuple(parts)
        self.bound: Term | None = None

    @property
    def open(self) -> bool:
        """Whether nothing is known of it."""
        return self.bound is None and not self.reason and not self.parts


def leaves(term: Term) -> list[Atom]:
    """The atoms that a term comes down to: free, fixed or concatenated ones, none of size 1."""
    found: list[Atom] = []
    for atom in term:
        if atom.bound is not None:
            found += leaves(atom.bound)
        elif len(atom.parts) == 1:
            found += leaves(atom.parts[0])
        elif atom.size > 1:
            found.append(atom)
    return found


def size_of(term: Sequence[Atom]) -> int:
    """How many places it has."""
    return prod(atom.size for atom in term)


def new(size: int, reason: str = "") -> Term:
    """A fresh axis: free, or fixed."""
    return (Atom(size, reason),)


def joined(parts: Sequence[Term]) -> Term:
    """Axes one after the other."""
    return (Atom(sum(map(size_of, parts)), parts=parts),)


def fix(term: Sequence[Atom], reason: str) -> None:
    """Let everything in a term stay as it is. That is never wrong, but nothing of the term is permuted then."""
    for atom in leaves(tuple(term)):
        if atom.parts:
            for part in atom.parts:
                fix(part, reason)
        elif not atom.reason:
            atom.reason = reason


def unify(one: Term, two: Term) -> None:
    """Make two axes the same, splitting and binding atoms where that is needed; fix both where they cannot be."""
    left, right = leaves(one), leaves(two)
    if left == right:
        return
    if len(left) == 1 and left[0].open:
        left[0].bound = tuple(right)
    elif len(right) == 1 and right[0].open:
        right[0].bound = tuple(left)
    elif len(left) == 1 and left[0].reason:
        fix(right, left[0].reason)
    elif len(right) == 1 and right[0].reason:
        fix(left, right[0].reason)
    elif len(left) == 1 and left[0].parts:
        _match(left[0], tuple(right))
    elif len(right) == 1 and right[0].parts:
        _match(right[0], tuple(left))
    else:
        _align(tuple(left), tuple(right))


def _match(atom: Atom, term: Term) -> None:
    """Make an atom that stands for parts, and a term, the same."""
    parts = atom.parts
    for part, piece in zip(parts, cut(term, [size_of(part) for part in parts]), strict=True):
        unify(part, piece)


def _align(left: Term, right: Term) -> None:
    """Make two products the same, from their least significant factors on."""
    last, other = left[-1], right[-1]
    if last is other or last.size == other.size:
        unify((last,), (other,))
        unify(left[:-1], right[:-1])
    elif (last.size % other.size == 0 and split(last, other.size)) or (
        other.size % last.size == 0 and split(other, last.size)
    ):
        unify(left, right)
    else:
        fix((*left, *right), MISFIT)


def split(atom: Atom, inner: int) -> bool:
    """Let an atom stand for a product whose last factor has `inner` places; False where its parts forbid it."""
    least = Atom(inner, atom.reason)
    if atom.parts:
        sizes = [size_of(part) for part in atom.parts]
        if any(size % inner for size in sizes):
            return False
        outer = [new(size // inner) for size in sizes]
        for part, most in zip(atom.parts, outer, strict=True):
            unify(part, (*most, least))
        atom.bound = (*joined(outer), least)
    else:
        atom.bound = (Atom(atom.size // inner, atom.reason), least)
    return True


def cut(term: Term, sizes: Sequence[int]) -> list[Term]:
    """The pieces of an axis, of these sizes, one after the other."""
    held = leaves(term)
    if len(sizes) == 1:
        return [term]
    if len(held) > 1:
        inner = size_of(held[1:])
        if any(size % inner for size in sizes):
            fix(held, MISFIT)
            return [new(size, MISFIT) for size in sizes]
        return [(*piece, *held[1:]) for piece in cut((held[0],), [size // inner for size in sizes])]
    atom = held[0]
    if atom.reason:
        return [new(size, atom.reason) for size in sizes]
    if not atom.parts:
        atom.parts = tuple(new(size) for size in sizes)
        return list(atom.parts)
    return _recut(atom, sizes)


def _recut(atom: Atom, sizes: Sequence[int]) -> list[Term]:
    """Cut again what was cut elsewhere already."""
    ends = {sum(sizes[: count + 1]) for count in range(len(sizes))}
    start, fine = 0, []
    for part in atom.parts:
        stop = start + size_of(part)
        inside = sorted({start, stop} | {end for end in ends if start < end < stop})
        fine += cut(part, [after - before for before, after in pairwise(inside)])
        start = stop
    atom.parts = tuple(fine)
    pieces: list[Term] = []
    rest = list(fine)
    for size in sizes:
        taken = [rest.pop(0)]
        while sum(map(size_of, taken)) < size:
            taken.append(rest.pop(0))
        pieces.append(taken[0] if len(taken) == 1 else joined(taken))
    return pieces


def blocks(term: Term) -> list[list[Atom]]:
    """The term as blocks one after the other, each a product of atoms that are free or fixed.

    What comes before a concatenation must stay as it is, so that its blocks can be told one by one.
    """
    held = leaves(term)
    at = next((number for number, atom in enumerate(held) if atom.parts), None)
    if at is None:
        return [held]
    before, after = held[:at], tuple(held[at + 1 :])
    fix(before, "it repeats axes that were put one after the other")
    once = [block for part in held[at].parts for block in blocks((*part, *after))]
    return once * size_of(before)
