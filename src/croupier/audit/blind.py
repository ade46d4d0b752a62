"""The blind law: attacks run in a fresh process that holds only bytes of views and declared knowledge.

`Blind` starts the process; `python -m croupier.audit.blind` is the process. Jobs and answers are canonical bytes, each
after its length.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any, Self

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge
from croupier.audit.source import ATTACKS, pick
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import CroupierError, ProtocolError, SpecError, nearest


class Blind:
    """A process that mounts attacks and knows nothing but what it is sent."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "croupier.audit.blind"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def guess(self, attack: str, view: Mapping[str, Any] | None, knowledge: Knowledge, coins: Coins) -> Tensor:
        """The attack's guess for each record: a client's place in the list. Raises: ProtocolError when it fails."""
        job = {"attack": attack, "view": view, "knowledge": knowledge.plain(), "coins": coins.export()}
        if self._process.stdin is None or self._process.stdout is None:
            raise ProtocolError("the attack's process is not running")
        _put(self._process.stdin, job)
        answer = _get(self._process.stdout)
        if answer is None or answer["error"] is not None:
            raise ProtocolError(f"attack {attack!r} failed: {answer['error'] if answer else 'its process ended'}")
        guesses: Tensor = answer["guesses"]
        return guesses


def mount(job: Mapping[str, Any]) -> Tensor:
    """Carry out one job: a pure function of what it holds."""
    if job["attack"] not in ATTACKS:
        raise SpecError(f"no attack is called {job['attack']!r}; {nearest(job['attack'], ATTACKS)}")
    knowledge = Knowledge(**job["knowledge"])
    seen = None if job["view"] is None else knowledge.read(job["view"])
    coins = Coins(job["coins"])
    return pick(ATTACKS[job["attack"]](seen, knowledge, coins.child("attack")), coins.child("ties"))


def _put(pipe: IO[bytes], value: Any) -> None:
    body = canon.dump(value)
    pipe.write(len(body).to_bytes(8, "little") + body)
    pipe.flush()


def _get(pipe: IO[bytes]) -> Any:
    size = pipe.read(8)
    return canon.load(pipe.read(int.from_bytes(size, "little"))) if len(size) == 8 else None


def main() -> None:
    """Answer jobs until there are no more."""
    torch.set_num_threads(1)
    while (job := _get(sys.stdin.buffer)) is not None:
        answer: dict[str, Any] = {"guesses": None, "error": None}
        try:
            answer["guesses"] = mount(job)
        except CroupierError as error:
            answer["error"] = str(error)
        _put(sys.stdout.buffer, answer)


if __name__ == "__main__":
    main()
