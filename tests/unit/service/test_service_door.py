"""What a door reads, of whom and how much: strangers nothing, others one body at a time, and no longer than agreed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.served import Scene
from tests.unit.service.test_service_refusals import played

from croupier.core import canon
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.errors import StoreError
from croupier.service.door import PartyDoor
from croupier.service.store import LeavingLetter
from croupier.service.transport import CLOSED, LATER, OK, REFUSED


class Pieces:
    """What a caller sends, and how much of it was read; `stall` is what it waits for before the body."""

    def __init__(self, *pieces: bytes, stall: asyncio.Event | None = None) -> None:
        self.pieces, self.stall, self.read = pieces, stall, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for number, piece in enumerate(self.pieces):
            if number and self.stall is not None:
                await self.stall.wait()
            self.read += 1
            yield piece


async def put(scene: Scene, caller: str | None, sent: Pieces) -> bytes:
    return await scene.host.put(caller, sent.__aiter__())


def test_a_stranger_is_refused_before_a_byte_is_read() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        sent = Pieces(*scene.letter(notice, "c0"))
        assert await put(scene, None, sent) == REFUSED
        assert sent.read == 0
        assert scene.refused("a stranger's")

    played(case)


def test_one_body_of_a_kind_is_read_at_a_time() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "c0")
        stall = asyncio.Event()
        slow, copy = Pieces(head, body, stall=stall), Pieces(head, body)
        first = asyncio.create_task(put(scene, "c0", slow))
        async with asyncio.timeout(5):
            while not scene.host.in_flight:
                await asyncio.sleep(0.01)
        held = scene.host.in_flight
        assert await put(scene, "c0", copy) == LATER
        assert (copy.read, scene.host.in_flight) == (1, held)
        other = Pieces(*scene.letter(notice, "c1"))
        assert await put(scene, "c1", other) == OK, "another client's is read meanwhile"
        stall.set()
        assert await first == OK
        assert scene.host.in_flight == 0
        assert await put(scene, "c0", copy) == OK

    played(case)


@pytest.mark.parametrize("what", ["head", "body"])
def test_who_never_ends_is_not_waited_for(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartyDoor, "_slowest", property(lambda self: 0.1))

    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "c0")
        sent = Pieces(head, body, stall=asyncio.Event()).__aiter__() if what == "body" else _endless()
        async with asyncio.timeout(10):
            assert await scene.host.put("c0", sent) == LATER
        assert scene.host.in_flight == 0
        assert scene.host.counts["asked to wait"] == 1
        assert await put(scene, "c0", Pieces(head, body)) == OK

    played(case)


async def _endless() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def ended(scene: Scene, key: bytes, *counted: str) -> None:
    """The attempt is over, and these clients' letters counted."""
    scene.host.store.end(key, "done", {}, {"up": counted})
    scene.host.now = None


def test_a_letter_that_counted_is_known_again_and_others_are_late() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        for name in ("c0", "c1"):
            assert await scene.put(name, *scene.letter(notice, name)) == OK
        ended(scene, notice.key, "c0")
        assert await scene.put("c0", *scene.letter(notice, "c0")) == OK
        assert await scene.put("c0", *scene.letter(notice, "c0", 0.5)) == CLOSED
        # Written down, and too late for the flow: its sender must not take it for one that counted.
        for name in ("c1", "c2"):
            sent = Pieces(*scene.letter(notice, name))
            assert await put(scene, name, sent) == CLOSED
            assert sent.read == 1, "the body is not read"
        assert scene.host.store.newest_from("c2") == (notice.key, ("up",)), "that it came is noted"
        assert scene.host.counts["late"] == 3

    played(case)


def test_no_more_is_fetched_than_a_letter_can_have() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "relay", target="c0")
        letter = LeavingLetter("c0", "up", head[:HEADER_BYTES], body, hold=True)
        scene.host.store.leave(notice.key, [letter]).result()
        request = canon.dump({"key": notice.key, "kind": "up", "hold": 0.0})
        whole = HEADER_BYTES + len(body)
        calls = scene.calls("c0")
        assert await calls.take("relay", request, 2.0, whole - 1) == []
        found = await calls.take("relay", request, 2.0, whole)
        assert Header.unpack(found[0]).length == len(b"".join(found[1:])) == len(body)

    played(case)


def test_reports_of_other_attempts_are_not_kept() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        told: dict[str, Any] = {"well": False, "missing": ()}
        for number in range(100):
            assert await scene.host.ended("server", canon.dump({"key": bytes([number]) * 32, **told})) == OK
        assert scene.host.reports == {}
        assert await scene.host.ended("server", canon.dump({"key": notice.key, **told})) == OK
        assert list(scene.host.reports) == [notice.key]
        assert await scene.host.ended("c0", canon.dump({"key": notice.key, **told})) == REFUSED

    played(case)


def test_a_notice_is_checked_again_when_its_turn_comes() -> None:
    """Two notices of one attempt are pushed before either begins: the second finds the first played."""

    async def case(scene: Scene) -> None:
        first = await scene.open(scene.notice())
        other = scene.notice(number=1, cohort=first.cohort[:3])
        scene.host._next.put_nowait(other)
        assert scene.host.now is not None
        scene.host.now.supersede()
        async with asyncio.timeout(5):
            while not [event for event, _ in scene.told if event == "not played"]:
                await asyncio.sleep(0.01)
        assert scene.host.store.state(other.key) is None

    played(case)


def test_a_caller_hears_nothing_of_what_fails_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())

        async def broken(*_: Any) -> bytes:
            raise StoreError("/srv/relay/bodies/a1: cannot be read any more")

        monkeypatch.setattr(scene.host, "known", broken)
        assert await scene.calls("c0").known("relay", 2.0) == LATER
        assert scene.host.counts["calls failed"] == 1
        assert scene.host.now is not None
        assert scene.host.now.notice == notice

    played(case)
