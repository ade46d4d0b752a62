"""What left each party, on disk before it leaves: the memory that makes one-time secrets good for one message.

sent.jsonl        digests of messages, and where the run went on anew
releases.jsonl    every release with a privacy cost, client by client

Both only ever grow, and each line is chained to those before it by a digest. A line that was cut short by a crash
stands for messages that never left, because they wait for it to be whole; a whole line that cannot be read, or that
does not follow the one before it, is damage, and then nothing is sent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from croupier.core.attempt import AttemptId
from croupier.core.envelope import Envelope
from croupier.engine.restart import Restart, in_force
from croupier.errors import Replayed, StoreError

SENT, RELEASES = "sent.jsonl", "releases.jsonl"
# Of which attempt, from whom, to whom, what kind.
Slot = tuple[str, int, int, str, str, str]


class Journal:
    """The journal of one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[Slot, str] = {}
        # By the protocol's digest: the rounds of each party's messages, generation by generation.
        self._rounds: dict[str, dict[str, set[tuple[int, int]]]] = {}
        self._released: dict[str, list[dict[str, Any]]] = {}
        self._restarts: list[Restart] = []
        self._files: dict[str, IO[bytes]] = {}
        self._chains = dict.fromkeys((SENT, RELEASES), "")
        # Whether playing a round anew is a remedy at all.
        self.anew_helps = True
        # One model goes to many: it is digested once.
        self._last: tuple[bytes | memoryview, str] = (b"", "")

    @classmethod
    def begin(cls, path: Path) -> Journal:
        """The journal of a run that starts now. Raises: StoreError where there is one already."""
        made = cls(path)
        for name in (SENT, RELEASES):
            if (path / name).exists() and (path / name).stat().st_size:
                raise StoreError(f"{path / name}: something left under this run's name before; choose another --out")
            made._open(name)
        made._sync_folder()
        return made

    @classmethod
    def read(cls, path: Path) -> Journal:
        """The journal of a run that goes on. Raises: StoreError where it is missing or damaged."""
        made = cls(path)
        for name in (SENT, RELEASES):
            if not (path / name).is_file():
                raise StoreError(
                    f"{path / name} is missing: nobody knows what left before, so that the same secrets could cover "
                    "two messages; restore it, or start a new run (from task.warm if you have a model)"
                )
            for line in made._whole(name):
                made._take(name, line)
            made._open(name)
        return made

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def heard_from(self, clients: Collection[str]) -> bool:
        """Whether anything of these clients left, or was about to."""
        return bool(self._released) or any(not by.keys().isdisjoint(clients) for by in self._rounds.values())

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the run went on anew."""
        return in_force(self._restarts)

    def leave(self, attempt_id: AttemptId, envelopes: Sequence[Envelope]) -> None:
        """Write down messages that are about to leave. Raises: Replayed, and then none of them may leave."""
        fresh: dict[Slot, str] = {}
        for envelope in envelopes:
            head, digest = envelope.header, self._digest(envelope.body)
            slot = (attempt_id.spec.hex(), attempt_id.round, attempt_id.attempt, head.source, head.target, head.kind)
            known = self._known.get(slot, fresh.get(slot))
            if known is None:
                fresh[slot] = digest
            elif known != digest:
                raise Replayed(_refusal(self.path, self.anew_helps, *slot[1:]))
        if fresh:
            letters = [[*slot[3:], digest] for slot, digest in fresh.items()]
            line = {
                "spec": attempt_id.spec.hex(),
                "round": attempt_id.round,
                "attempt": attempt_id.attempt,
                "letters": letters,
            }
            self._append(SENT, line)
            self._take(SENT, line)

    def release(self, client: str, event: Mapping[str, Any]) -> None:
        """Write down a release that is about to leave; one that is sent again is written down already."""
        if dict(event) not in self._released.get(client, []):
            line = {"client": client, **event}
            self._append(RELEASES, line)
            self._take(RELEASES, line)

    def rounds_of(self, spec: bytes) -> dict[str, set[int]]:
        """The rounds that each party sent something in."""
        return {name: {number for number, _ in rounds} for name, rounds in self._rounds.get(spec.hex(), {}).items()}

    def released(self, client: str) -> set[int]:
        """The rounds that a client released something in."""
        return {event["round"] for event in self._released.get(client, [])}

    def since(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """What going on anew from a round would have to count."""
        attempts: dict[int, int] = {}
        for its, at, attempt, *_ in self._known:
            if its == spec.hex() and at >= number:
                attempts[at] = max(attempts.get(at, 0), attempt + 1)
        sent = self._rounds.get(spec.hex(), {})
        counts = {name: sum(at >= number for at, _ in rounds) for name, rounds in sent.items() if name in clients}
        ledgers = {
            name: tuple(event for event in events if event["round"] >= number)
            for name, events in self._released.items()
        }
        return Restart(
            number,
            attempts,
            {name: count for name, count in sorted(counts.items()) if count},
            {name: events for name, events in sorted(ledgers.items()) if events},
        )

    def restart(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """Go on anew from a round: on disk before anything leaves, so that no later attempt forgets it."""
        made = self.since(spec, number, clients)
        line = {"anew": made.plain()}
        self._append(SENT, line)
        self._take(SENT, line)
        return made

    def _take(self, name: str, line: Mapping[str, Any]) -> None:
        """Remember what a line of the journal says. Raises: StoreError when it says nothing that a journal would."""
        try:
            if name == RELEASES:
                event = dict(line)
                self._released.setdefault(event.pop("client"), []).append(event)
            elif "anew" in line:
                self._restarts.append(Restart.read(line["anew"]))
            else:
                spec, number, attempt = line["spec"], line["round"], line["attempt"]
                rounds = self._rounds.setdefault(spec, {})
                for source, target, kind, digest in line["letters"]:
                    self._known[spec, number, attempt, source, target, kind] = digest
                    rounds.setdefault(source, set()).add((number, len(self._restarts)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._damaged(name) from None

    def _digest(self, body: bytes | memoryview) -> str:
        if body is not self._last[0]:
            self._last = body, hashlib.sha256(body).hexdigest()
        return self._last[1]

    def _whole(self, name: str) -> list[dict[str, Any]]:
        """Every whole line; what a crash cut short is taken off, because nothing left on its account."""
        path = self.path / name
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(path, len(whole))
        try:
            return [self._chained(name, json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged(name) from None

    def _chained(self, name: str, line: dict[str, Any]) -> dict[str, Any]:
        """A line without its link, if it follows the line before. Raises: ValueError when it does not."""
        link = line.pop("chain")
        self._chains[name] = _link(self._chains[name], line)
        if link != self._chains[name]:
            raise ValueError("a line is missing before this one")
        return line

    def _damaged(self, name: str) -> StoreError:
        return StoreError(
            f"{self.path / name} is damaged: nobody knows what left before; restore it, or start a new run"
        )

    def _open(self, name: str) -> None:
        self._files[name] = open(  # noqa: SIM115 - held as long as the run
            self.path / name, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600)
        )

    def _sync_folder(self) -> None:
        """A file whose name is not on disk is lost with the power, however often it was flushed."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        """One line more, on disk when this returns. Raises: StoreError; then the file is as it was."""
        chain = _link(self._chains[name], line)
        data = (json.dumps({**line, "chain": chain}, sort_keys=True, allow_nan=False) + "\n").encode()
        file = self._files[name]
        start = os.fstat(file.fileno()).st_size
        try:
            if file.write(data) != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(file.fileno())
        except OSError as error:
            # Half a line must not stand before a whole one; nothing has left on its account.
            os.ftruncate(file.fileno(), start)
            raise StoreError(
                f"{self.path / name}: cannot be written ({error.strerror}); free space and resume"
            ) from None
        self._chains[name] = chain


def _link(before: str, line: Mapping[str, Any]) -> str:
    """The digest that chains a line to all lines before it: none can be taken out or changed unseen."""
    text = json.dumps(line, sort_keys=True, allow_nan=False)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:32]


def _refusal(path: Path, anew: bool, number: int, attempt: int, source: str, target: str, kind: str) -> str:
    """Why a message may not leave, and what the user can do: go on as before, or begin anew."""
    remedy = (
        "or add --anew: the round is played again under fresh secrets, and what left before stays counted"
        if anew
        else "or start a new run, from task.warm if you have a model: a second sum of nearly the same updates would "
        "give single ones away"
    )
    return (
        f"{path}: round {number + 1} had begun when the run stopped, and {source}'s {kind!r} to {target} would now "
        f"differ from what left (attempt {attempt + 1}): one secret would cover two messages. Resume with the code, "
        f"packages and device it began with; {remedy}"
    )
