"""What is open to be handed out: one copy for all, few for each, and none for who does not read on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from tests.served import Scene
from tests.unit.service.test_service_refusals import played

from croupier.core import canon
from croupier.core.envelope import CHUNK, HEADER_BYTES, Header
from croupier.service import outgoing
from croupier.service.door import PartyDoor
from croupier.service.outgoing import OutgoingBodies
from croupier.service.quota import MOST_FETCHED
from croupier.service.store import LeavingLetter
from croupier.service.transport import SHORT_OUT

BODY = os.urandom(2 * CHUNK + 5)


async def leave(scene: Scene, body: bytes = BODY) -> bytes:
    """The same body lies ready for two clients; the request that fetches it."""
    notice = await scene.open(scene.notice())
    heads = {name: Header.unpack(scene.letter(notice, "relay", target=name)[0][:HEADER_BYTES]) for name in ("c0", "c1")}
    letters = [
        LeavingLetter(name, "up", _longer(head, len(body)), body, hold=True) for name, head in heads.items()
    ]  # fmt: skip
    scene.host.store.leave(notice.key, letters).result()
    return canon.dump({"key": notice.key, "kind": "up", "hold": 0.0})


def _longer(header: Header, length: int) -> bytes:
    return header._replace(length=length).pack()


async def begun(scene: Scene, caller: str, request: bytes) -> tuple[bytes, AsyncIterator[bytes]]:
    """The first piece, and what is not read yet."""
    pieces = scene.host.take(caller, request)
    return await anext(pieces), pieces


def test_a_body_is_open_once_for_all_and_few_times_for_each() -> None:
    async def case(scene: Scene) -> None:
        request, open_now = await leave(scene), scene.host.outgoing
        first = [await begun(scene, "c0", request) for _ in range(MOST_FETCHED)]
        assert [len(head) for head, _ in first] == [HEADER_BYTES] * MOST_FETCHED
        assert (await begun(scene, "c0", request))[0] == b"", "one more is asked to come again"
        assert scene.host.counts["asked to wait"] == 1
        other = await begun(scene, "c1", request)
        assert open_now.size == len(BODY)
        for _, rest in (*first, other):
            assert b"".join([piece async for piece in rest]) == BODY
        assert open_now.size == 0
        assert (await begun(scene, "c0", request))[0] != b"", "who has read may fetch again"

    played(case)


def test_who_does_not_read_on_holds_nothing_and_takes_no_part_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartyDoor, "_slowest", property(lambda self: 0.05))

    async def case(scene: Scene) -> None:
        request = await leave(scene)
        _, rest = await begun(scene, "c0", request)
        assert scene.host.outgoing.size == len(BODY)
        async with asyncio.timeout(5):
            while scene.host.outgoing.size:
                await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError, match="c0 did not read on"):
            await anext(rest)
        _, again = await begun(scene, "c0", request)
        assert b"".join([piece async for piece in again]) == BODY

    played(case)


def test_who_hangs_up_holds_nothing() -> None:
    async def case(scene: Scene) -> None:
        request = await leave(scene)
        body = scene.host.take("c0", request)
        await anext(body)
        assert scene.host.outgoing.size == len(BODY)
        del body
        async with asyncio.timeout(5):
            while scene.host.outgoing.size:
                await asyncio.sleep(0.01)

    played(case)


@pytest.mark.parametrize("length", [SHORT_OUT - 40, SHORT_OUT - 1, SHORT_OUT])
def test_a_short_letter_comes_in_one_piece_wherever_it_lies(length: int) -> None:
    async def case(scene: Scene) -> None:
        request = await leave(scene, bytes(length))
        piece, rest = await begun(scene, "c0", request)
        assert len(piece) == HEADER_BYTES + length
        assert [more async for more in rest] == []

    played(case)


def test_no_more_is_open_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "OUT_FLIGHT", 10)

    async def main() -> None:
        bodies = OutgoingBodies()
        large = bodies.begin("a", "large", 11, lambda: b"l" * 11)
        assert large is not None, "alone even one that is larger"
        assert bodies.begin("b", "small", 1, lambda: b"s") is None
        assert bodies.begin("b", "large", 11, lambda: b"") is not None, "what is open already costs nothing"
        bodies.end("b", "large")
        assert b"".join([piece async for piece in large.pieces(b"h", 5.0)]) == b"h" + b"l" * 11
        assert bodies.begin("b", "small", 1, lambda: b"s") is not None
        assert bodies.size == 1

    asyncio.run(main())
