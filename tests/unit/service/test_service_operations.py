"""What operators rely on: logs, status, limits, results, stopping and starting again."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.service.test_service_rotation import FIRST, HOSTS, Town
from torch import nn

from croupier.core import canon
from croupier.core.envelope import HEADER_BYTES, Header
from croupier.errors import OwnError, SpecError, StoreError
from croupier.service import announcer
from croupier.service import door as doors
from croupier.service.alone import alone
from croupier.service.lead import Lead
from croupier.service.log import Log
from croupier.service.member import SERVER
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.quota import HeldCalls, has_room
from croupier.service.results import Results
from croupier.service.roster import Timetable
from croupier.service.start import _keep_results, run_party
from croupier.service.status import not_ready, serving
from croupier.service.transport import LATER, listen


def test_a_log_is_one_line_of_json_an_event_and_holds_no_bytes() -> None:
    out = io.StringIO()
    log = Log("sum1", out)
    log("refused", source="ann", why="two\nlines", key=b"secret", rows=torch.ones(3), table={"a": 1}, well=True)
    (line,) = out.getvalue().splitlines()
    found = json.loads(line)
    assert dt.datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert found == {
        "party": "sum1", "event": "refused", "source": "ann", "why": "two\nlines", "well": True,
        "key": "(bytes)", "rows": "(Tensor)", "table": "(dict)",
    }  # fmt: skip


def test_on_a_terminal_it_speaks_plainly() -> None:
    out = io.StringIO()
    Log("sum1", out, plain=True)("failed", round=3, why="a\nb")
    assert out.getvalue()[8:] == ' sum1: failed round=3 why="a\\nb"\n'


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_status_says_alive_ready_and_counts(tmp_path: Path) -> None:
    host = Town(tmp_path).party("sum1", [])
    host.counts.update({"letters": 3, "late": 2, "rounds": 4, "asked to wait": 1})
    host.seconds, host.in_flight = 2.5, 77
    with serving(host, "127.0.0.1:0") as port:
        assert get(port, "/healthz") == (200, "alive\n")
        assert get(port, "/readyz") == (503, "it does not listen\n")
        host.listening = True
        assert get(port, "/readyz") == (200, "ready\n")
        assert get(port, "/else")[0] == 404
        lines = get(port, "/metrics")[1].splitlines()
        with pytest.raises(SpecError, match="--status"), serving(host, f"127.0.0.1:{port}"):
            pass
    for line in (
        "croupier_letters_total 3.0", "croupier_late_total 2.0", "croupier_asked_to_wait_total 1.0",
        "croupier_refused_total 0.0", "croupier_round_seconds_count 4.0", "croupier_round_seconds_sum 2.5",
        "croupier_in_flight_bytes 77.0", "croupier_roster_version 1.0", "croupier_attempts_total 0.0",
    ):  # fmt: skip
        assert line in lines
    assert not any(name in line for line in lines for name in (*FIRST, "sum1"))
    host.store.close()


def test_an_ended_certificate_is_not_ready(tmp_path: Path) -> None:
    client = Town(tmp_path).party("ann", [])
    now = dt.datetime.now(dt.UTC)
    assert not_ready(client, now) == ""
    assert "the certificate ended on" in not_ready(client, now + dt.timedelta(days=400))
    client.store.close()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x", "127.0.0.1:70000", "256.0.0.1:1"])
def test_a_status_that_cannot_be_served_is_said(address: str, tmp_path: Path) -> None:
    client = Town(tmp_path).party("ann", [])
    with pytest.raises(SpecError, match="--status = "), serving(client, address):
        pass
    client.store.close()


def test_held_calls_are_counted_by_caller() -> None:
    held = HeldCalls(most=2)
    with held.one_more("ann") as first, held.one_more("ann") as second, held.one_more("ann") as third:
        assert (first, second, third) == (True, True, False)
        with held.one_more("bob") as other, held.one_more(None) as stranger:
            assert (other, stranger) == (True, True)
    with held.one_more("ann") as again:
        assert again


def test_free_disk_is_looked_at(tmp_path: Path) -> None:
    assert has_room(tmp_path, 1, 1)
    assert not has_room(tmp_path, 1 << 60, 1)
    assert not has_room(tmp_path, 1, 1 << 60)


def ended(town: Town, parties: dict[str, PartyProcess], *, seconds: float = 60) -> dict[str, Any]:
    """How everybody ends."""

    async def main() -> list[Any]:
        async with asyncio.timeout(seconds):
            return await asyncio.gather(*map(run_party, parties.values()), return_exceptions=True)

    return dict(zip(parties, asyncio.run(main()), strict=True))


def test_a_full_disk_is_asked_to_wait_before_a_byte_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The letters come again once there is room: nothing is lost."""
    town, events, read = Town(tmp_path), list[dict[str, Any]](), list[int]()
    parties = {name: town.party(name, events) for name in (*HOSTS, *FIRST)}
    full = [3]

    def room(folder: Path, length: int, floor: int) -> bool:
        if folder.parent.name == "sum2" and full[0]:
            full[0] -= 1
            read.append(parties["sum2"].counts["letters"])
            return False
        return has_room(folder, length, floor)

    monkeypatch.setattr(doors, "has_room", room)
    assert set(ended(town, parties).values()) == {None}
    assert read == [0, 0, 0]
    assert parties["sum2"].counts["asked to wait"] >= 3
    assert [one["party"] for one in events if one["event"] == "disk"] == ["sum2"] * 3


def test_the_body_of_a_letter_is_not_read_while_the_disk_is_full(tmp_path: Path) -> None:
    town = Town(tmp_path)
    host = town.party("sum1", [])
    host.options = Options(tell=host.options.tell, floor=1 << 60)
    pulled: list[int] = []

    async def playing(key: bytes) -> Any:
        """An attempt that waits for shares."""
        return SimpleNamespace(
            schemas={"share": SimpleNamespace(most_bytes=1 << 20)}, notice=SimpleNamespace(cohort=FIRST)
        )

    host._playing = playing  # type: ignore[method-assign]

    async def pieces() -> AsyncIterator[bytes]:
        header = Header(bytes(32), bytes(16), 0, 0, "share", "ann", "sum1", 0, 100)
        yield header.pack()[:HEADER_BYTES] + bytes(32)
        pulled.append(1)
        yield bytes(100)

    assert asyncio.run(host.put("ann", pieces())) == LATER
    assert pulled == []
    host.store.close()


def test_a_client_whose_own_training_fails_ends_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it longer than a step of the timetable."""
    monkeypatch.setattr(announcer, "FAREWELL", 0.5)
    town = Town(tmp_path, times=Timetable(phase=1.0, round=20.0, hold=0.5))
    parties = {name: town.party(name, []) for name in (*HOSTS, *FIRST)}
    parties["ann"].work = {**parties["ann"].work, "fit": lambda jobs: [OwnError("mine.py line 3")]}
    found = ended(town, parties)
    assert isinstance(found.pop("ann"), OwnError)
    assert set(found.values()) == {None}


def test_a_port_is_nobody_elses(tmp_path: Path) -> None:
    host = Town(tmp_path).party("sum1", [])

    async def twice() -> None:
        server, port = await listen(host, "127.0.0.1:0")
        try:
            await listen(host, f"127.0.0.1:{port}")
        finally:
            await server.stop(0)

    with pytest.raises(SpecError, match="cannot listen there"):
        asyncio.run(twice())
    host.store.close()


def test_a_store_has_one_process(tmp_path: Path) -> None:
    said = pytest.raises(StoreError, match="another process is this party already")
    with alone(tmp_path / "store"), said, alone(tmp_path / "store"):
        pass
    with pytest.raises(BlockingIOError, match="the caller's own"), alone(tmp_path / "store"):
        raise BlockingIOError("the caller's own")
    with alone(tmp_path / "store"):
        assert (tmp_path / "store").stat().st_mode & 0o077 == 0


def test_a_stopped_server_ends_nobody_and_goes_on(tmp_path: Path) -> None:
    town, rounds = Town(tmp_path), list[int]()

    async def main() -> list[Any]:
        stop = asyncio.Event()

        def after(line: Any) -> None:
            rounds.append(line["round"])
            if line["round"] == 2:
                loop.call_soon_threadsafe(stop.set)

        loop = asyncio.get_running_loop()
        others = [asyncio.create_task(run_party(town.party(name, []))) for name in (*HOSTS, *FIRST) if name != SERVER]
        async with asyncio.timeout(60):
            first = town.party(SERVER, [], after)
            await run_party(first, stop)
            assert not first.over
            assert not any(one.done() for one in others)
            again = town.party(SERVER, [], after)
            await run_party(again)
            assert again.over
            return await asyncio.gather(*others)

    assert set(asyncio.run(main())) == {None}
    assert sorted(set(rounds)) == [1, 2, 3, 4]


def net(vector: torch.Tensor) -> nn.Module:
    made = nn.Linear(1, len(vector), bias=False)
    made.weight.data = vector.reshape(-1, 1)
    return made


def test_the_server_leaves_metrics_model_and_summary(tmp_path: Path) -> None:
    town, seen = Town(tmp_path), dict[int, list[str]]()
    out = tmp_path / "out"
    parties = {name: town.party(name, []) for name in (*HOSTS, *FIRST)}
    lead = parties[SERVER]
    assert isinstance(lead, Lead)
    _keep_results(lead, Results(out, net))
    assert [path.name for path in out.iterdir()] == ["metrics.jsonl"]
    written = lead.measures.on_round

    def after(line: Any) -> None:
        written(line)
        seen[line["round"]] = sorted(path.name for path in out.iterdir())

    object.__setattr__(lead.measures, "on_round", after)
    assert set(ended(town, parties).values()) == {None}
    assert seen == {number: ["metrics.jsonl", "model.safetensors"] for number in range(1, 5)}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    model = load_file(out / "model.safetensors")["weight"].reshape(-1)
    assert canon.digest(model).hex() == lines[-1]["model"]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["rounds"], summary["final"]) == (4, lines[-1])


def test_results_that_cannot_be_written_stop_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    town, events = Town(tmp_path), list[dict[str, Any]]()
    lead = town.party(SERVER, events)
    assert isinstance(lead, Lead)
    _keep_results(lead, Results(tmp_path / "out", net))

    def full(*_: Any) -> None:
        raise StoreError("no space")

    monkeypatch.setattr(Results, "after_round", full)
    lead.measures.on_round({"round": 1})
    assert events == [{"party": SERVER, "event": "results", "why": "no space"}]
    lead.store.close()


def test_every_event_of_a_log_is_in_the_page() -> None:
    """Those of a rehearsal are the rehearsal's own."""
    room = Path(doors.__file__).parent
    sources = [path for path in room.glob("*.py") if path.stem not in ("up", "rehearsal")]
    text = "".join(path.read_text() for path in (*sources, room.parent / "cli" / "serve.py"))
    told = set(re.findall(r'\b(?:tell|log)\(\s*"([a-z ]+)"', text))
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text()
    shown = set(re.findall(r"`([a-z ]+)`", page[page.index("## What the logs say") :]))
    assert len(told) > 20
    assert told <= shown
