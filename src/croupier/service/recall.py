"""What hosts remember of a party's letters, and how a client finds out that its store is older than what it sent.

A client whose folder was put back from a backup has forgotten letters that left. It would draw fresh coins for the same
round and send another update under the same one-time secrets, and its ledger would forget what it released. So before
its first step it asks every host for the last letters that the host has of it, and compares them with those that it
wrote down before they left. One honest host suffices; where the server is the only host, it must follow the protocol,
which such placements rest on anyway. `client` asks when it starts, `party` answers.
"""

from __future__ import annotations

import asyncio

from croupier.core import canon
from croupier.errors import IntegrityError, WireError
from croupier.service.requests import read_names, read_request
from croupier.service.store import Store
from croupier.service.transport import LATER, Calls

_LONGEST_PAUSE = 1.0


def remembered(store: Store, source: str) -> bytes:
    """A host's answer: the newest attempt in which a letter of a party's came, and the kinds of letters that did."""
    key, kinds = store.newest_from(source)
    return canon.dump({"key": key, "kinds": kinds})


async def check_recall(calls: Calls, store: Store, hosts: tuple[str, ...], timeout: float) -> None:
    """Ask every host until it answers. Raises: IntegrityError when one has letters that are not written down here."""
    await asyncio.gather(*(_check_host(calls, store, host, timeout) for host in hosts))


async def _check_host(calls: Calls, store: Store, host: str, timeout: float) -> None:
    pause = 0.02
    while True:
        said = await calls.known(host, timeout)
        try:
            key, kinds = _read(said)
        except WireError:
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
            continue
        for kind in kinds:
            if not store.has_left(key, host, kind):
                raise IntegrityError(
                    f"{host} has a letter {kind!r} of {calls.member.name} that its store does not know: the store is "
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
