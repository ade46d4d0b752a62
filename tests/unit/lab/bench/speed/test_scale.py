"""The bench of thousands of clients: three sides on the same records, and memory of all processes of a side."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from croupier.core.coins import Coins
from croupier.learn.datasets import Digits
from croupier_lab.bench.speed import scale
from croupier_lab.bench.speed.process import resident
from croupier_lab.bench.speed.scale import DealtDigits, ScaleSize, flower, marked, measure, ours, show


def test_every_client_draws_its_records() -> None:
    dealt = DealtDigits(12, 3)(Digits().load(None), Coins.from_seed(1))
    assert list(dealt) == [f"c{number:02}" for number in range(12)]
    assert all(len(rows) == 3 for rows in dealt.values())
    assert len({tuple(rows.tolist()) for rows in dealt.values()}) == 12


def test_ours_trains() -> None:
    found = ours(20, ScaleSize(rounds=6), 2, "local")
    assert found["side"] == "one process"
    assert found["round_s"] > 0
    assert found["accuracy"] > 0.2, "a model that learnt nothing gets a tenth right"
    assert found["peak_bytes"] >= found["peak_bytes_first"] > 0


SAID = """tinyapp: round 0 at 10.0
INFO: and so on
tinyapp: round 1 at 25.0
tinyapp: round 2 at 29.0
tinyapp: round 3 at 32.5
"""


def test_flowers_rounds_are_read_off_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def run_flower(home: str, more: tuple[str, ...], timeout: float) -> str:
        told.extend((home, *more))
        return SAID + "tinyapp: trained\n"

    monkeypatch.setattr(scale, "run_flower", run_flower)
    found = flower(500, ScaleSize(rounds=3, records=4))
    assert (found["round_s"], found["first_round_s"]) == (3.5, 15.0)
    assert "num-supernodes = 500" in told[0]
    assert told[1:] == ["--run-config", "clients=500 rounds=3 records=4"]
    # A run of which clients failed is no measurement.
    monkeypatch.setattr(scale, "run_flower", lambda *_, **__: SAID + "every client failed\n\n")
    assert flower(500, ScaleSize(rounds=3))["failed"].endswith("every client failed")
    # Flower frames its errors.
    monkeypatch.setattr(scale, "run_flower", lambda *_, **__: "╭─ Error ─╮\n│ no such node │\n╰─────────╯\n")
    assert flower(500, ScaleSize(rounds=3))["failed"].endswith("no such node")


def test_flower_is_stopped_in_the_end_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_flower(home: str, more: tuple[str, ...], timeout: float) -> str:
        raise subprocess.TimeoutExpired("flwr", timeout)

    monkeypatch.setattr(scale, "run_flower", run_flower)
    found = flower(500, ScaleSize(rounds=3, flower_seconds=7))
    assert found["failed"].startswith("stopped after 7 s")


def test_sides_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"local": 0.5, "ray": 0.75}

    def apart(work: object, clients: int, size: ScaleSize, seed: int, engine: str) -> dict[str, object]:
        side = "one process" if engine == "local" else "2 actors of Ray"
        return {"clients": clients, "side": side, "round_s": seconds[engine], "round_cpu_s": 0.5, "peak_bytes": 1}

    monkeypatch.setattr(scale, "apart", apart)
    monkeypatch.setattr(scale, "find_spec", lambda name: name)
    theirs = {"clients": 5, "side": "Flower on Ray", "round_s": 15.0, "round_cpu_s": 20.0, "peak_bytes": 2}
    monkeypatch.setattr(scale, "flower", lambda clients, size: theirs)
    found = measure(ScaleSize(clients=(5,)), 0)
    assert [row["to_one_process"] for row in found["rows"]] == [1.0, 1.5, 30.0]
    assert [row["cpu_to_one_process"] for row in found["rows"]] == [1.0, 1.0, 40.0]
    lost = {"clients": 5, "side": "Flower on Ray", "failed": "no memory"}
    monkeypatch.setattr(scale, "flower", lambda clients, size: lost)
    show(measure(ScaleSize(clients=(5,)), 0))
    assert "Flower on Ray        failed: no memory" in capsys.readouterr().out
    monkeypatch.setattr(scale, "find_spec", lambda name: None)
    show(measure(ScaleSize(clients=(5,)), 0))
    assert "Flower on Ray: not measured" in capsys.readouterr().out


def test_flower_is_not_charged_with_the_bench_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_flower(home: str, more: tuple[str, ...], timeout: float) -> str:
        """A process of its own for as long as two looks; meanwhile this one has torch loaded and is busy."""
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
            end = time.perf_counter() + 2.3
            while time.perf_counter() < end:
                pass
            started.communicate(b"\n")
        return SAID + "tinyapp: trained\n"

    looked: list[scale.SideMemory] = []

    @contextmanager
    def seen(name: str, *, here: bool = False) -> Iterator[scale.SideMemory]:
        with marked(name, here=here) as memory:
            looked.append(memory)
            yield memory

    monkeypatch.setattr(scale, "marked", seen)
    monkeypatch.setattr(scale, "run_flower", run_flower)
    found = flower(2, ScaleSize(rounds=3))
    assert 1_000_000 < found["peak_bytes"] < resident("VmHWM") / 2
    assert max(used for _, used in looked[0].used) < 1


def test_memory_counts_this_process_where_it_plays_the_side() -> None:
    with marked("a test") as memory:
        assert memory.now() == 0
    with marked("a test", here=True) as memory:
        assert memory.now() > 10_000_000
        with memory.polled():
            pass
        memory.now()
    assert len(memory.used) == 2
    memory.used = [(1.0, 10.0), (2.0, 14.0), (3.0, 15.5), (9.0, 30.0)]
    assert memory.least_between([1.5, 2.5, 3.5, 9.5]) == 1.5
    assert memory.most > 0
