"""One party as a running program: its door, its store, and the attempts that it plays one after another.

`host`, `client` and `lead` decide where notices come from; here is what they share: opening an attempt with coins that
are on disk first, playing it, and ending it so that memory, counts and the erasure of secrets happen in one step.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from croupier.core import canon
from croupier.core.attempt import WorkByName
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.core.flow import Memory, Outcome, Seat
from croupier.core.view import Kept, View
from croupier.engine.restart import with_events
from croupier.errors import CroupierError, IntegrityError, StoreError, TooFew
from croupier.service.guard import Past, check_notice
from croupier.service.member import SERVER, Member, OneVersion, Versions
from croupier.service.notice import Notice
from croupier.service.player import Hook, Player, Surroundings, nothing
from croupier.service.quota import FLOOR, IN_FLIGHT, has_room
from croupier.service.roster import Roster
from croupier.service.store import Opened, Store, StoredLetter
from croupier.service.transport import CLOSED, ENDED, LATER, OK, REFUSED, Call, Calls, Tls


class CoinSource(Protocol):
    """Where a party's coins of an attempt come from."""

    def __call__(self, notice: Notice) -> bytes:
        """32 bytes."""


def fresh_coins(notice: Notice) -> bytes:
    """Coins of a deployment: from the operating system, for this attempt and no other."""
    return os.urandom(32)


@dataclass(frozen=True)
class Options:
    """How a party runs, apart from what the roster says."""

    coins: CoinSource = fresh_coins
    shard: str = ""
    first_memory: Memory = field(default_factory=dict, repr=False)
    keep: Kept = "nothing"
    hook: Hook = nothing
    tell: Callable[..., None] = lambda event, **facts: None
    on_view: Callable[[Notice, View], None] = lambda notice, view: None
    # Which version of the roster holds in a round; the one it starts with in all of them unless said.
    versions: Versions | None = None
    # Bytes of the disk that letters leave free.
    floor: int = FLOOR


class PartyProcess:
    """One party: what it is, what it remembers, and what it is playing now."""

    def __init__(self, member: Member, store: Store, work: WorkByName, options: Options) -> None:
        self.member, self.store, self.options = member, store, options
        self.work: WorkByName = {**work, "spend": self._spend}
        self.versions = options.versions or OneVersion(member)
        self.calls = Calls(member, self.versions)
        self.counts: Counter[str] = Counter()
        # Of rounds that ended well, all together.
        self.seconds = 0.0
        self.listening, self.over = False, False
        self.now: Player | None = None
        self.reports: dict[bytes, dict[str, Mapping[str, Any]]] = {}
        self.turned = asyncio.Event()
        self.in_flight = 0
        self._former: Roster | None = None
        self._stirred = asyncio.Event()

    @property
    def name(self) -> str:
        """What the party is called."""
        return self.member.name

    @property
    def number(self) -> int:
        """The round that it plays or played last, counted from 1; 0 before the first."""
        return 0 if self.now is None else self.now.notice.round + 1

    @property
    def around(self) -> Surroundings:
        """What its players play with."""
        member = self.member
        return Surroundings(
            self.name, member.roster.clients, self.store, self.calls, member.roster.timetable, self.options.hook,
            self.options.tell, self._stir,
        )  # fmt: skip

    def _stir(self) -> None:
        """Wake those who wait for a letter: some may lie ready, or none will come."""
        self._stirred.set()
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        """Take part until the run is over; what that is differs by role."""
        raise NotImplementedError

    # ---- what is remembered

    def memory(self) -> Memory:
        """What its flow remembers of the rounds before."""
        kept = self.store.fact("memory")
        return dict(self.options.first_memory) if kept is None else canon.load(kept)

    def participation(self) -> int:
        """How often something of this client left before, over all runs."""
        kept = self.store.fact("participation")
        return 0 if kept is None else int(canon.load(kept))

    def past(self, what: str) -> Past:
        """What it took part in before."""
        last = self.store.last(what, self.member.roster.run)
        alarm = (self.store.fact("alarm") or b"").decode()
        round_, attempt, state = last or (-1, -1, "")
        return Past(round_, attempt, state, self.store.fact("short") == b"yes", alarm)

    # ---- playing

    def check(self, notice: Notice) -> None:
        """Raises: CroupierError when the party must not take part; turns to the roster that holds in the round."""
        member = self.versions.at(notice.round + 1)
        check_notice(notice, member.roster, self.past(notice.what), me=self.name)
        self.turn_to(member)

    def turn_to(self, member: Member) -> None:
        """From now on go by another version of the roster: its keys, its certificates, its parties."""
        if member.roster == self.member.roster:
            return
        self._former = self.member.roster
        self.member = self.calls.member = member
        self.options.tell("roster", version=member.roster.version, from_round=member.roster.from_round)

    async def begin(self, notice: Notice) -> Player:
        """Write a new attempt down, and seat the party."""
        memory, coins = self._begins_with(notice)
        opened = Opened(
            notice.key, notice.number, notice.what, notice.run, notice.round, notice.attempt,
            canon.dump(notice.plain()), coins, canon.dump(dict(memory)), time.time(),
        )  # fmt: skip
        await asyncio.to_thread(self.store.open, opened)
        self.counts["attempts"] += 1
        self.options.tell("opened", round=notice.round + 1, attempt=notice.attempt + 1, invited=len(notice.cohort))
        self.options.hook("open", notice.round)
        return self._seated(notice, opened)

    def resume(self) -> Player | None:
        """The attempt that was open when the party stopped, seated again."""
        opened = self.store.current()
        if opened is None:
            return None
        notice = Notice(**canon.load(opened.notice))
        self.turn_to(self.versions.at(notice.round + 1))
        return self._seated(notice, opened)

    def _begins_with(self, notice: Notice) -> tuple[Memory, bytes]:
        """Memory and coins of an attempt.

        A client's belong to the round, as its participation does: a second attempt carries the very same update.
        """
        if not self.member.is_client:
            return self.memory(), self.options.coins(notice)
        if (held := self._this_round(notice)) is None:
            memory, drawn = self.memory(), self.options.coins(notice)
            held = {
                "name": _round_name(notice), "coins": drawn, "at": self.participation(), "memory": dict(memory),
                "events": (),
            }  # fmt: skip
            self.store.remember({"this round": canon.dump(held)})
        events = tuple(held["events"])
        return (with_events(held["memory"], events) if events else held["memory"]), bytes(held["coins"])

    def _this_round(self, notice: Notice) -> Mapping[str, Any] | None:
        """What the client drew for a round, if it took part in an attempt of it before."""
        kept = self.store.fact("this round")
        held = None if kept is None else canon.load(kept)
        return held if held is not None and held["name"] == _round_name(notice) else None

    def _seated(self, notice: Notice, opened: Opened) -> Player:
        member = self.member
        pipeline = member.pipeline
        held = self._this_round(notice) if member.is_client else None
        given = member.given(notice, self.options.shard, int(held["at"]) if held else 0)
        memory = {**canon.load(opened.memory), **({"keys": member.keys} if member.keys else {})}
        seat = Seat.take(
            pipeline.parties(notice.cohort)[self.name], given, memory, Coins(opened.coins), self.options.keep
        )
        # The clock may have jumped while the party was down: never wait longer than from the start again.
        ago = min(max(0.0, time.time() - opened.opened), member.roster.timetable.round)
        player = Player(
            self.around, notice, seat, pipeline.schemas(given), self.work, notice.attempt_id(pipeline.digest()),
            given.layout, time.monotonic() - ago,
        )  # fmt: skip
        self.now = player
        self.turned.set()
        return player

    async def end(self, player: Player, outcome: Outcome, facts: Mapping[str, bytes] | None = None) -> None:
        """End an attempt: memory, counts, ledger and erasure in one step; then say to other hosts how it ended."""
        error, key = outcome.error, player.key
        memory = outcome.memory if outcome.memory is not None else self.memory()
        if (held := self._this_round(player.notice)) and held["events"]:
            memory = with_events(memory, tuple(held["events"]))
        more = {"memory": canon.dump(dict(memory)), "short": b"yes" if isinstance(error, TooFew) else b"no"}
        if self.member.is_client and (error is None or self.store.left(key)):
            more["participation"] = canon.dump(player.seat.view.given.participation + 1)
        if self.member.is_client and isinstance(error, IntegrityError):
            more["alarm"] = str(error).encode()
        await asyncio.to_thread(self.store.end, key, "failed" if error else "done", {**more, **(facts or {})})
        self._stir()
        # Who renewed its certificate had this attempt to fetch what was left of the one before.
        self._former = None
        if player.seat.view.kept != "nothing":
            self.options.on_view(player.notice, player.seat.view)
        self.counts["bytes_in"] += player.bytes_in
        self.counts["bytes_out"] += player.bytes_out
        self._count_end(player, error)
        self.options.hook("end", player.notice.round)
        if not self.member.is_client:
            await self._say_ended(player, error)

    def _count_end(self, player: Player, error: CroupierError | None) -> None:
        seconds, notice = time.monotonic() - player.opened, player.notice
        self.counts["failed" if error else "rounds"] += 1
        self.seconds += 0.0 if error else seconds
        self.options.tell(
            "closed", round=notice.round + 1, attempt=notice.attempt + 1, well=error is None, seconds=round(seconds, 3)
        )

    async def _say_ended(self, player: Player, error: CroupierError | None) -> None:
        """Other hosts hear whether it ended well and, the server alone, who was missing; never why."""
        missing = tuple(sorted(error.missing)) if isinstance(error, TooFew) else ()
        for host in self.member.roster.hosts:
            if host != self.name and (error is not None or host == SERVER):
                told = {"key": player.key, "well": error is None, "missing": missing if host == SERVER else ()}
                await self.calls.end(host, canon.dump(told), 2.0)

    def _spend(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[None]:
        """Write down what a client is about to release of its budget; it counts however the round ends."""
        for _, event in jobs:
            held = dict(canon.load(self.store.fact("this round") or b"N"))
            if dict(event) not in held["events"]:
                held["events"] = (*held["events"], dict(event))
            # In the memory at once, not at the end: a crash must not make anybody forget it.
            memory = with_events(self.memory(), held["events"])
            self.store.remember({"this round": canon.dump(held), "memory": canon.dump(dict(memory))})
        return [None for _ in jobs]

    # ---- the door

    def tls(self) -> Tls:
        """Its own certificate in the version that holds; hands are shaken with everybody in any version it accepted."""
        keys = self.member.keyring
        trusted = dict.fromkeys(card.certificate for roster in self.versions.rosters() for card in roster.cards)
        return Tls(keys.tls_key_pem, keys.tls_cert_pem, "".join(trusted).encode())

    def caller(self, certificate: bytes, call: Call) -> str | None:
        """Whose certificate it is, in the version that holds.

        Who renewed it may fetch what is left of the round before with the old one, and ask for notices with any.
        """
        roster = self.member.roster
        if (name := roster.party_of(certificate)) is not None:
            return name
        others = {"take": (self._former,) if self._former else (), "open": self.versions.rosters()}.get(call, ())
        names = [found for one in others if (found := one.party_of(certificate)) is not None]
        stays = [name for name in names if call == "open" or name in (*roster.clients, *roster.hosts)]
        return stays[-1] if stays else None

    def asked_to_wait(self, caller: str | None) -> bytes:
        """Ask somebody to come again."""
        self.counts["asked to wait"] += 1
        return LATER

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        """Take a letter in: refused, asked to come again, too late, or durable."""
        head = await anext(pieces, b"")
        try:
            header, key = Header.unpack(head[:HEADER_BYTES]), head[HEADER_BYTES:]
        except CroupierError as error:
            return self._refuse(caller, str(error))
        if caller is None or header.source != caller or header.target != self.name:
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
        self.in_flight += header.length
        try:
            return await self._accept(player, header, head[:HEADER_BYTES], pieces)
        finally:
            self.in_flight -= header.length

    async def _accept(self, player: Player, header: Header, head: bytes, pieces: AsyncIterator[bytes]) -> bytes:
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
        if header.length <= IN_FLIGHT and (body := await _read(pieces, header.length)) is not None:
            kept = StoredLetter(caller, header.kind, header.pack(), body)
            if await asyncio.to_thread(self.store.accepted, key, kept):
                return OK
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
                await asyncio.wait_for(self.turned.wait(), min(left, 1.0))
            except TimeoutError:
                continue
        return None

    async def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        """Hand out a letter that lies ready for the caller; wait for it a while."""
        try:
            wanted = canon.load(request)
            key, kind, hold = bytes(wanted["key"]), str(wanted["kind"]), float(wanted["hold"])
        except (CroupierError, KeyError, TypeError, ValueError):
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
                await asyncio.wait_for(stirred.wait(), left)

    async def ended(self, caller: str | None, request: bytes) -> bytes:
        """Another host ended an attempt."""
        try:
            told = canon.load(request)
            key, well, missing = bytes(told["key"]), bool(told["well"]), tuple(map(str, told["missing"]))
        except (CroupierError, KeyError, TypeError, ValueError):
            return self._refuse(caller, "a report that cannot be read")
        if caller is None or caller not in self.member.roster.hosts:
            return self._refuse(caller, "only hosts report how an attempt ended")
        self.reports.setdefault(key, {})[caller] = {"well": well, "missing": missing}
        if self.now is not None and self.now.key == key and not well:
            self.now.lose(caller)
        self.turned.set()
        return OK

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """Notices come by what each role does with them."""
        return self._refuse(caller, "no notices are taken here")

    async def close(self) -> None:
        """Hang up."""
        await self.calls.close()


async def _read(pieces: AsyncIterator[bytes], length: int) -> bytes | None:
    """A body of exactly so many bytes, or None."""
    body = bytearray()
    async for piece in pieces:
        if len(body) + len(piece) > length:
            return None
        body += piece
    return bytes(body) if len(body) == length else None


def _round_name(notice: Notice) -> str:
    return f"{notice.run.hex()} {notice.what} {notice.round}"
