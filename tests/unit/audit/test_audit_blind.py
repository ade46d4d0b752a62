"""The attacks' process ends with the one that asks it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from threading import Event
from typing import Any, Self

import pytest

from croupier.audit import blind
from croupier.audit.blind import MOST, Panel

BUSY = "import os, threading, time; from croupier.audit.blind import end_with; "
BUSY += "threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start(); print(os.getpid(), flush=True); "
BUSY += "time.sleep(600)"


def is_there(process: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_nobody_goes_on_for_a_parent_that_was_killed() -> None:
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)
        parent.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while is_there(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_there(child)


class Answering:
    """In place of a process: it answers once it may."""

    may = Event()

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def answer(self, topic: str, learnt: bytes, asked: Any) -> dict[str, Any]:
        """What it was asked."""
        assert self.may.wait(60)
        return dict(asked)


def test_processes_start_as_questions_need_them_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cores there are, each process holds hundreds of megabytes."""
    monkeypatch.setattr(blind, "Blind", Answering)
    monkeypatch.setattr(Answering, "may", Event())
    with Panel(64) as panel:
        assert not panel._seats
        first = panel.ask("one", {}, {"at": 0})
        assert len(panel._seats) == 1
        more = [panel.ask("one", {"other": at}, {"at": at}) for at in range(1, MOST + 1)]
        assert len(panel._seats) == MOST
        Answering.may.set()
        assert [future.result() for future in (first, *more)] == [{"at": at} for at in range(MOST + 1)]


def test_who_is_free_is_asked_before_another_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blind, "Blind", Answering)
    monkeypatch.setattr(Answering, "may", Event())
    Answering.may.set()
    with Panel(64) as panel:
        for topic in ("one", "two", "three"):
            panel.ask(topic, {}, {}).result()
            _settled(panel)
        assert len(panel._seats) == 1
        # It would have to forget what it studied.
        panel.ask("one", {"other": 1}, {}).result()
        assert len(panel._seats) == 2


def _settled(panel: Panel) -> None:
    """A future has its result a moment before it tells whoever listens."""
    end = time.monotonic() + 60
    while any(seat.waiting for seat in panel._seats) and time.monotonic() < end:
        time.sleep(0.001)
    assert not any(seat.waiting for seat in panel._seats)
