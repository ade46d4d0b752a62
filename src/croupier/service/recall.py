"""What hosts remember of a party's letters, and how a client finds out that its store is older than what it sent.

A client whose folder was put back from a backup has forgotten letters that left. It would draw fresh coins for the same
round and send another update under the same one-time secrets, and its ledger would forget what it released. So before
its first step it asks every host for the last letters that the host has of it, and compares them with those that it
wrote down before they left. One honest host suffices; where the server is the only host, it must follow the protocol,
which such placements rest on anyway. `service.client` asks when it starts, and `flower.node` before it sends;
`service.door` answers with `remembered`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from croupier.core import canon
from croupier.errors import IntegrityError, RosterError, StoreError, WireError
from croupier.service.requests import read_names, read_request
from croupier.service.store import Store
from croupier.service.transport import LATER, REFUSED, Calls

_LONGEST_PAUSE = 1.0


def remembered(store: Store, source: str) -> bytes:
    """A host's answer: the newest attempt in which a letter of a party's came, and the kinds of letters that did."""
    key, kinds = store.newest_from(source)
    return canon.dump({"key": key, "kinds": kinds})


async def check_recall(
    calls: Calls, store: Store, hosts: tuple[str, ...], timeout: float,
    tell: Callable[..., None] = lambda event, **facts: None,
) -> None:  # fmt: skip
    """Ask every host until it answers. Raises: IntegrityError when one has letters that are not written down here.

    tell: hears, once of each host, that it is still waited for.
    """
    asking = _AnyVersion(calls)
    try:
        await asyncio.gather(*(_check_host(asking, store, host, timeout, tell) for host in hosts))
    finally:
        await asking.close()


class _AnyVersion:
    """Asks under each version of the roster that was accepted.

    Who starts again does not know which version holds now, and a host shows the certificate of that one only.
    """

    def __init__(self, calls: Calls) -> None:
        self.own = calls
        self._others: dict[bytes, Calls] = {}

    async def known(self, host: str, timeout: float) -> bytes:
        """What a host answers under the first version in which it does, or `LATER`."""
        for calls in (self.own, *self._elsewhere(host)):
            if (said := await calls.known(host, timeout)) not in (LATER, REFUSED):
                return said
        return LATER

    def _elsewhere(self, host: str) -> list[Calls]:
        """Calls under the other versions; some may have been accepted only just now."""
        others = list[Calls]()
        for roster in self.own.versions.rosters():
            if roster.digest == self.own.member.roster.digest or host not in roster.hosts:
                continue
            # In a version without this party, or whose keys it does not have, it cannot ask.
            with suppress(RosterError, StoreError):
                if roster.digest not in self._others:
                    self._others[roster.digest] = Calls(self.own.versions.of(roster.digest))
                others.append(self._others[roster.digest])
        return others

    async def close(self) -> None:
        """Hang up what was dialled here."""
        for calls in self._others.values():
            await calls.close()


async def _check_host(
    asking: _AnyVersion, store: Store, host: str, timeout: float, tell: Callable[..., None]
) -> None:  # fmt: skip
    me, pause, told = asking.own.member.name, 0.02, False
    while True:
        said = await asking.known(host, timeout)
        try:
            key, kinds = _read(said)
        except WireError:
            if pause >= _LONGEST_PAUSE and not told:
                told = True
                tell("waiting", source=host, why=f"{host} has not said yet what it has of this client; nothing is sent")
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            continue
        for kind in kinds:
            if not store.has_left(key, host, kind):
                raise IntegrityError(
                    f"{host} has a letter {kind!r} of {me} that its store does not know: the store is "
                    "older than what was sent, as after a restored backup. To go on could use one-time secrets twice; "
                    "enrol this client anew, under another name"
                )
        return


def _read(said: bytes) -> tuple[bytes, tuple[str, ...]]:
    """An answer of a host's. Raises: WireError where none came, or one that cannot be read."""
    if said == LATER:
        raise WireError("no answer")
    key, kinds = read_request(said, key=bytes, kinds=tuple)
    return key, read_names(kinds)
