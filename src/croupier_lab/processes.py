"""Work in processes of its own, several at once, of which an interrupt leaves none behind.

Figures of papers train from several seeds with it (`papers.shared.trainings`, `papers.rain.repeated_runs`,
`papers.tazza.inversion_targets`), and so do `source_inference.experiment`, `attacks.rules_under_attack` and
`attacks.tiers.experiment`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

from croupier.errors import SpecError

Job = TypeVar("Job")
Done = TypeVar("Done")


def _enter() -> None:
    # Many processes share the cores: one thread each.
    torch.set_num_threads(1)


@contextmanager
def process_pool(
    count: int, enter: Callable[..., None] = _enter, given: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """While it is open, so many processes, each of which calls `enter` first.

    An error ends them at once, because nobody waits for their results any more. Raises: SpecError when they cannot
    start, or are ended from outside.
    """
    try:
        with ProcessPoolExecutor(count, get_context("spawn"), enter, given) as pool:
            try:
                yield pool
            except BaseException:
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool:
        raise SpecError(
            "a process beside this one could not start, or was ended from outside: free memory; a script must "
            "guard its main part, if __name__ == '__main__': ..."
        ) from None


def ask(pool: ProcessPoolExecutor, work: Callable[..., Done], *args: Any) -> Future[Done]:
    """Hand work to a process that ignores interrupts from the keyboard.

    An interrupt is for the one who asks, who then ends the processes.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, *args)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def each(work: Callable[[Job], Done], jobs: Mapping[str, Job], count: int, heard: Callable[[str, Done], None]) -> None:
    """Do all jobs, `count` at once in processes of their own; `heard` is told each job's name and result as it ends."""
    if count == 1 or len(jobs) < 2:
        for name, job in jobs.items():
            heard(name, work(job))
        return
    with process_pool(min(count, len(jobs))) as pool:
        waiting = {ask(pool, work, job): name for name, job in jobs.items()}
        for ended in as_completed(waiting):
            heard(waiting[ended], ended.result())
