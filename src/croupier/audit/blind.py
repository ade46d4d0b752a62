"""The blind law: attacks run in a fresh process that holds only bytes of views and declared knowledge.

`Blind` starts the process; `python -m croupier.audit.blind` is the process. Questions and answers are canonical bytes,
each after its length.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import BoundedSemaphore
from typing import IO, Any, Self

import torch
from torch import Tensor

from croupier.audit import membership, source
from croupier.audit.knowledge import Knowledge, Scene, counted, read
from croupier.audit.unshuffle import pick
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import CroupierError, ProtocolError, SpecError, Unsuited, nearest
from croupier.learn.flat import FlatNet


@dataclass(frozen=True)
class Answer:
    """What attacks make of one view: a client's place for each record, and a score for each suspect.

    `unsuited` says why attacks were not run that need another network or other records; `carried` which knowledge the
    prior is made of, where it was asked for.
    """

    guesses: Mapping[str, Tensor]
    scores: Mapping[str, Tensor]
    unsuited: Mapping[str, str] = field(default_factory=dict)
    carried: str = ""


@dataclass(frozen=True)
class Question:
    """One view, or none, and the attacks to mount on it: whose record, and whether it was trained on at all.

    The protocol is public.
    """

    view: Mapping[str, Any] | None
    protocol: Mapping[str, Any]
    source: tuple[str, ...]
    membership: tuple[str, ...]
    coins: Coins

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"coins": self.coins.export()}


class Blind:
    """A process that mounts attacks and knows nothing but what it is sent."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._known = b""

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

    def ask(self, knowledge: Knowledge, quiet: Coins, question: Question) -> Answer:
        """What the attacks answer; knowledge is sent when it changed. Raises: ProtocolError when an attack fails."""
        known = canon.dump({"knowledge": knowledge.plain(), "quiet": quiet.export()})
        if self._process.stdin is None or self._process.stdout is None:
            raise ProtocolError("the attacks' process is not running")
        answer = None
        with suppress(BrokenPipeError):
            if known != self._known:
                _put(self._process.stdin, known)
                self._known = known
            _put(self._process.stdin, canon.dump(question.plain()))
            answer = _get(self._process.stdout)
        if answer is None or answer["error"] is not None:
            raise ProtocolError(f"an attack failed: {answer['error'] if answer else 'its process ended'}")
        return Answer(answer["guesses"], answer["scores"], answer["unsuited"], answer["carried"])


class Panel:
    """A few blind processes, each asked one question at a time; which one answers changes nothing."""

    def __init__(self, count: int, device: str = "cpu") -> None:
        self._count, self._device = count, device
        self._idle: SimpleQueue[Blind] = SimpleQueue()

    def __enter__(self) -> Self:
        self._open = ExitStack()
        self._blinds = [self._open.enter_context(Blind(self._device)) for _ in range(self._count)]
        for blind in self._blinds:
            self._idle.put(blind)
        self._pool = self._open.enter_context(ThreadPoolExecutor(self._count))
        # Views wait here with all they hold: no more of them than are being read and one to come.
        self._room = BoundedSemaphore(2 * self._count)
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            # Nobody waits for these answers any more.
            self._pool.shutdown(wait=False, cancel_futures=True)
            for blind in self._blinds:
                blind.stop()
        self._open.__exit__(*error)

    def ask(self, knowledge: Knowledge, quiet: Coins, question: Question) -> Future[Answer]:
        """What the attacks will answer."""
        self._room.acquire()
        return self._pool.submit(self._ask, knowledge, quiet, question)

    def _ask(self, knowledge: Knowledge, quiet: Coins, question: Question) -> Answer:
        blind = self._idle.get()
        try:
            return blind.ask(knowledge, quiet, question)
        finally:
            self._idle.put(blind)
            self._room.release()


def study(known: Mapping[str, Any], device: str = "cpu") -> Scene:
    """What is known, before any view."""
    knowledge = Knowledge(**known["knowledge"])
    return Scene(knowledge, None, FlatNet(knowledge.module, device), Coins(known["quiet"]))


def mount(scene: Scene, question: Mapping[str, Any]) -> Answer:
    """Mount the attacks: a pure function of knowledge and question."""
    view, protocol, layout = question["view"], question["protocol"], scene.net.layout
    found = (None, None) if view is None else (read(view, protocol, layout), counted(view, protocol, layout))
    facing = scene.facing(*found)
    coins = Coins(question["coins"])
    guesses, unsuited = {}, dict[str, str]()
    for name in question["source"]:
        node, attack = coins.child("source", name), _found(name, source.ATTACKS)
        try:
            guesses[name] = pick(attack(facing, node.child("attack")), node.child("ties").fast())
        except Unsuited as error:
            unsuited[name] = str(error)
    scores = {name: _found(name, membership.ATTACKS)(facing, coins.child(name)) for name in question["membership"]}
    carried = source.unseen(facing).carried if "prior" in question["source"] else ""
    return Answer(guesses, scores, unsuited, carried)


def _found(name: str, attacks: Mapping[str, source.Attack]) -> source.Attack:
    if name not in attacks:
        raise SpecError(f"no attack is called {name!r}; {nearest(name, attacks)}")
    return attacks[name]


def _put(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(8, "little") + body)
    pipe.flush()


def _get(pipe: IO[bytes]) -> Any:
    """What comes next; None at the end, also when the other side was cut off."""
    size = int.from_bytes(pipe.read(8), "little")
    body = pipe.read(size)
    return canon.load(body) if size and len(body) == size else None


def main(arguments: Sequence[str]) -> None:
    """Answer questions until there are no more."""
    torch.set_num_threads(1)
    known: Mapping[str, Any] | None = None
    scene: Scene | None = None
    while (message := _get(sys.stdin.buffer)) is not None:
        if "knowledge" in message:
            # Studied with the first question, so that every answer, an error too, is to a question.
            known, scene = message, None
            continue
        answer: dict[str, Any] = {"guesses": {}, "scores": {}, "unsuited": {}, "carried": "", "error": None}
        try:
            if known is None:
                raise ProtocolError("a question came before any knowledge")
            scene = scene or study(known, arguments[0])
            found = mount(scene, message)
            answer |= {name: dict(getattr(found, name)) for name in ("guesses", "scores", "unsuited")}
            answer["carried"] = found.carried
        except CroupierError as error:
            answer["error"] = str(error)
        _put(sys.stdout.buffer, canon.dump(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
