"""What a party saw, kept for an audit of its own: one file an attempt at a round, sealed to the party's box key.

Whoever takes the folder without the key file reads nothing of what was seen: party, run, roster, round and attempt are
in the clear. `croupier serve` and `join` keep views when asked to (`--keep-view`, by a `ViewKeeper`), and `croupier
audit --views` opens them with `party_views`. A view holds what reached the party and what its own work gave, and never
its coins. What clients say to agree on a secret is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.files import put_whole
from croupier.core.view import View, facts
from croupier.errors import CroupierError, IntegrityError, StoreError, WireError
from croupier.mpc.seal import seal
from croupier.service.home import Home, make_private
from croupier.service.identity import Keyring
from croupier.service.notice import ROUND, Notice

if TYPE_CHECKING:
    from croupier.audit.recorded.viewed import PartyViews

SUFFIX = ".view"
_ABOUT = ("party", "run", "roster", "round", "attempt")
_REMEDY = "name the folder of views that this party kept (NAME.runs/RUN/views), and its own .key file"


@dataclass(frozen=True)
class KeptView:
    """A view as it was kept: of which round (counted from 1) and attempt, under which roster, and what it held."""

    party: str
    run: bytes
    roster: bytes
    round: int
    attempt: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class ViewKeeper:
    """Keeps views in a folder; `keys` gives the party's keys in force in a round, which is counted from 1."""

    folder: Path
    keys: Callable[[int], Keyring]
    tell: Callable[..., None]

    def __call__(self, notice: Notice, view: View) -> None:
        """Keep that of a round. A view that cannot be kept is told, and stops nobody."""
        if notice.what != ROUND:
            # It has the number of the round that follows, and would take the place of that one's view.
            return
        about = dict(
            zip(_ABOUT, (view.party, notice.run, notice.roster, notice.round + 1, notice.attempt + 1), strict=True)
        )
        try:
            make_private(self.folder)
            lock = self.keys(notice.round + 1).lock
            box = seal(lock.public, canon.dump(facts(view)), _info(about), Coins.from_os())
            path = self.folder / f"{notice.round + 1:06d}-{notice.attempt + 1}{SUFFIX}"
            put_whole(path, canon.dump({**about, "box": box}))
        except (CroupierError, OSError) as error:
            self.tell("view not kept", round=notice.round + 1, why=str(error))


def _info(about: Mapping[str, Any]) -> bytes:
    """What a box is bound to: a view whose party, run, roster, round or attempt is altered stays closed."""
    return canon.dump(("croupier view", 1, *(about[name] for name in _ABOUT)))


def open_views(folder: Path, home: Home) -> tuple[KeptView, ...]:
    """Every view in a folder, by round and attempt. Raises: StoreError, IntegrityError when one was altered."""
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise StoreError(f"{folder}: holds no kept views; {_REMEDY}")
    rings = list(home.keyrings())
    found = [_opened(path, rings) for path in files]
    return tuple(sorted(found, key=lambda one: (one.round, one.attempt)))


def party_views(folder: Path, key: Path) -> tuple[PartyViews, dict[str, Any]]:
    """The last view of every round that a party kept, for an audit, and the network and recipe of its newest roster.

    Raises: SpecError, StoreError, IntegrityError.
    """
    from croupier.audit.recorded.viewed import PartyViews

    home = Home.open(key)
    found = open_views(folder, home)
    roster = home.pinned_by(found[-1].roster)
    # Of several attempts at a round, the last.
    last = {one.round: one.facts for one in found}
    task = roster.spec.task
    recipe = {"model": task.model.plain(), "fit": task.fit.plain(), **({"loss": task.loss} if task.loss else {})}
    return PartyViews(home.keys.name, last, roster.spec.protocol, roster.layout), recipe


def _opened(path: Path, rings: Iterable[Keyring]) -> KeptView:
    try:
        table = canon.load(path.read_bytes())
        about = {name: table[name] for name in _ABOUT}
        box = bytes(table["box"])
    except (OSError, WireError, KeyError, TypeError, ValueError):
        raise StoreError(f"{path}: is no kept view; {_REMEDY}") from None
    for keys in rings:
        try:
            return KeptView(**about, facts=canon.load(keys.open(box, _info(about))))
        except IntegrityError:
            # Sealed to another of the party's keys: it may have renewed them since.
            continue
    raise IntegrityError(f"{path}: none of your keys opens it, or it was altered; {_REMEDY}")
