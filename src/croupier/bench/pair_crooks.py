"""Cheating from within: rows, shares, hands, references and rosters that a server alters and then stands by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from croupier.bench.cheat import body_of, filled
from croupier.bench.crook import Bend, Bodies
from croupier.bench.pair_letters import CHECKS, Cell, Check, another, late_comer
from croupier.bench.pair_trial import COLLUDERS, ROSTER, Bent, Change, Trial, mask_bits, opened, signed_up
from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes
from croupier.mpc.authentic import Held, Side, as_tensor, as_words, byte_tensor, bytes_of
from croupier.mpc.dealer import Hand
from croupier.mpc.field import PRIME
from croupier.place import duet
from croupier.place.duet import SERVERS
from croupier.place.roster import root_of, signed

Rows = Callable[[Trial, Hand, Bytes], Bytes]
Share = Callable[[Trial, Side, Held], Held]
_SHARES = ("mul0", "mul1", "mul2", "blind", "zero", "hd", "z")


def by_crooks() -> Iterator[Cell]:
    """Everything that a server can do beyond rewriting letters."""
    for party, message in zip(SERVERS, ("w", "q"), strict=True):
        for check in CHECKS:
            yield from (replace(cell, check=check) for cell in (*_rows(party, message), *_forced(party, message)))
        for kind in _SHARES:
            yield from _shares(party, kind)
        for parts in _HANDS:
            # Old shares are noticed when they are first opened, which by hashes is the distances' turn.
            begins = "hd" if parts == ("shares",) else "hand"
            only: Check | None = "hash" if parts == ("key",) else None
            yield Cell("reuse", party, begins, _reused(parts), only, "attempt")
        yield from _uploads(party)
        yield Cell("roster", party, "receipt", _named)
    yield Cell("reference", "server", "late", _shown(told=False))
    yield Cell("reference", "server", "late", _shown(told=True))
    for whose in ("second", "server", "earlier"):
        yield Cell("published", "server", "published", _published(whose), before="round")


# Rows of w and q.


def _rows(party: str, message: str) -> Iterator[Cell]:
    for place in range(len(ROSTER)):
        for stands in (True, False):
            yield Cell("flip", party, message, _bending(_flipped(place), stands))
            yield Cell("paired", party, message, _bending(_paired(place), stands))
    kinds: dict[str, Rows] = {
        "swap": _swapped, "permute": _permuted, "duplicate": _doubled, "replace row": _random_row,
        "zeros": _zero_row,
    }  # fmt: skip
    for kind, alter in kinds.items():
        yield Cell(kind, party, message, _bending(alter))
        # The other copy: the crook goes on with rows that it did not send.
        yield Cell(kind, party, message, _bending(alter, stands=False))
    yield Cell("replace row", party, message, _bending(_colluder_row), colluding=True)
    yield Cell("colluders exchanged", party, message, _bending(_exchanged), colluding=True)


def _bending(alter: Rows, stands: bool = True) -> Callable[[Trial], Bent]:
    """Alter the rows that are sent. A second server that `stands` by them goes on with them too; a first server that
    does not undoes the change where it guesses that it ended up."""

    def bend(trial: Trial) -> Bent:
        made: list[Bytes] = []

        def rows(hand: Hand, before: Bytes) -> Bytes:
            after = alter(trial, hand, before.copy())
            trial.acted |= not np.array_equal(before, after)
            made.append(before ^ after)
            return after

        def own(hand: Hand, sent: Bytes, held: Bytes) -> Bytes:
            if trial.me == 1:
                return sent if stands else held
            return held if stands else held ^ made[0][trial.chance.permutation(len(held))]

        return Bent(bend=Bend(rows=rows, own=own))

    return bend


def _flipped(place: int) -> Rows:
    """One bit of a row."""

    def alter(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
        bit = trial.pick(trial.round.setting.params)
        rows[place, bit // 8] ^= 1 << (bit % 8)
        trial.hit = place
        return rows

    return alter


def _paired(place: int) -> Rows:
    """The same bit of two rows: where these differ, no sum changes."""

    def alter(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
        bit, other = trial.pick(trial.round.setting.params), trial.pick(len(rows) - 1)
        for at in (place, (place + 1 + other) % len(rows)):
            rows[at, bit // 8] ^= 1 << (bit % 8)
        trial.hit = place
        return rows

    return alter


def _swapped(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    one, two = trial.two(len(rows))
    rows[[one, two]] = rows[[two, one]]
    return rows


def _permuted(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    return np.roll(rows, 1 + trial.pick(len(rows) - 1), axis=0)


def _doubled(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    """One row stands for two, hidden as it should be where the crook knows how."""
    one, two = trial.two(len(rows))
    rows[one] = rows[two] ^ hand.masks[one] ^ hand.masks[two]
    return rows


def _random_row(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    rows[trial.pick(len(rows))] = kernel.packed(trial.chance.below(2, trial.round.setting.params).astype(np.uint8))
    return rows


def _zero_row(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    rows[trial.pick(len(rows))] = 0
    return rows


def _colluder_row(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    """A colluder's bits instead of somebody's."""
    who = COLLUDERS[trial.pick(len(COLLUDERS))]
    known = kernel.packed(trial.round.rows[who]) ^ trial.round.masks[who]
    at = trial.pick(len(rows))
    rows[at] = known ^ hand.masks[at]
    return rows


def _exchanged(trial: Trial, hand: Hand, rows: Bytes) -> Bytes:
    """Two colluders' rows change places by their difference; the second server has to guess where they are."""
    one, two = (kernel.packed(trial.round.rows[who]) for who in COLLUDERS)
    spots: tuple[int, ...] = trial.two(len(rows))
    if trial.me == 0:
        spots = tuple(int(np.flatnonzero(hand.order == ROSTER.index(who))[0]) for who in COLLUDERS)
    for at in spots:
        rows[at] ^= one ^ two
    return rows


# A wrong shuffle, and openings that the crook fits to what it has just seen of the honest server.


def _forced(party: str, message: str) -> Iterator[Cell]:
    for echo in (False, True):
        yield Cell("forced", party, message, _forcing(echo))


def _forcing(echo: bool) -> Callable[[Trial], Bent]:
    """The difference is made to open as zero, and the check's last value to cancel; or commitments are echoed."""

    def bend(trial: Trial) -> Bent:
        def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
            return tuple(_fitted(trial, letter, view, echo) for letter in letters)

        return replace(_bending(_flipped(0))(trial), letters=change)

    return bend


def _fitted(trial: Trial, letter: Letter, view: View, echo: bool) -> Letter:
    step = letter.kind.startswith("v1-s-")
    if letter.kind != "zero" and not (step and (echo or letter.kind == "v1-s-o")):
        return letter
    theirs = trial.heard(view, letter.kind)
    if theirs is None:
        return letter
    if echo and step:
        return replace(letter, body=theirs)
    over = trial.round.deck.over
    words = as_words(theirs["value"]) if letter.kind == "zero" else np.frombuffer(bytes_of(theirs["value"]), np.uint64)
    minus = over.sub(np.zeros_like(words), words)
    value = as_tensor(minus) if letter.kind == "zero" else byte_tensor(minus.tobytes())
    return filled(letter, value=value)


# Shares.


def _shares(party: str, message: str) -> Iterator[Cell]:
    for small in (True, False):
        yield Cell("shift", party, message, _sharing(message, _shifted(small)))
        yield Cell("re-tag", party, message, _sharing(message, _shifted(small, key=True)))
    yield Cell("paired", party, message, _sharing(message, _shifted(True, key=True, guess=True)))
    yield Cell("shift", party, message, _sharing(message, _tag_only))
    if message != "zero":
        yield Cell("paired", party, message, _sharing(message, _opposite))
        yield Cell("swap", party, message, _sharing(message, _crossed))


def _sharing(message: str, alter: Share) -> Callable[[Trial], Bent]:
    def bend(trial: Trial) -> Bent:
        def share(side: Side, kind: str, held: Held) -> Held:
            if kind != message:
                return held
            trial.acted = True
            return alter(trial, side, Held(held.values.copy(), held.tags.copy()))

        return Bent(bend=Bend(share=share))

    return bend


def _shifted(small: bool, key: bool = False, guess: bool = False) -> Share:
    """One share by a little or by anything; its tag by the crook's own part of the key, or by a guess of the whole."""

    def alter(trial: Trial, side: Side, held: Held) -> Held:
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
        return Held(values.reshape(shape), tags.reshape(shape))

    return alter


def _tag_only(trial: Trial, side: Side, held: Held) -> Held:
    tags = held.tags.reshape(-1, side.over.words)
    at = trial.pick(len(tags))
    tags[at] = side.over.add(tags[at : at + 1], side.over.draw(trial.chance, 1))[0]
    return Held(held.values, tags.reshape(held.tags.shape))


def _opposite(trial: Trial, side: Side, held: Held) -> Held:
    """An error in one share and the opposite one in another."""
    values = held.values.reshape(-1, side.over.words)
    one, two = trial.two(len(values))
    error = np.array([[1, 0][: side.over.words]], np.uint64)
    values[one] = side.over.add(values[one : one + 1], error)[0]
    values[two] = side.over.sub(values[two : two + 1], error)[0]
    return Held(values.reshape(held.values.shape), held.tags)


def _crossed(trial: Trial, side: Side, held: Held) -> Held:
    """Two shares change places, with their tags: that of two elements whose other shares stay."""
    values, tags = (part.reshape(-1, side.over.words) for part in (held.values, held.tags))
    one, two = trial.two(len(values))
    for part in (values, tags):
        part[[one, two]] = part[[two, one]]
    return Held(values.reshape(held.values.shape), tags.reshape(held.tags.shape))


# Hands of an earlier attempt.


_EVERY = ("order", "masks", "shares", "point", "tag_key", "extras", "key", "bound")
_HANDS = (
    (*_EVERY, "identity"), _EVERY, ("order",), ("masks",), ("order", "masks"), ("shares",), ("extras",),
    ("point", "tag_key"), ("key",),
)  # fmt: skip


def _reused(parts: tuple[str, ...]) -> Callable[[Trial], Bent]:
    """Some of what was dealt for an earlier attempt instead of this one's."""

    def bend(trial: Trial) -> Bent:
        if trial.earlier is None:
            raise AssertionError("nothing was dealt earlier")
        old = trial.earlier.hand(trial.me)

        def hand(now: Hand) -> Hand:
            trial.acted = True
            return replace(now, **{name: getattr(old, name) for name in parts})

        return Bent(bend=Bend(hand=hand))

    return bend


# Uploads, rosters and references.


def _uploads(party: str) -> Iterator[Cell]:
    yield Cell("hide upload", party, "here", _hidden(ROSTER[0]))
    yield Cell("hide upload", party, "here", _hidden(ROSTER[-1], alone=True), colluding=True)
    yield Cell("forward another", party, "forward", _other_row, colluding=True)
    for kind in ("old", "forged"):
        yield Cell("forward another", party, "forward", _wrong_row(kind), before="round")
    yield Cell("equivocate", party, "up", _two_rows, colluding=True)


def _hidden(victim: str, alone: bool = False) -> Callable[[Trial], Bent]:
    """A server that says a client's upload never came; where it came to no other, that client is missing."""

    def bend(trial: Trial) -> Bent:
        def got(bodies: Bodies) -> Bodies:
            trial.acted = True
            return {who: body for who, body in bodies.items() if who != victim}

        free = {victim: (mask_bits(trial.round, victim),)} if alone else {}
        return Bent(bend=Bend(got=got), clients=late_comer(trial) if alone else {}, free=free)

    return bend


def _other_row(trial: Trial) -> Bent:
    """A colluder's other row, duly signed, is forwarded beside the one that the honest server has."""
    who = COLLUDERS[0]
    other = signed_up(trial.round, who, 1 - trial.round.rows[who])

    def got(bodies: Bodies) -> Bodies:
        trial.acted = True
        return {name: other if name == who else body for name, body in bodies.items()}

    return Bent(bend=Bend(got=got), free={who: (mask_bits(trial.round, who),)})


def _wrong_row(kind: str) -> Callable[[Trial], Bent]:
    """An honest client's row of an earlier round, or one that nobody signed."""

    def bend(trial: Trial) -> Bent:
        victim = ROSTER[trial.pick(3)]
        if trial.earlier is None:
            raise AssertionError("nothing was sent earlier")
        body = dict(body_of(next(one for one in trial.earlier.sent[victim] if one.kind == "up")))
        if kind == "forged":
            body["row"] = torch.from_numpy(kernel.packed(trial.round.rows[victim]))

        def got(bodies: Bodies) -> Bodies:
            trial.acted = True
            return {name: body if name == victim else own for name, own in bodies.items()}

        return Bent(bend=Bend(got=got))

    return bend


def _two_rows(trial: Trial) -> Bent:
    """A colluder sends the servers different rows."""
    who = COLLUDERS[0]
    bits = 1 - trial.round.rows[who]

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        other = signed_up(trial.round, who, bits)
        return tuple(replace(one, body=other) if one.target == trial.peer else one for one in letters)

    return Bent(clients={who: change}, free={who: (mask_bits(trial.round, who),)})


def _named(trial: Trial) -> Bent:
    """One client's receipt names another row for another client, and is signed accordingly."""
    round_ = trial.round

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        one, two = trial.two(3)
        return tuple(_renamed(letter, ROSTER[two]) if letter.target == ROSTER[one] else letter for letter in letters)

    def _renamed(letter: Letter, other: str) -> Letter:
        if letter.kind != "receipt":
            return letter
        body = body_of(letter)
        digests = body["digests"].clone()
        digests[ROSTER.index(other)] ^= 1
        root = root_of(round_.given, bytes_of(body["identity"]), bytes_of(round_.late["commitment"]), digests)
        mine = signed(round_.keys[trial.party]["identity"], root)
        return filled(letter, digests=digests, signature=byte_tensor(mine))

    return Bent(letters=change)


def _shown(told: bool) -> Callable[[Trial], Bent]:
    """Another reference than the clients were bound to: `told` to the second server from the start, or shown late."""

    def bend(trial: Trial) -> Bent:
        trial.acted = True
        late: Mapping[str, Tensor] = opened(1 - trial.round.late["reference"].numpy(), trial.chance)
        if not told:
            late = {**late, "commitment": trial.round.late["commitment"]}
        return Bent(late=late)

    return bend


def _published(whose: str) -> Callable[[Trial], Bent]:
    """Another sum is published, signed anew by the first server, with some signature in the second one's place."""

    def bend(trial: Trial) -> Bent:
        return Bent(letters=_publishing(trial, whose))

    return bend


def _publishing(trial: Trial, whose: str) -> Change:
    round_ = trial.round

    def altered(letter: Letter, receipt: Mapping[str, Tensor]) -> Letter:
        body = body_of(letter)
        (spec,) = (field for field in round_.schemas["published"].fields if field.name == "sums")
        sums = another(trial, spec, body["sums"])
        bound = bytes_of(round_.late["commitment"])
        root = root_of(round_.given, bytes_of(receipt["identity"]), bound, receipt["digests"])
        mine = byte_tensor(signed(round_.keys["server"]["identity"], duet.outcome(root, sums, body["total"])))
        theirs = {"second": body["signatures"][1], "server": mine}.get(whose)
        if theirs is None and trial.earlier is not None:
            old = next(one for one in trial.earlier.sent["second"] if one.kind == "outcome")
            theirs = body_of(old)["signature"]
        if theirs is None:
            raise AssertionError("nothing was signed earlier")
        return filled(letter, sums=sums, signatures=torch.stack([mine, theirs]))

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if not any(letter.kind == "published" for letter in letters):
            return letters
        receipt = next(body_of(one) for one in round_.sent["server"] if one.kind == "receipt")
        first = altered(letters[0], receipt)
        return tuple(replace(letter, body=first.body) for letter in letters)

    return change
