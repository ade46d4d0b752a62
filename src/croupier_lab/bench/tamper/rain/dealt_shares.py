"""Cheating with what was dealt: shares that a server alters before it opens them, and hands of an earlier attempt.

A hand is all that the dealer dealt one server. Here cheating is hardest to find: whoever alters a share and its tag
alike is caught only by the key that nobody holds alone. `tampering` collects the cells of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.mpc.authentic import TaggedShares, TagHolder
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.field import PRIME
from croupier.place.two_servers.messages import SERVERS
from croupier_lab.bench.tamper.rain.cheating_server import Deviation
from croupier_lab.bench.tamper.rain.messages import Check, RainTamperCell, cancelling
from croupier_lab.bench.tamper.rain.round import ROSTER, TamperedRound
from croupier_lab.bench.tamper.rain.trial import RainTrial

Share = Callable[[RainTrial, TagHolder, TaggedShares], TaggedShares]
# The openings of a round, by kind of letter.
_SHARES = ("mul0", "mul1", "mul2", "blind", "zero", "hd", "z")


# What is checked right after it was opened, and the kind of letter with which that check ends.
_STEPS = {"hd": "v2-s-o", "z": "v3-s-o"}


def by_shares() -> Iterator[RainTamperCell]:
    """Every opening, and every part of a dealt hand."""
    for party in SERVERS:
        for kind in _SHARES:
            yield from _shares(party, kind)
        for parts in _HANDS:
            # Old shares are noticed when they are first opened, which by hashes is the distances' turn.
            begins = "hd" if parts == ("shares",) else "hand"
            only: Check | None = "hash" if parts == ("key",) else None
            yield RainTamperCell("reuse", party, begins, _reused(parts), only, "attempt")


def _shares(party: str, message: str) -> Iterator[RainTamperCell]:
    for small in (True, False):
        yield RainTamperCell("shift", party, message, _sharing(message, _shifted(small)))
        yield RainTamperCell("re-tag", party, message, _sharing(message, _shifted(small, key=True)))
    yield RainTamperCell("paired", party, message, _sharing(message, _shifted(True, key=True, guess=True)))
    yield RainTamperCell("shift", party, message, _sharing(message, _tag_only))
    if message in _STEPS:
        yield RainTamperCell("forced", party, message, _forcing(message))
    if message != "zero":
        yield RainTamperCell("paired", party, message, _sharing(message, _opposite))
        yield RainTamperCell("swap", party, message, _sharing(message, _crossed))


def _sharing(message: str, alter: Share) -> Callable[[RainTrial], TamperedRound]:
    def tamper(trial: RainTrial) -> TamperedRound:
        def share(side: TagHolder, kind: str, held: TaggedShares) -> TaggedShares:
            if kind != message:
                return held
            trial.acted = True
            return alter(trial, side, TaggedShares(held.values.copy(), held.tags.copy()))

        return TamperedRound(tamper=Deviation(share=share))

    return tamper


def _forcing(message: str) -> Callable[[RainTrial], TamperedRound]:
    """Open something wrong, and let the check's last value cancel what the honest server has just shown."""

    def tamper(trial: RainTrial) -> TamperedRound:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(cancelling(trial, one, view, PRIME) if one.kind == _STEPS[message] else one for one in letters)

        return replace(_sharing(message, _shifted(True))(trial), letters=change)

    return tamper


def _shifted(small: bool, key: bool = False, guess: bool = False) -> Share:
    """Change one share by a little or by anything.

    With `key` its tag changes accordingly, by the cheater's own part of the key, and with `guess` by a guess of the
    whole.
    """

    def alter(trial: RainTrial, side: TagHolder, held: TaggedShares) -> TaggedShares:
        shape, over = held.values.shape, side.over
        values, tags = (part.reshape(-1, over.words) for part in (held.values, held.tags))
        at = trial.pick(len(values))
        error = over.draw(trial.chance, 1)
        if small:
            # By two, so that a sum of signs stays one, or by one.
            error = np.zeros_like(error) + np.array([[2 if shape[0] > len(ROSTER) else 1, 0][: over.words]], np.uint64)
            if over is PRIME and trial.pick(2):
                error = over.sub(np.zeros_like(error), error)
        values[at] = over.add(values[at : at + 1], error)[0]
        if key:
            factor = over.add(side.key, over.draw(trial.chance, 1)) if guess else side.key
            tags[at] = over.add(tags[at : at + 1], over.mul(factor, error))[0]
        return TaggedShares(values.reshape(shape), tags.reshape(shape))

    return alter


def _tag_only(trial: RainTrial, side: TagHolder, held: TaggedShares) -> TaggedShares:
    tags = held.tags.reshape(-1, side.over.words)
    at = trial.pick(len(tags))
    tags[at] = side.over.add(tags[at : at + 1], side.over.draw(trial.chance, 1))[0]
    return TaggedShares(held.values, tags.reshape(held.tags.shape))


def _opposite(trial: RainTrial, side: TagHolder, held: TaggedShares) -> TaggedShares:
    """Add an error to one share, and its opposite to another."""
    values = held.values.reshape(-1, side.over.words)
    one, two = trial.two(len(values))
    error = np.array([[1, 0][: side.over.words]], np.uint64)
    values[one] = side.over.add(values[one : one + 1], error)[0]
    values[two] = side.over.sub(values[two : two + 1], error)[0]
    return TaggedShares(values.reshape(held.values.shape), held.tags)


def _crossed(trial: RainTrial, side: TagHolder, held: TaggedShares) -> TaggedShares:
    """Exchange two shares together with their tags; the honest server's shares of both stay."""
    values, tags = (part.reshape(-1, side.over.words) for part in (held.values, held.tags))
    one, two = trial.two(len(values))
    for part in (values, tags):
        part[[one, two]] = part[[two, one]]
    return TaggedShares(values.reshape(held.values.shape), tags.reshape(held.tags.shape))


# Hands of an earlier attempt.


# Parts of a hand, and which of them are taken from an earlier one together.
_EVERY = ("order", "masks", "shares", "point", "tag_key", "extras", "key", "bound")
_HANDS = (
    (*_EVERY, "identity"), _EVERY, ("order",), ("masks",), ("order", "masks"), ("shares",), ("extras",),
    ("point", "tag_key"), ("key",),
)  # fmt: skip


def _reused(parts: tuple[str, ...]) -> Callable[[RainTrial], TamperedRound]:
    """Some of what was dealt for an earlier attempt instead of this one's."""

    def tamper(trial: RainTrial) -> TamperedRound:
        if trial.earlier is None:
            raise AssertionError("nothing was dealt earlier")
        old = trial.earlier.material(trial.me)

        def material(now: ShuffleShare) -> ShuffleShare:
            trial.acted = True
            return replace(now, **{name: getattr(old, name) for name in parts})

        return TamperedRound(tamper=Deviation(material=material))

    return tamper
