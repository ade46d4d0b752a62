"""A party's door: what it answers to those who bring letters, fetch them, or tell how an attempt ended.

Every call comes with a certificate, and counts as the party that the roster in force has for it. A letter is held
against its header, its schema and the attempt that is played before a byte of its body is read, and answered with `ok`
only once it is durable. What is refused is counted and told to the own operator, never to the caller.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from croupier.core.envelope import HEADER_BYTES, Header
from croupier.errors import CroupierError, StoreError
from croupier.service.handshakes import Handshakes
from croupier.service.member import Member, OneVersion
from croupier.service.options import Options
from croupier.service.player import Player
from croupier.service.quota import IN_FLIGHT, has_room
from croupier.service.recall import remembered
from croupier.service.requests import read_names, read_request
from croupier.service.roster import Roster
from croupier.service.store import Store, StoredLetter
from croupier.service.transport import CLOSED, ENDED, LATER, OK, REFUSED, Call, Tls


class PartyDoor:
    """What a party answers; `now` is the attempt that it plays, and letters go to its player."""

    def __init__(self, member: Member, store: Store, options: Options) -> None:
        self.member, self.store, self.options = member, store, options
        self.versions = options.versions or OneVersion(member)
        self.counts: Counter[str] = Counter()
        self.now: Player | None = None
        self.reports: dict[bytes, dict[str, Mapping[str, Any]]] = {}
        self.turned = asyncio.Event()
        self.in_flight = 0
        self._former: Roster | None = None
        self._stirred = asyncio.Event()
        self._reading: set[tuple[str, str]] = set()
        self.hands = Handshakes(self._missed)

    @property
    def name(self) -> str:
        """What the party is called."""
        return self.member.name

    def _stir(self) -> None:
        """Wake those who wait for a letter: some may lie ready, or none will come."""
        self._stirred.set()
        self._stirred = asyncio.Event()

    def tls(self) -> Tls:
        """Its own certificate in the version that holds; hands are shaken with everybody in any version it accepted."""
        keys = self.member.keyring
        trusted = dict.fromkeys(card.certificate for roster in self.versions.rosters() for card in roster.cards)
        return Tls(keys.tls_key_pem, keys.tls_cert_pem, "".join(trusted).encode())

    def caller(self, certificate: bytes, call: Call) -> str | None:
        """Whose certificate it is, in the version that holds; nobody's once it has ended, on open connections too.

        Who renewed it may fetch what is left of the round before with the old one, and ask for notices with any.
        """
        roster = self.member.roster
        if (name := roster.party_of(certificate)) is not None:
            return name if self.today() < roster.card(name).expires else None
        others = {"take": (self._former,) if self._former else (), "open": self.versions.rosters()}.get(call, ())
        known = [(one, found) for one in others if (found := one.party_of(certificate)) is not None]
        names = [found for one, found in known if self.today() < one.card(found).expires]
        stays = [name for name in names if call == "open" or name in (*roster.clients, *roster.hosts)]
        return stays[-1] if stays else None

    def _missed(self, count: int) -> None:
        """Handshakes were not followed by a call."""
        self.counts["handshakes"] += count
        why = "no call followed: a stranger's certificate, one that has ended, or no TLS; gRPC's own line says which"
        self.options.tell("handshake", count=count, why=why)

    def today(self) -> dt.datetime:
        """The time by which certificates end."""
        return dt.datetime.now(dt.UTC)

    def asked_to_wait(self, caller: str | None) -> bytes:
        """Ask somebody to come again."""
        self.counts["asked to wait"] += 1
        return LATER

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        """Take a letter in: refused, asked to come again, too late, or durable."""
        if caller is None:
            return self._refuse(caller, "not its own letter: a stranger's")
        try:
            async with asyncio.timeout(self._slowest):
                head = await anext(pieces, b"")
            header, key = Header.unpack(head[:HEADER_BYTES]), head[HEADER_BYTES:]
        except CroupierError as error:
            return self._refuse(caller, str(error))
        except TimeoutError:
            return self.asked_to_wait(caller)
        if header.source != caller or header.target != self.name:
            return self._refuse(caller, "not its own letter, or not one for here")
        player = await self._playing(key)
        if player is None:
            return await self._late(caller, key, header, pieces)
        schema = player.schemas.get(header.kind)
        if schema is None or caller not in {*player.notice.cohort, *self.member.roster.hosts}:
            return self._refuse(caller, f"no such kind or party: {header.kind!r}")
        if header.length > schema.most_bytes:
            return self._refuse(caller, f"{header.kind!r} of {header.length} bytes; at most {schema.most_bytes} can be")
        if self.in_flight + header.length > IN_FLIGHT:
            return self.asked_to_wait(caller)
        if not has_room(self.store.folder, self.in_flight + header.length, self.options.floor):
            self.options.tell("disk", why=f"less than {self.options.floor} bytes would be left free; free some space")
            return self.asked_to_wait(caller)
        # One body at a time of each kind: nobody can use up the others' room with copies that never end.
        place = (caller, header.kind)
        if place in self._reading:
            return self.asked_to_wait(caller)
        self._reading.add(place)
        self.in_flight += header.length
        try:
            return await self._accept(player, header, head[:HEADER_BYTES], pieces)
        except TimeoutError:
            return self.asked_to_wait(caller)
        finally:
            self.in_flight -= header.length
            self._reading.discard(place)

    @property
    def _slowest(self) -> float:
        """Seconds that a caller may take to send what it has begun."""
        return max(5.0, self.member.roster.timetable.hold * 2)

    async def _accept(self, player: Player, header: Header, head: bytes, pieces: AsyncIterator[bytes]) -> bytes:
        async with asyncio.timeout(self._slowest):
            body = await _read(pieces, header.length)
        if body is None:
            return self._refuse(header.source, "shorter or longer than its header says")
        try:
            letter = await asyncio.to_thread(player.admit, header, body)
            kept = StoredLetter(header.source, header.kind, head, body)
            said = await asyncio.to_thread(self.store.keep, player.key, kept)
        except StoreError as error:
            self.options.tell("store", why=str(error))
            return self.asked_to_wait(header.source)
        except CroupierError as error:
            return self._refuse(header.source, str(error))
        if said == "other":
            self.counts["equivocations"] += 1
            return self._refuse(header.source, f"a second {header.kind!r}, and another one")
        self.counts["letters"] += said == "new"
        # Only now, and on this side of every wait: what is answered with ok is what the flow is handed.
        return OK if player.deliver(letter, len(head) + len(body)) else self._closed(header)

    async def _late(self, caller: str, key: bytes, header: Header, pieces: AsyncIterator[bytes]) -> bytes:
        """A letter for an attempt that is not played now: the same as before, too late, or too early."""
        state = await asyncio.to_thread(self.store.state, key)
        if state not in ("done", "failed"):
            return LATER
        # Only a letter that counted is read once more, and not held; of others it is noted that they came.
        known = await asyncio.to_thread(self.store.counted, key, caller, header.kind)
        if known is not None and known[0] == header.pack():
            try:
                async with asyncio.timeout(self._slowest):
                    if await _digest(pieces, known[0]) == known[1]:
                        return OK
            except TimeoutError:
                return self.asked_to_wait(caller)
        await asyncio.to_thread(self.store.note, key, caller, header)
        return self._closed(header)

    def _closed(self, header: Header) -> bytes:
        self.counts["late"] += 1
        self.options.tell("late", source=header.source, kind=header.kind)
        return CLOSED

    def _refuse(self, caller: str | None, why: str) -> bytes:
        self.counts["refused"] += 1
        self.options.tell("refused", source=caller or "a stranger", why=why)
        return REFUSED

    async def _playing(self, key: bytes) -> Player | None:
        """The attempt of this key, once it is played; None when it is over, or does not begin in time."""
        end = time.monotonic() + self.member.roster.timetable.hold
        while (left := end - time.monotonic()) > 0:
            if self.now is not None and self.now.key == key and self.now.seat.outcome is None:
                return self.now
            if await asyncio.to_thread(self.store.state, key) in ("done", "failed"):
                return None
            self.turned.clear()
            try:
                async with asyncio.timeout(min(left, 1.0)):
                    await self.turned.wait()
            except TimeoutError:
                continue
        return None

    async def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        """Hand out a letter that lies ready for the caller; wait for it a while."""
        try:
            key, kind, hold = read_request(request, key=bytes, kind=str, hold=float)
        except CroupierError:
            self._refuse(caller, "a request that cannot be read")
            return
        if caller is None:
            self._refuse(caller, "nothing lies ready for strangers")
            return
        end = time.monotonic() + min(max(0.0, hold), self.member.roster.timetable.hold)
        while True:
            stirred = self._stirred
            found = await asyncio.to_thread(self.store.waiting, key, caller, kind)
            if found is not None:
                yield found[0]
                view = memoryview(found[1])
                for at in range(0, len(view), 1 << 20):
                    yield bytes(view[at : at + (1 << 20)])
                return
            state = await asyncio.to_thread(self.store.state, key)
            if state in ("done", "failed"):
                yield ENDED
                return
            if (left := end - time.monotonic()) <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await stirred.wait()

    async def ended(self, caller: str | None, request: bytes) -> bytes:
        """Another host ended an attempt."""
        try:
            key, well, listed = read_request(request, key=bytes, well=bool, missing=tuple)
            missing = read_names(listed)
        except CroupierError:
            return self._refuse(caller, "a report that cannot be read")
        if caller is None or caller not in self.member.roster.hosts:
            return self._refuse(caller, "only hosts report how an attempt ended")
        if self.now is None or self.now.key != key:
            return OK
        self.reports.setdefault(key, {})[caller] = {"well": well, "missing": missing}
        if self.now is not None and self.now.key == key and not well:
            self.now.lose(caller)
        self.turned.set()
        return OK

    async def known(self, caller: str | None) -> bytes:
        """Somebody asks for the last letters of its own that came here."""
        if caller is None:
            return self._refuse(caller, "nothing is told to strangers")
        return await asyncio.to_thread(remembered, self.store, caller)

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """Notices come by what each role does with them."""
        return self._refuse(caller, "no notices are taken here")


async def _read(pieces: AsyncIterator[bytes], length: int) -> bytes | None:
    """A body of exactly so many bytes, or None."""
    body = bytearray()
    async for piece in pieces:
        if len(body) + len(piece) > length:
            return None
        body += piece
    return bytes(body) if len(body) == length else None


async def _digest(pieces: AsyncIterator[bytes], head: bytes) -> bytes:
    """What binds a letter that is read again, without holding it."""
    state = hashlib.sha256(head)
    async for piece in pieces:
        state.update(piece)
    return state.digest()
