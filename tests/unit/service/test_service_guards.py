"""What keeps promises across attempts and crashes: when a round starts again, what is checked first, what is erased."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.served import made
from tests.unit.service.test_service_client import Liar, end_of, members, notice_of, run_client

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.core.flow import Outcome
from croupier.encode.hidden import HiddenUnits
from croupier.engine.loop import begin
from croupier.engine.work import RoundWork
from croupier.errors import CroupierError, ProtocolError, Replayed, RosterError, TooFew
from croupier.kernels.packed import Key
from croupier.service.client import Client
from croupier.service.database import LARGE
from croupier.service.doorway import Tls
from croupier.service.guard import Past, check_notice
from croupier.service.host import Host
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member, OneVersion
from croupier.service.notice import ROUND, Notice
from croupier.service.options import Options
from croupier.service.party import _lacks_clients
from croupier.service.store import MOST_KINDS, Opened, Store, StoredLetter
from croupier.service.transport import LATER
from croupier.service.versions import next_roster
from croupier_lab.bench.services.toy import PIPELINES, toy_task

COHORT = ("c0", "c1", "c2", "c3")


# ---- when a round may start again


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (TooFew("too few", ["c1"]), True),
        (TooFew("the other server is silent", ["second"]), False),
        (TooFew("a client and the other server", ["c1", "second"]), False),
        (TooFew("nobody is named", []), False),
        (ProtocolError("something else"), False),
        (None, False),
    ],
)
def test_only_a_want_of_clients_lets_a_round_start_again(error: CroupierError | None, lacks: bool) -> None:
    player: Any = SimpleNamespace(notice=SimpleNamespace(cohort=COHORT))
    assert _lacks_clients(error, player) is lacks


def second_try(pipeline: str = "two servers") -> tuple[Notice, Any]:
    own = made(PIPELINES[pipeline])[SERVER]
    return notice_of(own, 1, attempt=1), own.roster


def test_a_host_starts_a_round_again_only_for_want_of_clients() -> None:
    again, roster = second_try()
    check_notice(again, roster, Past(0, 0, "failed", short=True), me="second")
    with pytest.raises(Replayed, match="may have released something"):
        check_notice(again, roster, Past(0, 0, "failed", short=False), me="second")
    # The dealer sees nothing of updates.
    check_notice(again, roster, Past(0, 0, "done"), me="dealer")


@pytest.mark.parametrize("state", ["done", "open"])
def test_a_client_that_signed_for_a_round_does_not_start_it_again(state: str) -> None:
    again, roster = second_try()
    assert roster.spec.protocol.place.binds
    check_notice(again, roster, Past(0, 0, "failed"), me="c0")
    with pytest.raises(Replayed, match="may have released something"):
        check_notice(again, roster, Past(0, 0, state), me="c0")


def lead_of(every: dict[str, Member], folder: Path) -> Lead:
    task, own = toy_task(every[SERVER].roster.clients), every[SERVER]
    work = RoundWork(own.pipeline, task).by_name()
    first = begin(task, own.pipeline).memories[SERVER]
    return Lead(own, Store(folder), work, Options(first_memory=first), Measures(task.evaluate, Coins.from_seed(1)))


def test_a_server_that_is_killed_between_attempts_goes_on_with_the_next(tmp_path: Path) -> None:
    """Attempt 0 again would be refused by everybody."""
    every = made(PIPELINES["two servers"])
    lead, opened = lead_of(every, tmp_path), list[Notice]()

    async def failed(self: Lead, notice: Notice) -> Any:
        opened.append(notice)
        player = await Lead.begin(self, notice)

        async def play() -> Outcome:
            return Outcome(None, TooFew("too few", ["c3"]))

        player.play = play  # type: ignore[method-assign]
        return player

    async def reports(*_: Any) -> Any:
        return {"second": {"well": False, "missing": ("c3",)}}

    class Stop(BaseException):
        """The process is gone."""

    def kill(step: str, number: int) -> None:
        if step == "end":
            raise Stop

    async def one(party: Lead) -> None:
        party.begin = lambda notice: failed(party, notice)  # type: ignore[method-assign]
        party._reports = reports  # type: ignore[method-assign, assignment]
        party.options = replace(party.options, hook=kill)
        try:
            with pytest.raises(Stop):
                await party._rounds()
        finally:
            await party.close()
            party.store.close()

    asyncio.run(one(lead))
    asyncio.run(one(lead_of(every, tmp_path)))
    assert [(notice.round, notice.attempt, notice.cohort) for notice in opened] == [
        (0, 0, COHORT), (0, 1, COHORT[:3]),
    ]  # fmt: skip


# ---- what a client does at a notice's word


def hidden() -> dict[str, Member]:
    """Clients that hold secrets which a notice may let them forget."""
    return made(PIPELINES["plain"].model_copy(update={"encode": HiddenUnits(first="open")}))


@pytest.mark.parametrize("change", [{"roster": bytes(32)}, {"run": bytes(16)}, {"round": 99}])
def test_what_a_false_notice_names_is_not_forgotten(change: dict[str, Any], tmp_path: Path) -> None:
    every = hidden()
    own = every[SERVER]
    terms = {"forget": own.roster.clients, "live": ()}
    false = notice_of(own, 0, terms=terms, **change)
    liar = Liar(own, [one.sign(own.keyring.identity) for one in (false, end_of(own, 1))], hasty=True)
    forgot: list[str] = []
    original = Client._tidy

    def tidy(self: Client, notice: Notice) -> None:
        forgot.append("asked")
        original(self, notice)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_tidy", tidy)
        _, told = run_client(every, liar, tmp_path)
    assert forgot == []
    assert [event for event, _ in told if event == "not played"] == ["not played"]


def test_a_client_whose_hosts_never_answer_ends_with_the_run_and_sends_nothing(tmp_path: Path) -> None:
    """Not even of the attempt that it was in when it stopped: one of them might have more of it than its store."""
    every = members()
    own = every[SERVER]
    opening = notice_of(own, 0)
    client = Client(every["c0"], Store(tmp_path), {}, Options(shard="shard of c0"))
    asyncio.run(client.begin(opening))
    client.store.close()
    liar = Liar(own, [one.sign(own.keyring.identity) for one in (opening, end_of(own, 1))], hasty=True)

    async def silent(caller: str | None) -> bytes:
        return LATER

    liar.known = silent  # type: ignore[method-assign]
    run_client(every, liar, tmp_path)
    assert (liar.got, liar.models) == ([], 0)


def drawn(folder: Path) -> Any:
    store = Store(folder)
    kept = store.fact("this round")
    store.close()
    return None if kept is None else canon.load(kept)


def test_the_coins_of_a_round_are_gone_when_it_is_over(tmp_path: Path) -> None:
    every = members()
    own = every[SERVER]
    coins: list[bytes] = []
    liar = Liar(own, [one.sign(own.keyring.identity) for one in (notice_of(own, 0), end_of(own, 1))])
    original = Client._begins_with

    def begins(self: Client, notice: Notice) -> Any:
        found = original(self, notice)
        coins.append(found[1])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_begins_with", begins)
        # What is done at the end of the run must not hide what is done at the end of the round.
        patch.setattr(Client, "_done", lambda self: None)
        run_client(every, liar, tmp_path)
    assert len(coins) == 1
    assert drawn(tmp_path) is None
    assert not [path.name for path in tmp_path.rglob("*") if path.is_file() and coins[0] in path.read_bytes()]


def test_coins_that_another_attempt_needs_stay_until_the_run_is_over(tmp_path: Path) -> None:
    """Where rounds start again, a second attempt must carry the same update."""
    member = made(PIPELINES["two servers"])["c0"]
    client = Client(member, Store(tmp_path), {}, Options())
    assert client._may_come_again(TooFew("too few", ["c1"]))
    assert not client._may_come_again(None), "what was signed is not played again"
    client.store.remember({"this round": canon.dump({"coins": b"c" * 32})})
    client._done()
    client.store.close()
    assert drawn(tmp_path) is None


# ---- under which roster an attempt goes on


def test_an_attempt_goes_on_under_the_roster_that_it_began_under(tmp_path: Path) -> None:
    every = made(PIPELINES["relay"])
    first = every["relay"]
    second = replace(first, roster=next_roster(first.roster, 2, without=["c3"]))

    class Two:
        """Another version was accepted for this very round."""

        def at(self, number: int) -> Member:
            return second

        def of(self, digest: bytes) -> Member:
            return OneVersion(first).of(digest)

        def rosters(self) -> Any:
            return (first.roster, second.roster)

    notice = notice_of(first, 0, round=1)
    host = Host(first, Store(tmp_path), {}, Options())
    asyncio.run(host.begin(notice))
    host.store.close()
    again = Host(second, Store(tmp_path), {}, Options(versions=Two()))
    player = again.resume()
    assert player is not None
    assert again.member.roster == first.roster
    assert "c3" in player.notice.cohort
    with pytest.raises(RosterError, match="which relay has not accepted"):
        OneVersion(second).of(first.roster.digest)
    again.store.close()


# ---- what a store keeps of late letters, and what it erases


def opened(store: Store, key: bytes, number: int = 0) -> None:
    store.open(Opened(key, number, ROUND, bytes(16), number, 0, b"", b"C" * 32, b"memory of a party", 0.0))


def header(kind: str) -> Header:
    return Header(bytes(32), bytes(16), 0, 0, kind, "c0", "relay", 0, 1)


def test_late_letters_of_one_party_are_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    opened(store, b"k" * 32)
    for number in range(MOST_KINDS + 20):
        store.note(b"k" * 32, "c0", header(f"kind {number}"))
    assert len(store.newest_from("c0")[1]) == MOST_KINDS
    store.note(b"k" * 32, "c1", header("up"))
    assert store.newest_from("c1")[1] == ("up",), "another party's are noted still"
    store.close()


def test_only_letters_that_the_flow_was_handed_count_afterwards(tmp_path: Path) -> None:
    store, key = Store(tmp_path), b"k" * 32
    opened(store, key)
    for source in ("c0", "c1"):
        assert store.keep(key, StoredLetter(source, "up", b"head", b"body")).result() == "new"
    store.end(key, "done", {}, {"up": ("c0",)})
    assert store.counted(key, "c0", "up") is not None
    assert store.counted(key, "c1", "up") is None
    store.close()


def test_what_is_erased_is_in_no_file_of_the_store(tmp_path: Path) -> None:
    """Neither in the database's free pages nor in its log; the store is still open, as after a kill."""
    store, key, secret = Store(tmp_path), b"k" * 32, b"C" * 32
    opened(store, key)
    # Enough that pages are freed, and not used again at once.
    store.add_steps(key, [(0, "update", secret * 500)]).result()
    assert any(secret in path.read_bytes() for path in tmp_path.glob("store.db*"))
    store.end(key, "done", {})
    assert not [path.name for path in tmp_path.glob("store.db*") if secret in path.read_bytes()]
    store.close()


@pytest.mark.parametrize("less", [0, 10, 28, -1])
def test_a_letter_that_comes_again_leaves_no_second_file(less: int, tmp_path: Path) -> None:
    store, key = Store(tmp_path), b"k" * 32
    opened(store, key)
    letter = StoredLetter("c0", "up", b"head", bytes(LARGE - less))
    assert [store.keep(key, letter).result() for _ in range(3)] == ["new", "again", "again"]
    assert len(list((tmp_path / "bodies").iterdir())) == (less < 0)
    store.close()


def test_no_key_is_shown() -> None:
    shown = Tls(b"-----BEGIN PRIVATE KEY-----", b"certificate", b"trusted")
    assert "PRIVATE" not in repr(shown)
    assert repr(Key.of(np.arange(3, dtype=np.uint64), np.arange(1, dtype=np.uint64), 21)) == "Key()"
