"""What left each party, on disk before it leaves: the memory that makes one-time secrets good for one message.

sent.jsonl        digests of messages, and where the run went on anew
releases.jsonl    every release with a privacy cost, client by client

Both only ever grow, and each line is chained to those before it by a digest. A line that was cut short by a crash
stands for messages that never left, because they wait for it to be whole; a whole line that cannot be read, or that
does not follow the one before it, is damage, and then nothing is sent. Rounds are counted from 0 here, and from 1 in
the other logs of a run.

`engine.job.job` begins a run's journal and `engine.job.resume` reads it; `engine.local` writes messages into it, and
`engine.loop` releases. Of what was sent, memory holds one round only: an earlier one is read again when it is asked
for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from croupier.core.attempt import AttemptId
from croupier.core.envelope import Envelope, Pieces
from croupier.engine.restart import Restart, in_force
from croupier.errors import Replayed, StoreError

SENT, RELEASES = "sent.jsonl", "releases.jsonl"
# What names one message: protocol, round, attempt, source, target, kind.
Slot = tuple[str, int, int, str, str, str]


class Journal:
    """The journal of one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # What left in one round of one protocol, and the last round of each that there is.
        self._known: dict[Slot, str] = {}
        self._at: tuple[str, int] | None = None
        self._last_round: dict[str, int] = {}
        self._heard: set[str] = set()
        self._released: dict[str, list[dict[str, Any]]] = {}
        self._restarts: list[Restart] = []
        self._files: dict[str, IO[bytes]] = {}
        self._chains = dict.fromkeys((SENT, RELEASES), "")
        # Whether an error may advise to play the round anew; `engine.job.resume` sets it.
        self.anew_helps = True
        # One model goes to many: it is digested once.
        self._digested: tuple[bytes | memoryview | Pieces, str] = (b"", "")

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
            made._cut(name)
            for line in made._lines(name):
                made._take(name, made._chained(name, line))
            made._open(name)
        return made

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()
        self._files = {}

    def heard_from(self, clients: Collection[str]) -> bool:
        """Whether anything of these clients left, or was about to."""
        return bool(self._released) or not self._heard.isdisjoint(clients)

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the run went on anew."""
        return in_force(self._restarts)

    def leave(self, attempt_id: AttemptId, envelopes: Sequence[Envelope]) -> None:
        """Write down messages that are about to leave. Raises: Replayed, and then none of them may leave."""
        spec, fresh = attempt_id.spec.hex(), dict[Slot, str]()
        self._recall(spec, attempt_id.round)
        for envelope in envelopes:
            head, digest = envelope.header, self._digest(envelope.body)
            slot = (spec, attempt_id.round, attempt_id.attempt, head.source, head.target, head.kind)
            known = self._known.get(slot, fresh.get(slot))
            if known is None:
                fresh[slot] = digest
            elif known != digest:
                raise Replayed(_refusal(self.path, self.anew_helps, *slot[1:]))
        if fresh:
            letters = [[*slot[3:], digest] for slot, digest in fresh.items()]
            line = {"spec": spec, "round": attempt_id.round, "attempt": attempt_id.attempt, "letters": letters}
            self._append(SENT, line)
            self._take(SENT, line)
            self._known |= fresh

    def release(self, client: str, event: Mapping[str, Any]) -> None:
        """Write down a release that is about to leave; one that is sent again is written down already."""
        if dict(event) not in self._released.get(client, []):
            line = {"client": client, **event}
            self._append(RELEASES, line)
            self._take(RELEASES, line)

    def rounds_of(self, spec: bytes) -> dict[str, set[int]]:
        """The rounds that each party sent something in, counted from 0."""
        found: dict[str, set[int]] = {}
        for _, line in self._sent(spec.hex()):
            for source in {letter[0] for letter in line["letters"]}:
                found.setdefault(source, set()).add(line["round"])
        return found

    def released(self, client: str) -> set[int]:
        """The rounds that a client released something in, counted from 0."""
        return {event["round"] for event in self._released.get(client, [])}

    def since(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """What going on anew from a round would have to count."""
        attempts: dict[int, int] = {}
        known, sent = set(clients), dict[str, set[tuple[int, int]]]()
        for generation, line in self._sent(spec.hex()):
            if (at := line["round"]) >= number:
                attempts[at] = max(attempts.get(at, 0), line["attempt"] + 1)
                for source in known & {letter[0] for letter in line["letters"]}:
                    sent.setdefault(source, set()).add((at, generation))
        counts = {name: len(rounds) for name, rounds in sent.items()}
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
                spec, number, _ = line["spec"], line["round"], line["attempt"]
                self._last_round[spec] = max(number, self._last_round.get(spec, 0))
                self._heard.update(source for source, _, _, _ in line["letters"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._damaged(name) from None

    def _digest(self, body: bytes | memoryview | Pieces) -> str:
        if body is not self._digested[0]:
            found = hashlib.sha256()
            for part in body.parts if isinstance(body, Pieces) else (body,):
                found.update(part)
            self._digested = body, found.hexdigest()
        return self._digested[1]

    def _recall(self, spec: str, number: int) -> None:
        """Know what left in a round, and let go of others: a long run of many clients would hold all it ever sent."""
        if self._at == (spec, number):
            return
        self._known, self._at = {}, (spec, number)
        if number > self._last_round.get(spec, -1):
            return
        for _, line in self._sent(spec):
            if line["round"] == number:
                for source, target, kind, digest in line["letters"]:
                    self._known[spec, number, line["attempt"], source, target, kind] = digest

    def _sent(self, spec: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """What left under a protocol, line by line, each with how often the run had gone on anew before it."""
        generation = 0
        for line in self._lines(SENT):
            generation += "anew" in line
            if line.get("spec") == spec:
                yield generation, line

    def _cut(self, name: str) -> None:
        """Take off what a crash cut short: nothing left on its account."""
        whole = 0
        with (self.path / name).open("rb") as file:
            for line in file:
                whole += len(line) if line.endswith(b"\n") else 0
        if whole < (self.path / name).stat().st_size:
            os.truncate(self.path / name, whole)

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Every line, one at a time: a journal may be longer than memory. Raises: StoreError when one is damaged."""
        with (self.path / name).open("rb") as file:
            for line in file:
                try:
                    read = json.loads(line)
                except ValueError:
                    raise self._damaged(name) from None
                if not isinstance(read, dict):
                    raise self._damaged(name)
                yield read

    def _chained(self, name: str, line: dict[str, Any]) -> dict[str, Any]:
        """A line without its link. Raises: StoreError when it does not follow the line before."""
        link = line.pop("chain", None)
        self._chains[name] = _linked(self._chains[name], _text(line))
        if link != self._chains[name]:
            raise self._damaged(name)
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
        text = _text(line)
        chain = _linked(self._chains[name], text)
        data = f'{text[:-1]}, "chain": "{chain}"}}\n'.encode()
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


def _text(line: Mapping[str, Any]) -> str:
    """A line without its link, as it is digested."""
    return json.dumps(line, sort_keys=True, allow_nan=False)


def _linked(before: str, text: str) -> str:
    """The digest that chains a line to all before it: damage to one shows, unless all later lines are made anew."""
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
