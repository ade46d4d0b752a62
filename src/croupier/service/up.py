"""All parties of a description as separate processes on this machine: `croupier up`.

For trying a deployment out: fresh keys, real connections, a folder that is gone at the end. Parties are forked from
this process once everything is loaded, so that ten of them start as fast as one; nobody is protected from the others. A
janitor process outlives even a kill of this one: it ends the others and removes the folder. The laboratory's
`bench/services/killed_processes` runs parties by it that kill themselves.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from croupier.agree.epochs import plain_of
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Model, Update
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import run_id
from croupier.engine.work import permuting_of
from croupier.errors import CroupierError, ProtocolError
from croupier.learn.assemble import Assembled
from croupier.service.member import SERVER, Member
from croupier.service.rehearsal import HERE, Rehearsal
from croupier.service.roster import Timetable
from croupier.service.seated import Hook
from croupier.service.start import run_here
from croupier.service.store import Store
from croupier.service.training import assembled
from croupier.service.transport import has_run
from croupier.spec import Spec

Watch = Callable[[str, Mapping[str, Any]], None]
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class UpResult:
    """What a rehearsal gave: the server's lines, and what each party sent, got and took.

    `only_clients_read` says that the server cannot measure its models: then only the last line has a measure, made with
    the clients' secrets, which all lie on this machine.
    """

    rounds: tuple[Mapping[str, Any], ...]
    parties: Mapping[str, Mapping[str, Any]]
    seconds: float
    views: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    restarts: int = 0
    only_clients_read: bool = False

    def plain(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        final = dict(self.rounds[-1]) if self.rounds else {}
        return {
            **{name: value for name, value in final.items() if name in ("accuracy", "loss", "mae", "present")},
            "rounds": [dict(line) for line in self.rounds], "seconds": self.seconds,
            "parties": {name: dict(facts) for name, facts in self.parties.items()},
        }  # fmt: skip


def up(
    spec: Spec, *, seed: int | None = None, data: Path | None = None, times: Timetable = HERE,
    watch: Watch = lambda event, facts: None, absent: frozenset[str] = frozenset(),
    hooks: Mapping[str, Callable[[], Hook]] | None = None,
) -> UpResult:  # fmt: skip
    """Run every party of a description as a process of its own.

    Raises: ProtocolError when the server failed, and in a process in which gRPC has run.
    """
    if has_run():
        raise ProtocolError(
            "croupier up starts its parties as forks of this process, in which gRPC has run, and forks do not survive "
            "that; call it from a fresh process: `croupier up`, or multiprocessing with the method 'spawn'"
        )
    torch.set_num_threads(1)
    started = time.perf_counter()
    coins = Coins.from_os() if seed is None else Coins.from_seed(seed)
    made = assembled(spec, coins, data)
    _load_everything(spec, made)
    with _folder() as (folder, janitor):
        rehearsal = Rehearsal(spec, folder, made, coins, seed is not None, times, absent, hooks or {})
        found = _Parent(rehearsal, janitor, watch).run()
        if spec.protocol.encode.rules is not None and found.rounds:
            measured = _measured_for_all(rehearsal)
            last = {**found.rounds[-1], **measured}
            found = replace(found, rounds=(*found.rounds[:-1], last), only_clients_read=bool(measured))
    return replace(found, seconds=time.perf_counter() - started)


def _measured_for_all(rehearsal: Rehearsal) -> Mapping[str, float]:
    """What the last model is worth where the server cannot read it: only here do all stores lie in one folder."""
    task, run = rehearsal.made.task, run_id(rehearsal.coins)
    permuting, memories = permuting_of(task), {name: _remembered(rehearsal.folder / name) for name in task.enrolled}
    models = [Model(**plain) for plain in _remembered(rehearsal.folder / SERVER).get("models", ())]
    if permuting is None or not models:
        return {}
    model = max(models, key=lambda one: len(one.recipients or ()))
    return task.evaluate(plain_of(model, memories, run, permuting))


def _remembered(folder: Path) -> Mapping[str, Any]:
    """What a party remembered at its end; nothing where it never came."""
    if not (folder / "store.db").is_file():
        return {}
    store = Store(folder)
    try:
        kept = store.fact("memory")
    finally:
        store.close()
    return {} if kept is None else canon.load(kept)


def _load_everything(spec: Spec, made: Assembled) -> None:
    """Play one round without training, so that what a party loads when it first needs it is loaded before they part."""

    def still(jobs: Any) -> list[Update]:
        one = {"weight": torch.ones(1, dtype=torch.float64)}
        return [Update(start, made.task.layout, one) for start, _, _ in jobs]

    plan = spec.federation.model_copy(update={"rounds": 1, "joins": {}})
    with suppress(CroupierError):
        next(rounds(spec.protocol, replace(made.task, fit=still), plan, Coins.from_os(), Local()))


@contextmanager
def _folder() -> Iterator[tuple[Path, int]]:
    """A folder that is gone afterwards, and a pipe to a process that sees to it should this one be killed."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-up-"))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        _janitor(folder, reader)
    os.close(reader)
    try:
        yield folder, writer
    finally:
        os.close(writer)
        os.waitpid(pid, 0)


def _janitor(folder: Path, reader: int) -> NoReturn:
    """Wait until nobody holds the pipe's other end; then end whoever was named on it, and remove the folder."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pids = b""
    while piece := os.read(reader, 4096):
        pids += piece
    for pid in pids.split():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(pid), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


class _Parent:
    """The process that started the others: it hears from them, starts those again that were killed, and counts."""

    def __init__(self, rehearsal: Rehearsal, janitor: int, watch: Watch) -> None:
        self.rehearsal, self.janitor, self.watch = rehearsal, janitor, watch
        self.members = rehearsal.members()
        self.pids: dict[str, int] = {}
        self.pipes: dict[int, str] = {}
        self.text: dict[str, bytes] = {}
        self.lines: dict[int, Mapping[str, Any]] = {}
        self.views: dict[str, dict[int, str]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}
        self.restarts = 0
        self.selector = selectors.DefaultSelector()

    def run(self) -> UpResult:
        """Start everybody, listen until all have ended. Raises: ProtocolError with what a failed server said."""
        for name in sorted(self.members, key=lambda name: (self.members[name].is_client, name)):
            if name not in self.rehearsal.absent:
                self._start(name)
        try:
            while self.pids:
                for key, _ in self.selector.select(0.5):
                    self._hear(key.fd)
        finally:
            self._stop()
        if SERVER in self.failed:
            raise ProtocolError(f"server: {self.failed[SERVER]}")
        return UpResult(
            tuple(self.lines[number] for number in sorted(self.lines)), self.facts, 0.0, self.views, self.restarts
        )

    def _start(self, name: str, again: bool = False) -> None:
        (reader, writer), parent = os.pipe(), os.getpid()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(self.janitor)
            for fd in self.pipes:
                os.close(fd)
            _child(
                self.rehearsal if not again else replace(self.rehearsal, hooks={}), self.members[name], writer, parent
            )
        os.close(writer)
        os.write(self.janitor, f"{pid} ".encode())
        self.pids[name] = pid
        self.pipes[reader] = name
        self.text[name] = b""
        self.selector.register(reader, selectors.EVENT_READ)

    def _hear(self, fd: int) -> None:
        name, piece = self.pipes[fd], os.read(fd, 1 << 16)
        if not piece:
            self._ended(fd, name)
            return
        *whole, self.text[name] = (self.text[name] + piece).split(b"\n")
        for line in whole:
            self._take(name, json.loads(line))

    def _take(self, name: str, said: dict[str, Any]) -> None:
        event = said.pop("event")
        if event == "round":
            if said == self.lines.get(int(said["round"])):
                return  # a server that starts again tells of all rounds
            self.lines[int(said["round"])] = said
        elif event == "view":
            self.views.setdefault(name, {})[int(said["round"])] = str(said["digest"])
        elif event == "ended":
            self.facts[name] = said
        elif event == "error":
            self.failed[name] = str(said["why"])
        self.watch(event, {"party": name, **said})

    def _ended(self, fd: int, name: str) -> None:
        self.selector.unregister(fd)
        os.close(fd)
        del self.pipes[fd]
        _, status = os.waitpid(self.pids.pop(name), 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:  # as a service manager would:
            self.restarts += 1
            self.watch("restarted", {"party": name})
            self._start(name, again=True)
        elif name == SERVER and name in self.failed:
            self._stop()

    def _stop(self) -> None:
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids.values():
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.pids = {}


def _child(rehearsal: Rehearsal, member: Member, writer: int, parent: int) -> NoReturn:
    """One party, from its fork to its end."""
    code = 1
    try:
        with suppress(OSError, AttributeError):  # Linux: whatever ends the parent ends this process, too
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

        def tell(event: str, **facts: Any) -> None:
            os.write(writer, json.dumps({"event": event, **facts}).encode() + b"\n")

        start = time.process_time()
        party = rehearsal.party(member, tell)
        try:
            run_here(party)
            code = 0
        except CroupierError as error:
            tell("error", why=str(error))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        counts = {name: int(count) for name, count in party.counts.items()}
        tell("ended", **{"bytes_in": 0, "bytes_out": 0, **counts}, seconds=time.process_time() - start, peak_bytes=peak)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
