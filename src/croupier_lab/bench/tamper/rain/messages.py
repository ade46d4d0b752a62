"""Cheating with letters alone: every message of the two servers, altered, left out, repeated, mirrored or replayed.

The list is made from the protocol's own schemas: a new message, or a new field, is tampered with as soon as it exists.
Left out are a model's weights, which the server may choose anyway, and what the dealer or a client sends. Cheats with
those, and cheats that need more than a letter, are in `dealt_shares`, `rosters` and `shuffle`. `tampering` collects the
cells of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.core.wire import Field
from croupier.kernels.field import Bytes
from croupier.kernels.shares import P
from croupier.mpc.authentic import as_tensor, as_words, byte_tensor, bytes_of
from croupier.mpc.field import BINARY, PRIME
from croupier.mpc.field import ShareField as Elements
from croupier.place.two_servers.messages import SERVERS
from croupier_lab.bench.tamper.rain.round import (
    ROSTER,
    Before,
    Change,
    RoundSetting,
    TamperedRound,
    TwoServerRound,
    mask_bits,
)
from croupier_lab.bench.tamper.rain.trial import RainTrial
from croupier_lab.bench.tamper.verdicts import body_of, filled, places

# Kinds of letters that only one server sends; both send the others.
_ONLY = {"late": "server", "w": "server", "published": "server", "model": "server", "q": "second"}
# Kinds that only one form of the check has.
_FORMS: dict[str, Check] = {"key": "hash", "e-c": "product", "e-o": "product"}
_DEALT = {"seed", "hand0", "hand1", "up"}
TO_CLIENTS = ("model", "receipt", "published")
# Bits of a share's word that may change without making it negative.
_WORD = 63
Check = Literal["hash", "product"]
CHECKS: tuple[Check, ...] = ("hash", "product")
Alter = Callable[[RainTrial, Letter], Letter]
Edit = Callable[[RainTrial, tuple[Letter, ...], int, View], tuple[Letter, ...]]


@dataclass(frozen=True)
class RainTamperCell:
    """A kind of cheating by one server at one message, and what it needs."""

    kind: str
    party: str
    message: str
    tamper: Callable[[RainTrial], TamperedRound]
    check: Check | None = None
    before: Before = "nothing"
    colluding: bool = False


def by_letters() -> Iterator[RainTamperCell]:
    """Every message between the servers and to clients, and every field but the model."""
    schemas = {check: TwoServerRound(RoundSetting(check=check), Coins.from_seed(0)).schemas for check in CHECKS}
    for party in SERVERS:
        for kind, schema in {**schemas["product"], **schemas["hash"]}.items():
            if kind in _DEALT or _ONLY.get(kind, party) != party:
                continue
            only = _FORMS.get(kind)
            for name, edit in _edits(kind, schema.fields):
                yield RainTamperCell(name, party, kind, _tampered(kind, edit), only)
            yield RainTamperCell("replay", party, kind, _tampered(kind, _old), only, "round")
            yield RainTamperCell("reuse", party, kind, _tampered(kind, _old), only, "attempt")


def _edits(kind: str, fields: tuple[Field, ...]) -> Iterator[tuple[str, Edit]]:
    for spec in fields:
        if spec.name == "model":
            continue
        yield "flip", _altered(_on(spec, another))
        if _element(spec) and spec.shape[-1] == 1:
            yield "no element", _altered(_on(spec, lambda _, __, values: values + P))
        yield "zeros", _altered(_on(spec, lambda _, __, values: torch.zeros_like(values)))
        yield "random", _altered(_on(spec, anything))
        if isinstance(spec.shape[0], int) and spec.shape[0] > 1:
            yield "swap", _altered(_on(spec, lambda trial, _, values: swapped(trial, values)))
    last = _on(fields[-1], another)
    yield "drop", lambda trial, letters, at, view: letters[:at] + letters[at + 1 :]
    yield "repeat", lambda trial, letters, at, view: (*letters, replace(letters[at]))
    yield "repeat", lambda trial, letters, at, view: (*letters, last(trial, letters[at]))
    if kind in TO_CLIENTS:
        yield "flip", lambda trial, letters, at, view: _alike(last(trial, letters[at]), letters)
        yield "drop", lambda trial, letters, at, view: tuple(one for one in letters if one.kind != kind)
    elif kind not in _ONLY:
        yield "echo", _mirrored


def _tampered(kind: str, edit: Edit) -> Callable[[RainTrial], TamperedRound]:
    def tamper(trial: RainTrial) -> TamperedRound:
        round_, free = trial.round, dict[str, tuple[Bytes, ...]]()
        if kind == "model" and round_.setting.missing == "vote":
            # A client that was handed something else is left out, and its uniform row votes.
            free = {who: (round_.rows[who], mask_bits(round_, who)) for who in ROSTER}
        change = edited(trial, kind, edit)
        return TamperedRound(letters=change, clients=late_comer(trial) if kind == "forward" else {}, free=free)

    return tamper


def edited(trial: RainTrial, kind: str, edit: Edit) -> Change:
    """A change that does something with one of the letters of a kind."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        found = places(letters, kind)
        return edit(trial, letters, found[trial.pick(len(found))], view) if found else letters

    return change


def late_comer(trial: RainTrial) -> dict[str, Change]:
    """A client whose upload reaches only the server that cheats, which then has something to forward."""
    return {ROSTER[-1]: lambda letters, view: tuple(one for one in letters if one.target != trial.peer)}


def _altered(alter: Alter) -> Edit:
    return lambda trial, letters, at, view: (*letters[:at], alter(trial, letters[at]), *letters[at + 1 :])


def _alike(one: Letter, letters: tuple[Letter, ...]) -> tuple[Letter, ...]:
    return tuple(replace(letter, body=one.body) if letter.kind == one.kind else letter for letter in letters)


def _mirrored(trial: RainTrial, letters: tuple[Letter, ...], at: int, view: View) -> tuple[Letter, ...]:
    """Send the honest server its own letter of this very step."""
    theirs = trial.heard(view, letters[at].kind)
    if theirs is None:
        return letters
    return (*letters[:at], replace(letters[at], body=theirs), *letters[at + 1 :])


def _old(trial: RainTrial, letters: tuple[Letter, ...], at: int, view: View) -> tuple[Letter, ...]:
    """Send the same party's letter of an earlier round or attempt."""
    if trial.earlier is None:
        raise AssertionError("nothing was sent earlier")
    letter = letters[at]
    (old,) = (one for one in trial.earlier.sent[trial.party] if (one.kind, one.target) == (letter.kind, letter.target))
    return (*letters[:at], old, *letters[at + 1 :])


def _on(spec: Field, alter: Callable[[RainTrial, Field, Tensor], Tensor]) -> Alter:
    def altered(trial: RainTrial, letter: Letter) -> Letter:
        return filled(letter, **{spec.name: alter(trial, spec, body_of(letter)[spec.name])})

    return altered


def another(trial: RainTrial, spec: Field, values: Tensor) -> Tensor:
    """One value becomes another that the field can hold."""
    flat = values.clone().reshape(-1)
    if not len(flat):
        return values
    at = trial.pick(len(flat))
    now = flat[at].item()
    if spec.top is not None:
        flat[at] = (int(now) + 1 + trial.pick(spec.top)) % (spec.top + 1)
    elif spec.dtype == "|u1":
        bits = 8 - (trial.round.deal.spare if _tight(trial, spec) and (at + 1) % values.shape[-1] == 0 else 0)
        flat[at] = int(now) ^ (1 << trial.pick(bits))
    elif _element(spec) and values.shape[-1] == 1:
        flat[at] = (int(now) + 1 + trial.pick(P - 1)) % P
    elif _element(spec):
        flat[at] = int(now) ^ (1 << trial.pick(_WORD))
    else:
        # Sums of signs move by two, whole weights by one.
        flat[at] = int(now) + (2 if spec.name == "sums" else 1) * (1 - 2 * trial.pick(2))
    return flat.reshape(values.shape)


def anything(trial: RainTrial, spec: Field, values: Tensor) -> Tensor:
    """Random values that the field can hold."""
    shape, count = values.shape, values.numel()
    found: npt.NDArray[Any]
    if spec.top is not None:
        found = trial.chance.below(spec.top + 1, count).astype(np.uint8)
    elif spec.dtype == "|u1":
        found = trial.chance.below(256, count).astype(np.uint8)
        if _tight(trial, spec):
            found.reshape(-1, shape[-1])[:, -1:] &= 0xFF >> trial.round.deal.spare
    elif _element(spec):
        over = PRIME if shape[-1] == 1 else BINARY
        found = over.draw(trial.chance, count // over.words).view(np.int64)
    else:
        found = trial.chance.below(2 * len(ROSTER) + 1, count) - len(ROSTER)
    return torch.from_numpy(found).reshape(shape).to(values.dtype)


def swapped(trial: RainTrial, values: Tensor) -> Tensor:
    """Exchange two values or rows; two that differ, where there are such."""
    values = values.clone()
    for _ in range(20):
        one, two = trial.two(len(values))
        if not torch.equal(values[one], values[two]):
            break
    values[[one, two]] = values[[two, one]]
    return values


def _tight(trial: RainTrial, spec: Field) -> bool:
    return spec.name in ("row", "rows") and trial.round.deal.spare > 0


def _element(spec: Field) -> bool:
    return spec.name == "value" and spec.dtype == "<i8"


def cancelling(trial: RainTrial, letter: Letter, view: View, over: Elements) -> Letter:
    """A letter whose element is the honest server's, negated, so that both add up to 0."""
    theirs = trial.heard(view, letter.kind)
    if theirs is None:
        return letter
    raw = theirs["value"].dtype == torch.uint8
    words = np.frombuffer(bytes_of(theirs["value"]), np.uint64) if raw else as_words(theirs["value"])
    minus = over.sub(np.zeros_like(words), words)
    return filled(letter, value=byte_tensor(minus.tobytes()) if raw else as_tensor(minus))
