"""Moving a model into the coordinates of a new epoch: clients that hold both secrets do it, and the server compares.

It is needed when an epoch ends while models lie in its coordinates: `one_epoch` calls for it once newcomers agreed on a
new secret with everybody, and `seats` plays it.

Reveals: to the server, the model in its new coordinates. It then has one model in two orders, and finds by matching
their values how the one goes over into the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from croupier.agree.alike import asked_of, model_schema, taken_alike
from croupier.agree.board import SERVER
from croupier.agree.coordinates import plainly
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.epoch import Frame, frame_of, frame_tensor
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Wait, Work
from croupier.core.update import Layout, Model
from croupier.core.wire import Schema
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class Transfer:
    """A model that moves: in which run, before which round, from which frame, by whom; it has so many coordinates.

    `kept` says whether one rule is kept for an epoch. Only the server has the model itself.
    """

    run: bytes
    number: int
    frame: bytes
    movers: tuple[str, ...]
    size: int
    kept: bool = False
    model: Model | None = None

    @property
    def spec(self) -> bytes:
        """The digest by which headers name the protocol."""
        return canon.digest(("croupier/1", "move", self.frame, self.movers))

    def given(self, name: str) -> Given:
        """What a party is told."""
        return Given(name, self.run, self.number, 0, self.movers, len(self.movers), Layout(()))

    def coins(self, root: Coins, name: str) -> Coins:
        """A simulated party's coins."""
        return root.child("move", self.frame).child("move", name, self.number)

    def schemas(self) -> dict[str, Schema]:
        """The letters to the movers and back."""
        both = model_schema(self.size)
        return {"move": both, "moved": both}

    def client(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Open the model under the old secret, and close it under the new one."""
        (letter,) = yield Exchange(wait=Wait("move", (SERVER,)))
        told = frame_of(letter.body["frame"])
        if told is None or told.pack() != self.frame:
            raise ProtocolError("the server handed out another model than the one that was to be moved")
        standing = Standing.of(memory)
        plain = yield from plainly(given, standing, letter.body["model"], letter.body["frame"], "clients")
        seed, frame, _ = standing.rule(given.run, given.round, kept=self.kept)
        vector: Tensor = yield Work("permute", (plain, seed, frame.round, False))
        yield Exchange((Letter(SERVER, "moved", {"model": vector, "frame": frame_tensor(frame.pack())}),))
        return memory

    def server(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Hand the model out, and take what enough of the movers send alike."""
        if self.model is None:
            raise ProtocolError("the server has no model to be moved")
        body = {"model": self.model.vector, "frame": frame_tensor(self.frame)}
        send = tuple(Letter(who, "move", body) for who in self.movers)
        done: Model = yield from taken_alike("moved", self.movers, "moved the model to the new epoch", send)
        return {"model": done.vector, "frame": done.frame}


def movers_of(holders: tuple[str, ...], number: int, frame: Frame) -> tuple[str, ...]:
    """Whom to ask, of those who hold both secrets."""
    return asked_of(holders, number, frame.digest)
