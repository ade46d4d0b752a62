"""Runs whose parties are processes of their own, some of which kill themselves with SIGKILL at a drawn step.

The kills of `deployment`, in one process, are a model of a crash. These are real ones, a few times: nothing of the
process survives but its files. `service.up` starts it again, as a service manager would. `faults`
(`croupier bench faults`, whose `--processes` says how many runs) calls `play_processes`, with the steps of a run
without faults: the moments of a party's work, as its hook is told them (`service.seated`). Nobody sees what travels
between real processes, nor what lies in their stores, so that letters are not counted here.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from croupier.core import canon
from croupier.core.coins import Coins, Stream
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import ProtocolError
from croupier.service.roster import Timetable
from croupier.service.seated import Hook
from croupier.service.training import assembled
from croupier.service.up import up
from croupier.spec import Spec, load
from croupier_lab.bench.services.toy import PIPELINES

CLIENTS, ROUNDS = 6, 2
# Long enough that whoever was killed is back in time, on a busy machine too.
PATIENT = Timetable(phase=15.0, round=40.0, hold=2.0)
# Seconds after which no party may run any more: loading, all rounds with their attempts, and the farewell.
LIMIT = 60.0 + ROUNDS * PATIENT.round * 2 + 15.0


class _PastDeadlineError(Exception):
    """Some party is still running."""


def play_processes(name: str, steps: Sequence[tuple[str, str, int]], seed: int) -> tuple[Counter[str], str]:
    """One run of a small real task in which up to three parties are killed: the counts, and why it ended early if so.

    Of what may go wrong it counts lost rounds and parties that ended without a word, wrong models, and as `hung` a run
    some party of which is past the last deadline. It must be called in a process's main thread.
    """
    spec = load("digits", {"task.split.clients": CLIENTS, "federation.rounds": ROUNDS, "task.root.records": 100})
    spec = spec.model_copy(update={"protocol": PIPELINES[name]})
    drawn = _drawn(steps, Coins.from_seed(seed).child("kills").secure())
    counts: Counter[str] = Counter(injected=0, runs=1)

    def watch(event: str, facts: Mapping[str, object]) -> None:
        counts["injected"] += event == "restarted"

    try:
        with _deadline(LIMIT):
            found = up(spec, seed=seed, times=PATIENT, watch=watch, hooks=drawn)
    except ProtocolError as error:
        return counts + Counter(aborted=1), str(error)
    except _PastDeadlineError:
        return counts + Counter(hung=1), ""
    # Who ends in any foreseen way tells its facts; who does not had an error that nobody had given a name.
    counts["lost"] += len({party for party, _, _ in steps} - set(found.parties))
    lines = {int(line["round"]): line for line in found.rounds}
    models = _models(spec, seed)
    counts["lost"] += ROUNDS - len(lines)
    everybody = all(line["present"] == CLIENTS for line in lines.values())
    # Who came too late is not named in a line: then there is nothing to compare with.
    counts["wrong"] += everybody and any(line["model"] != models[number - 1] for number, line in lines.items())
    return counts, ""


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Interrupt what runs in it when so many seconds are over; `up` then ends all its parties."""

    def over(_number: int, _frame: FrameType | None) -> None:
        raise _PastDeadlineError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _models(spec: Spec, seed: int) -> list[str]:
    coins = Coins.from_seed(seed)
    task = assembled(spec, coins).task
    played = rounds(spec.protocol, task, spec.federation, coins, Local())
    return [canon.digest(one.state.model.vector).hex() for one in played]


def _drawn(steps: Sequence[tuple[str, str, int]], chance: Stream) -> Mapping[str, Callable[[], Hook]]:
    """Three moments; of those of one party only the last drawn counts, because only its first life has a hook."""
    return {
        party: _killer(step, number) for party, step, number in (steps[int(at)] for at in chance.below(len(steps), 3))
    }


def _killer(step: str, number: int) -> Callable[[], Hook]:
    def hook(at: str, round_: int) -> None:
        if (at, round_) == (step, number):
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: hook
