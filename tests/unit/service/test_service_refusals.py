"""What strangers, liars and old messages get from a host: nothing; and its operator hears of it, without secrets."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.served import Scene, made, outdated, serving

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.service.host import Host
from croupier.service.identity import make_keys
from croupier.service.member import OneVersion
from croupier.service.notice import END
from croupier.service.options import Options
from croupier.service.roster import Roster
from croupier.service.store import LeavingLetter
from croupier.service.transport import LATER, OK, REFUSED, Calls
from croupier.service.versions import next_roster

# So long a handshake may go without a call here.
QUICKLY = 0.5
Case = Callable[[Scene], Coroutine[Any, Any, None]]


def played(case: Case, members: dict[str, Any] | None = None) -> None:
    """Run a test's own part against a running relay; afterwards nothing secret is in what was told."""

    async def main() -> None:
        async with serving(members) as scene:
            scene.host.hands._patience = QUICKLY
            await case(scene)
            facts = [value for _, told in scene.told for value in told.values()]
            assert all(isinstance(value, str | int | float) and len(str(value)) < 300 for value in facts)

    asyncio.run(main())


def test_an_honest_letter_is_taken() -> None:
    """Without this, all refusals below could be the harness's own fault."""

    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "c0")
        assert await scene.put("c0", head, body) == OK
        assert await scene.put("c0", head, body) == OK
        assert scene.host.counts["refused"] == 0
        await asyncio.sleep(QUICKLY * 2)
        assert scene.host.counts["handshakes"] == 0

    played(case)


def test_a_strangers_certificate() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        own = make_keys("c0", Coins.from_os(), dt.datetime.now(dt.UTC))
        stranger = Calls(replace(scene.members["c0"], keyring=own))
        try:
            assert await stranger.put("relay", *scene.letter(notice, "c0"), 2.0) == LATER
            assert scene.host.store.newest_from("c0") == (b"", ())
        finally:
            await stranger.close()
        await handshake_told(scene)

    played(case)


async def handshake_told(scene: Scene) -> None:
    """Who was turned away by TLS is counted and told, as far as can be known."""
    async with asyncio.timeout(10):
        while not scene.host.counts["handshakes"]:
            await asyncio.sleep(0.05)
    told = [facts for event, facts in scene.told if event == "handshake"]
    assert sum(facts["count"] for facts in told) == scene.host.counts["handshakes"]
    assert "a stranger's certificate, one that has ended, or no TLS" in told[0]["why"]


def put_in_force(host: Host, roster: Roster) -> None:
    """Let a host go by a later version of the roster from now on."""
    host.versions = OneVersion(replace(host.member, roster=roster))
    host.turn_to(host.versions.at(2))


def test_an_expired_certificate() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert await scene.put("c0", *scene.letter(notice, "c0")) == LATER
        assert await scene.put("c1", *scene.letter(notice, "c1")) == OK
        await handshake_told(scene)

    played(case, outdated(made(), "c0"))


def test_a_certificate_that_ends_is_refused_on_an_open_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert await scene.put("c0", *scene.letter(notice, "c0")) == OK
        ends = scene.host.member.roster.card("c1").expires
        monkeypatch.setattr(scene.host, "today", lambda: ends)
        assert await scene.put("c1", *scene.letter(notice, "c1")) == REFUSED
        assert scene.refused("not its own letter")

    played(case)


def test_a_certificate_that_a_new_roster_revokes_is_refused_on_an_open_connection() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert await scene.put("c1", *scene.letter(notice, "c1")) == OK
        assert await scene.calls("c0").known("relay", 2.0) == canon.dump({"key": b"", "kinds": ()})
        later = next_roster(scene.host.member.roster, 2, without=["c0"])
        put_in_force(scene.host, later)
        assert await scene.put("c0", *scene.letter(notice, "c0")) == REFUSED
        assert scene.refused("not its own letter")
        request = canon.dump({"key": notice.key, "kind": "up", "hold": 0.0})
        assert await scene.calls("c0").take("relay", request, 2.0) == []
        assert scene.host.counts["refused"] == 2
        assert await scene.put("c2", *scene.letter(notice, "c2")) == OK

    played(case)


def test_a_client_that_a_new_roster_enrols_is_let_in() -> None:
    """Connections made after the switch are checked against the new certificates."""

    async def case(scene: Scene) -> None:
        now = dt.datetime.now(dt.UTC)
        keys = make_keys("c9", Coins.from_os(), now)
        later = next_roster(scene.host.member.roster, 2, [keys.card("", now.date())])
        newcomer = Calls(replace(scene.members["c0"], name="c9", roster=later, keyring=keys))
        try:
            assert await newcomer.known("relay", 2.0) == LATER
        finally:
            await newcomer.close()
        put_in_force(scene.host, later)
        again = Calls(replace(scene.members["c0"], name="c9", roster=later, keyring=keys))
        try:
            assert await again.known("relay", 2.0) == canon.dump({"key": b"", "kinds": ()})
        finally:
            await again.close()

    played(case)


def test_a_stale_roster() -> None:
    async def case(scene: Scene) -> None:
        assert await scene.push(scene.notice(roster=b"\x01" * 32)) == REFUSED
        assert scene.refused("the notice names roster 0101")

    played(case)


def test_a_replayed_notice_opens_nothing_again() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        first = scene.host.now
        assert await scene.push(notice) == OK
        assert scene.host.now is first
        again = scene.notice(number=1)
        assert await scene.push(again) == REFUSED
        assert scene.refused("was played before")
        assert scene.host.store.state(again.key) is None

    played(case)


def test_a_second_and_other_letter() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert await scene.put("c0", *scene.letter(notice, "c0", 0.25)) == OK
        assert await scene.put("c0", *scene.letter(notice, "c0", 0.5)) == REFUSED
        assert scene.refused("a second 'up'")
        assert scene.host.counts["equivocations"] == 1

    played(case)


def test_an_oversize_body_is_refused_before_it_is_read() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, _ = scene.letter(notice, "c0", length=1 << 40)
        read = 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal read
            yield head
            read += 1
            yield bytes(1 << 20)

        assert await scene.host.put("c0", pieces()) == REFUSED
        assert read == 0
        assert scene.refused("at most")

    played(case)


@pytest.mark.parametrize("change", ["short", "long"])
def test_a_body_of_another_length_than_stated(change: str) -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "c0")
        assert await scene.put("c0", head, body[:-1] if change == "short" else body + b"\0") == REFUSED
        assert scene.refused("shorter or longer")

    played(case)


def test_an_unsigned_notice() -> None:
    async def case(scene: Scene) -> None:
        bare = canon.dump({"notice": scene.notice().plain(), "signature": b""})
        assert await scene.calls("server").open("relay", bare, 2.0) == REFUSED
        assert scene.refused("did not sign")

    played(case)


def test_a_notice_that_somebody_else_signed() -> None:
    async def case(scene: Scene) -> None:
        assert await scene.push(scene.notice(), signer="c0") == REFUSED
        assert scene.refused("did not sign")

    played(case)


def test_a_notice_that_a_client_pushes() -> None:
    async def case(scene: Scene) -> None:
        assert await scene.push(scene.notice(), caller="c0") == REFUSED
        assert scene.refused("only the server opens attempts")

    played(case)


def test_a_letter_for_another_cohort() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        other = scene.notice(cohort=notice.cohort[:3])
        head, body = scene.letter(other, "c0")
        assert await scene.put("c0", head[:HEADER_BYTES] + notice.key, body) == REFUSED
        assert scene.refused("another protocol, cohort")

    played(case)


def test_a_letter_in_another_clients_name() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert await scene.put("c1", *scene.letter(notice, "c0")) == REFUSED
        assert scene.refused("not its own letter")
        assert scene.host.store.newest_from("c0") == (b"", ())

    played(case)


def test_anothers_letter_is_not_handed_out() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        head, body = scene.letter(notice, "relay", target="c0")
        letter = LeavingLetter("c0", "up", head[:HEADER_BYTES], body, hold=True)
        scene.host.store.leave(notice.key, [letter]).result()
        request = canon.dump({"key": notice.key, "kind": "up", "hold": 0.0})
        assert await scene.calls("c1").take("relay", request, 2.0) == []
        mine = await scene.calls("c0").take("relay", request, 2.0)
        assert Header.unpack(mine[0]).target == "c0"
        assert b"".join(mine[1:]) == body

    played(case)


def test_a_client_that_is_not_invited() -> None:
    async def case(scene: Scene) -> None:
        notice = scene.notice()
        notice = await scene.open(replace(notice, cohort=notice.cohort[:3]))
        assert await scene.put("c3", *scene.letter(notice, "c3")) == REFUSED
        assert scene.refused("no such kind or party")

    played(case)


def test_a_host_that_is_killed_after_the_end_was_said_ends_when_it_starts_again() -> None:
    async def case(scene: Scene) -> None:
        await scene.open(scene.notice())
        assert await scene.push(scene.notice(number=1, what=END, cohort=())) == OK
        store, member = scene.host.store, scene.host.member
        # However often it is killed before it has let go of what lay ready.
        for _ in range(2):
            host = Host(member, store, {}, Options())
            async with asyncio.timeout(5):
                await host.run()
        assert host.finished
        host.let_go()
        assert store.fact("over") == b""

    played(case)


def test_an_accepted_notice_is_on_disk() -> None:
    async def case(scene: Scene) -> None:
        notice = await scene.open(scene.notice())
        assert scene.host.store.state(notice.key) == "open"

    played(case)
