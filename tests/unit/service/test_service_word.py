"""What clients say when they ask for notices: which secret they hold, and whether they were content."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.test_service_rotation import FIRST, HOSTS, Town

from croupier.core import canon
from croupier.core.flow import Outcome
from croupier.errors import IntegrityError, ProtocolError, WireError
from croupier.service import announcer
from croupier.service.group import fingerprint, group_check
from croupier.service.heard import ClientsWord, read_at_odds, said_of, word_of
from croupier.service.home import Home
from croupier.service.lead import Lead, _unheard
from croupier.service.member import SERVER
from croupier.service.party import PartyProcess
from croupier.service.roster import Timetable
from croupier.service.start import run_party
from croupier.service.store import Store


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


def other_secret(town: Town, name: str) -> None:
    """A client drew a secret of its own."""
    home = town.homes[name]
    (home.run_folder(town.first.run) / "1.group").unlink()
    home.keep_group(town.first, b"\x09" * 32)


def group_of(town: Town, name: str) -> dict[str, Any]:
    home = Home.open(town.folder / name / f"{name}.key")
    check = group_check(town.first, home.group(town.first))
    return {"ended": b"", "content": False, "groups": {town.first.digest.hex(): check}}


def test_different_secrets_are_told_before_the_first_round_and_mended(town: Town) -> None:
    """Nobody raises an alarm, nothing is sent, and the run begins once the odd one was mended."""
    other_secret(town, "bob")
    events: list[dict[str, Any]] = []
    lines: list[Any] = []

    def told(name: str) -> list[dict[str, Any]]:
        return [one for one in events if (one["party"], one["event"]) == (name, "group secrets differ")]

    async def main() -> list[Any]:
        stop = asyncio.Event()
        others = [town.party(name, events, lines.append) for name in (*HOSTS, "ann", "cleo")]
        running = [asyncio.create_task(run_party(party)) for party in others]
        odd = asyncio.create_task(run_party(town.party("bob", events), stop))
        async with asyncio.timeout(60):
            while not all(map(told, (SERVER, *FIRST))):
                await asyncio.sleep(0.05)
            assert not [one for one in events if one["event"] == "opened"]
            stop.set()
            await odd
            (town.homes["bob"].run_folder(town.first.run) / "1.group").unlink()
            town.homes["bob"].keep_group(town.first, b"\x01" * 32)
            return await asyncio.gather(*running, run_party(town.party("bob", events)))

    assert set(asyncio.run(main())) == {None}
    assert [line["present"] for line in lines] == [3] * 4
    why = told("bob")[0]["why"]
    right, wrong = (fingerprint(group_check(town.first, bytes([number]) * 32)) for number in (1, 9))
    # Who comes later is told of later.
    assert f"bob: {wrong}" in why
    assert f": {right}" in why
    assert "1.group beside its key, runs croupier group --open group.sealed" in why


def test_who_comes_later_with_another_secret_is_alone_with_it(town: Town, tmp_path: Path) -> None:
    word = ClientsWord(Store(tmp_path / "word"))
    for name in ("ann", "cleo"):
        word.hear(name, group_of(town, name))
    word.settle(town.first)
    other_secret(town, "bob")
    word.hear("bob", group_of(town, "bob"))
    assert [word.at_odds(town.first, name) for name in ("ann", "cleo")] == [b"", b""]
    held = read_at_odds(word.at_odds(town.first, "bob"))
    assert sorted(held.values()) == [("ann", "cleo"), ("bob",)]
    # A server that starts again knows what its rounds began with.
    again = ClientsWord(Store(tmp_path / "word"))
    again.hear("bob", group_of(town, "bob"))
    assert "the rounds so far" in said_of(read_at_odds(again.at_odds(town.first, "bob")), town.first)


def test_nothing_secret_is_told(town: Town) -> None:
    client = town.party("ann", [])
    said = canon.dump(word_of(client.versions, (b"", False)))
    assert b"\x01" * 32 not in said
    client.store.close()


GOOD = {"ended": b"", "content": False, "groups": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"ended": b"short"}, {"ended": 7}, {"content": 1}, {"groups": ()}, {"groups": {"x": b"short"}},
        {"groups": {str(number): bytes(32) for number in range(17)}}, {"more": 1},
    ],
)  # fmt: skip
def test_a_word_that_is_none_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    word = ClientsWord(Store(tmp_path))
    word.hear("ann", GOOD)
    with pytest.raises(WireError):
        word.hear("ann", {**GOOD, **change})


@pytest.mark.parametrize("value", [{}, {"zz": ("ann",), "bb": ()}, {"aa": 1, "bb": ()}, {"aa": (1,), "bb": ()}, 7])
def test_an_answer_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(WireError):
        read_at_odds(b"differ " + canon.dump(value))


def refusing(party: PartyProcess) -> None:
    """A client that finds the published sum wrong, whatever it is."""
    place = party.member.pipeline.place
    client = party.member.pipeline.client

    def flow(given: Any, memory: Any, coins: Any) -> Any:
        yield from client(given, memory, coins)
        raise IntegrityError("the published sum is not the sum of the clients that it names")

    object.__setattr__(party.member, "pipeline", _Bent(party.member.pipeline, flow))
    assert place.clients_check


class _Bent:
    """A pipeline whose clients play another flow."""

    def __init__(self, pipeline: Any, flow: Any) -> None:
        self._pipeline, self._flow = pipeline, flow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def parties(self, roster: Any) -> Any:
        return {**self._pipeline.parties(roster), **dict.fromkeys(roster, self._flow)}


def test_a_round_that_all_clients_refuse_does_not_count(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is left to hear that all is over.
    monkeypatch.setattr(announcer, "FAREWELL", 0.2)
    events: list[dict[str, Any]] = []
    lines: list[Any] = []
    parties = {name: town.party(name, events, lines.append) for name in (*HOSTS, *FIRST)}
    for name in FIRST:
        refusing(parties[name])

    async def main() -> list[Any]:
        async with asyncio.timeout(60):
            return await asyncio.gather(*map(run_party, parties.values()), return_exceptions=True)

    ended = dict(zip(parties, asyncio.run(main()), strict=True))
    assert lines == []
    assert isinstance(ended[SERVER], ProtocolError)
    assert "no client ended content with what was published (3 refused it, 0 said nothing)" in str(ended[SERVER])
    assert all(isinstance(ended[name], IntegrityError) for name in FIRST)
    # None of them starts again as if nothing had been.
    for name in FIRST:
        client = town.party(name, events)
        with pytest.raises(IntegrityError, match=f"{name} raised an alarm in this run before .* published sum"):
            asyncio.run(client.run())
        client.store.close()


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        ({"ann": True, "bob": False}, "", ["bob"]),
        ({"ann": False, "bob": False, "cleo": False}, "(3 refused it, 0 said nothing)", ["ann, bob, cleo"]),
        ({"ann": False}, "(1 refused it, 2 said nothing)", ["ann"]),
        ({}, "(0 refused it, 3 said nothing)", []),
    ],
)
def test_one_content_client_suffices(said: dict[str, bool], error: str, told: list[str], tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    lead = Town(tmp_path, times=Timetable(phase=0.2, round=20.0, hold=1.0)).party(SERVER, events)
    assert isinstance(lead, Lead)
    player: Any = SimpleNamespace(key=b"k" * 32, notice=SimpleNamespace(cohort=FIRST, round=0))
    for name, content in said.items():
        lead.word.hear(name, {**GOOD, "ended": player.key, "content": content})
    outcome = asyncio.run(lead._content(player, Outcome({}, None), {}))
    assert (error in str(outcome.error)) if error else outcome.error is None
    assert [one["clients"] for one in events if one["event"] == "refused by clients"] == told
    lead.store.close()


def test_who_hosts_waited_for_is_named() -> None:
    said = {"sum1": {"well": False, "missing": ("cleo", "eve")}, "sum2": {"well": False, "missing": ()}}
    assert _unheard(said, FIRST) == ". Hosts did not hear from cleo"
    assert _unheard({}, FIRST) == ""
