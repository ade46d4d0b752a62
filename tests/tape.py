"""Scripted choices: a stand-in for coins that lets a test walk every outcome of a function that draws.

A law that says what a release hides is checked by the exact distribution of what leaves, not by sampling it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations, permutations
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from croupier.core.coins import Ints, Label, Packed
from croupier.errors import RangeError
from croupier.kernels import pack, residues, unary
from croupier.kernels.packed import Source

T = TypeVar("T", bound=Hashable)


class Tape:
    """Scripted choices: a node whose every choice is read from a script, and counted, so that all can be walked."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        self.script = list(script)
        self.taken: list[int] = []
        self.limits: list[int] = []

    def child(self, *_labels: Label) -> Tape:
        """A tape has no tree: all nodes read one script."""
        return self

    def secure(self) -> Tape:
        """A tape is its own choices."""
        return self

    def _pick(self, limit: int) -> int:
        at = len(self.taken)
        choice = self.script[at] if at < len(self.script) else 0
        self.taken.append(choice)
        self.limits.append(limit)
        return choice

    def below(self, limit: int, count: int = 1) -> Ints:
        """The next scripted integers."""
        return np.array([self._pick(limit) for _ in range(count)], np.int64)

    def permutation(self, size: int) -> Ints:
        """The scripted one of all permutations, in lexical order."""
        every = list(permutations(range(size)))
        return np.array(every[self._pick(len(every))], np.int64)

    def permute_columns(self, rows: npt.NDArray[Any]) -> None:
        """One scripted permutation a column."""
        for column in range(rows.shape[1]):
            rows[:, column] = rows[self.permutation(rows.shape[0]), column]

    def permute_blocks(self, rows: Packed, count: int, moduli: tuple[int, ...], *, back: bool = False) -> Packed:
        """One scripted permutation a block."""
        return unary.moved(rows, count, moduli, self.permute_columns, back=back)

    def mask(self, modulus: int, count: int) -> Ints:
        """The next scripted residues."""
        return self.below(modulus, count)

    def blind(self, total: npt.NDArray[Any], bits: int, *, minus: bool = False) -> None:
        """The next scripted residues."""
        drawn = self.below(1 << bits, len(total)).astype(total.dtype)
        (np.subtract if minus else np.add)(total, drawn, out=total)

    def packed(self, bits: int) -> Source:
        """The next scripted residues, one after another without gaps."""

        def draw(out: npt.NDArray[np.uint64], count: int) -> None:
            data = pack.pack_plain(self.below(1 << bits, count), (bits,))
            out.view(np.uint8)[: len(data)] = data

        return lambda _first: draw

    def scatter(self, ones: Ints, people: int, moduli: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """One scripted arrangement a block."""

        def place(size: int, count: int) -> Sequence[int]:
            every = list(combinations(range(size), count))
            return every[self._pick(len(every))]

        return residues.scatter_plain(ones, people, moduli, place)

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """Raises: RangeError, because normals cannot be enumerated."""
        raise RangeError(f"a tape cannot enumerate {count} normals: only finite choices are scripted")

    def gaussian(self, count: int, device: torch.device) -> torch.Tensor:
        """Raises: RangeError, as `normal`."""
        return torch.from_numpy(self.normal(count)).to(device)


def outcomes(experiment: Callable[[Tape], T]) -> dict[T, float]:
    """The exact distribution of a function of choices, by walking all of them."""
    found: dict[T, float] = {}
    script: list[int] = []
    while True:
        tape = Tape(script)
        key = experiment(tape)
        found[key] = found.get(key, 0.0) + 1 / math.prod(tape.limits)
        script = tape.taken
        while script and script[-1] == tape.limits[len(script) - 1] - 1:
            script.pop()
        if not script:
            return found
        script[-1] += 1
