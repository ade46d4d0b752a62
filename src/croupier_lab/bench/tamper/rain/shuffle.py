"""Cheating with the shuffle: rows of w and q that a server alters, and openings that it fits to them.

In w the first server sends the hidden rows that it permuted, in q the second those that it permuted after it
(`mpc.dealer`). A server may send other rows than those it should, and may try to make the check's own openings fit.
Both forms of the check are tried. `tampering` collects the cells of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes
from croupier.mpc.dealer import ShuffleShare
from croupier.place.two_servers.messages import SERVERS
from croupier_lab.bench.tamper.rain.cheating_server import Deviation
from croupier_lab.bench.tamper.rain.messages import CHECKS, RainTamperCell, cancelling
from croupier_lab.bench.tamper.rain.round import COLLUDERS, ROSTER, TamperedRound
from croupier_lab.bench.tamper.rain.trial import RainTrial

Rows = Callable[[RainTrial, ShuffleShare, Bytes], Bytes]


def by_rows() -> Iterator[RainTamperCell]:
    """Every way to send other rows, under both forms of the check."""
    for party, message in zip(SERVERS, ("w", "q"), strict=True):
        for check in CHECKS:
            yield from (replace(cell, check=check) for cell in (*_rows(party, message), *_forced(party, message)))


def _rows(party: str, message: str) -> Iterator[RainTamperCell]:
    for place in range(len(ROSTER)):
        for stands in (True, False):
            yield RainTamperCell("flip", party, message, _tampering(_flipped(place), stands))
            yield RainTamperCell("paired", party, message, _tampering(_paired(place), stands))
    kinds: dict[str, Rows] = {
        "swap": _swapped, "permute": _permuted, "duplicate": _doubled, "replace row": _random_row,
        "zeros": _zero_row,
    }  # fmt: skip
    for kind, alter in kinds.items():
        yield RainTamperCell(kind, party, message, _tampering(alter))
        # The other copy: the cheating server goes on with rows that it did not send.
        yield RainTamperCell(kind, party, message, _tampering(alter, stands=False))
    yield RainTamperCell("replace row", party, message, _tampering(_colluder_row), colluding=True)
    yield RainTamperCell("colluders exchanged", party, message, _tampering(_exchanged), colluding=True)


def _tampering(alter: Rows, stands: bool = True) -> Callable[[RainTrial], TamperedRound]:
    """Alter the rows that are sent.

    A second server that `stands` by them goes on with them too. A first server that does not stand by them undoes the
    change where it guesses that the changed row ended up.
    """

    def tamper(trial: RainTrial) -> TamperedRound:
        made: list[Bytes] = []

        def rows(material: ShuffleShare, before: Bytes) -> Bytes:
            after = alter(trial, material, before.copy())
            trial.acted |= not np.array_equal(before, after)
            made.append(before ^ after)
            return after

        def own(material: ShuffleShare, sent: Bytes, held: Bytes) -> Bytes:
            if trial.me == 1:
                return sent if stands else held
            return held if stands else held ^ made[0][trial.chance.permutation(len(held))]

        return TamperedRound(tamper=Deviation(rows=rows, own=own))

    return tamper


def _flipped(place: int) -> Rows:
    """Flip one bit of a row."""

    def alter(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
        bit = trial.pick(trial.round.setting.params)
        rows[place, bit // 8] ^= 1 << (bit % 8)
        trial.hit = place
        return rows

    return alter


def _paired(place: int) -> Rows:
    """Flip the same bit of two rows: where these differ, no sum changes."""

    def alter(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
        bit, other = trial.pick(trial.round.setting.params), trial.pick(len(rows) - 1)
        for at in (place, (place + 1 + other) % len(rows)):
            rows[at, bit // 8] ^= 1 << (bit % 8)
        trial.hit = place
        return rows

    return alter


def _swapped(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    one, two = trial.two(len(rows))
    rows[[one, two]] = rows[[two, one]]
    return rows


def _permuted(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    return np.roll(rows, 1 + trial.pick(len(rows) - 1), axis=0)


def _doubled(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    """Let one row stand for two, hidden as it should be where the cheating server knows how."""
    one, two = trial.two(len(rows))
    rows[one] = rows[two] ^ material.masks[one] ^ material.masks[two]
    return rows


def _random_row(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    rows[trial.pick(len(rows))] = kernel.packed(trial.chance.below(2, trial.round.setting.params).astype(np.uint8))
    return rows


def _zero_row(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    rows[trial.pick(len(rows))] = 0
    return rows


def _colluder_row(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    """Put a colluder's bits in place of somebody else's."""
    who = COLLUDERS[trial.pick(len(COLLUDERS))]
    known = kernel.packed(trial.round.rows[who]) ^ trial.round.masks[who] ^ material.masks
    others = np.flatnonzero((rows != known).any(1))
    at = others[trial.pick(len(others))]
    rows[at] = known[at]
    return rows


def _exchanged(trial: RainTrial, material: ShuffleShare, rows: Bytes) -> Bytes:
    """Two colluders' rows change places by their difference; the second server has to guess where they are."""
    one, two = (kernel.packed(trial.round.rows[who]) for who in COLLUDERS)
    spots: tuple[int, ...] = trial.two(len(rows))
    if trial.me == 0:
        spots = tuple(int(np.flatnonzero(material.order == ROSTER.index(who))[0]) for who in COLLUDERS)
    for at in spots:
        rows[at] ^= one ^ two
    return rows


# A wrong shuffle, and openings that the cheating server fits to what it has just seen of the honest server.


def _forced(party: str, message: str) -> Iterator[RainTamperCell]:
    for echo in (False, True):
        yield RainTamperCell("forced", party, message, _forcing(echo))


def _forcing(echo: bool) -> Callable[[RainTrial], TamperedRound]:
    """Make the difference open as zero and the check's last value cancel, or echo the honest server's commitments."""

    def tamper(trial: RainTrial) -> TamperedRound:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(_fitted(trial, letter, view, echo) for letter in letters)

        return replace(_tampering(_flipped(0))(trial), letters=change)

    return tamper


def _fitted(trial: RainTrial, letter: Letter, view: View, echo: bool) -> Letter:
    step = letter.kind.startswith("v1-s-")
    if letter.kind != "zero" and not (step and (echo or letter.kind == "v1-s-o")):
        return letter
    theirs = trial.heard(view, letter.kind)
    if theirs is None:
        return letter
    if echo and step:
        return replace(letter, body=theirs)
    return cancelling(trial, letter, view, trial.round.deal.over)
