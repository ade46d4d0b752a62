"""The driver of every simulation: it plays all parties of an attempt in one process, by reference or as sealed bytes.

Parties are moved until none can move. Then waits that a quorum satisfies end first, and after those the waits for
parties that will send nothing more. Work of one name is run together, which is how clients train stacked. By reference
a message is encoded and counted but its arrays are handed over; through bytes it is sealed, sent, opened and parsed,
with the same results. Runs (`engine.job.job`), plans, audits (`audit.described`) and the laboratory drive by it;
deployed parties are each driven by `service.player`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from croupier.core.attempt import Attempt, AttemptResult, MessageJournal
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Letter, Refusal, Seat, Work
from croupier.core.view import View
from croupier.engine.post import Network, Parcel, Post
from croupier.errors import CroupierError, ProtocolError
from croupier.kernels import threads

Done = TypeVar("Done")
# Bytes of messages that are on their way at a time.
_BATCH = 32 << 20


@dataclass(frozen=True)
class Local:
    """Drives an attempt in one process. With `links`, every message is sealed, sent as bytes, opened and parsed.

    Sealed packets then pass through `network`, where one is given, which may change or drop them. With a `journal`,
    nothing leaves a party before its digest is on disk.
    """

    links: Coins | None = None
    network: Network | None = None
    journal: MessageJournal | None = None

    def __call__(self, attempt: Attempt) -> AttemptResult:
        """Run everybody to the end."""
        return _Table(attempt, self).run()


class _Table:
    """One attempt on its way: the seats, the post between them, and what a coalition holds back."""

    def __init__(self, attempt: Attempt, local: Local) -> None:
        self.attempt, self.local = attempt, local
        attempt_id = attempt.attempt_id
        # Two protocols may use one number for a round and for something else: they share no key.
        links = local.links and local.links.child(attempt_id.spec, attempt_id.round, attempt_id.attempt)
        self.post = Post(attempt_id, attempt.schemas, links)
        # Long vectors keep a core busy each; with short ones a second thread would only wait for the interpreter.
        self.large = max((given.layout.size for given in attempt.givens.values()), default=0) >= threads.FEW
        names = [name for name in sorted(attempt.parties) if name not in attempt.absent]
        seats = self._all([partial(self._seat, name) for name in names])
        self.seats = dict(zip(names, seats, strict=True))
        self.held: dict[str, tuple[Letter, ...]] = {}

    def _seat(self, name: str) -> Seat:
        attempt = self.attempt
        return Seat.take(
            attempt.parties[name], attempt.givens[name], attempt.memories.get(name, {}), attempt.coins[name],
            attempt.keep.get(name, "nothing"),
        )  # fmt: skip

    def _all(self, jobs: Sequence[Callable[[], Done]]) -> list[Done]:
        """What each job gives, in their order; parties' steps on long vectors at the same time, where cores are free.

        What parties do does not depend on it: they share nothing but values that are found once and never change.
        """
        if not self.large:
            return [job() for job in jobs]
        found: dict[int, Done] = {}
        threads.each([partial(_into, found, at, job) for at, job in enumerate(jobs)])
        return [found[at] for at in range(len(jobs))]

    def run(self) -> AttemptResult:
        """Move whatever can be moved, the least drastic step first, until every party has ended."""
        while any(seat.outcome is None for seat in self.seats.values()):
            if self._work():
                continue
            with _unsearched():
                if not (self._mail() or self._advance(False)):
                    _ = self._rush() or self._advance(True) or self._give_up()
        outcomes = {name: seat.outcome for name, seat in self.seats.items() if seat.outcome is not None}
        own = tuple(Refusal(n, n, str(o.error)) for n, o in outcomes.items() if o.error and n in self._clients())
        views = {name: seat.view for name, seat in self.seats.items()}
        return AttemptResult(outcomes, views, (*own, *self.post.refusals), self.post.traffic)

    def _clients(self) -> frozenset[str]:
        return frozenset(next(iter(self.attempt.givens.values())).roster)

    def _work(self) -> bool:
        """Run all work that is asked for now, jobs of one name together."""
        asked: dict[str, list[Seat]] = {}
        for seat in self.seats.values():
            if isinstance(seat.ask, Work):
                asked.setdefault(seat.ask.name, []).append(seat)
        for name, seats in asked.items():
            jobs = [seat.ask.args for seat in seats if isinstance(seat.ask, Work)]
            results = self.attempt.bench[name](jobs)
            with _unsearched():
                steps = zip(seats, results, strict=True)
                self._all([
                    partial(seat.fail if isinstance(result, CroupierError) else seat.finish, result)
                    for seat, result in steps
                ])  # fmt: skip
        return bool(asked)

    def _mail(self) -> bool:
        """Post what lies ready; what the coalition's members send is held back."""
        members = self.attempt.coalition.members if self.attempt.coalition else frozenset()
        parcels: list[Parcel] = []
        for name, seat in self.seats.items():
            letters = seat.post()
            if letters and name in members:
                self.held[name] = letters
            elif letters:
                parcels += self._write(seat, letters)
        self._carry(parcels)
        return bool(parcels)

    def _write(self, seat: Seat, letters: tuple[Letter, ...]) -> list[Parcel]:
        """Encode what can be; a letter that is no message of this protocol is refused like any other."""
        parcels = []
        for letter in letters:
            try:
                parcels.append(self.post.write(seat.name, letter))
            except CroupierError as error:
                self.post.refusals.append(Refusal(seat.name, letter.target, str(error)))
        return parcels

    def _carry(self, parcels: list[Parcel]) -> None:
        """Bring parcels to their receivers: first into the journal, where there is one; sealed, where bytes travel."""
        if self.local.journal is not None and parcels:
            self.local.journal.leave(self.attempt.attempt_id, [parcel.envelope for parcel in parcels])
        carried: Iterable[Parcel] = parcels
        if self.local.links is not None and self.local.network is not None:
            packets = self.local.network([packet for parcel in parcels for packet in self.post.seal(parcel)])
            carried = (parcel for packet in packets if (parcel := self.post.open(packet)))
        elif self.local.links is not None:
            carried = self._sent(parcels)
        for parcel in carried:
            self._deliver(parcel)

    def _sent(self, parcels: list[Parcel]) -> Iterator[Parcel]:
        """Parcels as they come out of their links: a few at a time, so that few of them take memory at once."""
        for some in _batches(parcels):
            by_link: dict[tuple[str, str], list[Parcel]] = {}
            for parcel in some:
                head = parcel.envelope.header
                by_link.setdefault((head.source, head.target), []).append(parcel)
            opened = self._all([partial(self._through, group) for group in by_link.values()])
            came = {id(parcel): got for found in opened for parcel, got in found}
            for parcel in some:
                yield from came[id(parcel)]

    def _through(self, parcels: list[Parcel]) -> list[tuple[Parcel, list[Parcel]]]:
        """Messages over one link, sealed and opened, in their order: of each what comes out."""
        post = self.post
        return [(p, [got for packet in post.seal(p) if (got := post.open(packet))]) for p in parcels]

    def _deliver(self, parcel: Parcel) -> None:
        """Through the receiver's door into its mailbox; what is refused is remembered with the reason."""
        seat = self.seats.get(parcel.envelope.header.target)
        letter = self.post.admit(parcel) if seat else None
        if seat is None or letter is None:
            return
        try:
            seat.deliver(letter)
        except ProtocolError as error:
            self.post.refusals.append(Refusal(letter.source, seat.name, str(error)))

    def _advance(self, short: bool) -> bool:
        """Let those go on whose wait is over; when nothing moves any more, those that a quorum is enough for."""
        ready = [s for s in self.seats.values() if s.name not in self.held and s.can_go(short)]
        if short and ready:
            least = min(seat.wait.patience for seat in ready if seat.wait)
            ready = [seat for seat in ready if seat.wait and seat.wait.patience == least]
        self._all([seat.go for seat in ready])
        return bool(ready)

    def _rush(self) -> bool:
        """Nobody honest can move: the coalition sees its views and decides what its members send."""
        coalition = self.attempt.coalition
        if not self.held or coalition is None:
            return False
        held, self.held = self.held, {}
        changed = coalition.change(held, {name: _seen(self.seats[name]) for name in held})
        self._carry([p for name in sorted(changed) for p in self._write(self.seats[name], tuple(changed[name]))])
        return True

    def _give_up(self) -> bool:
        """Nothing can move: end the waits for those who can no longer send, or all of them in a dead end."""
        waiting = [seat for seat in self.seats.values() if isinstance(seat.ask, Exchange)]
        gone = [s for s in waiting if all(self._over(source) for source in s.absent())]
        for seat in gone or waiting:
            seat.give_up()
        return True

    def _over(self, name: str) -> bool:
        """Whether a party will send nothing more: it ended, or never came."""
        seat = self.seats.get(name)
        return seat is None or seat.outcome is not None


def _into(found: dict[int, Done], at: int, job: Callable[[], Done]) -> None:
    found[at] = job()


def _batches(parcels: list[Parcel]) -> Iterator[list[Parcel]]:
    """In their order, as many at a time as have some megabytes together, but at least one."""
    some, held = list[Parcel](), 0
    for parcel in parcels:
        if some and held + len(parcel.envelope.body) > _BATCH:
            yield some
            some, held = [], 0
        some.append(parcel)
        held += len(parcel.envelope.body)
    if some:
        yield some


@contextmanager
def _unsearched() -> Iterator[None]:
    """Without Python's search for reference cycles while parties move.

    Parties make none, and searching thousands of them over and over would be half of a round's time. Work, which may be
    anybody's code, runs with the search on.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _seen(seat: Seat) -> View:
    """A member's view, with what lies in its mailbox: it need not take a letter in to have read it."""
    waiting = tuple(seat.box.values())
    return replace(seat.view, inputs=[*seat.view.inputs, waiting]) if waiting else seat.view
