"""Runs attacks in processes of their own, which are sent views and declared knowledge and never the truth.

The auditing process needs the truth to score answers, and an attack that could look at it would show nothing. So each
attack runs in a second process (`python -m croupier.audit.blind`), which lives on over many questions and gets only
canonical bytes, each message after its length. A topic is a module of `croupier.audit.attacks`: `study(known, device)`
is what follows from knowledge alone, kept from question to question, and `mount(studied, asked)` the attack, a pure
function of both.

`audit.harness` and `audit.recorded.audited` open a `Panel` of such processes. All questions but `poisoning`, which
reads no view, ask it (`traits` and `linkage` through `audit.traits.scores`), and benches of the laboratory do. The law
is `tests/laws/test_blind.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from threading import BoundedSemaphore, Lock, Thread
from typing import IO, Any, Self

import torch

from croupier.core import canon
from croupier.errors import CroupierError, ProtocolError

TOPICS = "croupier.audit.attacks"
Plain = Mapping[str, Any]
# Studying takes long, so a question waits for a process that has studied its knowledge already; but where so many wait
# there, another process studies the same.
PATIENCE = 4
# So many processes at most, however many cores there are: each holds the libraries, and what it studied.
MOST = 4


class Blind:
    """One process that mounts attacks and knows nothing but what it is sent."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._known: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "croupier.audit.blind", self.device]
        # A session of its own: an interrupt from the keyboard is for the experiment, which then ends this process.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        return self

    def stop(self) -> None:
        """End the process whatever it is doing."""
        self._process.kill()

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.stop()
        if self._process.stdin:
            # A process that ended early takes no more: whoever asked it has been told.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

    def answer(self, topic: str, learnt: bytes, asked: Plain) -> dict[str, Any]:
        """What the attacks answer; knowledge (see `learnt_of`) is sent when it changed.

        Raises: ProtocolError when an attack fails.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise ProtocolError("the attacks' process is not running")
        answer = None
        with suppress(BrokenPipeError):
            if self._known.get(topic) != learnt:
                _put(self._process.stdin, learnt)
                self._known[topic] = learnt
            _put(self._process.stdin, canon.dump({"of": topic, "asked": dict(asked)}))
            answer = _get(self._process.stdout)
        if answer is None or answer["error"] is not None:
            raise ProtocolError(f"an attack failed: {answer['error'] if answer else 'its process ended'}")
        found: dict[str, Any] = answer["found"]
        return found


@dataclass
class _Seat:
    """One process of a panel: the questions that wait for it, and what it will have studied last on each topic."""

    blind: Blind
    turns: ThreadPoolExecutor
    waiting: int = 0
    learnt: dict[str, bytes] = field(default_factory=dict)


class Panel:
    """A few blind processes, each asked one question at a time; which one answers changes nothing.

    They start when questions need them.
    """

    def __init__(self, count: int, device: str = "cpu") -> None:
        self._count, self._device, self._turn = min(count, MOST), device, Lock()

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._seats: list[_Seat] = []
        # Views wait here with all they hold: no more of them than are being read and one to come.
        self._room = BoundedSemaphore(2 * self._count)
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            # Nobody waits for these answers any more.
            for seat in self._seats:
                seat.turns.shutdown(wait=False, cancel_futures=True)
                seat.blind.stop()
        self._open.__exit__(*error)

    def ask(self, topic: str, known: Plain, asked: Plain) -> Future[dict[str, Any]]:
        """What the attacks will answer; waits while twice as many questions are open as processes may run."""
        self._room.acquire()
        learnt = learnt_of(topic, known)
        with self._turn:
            seat = self._seat(topic, learnt)
            seat.learnt[topic] = learnt
            seat.waiting += 1

        def done(_: object) -> None:
            with self._turn:
                seat.waiting -= 1
            self._room.release()

        answer = seat.turns.submit(seat.blind.answer, topic, learnt, asked)
        answer.add_done_callback(done)
        return answer

    def _seat(self, topic: str, learnt: bytes) -> _Seat:
        """Who has studied it, for that takes long; where many wait for that one, or nobody has, whoever is freest.

        A new process is asked before one that would have to wait, or to forget what it studied on the topic.
        """
        able = [seat for seat in self._seats if seat.learnt.get(topic) == learnt and seat.waiting < PATIENCE]
        freest = min(able or self._seats, key=lambda seat: (seat.waiting, topic in seat.learnt), default=None)
        more = not able and len(self._seats) < self._count
        if freest is None or (more and (freest.waiting or topic in freest.learnt)):
            enter = self._open.enter_context
            freest = _Seat(enter(Blind(self._device)), enter(ThreadPoolExecutor(1)))
            self._seats.append(freest)
        return freest


def learnt_of(topic: str, known: Plain) -> bytes:
    """What a process is sent of knowledge, before any question on a topic."""
    return canon.dump({"topic": topic, "known": dict(known)})


def _put(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(8, "little") + body)
    pipe.flush()


def _get(pipe: IO[bytes]) -> Any:
    """The next message; None at the end, also when the other side was cut off."""
    size = int.from_bytes(pipe.read(8), "little")
    body = pipe.read(size)
    return canon.load(body) if size and len(body) == size else None


def end_with(parent: int) -> None:
    """End when the process that asks is gone: killed, it hears no answer, and the last question may take an hour."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(arguments: Sequence[str]) -> None:
    """Answer questions until there are no more."""
    torch.set_num_threads(1)
    Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    told, studied = dict[str, Any](), dict[str, Any]()
    while (message := _get(sys.stdin.buffer)) is not None:
        if "topic" in message:
            # Studied with the first question, so that every answer, an error too, is to a question.
            told[message["topic"]] = message["known"]
            studied.pop(message["topic"], None)
            continue
        reply: dict[str, Any] = {"found": {}, "error": None}
        try:
            topic = message["of"]
            if topic not in told:
                raise ProtocolError("a question came before any knowledge")
            room = import_module(f"{TOPICS}.{topic}")
            if topic not in studied:
                studied[topic] = room.study(told[topic], arguments[0])
            reply["found"] = room.mount(studied[topic], message["asked"])
        except CroupierError as error:
            reply["error"] = str(error)
        _put(sys.stdout.buffer, canon.dump(reply))


if __name__ == "__main__":
    main(sys.argv[1:])
