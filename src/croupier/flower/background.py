"""One event loop a process, in a thread of its own: what Croupier does over the network, beside Flower's own thread.

gRPC wants one loop a process. Flower calls a mod or a strategy and waits; what they have to do runs here
(`flower.session` and `flower.rehearse` use `wait_for`). Training is the exception: an app's function runs in the thread
that Flower called, which some of what it uses insists on, so `flower.mod` has a `Workbench`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[Any, ...]


@cache
def loop() -> asyncio.AbstractEventLoop:
    """This process's loop, running."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="croupier", daemon=True).start()
    return made


def wait_for(job: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
    """What a job on the loop gives, or raises."""
    return asyncio.run_coroutine_threadsafe(job, loop()).result(seconds)


class Workbench:
    """Work that a job on the loop asks for, and that the thread which waits for the job does meanwhile."""

    def __init__(self) -> None:
        self._asked: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()

    def here(self, work: Callable[[Sequence[Job]], Sequence[Any]]) -> Callable[[Sequence[Job]], Sequence[Any]]:
        """The same work, done by whoever calls `run`."""

        def asked(jobs: Sequence[Job]) -> Sequence[Any]:
            done: Future[Sequence[Any]] = Future()
            self._asked.put((lambda: work(jobs), done))
            return done.result()

        return asked

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        """What a job on the loop gives; work that it asks for meanwhile is done here."""
        ends = asyncio.run_coroutine_threadsafe(job, loop())
        ends.add_done_callback(lambda _: self._asked.put(None))
        while (asked := self._asked.get()) is not None:
            work, done = asked
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
        return ends.result()
