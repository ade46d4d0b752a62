"""A party's door: what it answers to those who bring letters, fetch them, or tell how an attempt ended.

Every call comes with a certificate, and counts as the party that the roster in force has for it. Of a letter's body no
more is read than came with its header until sender, attempt, kind and length are known to fit; it is answered with `ok`
only once it is durable. Why something is refused, its own operator is told, and never the caller. `service.party`
derives from `PartyDoor`, and `service.transport` calls it for every call that comes in.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from croupier.core.envelope import HEADER_BYTES, Header
from croupier.core.flow import Received
from croupier.errors import CroupierError, StoreError
from croupier.service.counted import CountedAnswers
from croupier.service.database import LARGE
from croupier.service.doorway import Call, Tls
from croupier.service.handshakes import Handshakes
from croupier.service.identity import Keyring
from croupier.service.incoming import IncomingBody
from croupier.service.member import Member, OneVersion
from croupier.service.options import Options
from croupier.service.outgoing import OutgoingBodies
from croupier.service.player import Player
from croupier.service.quota import IN_FLIGHT, has_room
from croupier.service.recall import remembered
from croupier.service.requests import read_names, read_request
from croupier.service.roster import Roster
from croupier.service.store import HeldLetter, Store, StoredLetter
from croupier.service.transport import CLOSED, ENDED, KEY_BYTES, LATER, OK, SHORT_IN, SHORT_OUT


class PartyDoor(CountedAnswers):
    """What a party answers to calls; `now` is the attempt that it plays, and letters go to its player."""

    def __init__(self, member: Member, store: Store, options: Options) -> None:
        self.member, self.store, self.options = member, store, options
        self.versions = options.versions or OneVersion(member)
        self.counts: Counter[str] = Counter()
        self.now: Player | None = None
        self.reports: dict[bytes, dict[str, Mapping[str, Any]]] = {}
        # Set, and made anew, when an attempt begins or ends, here or elsewhere.
        self.moved = asyncio.Event()
        self.in_flight, self.outgoing = 0, OutgoingBodies()
        # Whether the run is over for this party, whatever came of it.
        self.finished = False
        self._former: Roster | None = None
        self._shown: tuple[tuple[Keyring, tuple[Roster, ...]], Tls] | None = None
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

    def _move(self) -> None:
        """Wake those who wait for an attempt to begin or to end."""
        self.moved.set()
        self.moved = asyncio.Event()

    def tls(self) -> Tls:
        """Its own certificate in the version that holds; hands are shaken with everybody in any version it accepted."""
        now = (self.member.keyring, self.versions.rosters())
        if self._shown is None or self._shown[0] != now:
            # Asked for at every handshake, and a federation may have thousands of certificates.
            keys, rosters = now
            trusted = dict.fromkeys(card.certificate for roster in rosters for card in roster.cards)
            self._shown = now, Tls(keys.tls_key_pem, keys.tls_cert_pem, "".join(trusted).encode())
        return self._shown[1]

    def caller(self, certificate: bytes, call: Call) -> str | None:
        """Whose certificate it is in the version of the roster that holds; nobody's once the certificate has ended.

        It is asked at every call, so that this counts on open connections, too. There are two exceptions. A party that
        renewed its certificate may fetch what is left of the round before with the old one ("take"). And it may ask for
        notices and for its own last letters with that of any accepted version ("open", "known"): who starts again does
        not know yet which version holds.
        """
        roster = self.member.roster
        if (name := roster.party_of(certificate)) is not None:
            return name if self.today() < roster.card(name).expires else None
        asks = call in ("open", "known")
        former = (self._former,) if call == "take" and self._former else ()
        others = self.versions.rosters() if asks else former
        known = [(one, found) for one in others if (found := one.party_of(certificate)) is not None]
        names = [found for one, found in known if self.today() < one.card(found).expires]
        stays = [name for name in names if asks or name in (*roster.clients, *roster.hosts)]
        return stays[-1] if stays else None

    def _missed(self, count: int) -> None:
        """Handshakes were not followed by a call."""
        self.counts["handshakes"] += count
        why = "no call followed: a stranger's certificate, one that has ended, or no TLS; gRPC's own line says which"
        self.options.tell("handshake", count=count, why=why)

    def today(self) -> dt.datetime:
        """The time by which certificates end."""
        return dt.datetime.now(dt.UTC)

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        """Take a letter in: refused, asked to come again, too late, or durable."""
        if caller is None:
            return self._refuse(caller, "not its own letter: a stranger's")
        try:
            async with asyncio.timeout(self._slowest):
                head = await anext(pieces, b"")
            header, key = Header.unpack(head[:HEADER_BYTES]), head[HEADER_BYTES : HEADER_BYTES + KEY_BYTES]
        except CroupierError as error:
            return self._refuse(caller, str(error))
        except TimeoutError:
            return self.asked_to_wait(caller)
        if header.source != caller or header.target != self.name:
            return self._refuse(caller, "not its own letter, or not one for here")
        if len(begun := head[HEADER_BYTES + KEY_BYTES :]) > SHORT_IN:
            return self._refuse(caller, "a first piece that is longer than it may be")
        body = IncomingBody(begun, pieces)
        player = await self._playing(key)
        if player is None:
            return await self._late(caller, key, header, body)
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
            return await self._accept(player, header, head[:HEADER_BYTES], body)
        except TimeoutError:
            return self.asked_to_wait(caller)
        finally:
            self.in_flight -= header.length
            self._reading.discard(place)

    @property
    def _slowest(self) -> float:
        """Seconds that a caller may take to send what it has begun."""
        return max(5.0, self.member.roster.timetable.hold * 2)

    async def _accept(self, player: Player, header: Header, head: bytes, coming: IncomingBody) -> bytes:
        async with asyncio.timeout(self._slowest):
            body = await coming.read(header.length)
        if body is None:
            return self._refuse(header.source, "shorter or longer than its header says")
        try:
            letter = await self._admitted(player, header, body)
            said = await player.keep(StoredLetter(header.source, header.kind, head, body))
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

    async def _admitted(self, player: Player, header: Header, body: bytes) -> Received:
        """A letter that is what it should be; a large one is read beside the event loop. Raises: CroupierError."""
        if len(body) <= LARGE:
            return player.admit(header, body)
        return await asyncio.to_thread(player.admit, header, body)

    async def _late(self, caller: str, key: bytes, header: Header, coming: IncomingBody) -> bytes:
        """A letter for an attempt that is not played now: the same as before, too late, or too early."""
        state = await asyncio.to_thread(self.store.state, key)
        if state not in ("done", "failed"):
            return LATER
        # Only a letter that counted is read once more, and not held; of others it is noted that they came.
        known = await asyncio.to_thread(self.store.counted, key, caller, header.kind)
        if known is not None and known[0] == header.pack():
            try:
                async with asyncio.timeout(self._slowest):
                    if await coming.digest(known[0]) == known[1]:
                        return OK
            except TimeoutError:
                return self.asked_to_wait(caller)
        await asyncio.to_thread(self.store.note, key, caller, header)
        return self._closed(header)

    def _closed(self, header: Header) -> bytes:
        self.counts["late"] += 1
        self.options.tell("late", source=header.source, kind=header.kind)
        return CLOSED

    async def _playing(self, key: bytes) -> Player | None:
        """The attempt of this key, once it is played; None when it is over, or does not begin in time."""
        end = time.monotonic() + self.member.roster.timetable.hold
        while (left := end - time.monotonic()) > 0:
            moved = self.moved
            if self.now is not None and self.now.key == key and self.now.seat.outcome is None:
                return self.now
            if await asyncio.to_thread(self.store.state, key) in ("done", "failed"):
                return None
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await moved.wait()
        return None

    async def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        """Hand out a letter that lies ready for the caller; wait for it a while."""
        try:
            key, kind, hold = read_request(request, key=bytes, kind=str, hold=float)
        except CroupierError:
            self._refuse(caller, "a request that cannot be read")
            yield b""
            return
        if caller is None:
            self._refuse(caller, "nothing lies ready for strangers")
            yield b""
            return
        end = time.monotonic() + min(max(0.0, hold), self.member.roster.timetable.hold)
        while True:
            stirred = self._stirred
            if (found := self.store.waiting(key, caller, kind)) is not None:
                async for piece in self._handed_out(caller, key, found):
                    yield piece
                return
            if self.store.state(key) in ("done", "failed"):
                yield ENDED
                return
            if (left := end - time.monotonic()) <= 0:
                yield b""
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await stirred.wait()

    async def _handed_out(self, caller: str, key: bytes, found: HeldLetter) -> AsyncIterator[bytes]:
        """A letter in pieces; a short one in one piece with its header."""
        length, read = Header.unpack(found.header).length, partial(self.store.opened_body, key, found)
        if length <= SHORT_OUT:
            yield found.header + read()
            return
        if (fetched := self.outgoing.begin(caller, found.file, length, read)) is None:
            self.asked_to_wait(caller)
            yield b""
            return
        async for piece in fetched.pieces(found.header, self._slowest):
            yield piece

    def let_go(self) -> None:
        """Erase what lies ready for others: the run is over, and nobody fetches any more. Raises: StoreError."""
        self.store.let_go()

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
        self._move()
        return OK

    async def known(self, caller: str | None) -> bytes:
        """Somebody asks for the last letters of its own that came here."""
        if caller is None:
            return self._refuse(caller, "nothing is told to strangers")
        return await asyncio.to_thread(remembered, self.store, caller)

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """Notices come by what each role does with them."""
        return self._refuse(caller, "no notices are taken here")
