"""Moving a model into the coordinates of a new epoch: clients that hold both secrets do it, and the server compares.

Of 2f + 1 clients that are asked, f may be faulty: what f + 1 send alike an honest one sent, and moving is exact, so
that honest ones send the same bytes.

Reveals: to the server, the model in its new coordinates: two views of one model, which matching links at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from croupier.agree.board import SERVER
from croupier.agree.coordinates import plainly
from croupier.agree.pbft.views import heads
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.attempt import Attempt, AttemptId, AttemptResult, Drive
from croupier.core.coins import Coins
from croupier.core.epoch import Frame, frame_field, frame_of, frame_tensor
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Wait, Work
from croupier.core.update import Layout, Model
from croupier.core.view import Kept
from croupier.core.wire import Field, Schema
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class Transfer:
    """A model that moves: in which run, before which round, by whom, and whether one rule is kept for an epoch."""

    run: bytes
    number: int
    model: Model
    movers: tuple[str, ...]
    kept: bool = False

    @property
    def least(self) -> int:
        """How many must send the same."""
        return len(self.movers) // 2 + 1

    def schemas(self) -> dict[str, Schema]:
        """There and back."""
        both = Schema((Field("model", "<f4", (self.model.vector.numel(),)), frame_field()))
        return {"move": both, "moved": both}

    def client(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Open the model under the old secret, and close it under the new one."""
        (letter,) = yield Exchange(wait=Wait("move", (SERVER,)))
        standing = Standing.of(memory)
        plain = yield from plainly(given, standing, letter.body["model"], letter.body["frame"], "clients")
        seed, frame, _ = standing.rule(given.run, given.round, kept=self.kept)
        vector: Tensor = yield Work("permute", (plain, seed, frame.round, False))
        yield Exchange((Letter(SERVER, "moved", {"model": vector, "frame": frame_tensor(frame.pack())}),))
        return memory

    def server(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """What more than half of them send alike. Raises: ProtocolError when they do not."""
        body = {"model": self.model.vector, "frame": frame_tensor(self.model.frame)}
        send = tuple(Letter(who, "move", body) for who in self.movers)
        inbox = yield Exchange(send, Wait("moved", self.movers, self.least))
        sent = {canon.digest(dict(letter.body)): letter.body for letter in inbox}
        ((same, count),) = Counter(canon.digest(dict(letter.body)) for letter in inbox).most_common(1)
        frame = frame_of(sent[same]["frame"])
        if count < self.least or frame is None:
            raise ProtocolError(
                f"of {len(self.movers)} clients that moved the model to the new epoch {count} sent the same, and "
                f"{self.least} must; find out which misbehave"
            )
        return {"model": sent[same]["model"], "frame": frame.pack()}


def movers_of(holders: tuple[str, ...], number: int, frame: Frame) -> tuple[str, ...]:
    """Whom to ask: 2f + 1 of those who hold both secrets, in an order that nobody chooses."""
    faulty = (len(holders) - 1) // 3
    return tuple(sorted(heads(tuple(sorted(holders)), number, frame.digest)[: 2 * faulty + 1]))


def move(
    transfer: Transfer, standings: Mapping[str, Standing], coins: Coins, drive: Drive,
    permute: Callable[..., Any], *, tamper: Callable[[Attempt], Attempt] = lambda attempt: attempt,
    keep: Kept = "nothing",
) -> tuple[Model, AttemptResult]:  # fmt: skip
    """The model in its new coordinates. Raises: ProtocolError."""
    names, run, number = (*transfer.movers, SERVER), transfer.run, transfer.number
    spec = canon.digest(("croupier/1", "move", transfer.model.frame, transfer.movers))
    many = len(transfer.movers)
    result = drive(
        tamper(
            Attempt(
                AttemptId(spec, run, number, 0),
                {**dict.fromkeys(transfer.movers, transfer.client), SERVER: transfer.server},
                {name: Given(name, run, number, 0, transfer.movers, many, Layout(())) for name in names},
                {who: {"standing": standings[who].plain()} for who in transfer.movers},
                {name: coins.child("move", name, number) for name in names},
                transfer.schemas(),
                {"permute": permute},
                keep=dict.fromkeys(names, keep),
            )
        )
    )
    ended = result.outcomes[SERVER]
    if ended.memory is None:
        raise ProtocolError(f"the model cannot be moved to the new epoch: {ended.error}")
    return replace(transfer.model, vector=ended.memory["model"], frame=ended.memory["frame"]), result
