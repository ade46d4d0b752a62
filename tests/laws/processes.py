"""A driver with every party in its own process: sealed bytes over pipes, and no value shared between parties."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from croupier.core import canon
from croupier.core.attempt import Attempt, AttemptResult, Traffic
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Outcome, Refusal, Seat, Work
from croupier.engine.post import Packet, Post
from croupier.errors import CroupierError, Overspent, ProtocolError, TooFew


@dataclass(frozen=True)
class Processes:
    """Drives an attempt with one process a party; the parent only carries sealed packets and keeps time."""

    links: Coins

    def __call__(self, attempt: Attempt) -> AttemptResult:
        """Start everybody, carry the mail, collect the ends."""
        context = multiprocessing.get_context("fork")
        pipes, children = dict[str, Connection](), []
        for name in sorted(set(attempt.parties) - attempt.absent):
            here, there = context.Pipe()
            child = context.Process(target=_party, args=(attempt, name, self.links, there), daemon=True)
            child.start()
            there.close()
            pipes[name] = here
            children.append(child)
        ends = _carry(pipes)
        for child in children:
            child.join()
        # A child's own copy of the book is gone with it: what it wrote down is written down here.
        for end in ends.values():
            if end["spent"]:
                attempt.bench["spend"](end["spent"])
        return _sat(ends)


def _carry(pipes: dict[str, Connection]) -> dict[str, Any]:
    """Forward packets until everybody has ended; when all are waiting, let patience run out."""
    ends: dict[str, Any] = {}
    idle: set[str] = set()
    handed = dict.fromkeys(pipes, 0)
    tried = False
    while len(ends) < len(pipes):
        live = {pipes[name]: name for name in pipes if name not in ends and name not in idle}
        if not live:
            # Everybody waits: a quorum may do; and when it does nowhere, those whose sources are gone give up.
            for name in set(pipes) - set(ends):
                pipes[name].send_bytes(canon.dump({"say": "gone" if tried else "short", "ended": tuple(sorted(ends))}))
            idle, tried = set(), True
            continue
        for pipe in wait(list(live)):
            name = live[pipe]  # type: ignore[index]
            said = canon.load(pipe.recv_bytes())  # type: ignore[union-attr]
            if said["say"] == "end":
                ends[name] = said
            elif said["say"] == "waiting":
                # Not idle while a packet that it has not read is still in its pipe.
                if said["read"] == handed[name]:
                    idle.add(name)
            elif said["say"] == "moved":
                tried = False
            elif said["target"] in pipes and said["target"] not in ends:
                idle.discard(said["target"])
                tried = False
                handed[said["target"]] += 1
                pipes[said["target"]].send_bytes(canon.dump({"say": "packet", "source": name, "data": said["data"]}))
    return ends


def _party(attempt: Attempt, name: str, links: Coins, pipe: Connection) -> None:
    post = Post(attempt.attempt_id, attempt.schemas, links.child(attempt.attempt_id.round, attempt.attempt_id.attempt))
    seat = Seat.take(
        attempt.parties[name], attempt.givens[name], attempt.memories.get(name, {}), attempt.coins[name], "digest"
    )
    read = 0
    spent: list[tuple[Any, ...]] = []
    while seat.outcome is None:
        if isinstance(seat.ask, Work):
            spent += [seat.ask.args] if seat.ask.name == "spend" else []
            (result,) = attempt.bench[seat.ask.name]([seat.ask.args])
            seat.fail(result) if isinstance(result, CroupierError) else seat.finish(result)
            continue
        for letter in seat.post():
            for packet in post.seal(post.write(name, letter)):
                pipe.send_bytes(canon.dump({"say": "packet", "target": packet.target, "data": bytes(packet.data)}))
        if seat.can_go():
            seat.go()
        else:
            read += _listen(seat, post, pipe, read)
    end = {
        "say": "end",
        "memory": seat.outcome.memory,
        "error": None if seat.outcome.error is None else str(seat.outcome.error),
        "missing": tuple(sorted(seat.outcome.error.missing)) if isinstance(seat.outcome.error, TooFew) else (),
        "overspent": isinstance(seat.outcome.error, Overspent),
        "spent": tuple(spent),
        "view": seat.view.digest(),
        "sent": dict(post.traffic.sent),
        "got": dict(post.traffic.got),
        "messages": post.traffic.messages,
        "refusals": tuple((r.source, r.at, r.why) for r in post.refusals),
    }
    pipe.send_bytes(canon.dump(end))


def _listen(seat: Seat, post: Post, pipe: Connection, read: int) -> int:
    """Take one message from the parent; 1 when it was a packet."""
    pipe.send_bytes(canon.dump({"say": "waiting", "read": read}))
    heard = canon.load(pipe.recv_bytes())
    if heard["say"] == "packet":
        parcel = post.open(Packet(heard["source"], seat.name, heard["data"]))
        letter = parcel and post.admit(parcel)
        if letter:
            seat.deliver(letter)
        return 1
    if seat.can_go(short=True):
        pipe.send_bytes(canon.dump({"say": "moved"}))
        seat.go()
    elif heard["say"] == "gone" and isinstance(seat.ask, Exchange):
        known = set(seat.view.given.roster) | {"server", "relay", "first", "second", "dealer", "sum1", "sum2", "sum3"}
        known |= {"mix1", "mix2", "mix3"}
        if all(source in heard["ended"] or source not in known for source in seat.absent()):
            seat.give_up()
    return 0


@dataclass
class Sealed:
    """A view of which only its digest came back."""

    seal: bytes
    kept: str = "digest"

    def digest(self) -> bytes:
        """What binds it."""
        return self.seal


def _error(end: Mapping[str, Any]) -> CroupierError:
    if end["overspent"]:
        return Overspent(end["error"])
    return TooFew(end["error"], tuple(end["missing"])) if end["missing"] else ProtocolError(end["error"])


def _sat(ends: Mapping[str, Any]) -> AttemptResult:
    outcomes = {
        name: Outcome(end["memory"], None if end["error"] is None else _error(end))
        for name, end in sorted(ends.items())
    }
    traffic = Traffic()
    for end in ends.values():
        traffic.sent.update(end["sent"])
        traffic.got.update(end["got"])
        traffic.messages += end["messages"]
    refusals = tuple(Refusal(*refusal) for end in ends.values() for refusal in end["refusals"])
    views: Any = {name: Sealed(end["view"]) for name, end in ends.items()}
    return AttemptResult(outcomes, views, refusals, traffic)
