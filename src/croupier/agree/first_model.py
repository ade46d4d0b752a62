"""The first model, drawn by the clients from their secret, so that the server never sees it in plain coordinates.

In a deployment several clients draw it (`FirstDraw`, which `seats` plays) and the server takes what enough of them send
alike; a simulation draws it once (`epochs`), by the same steps, and counts no message for it. This is for
`protocol.encode.first = "clients"`, the default of hidden units.

Reveals: to the server, the model in hidden coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from croupier.agree.alike import model_schema, taken_alike
from croupier.agree.before_round import DRAW, PERMUTE
from croupier.agree.board import SERVER
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.epoch import frame_tensor
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, SubFlow, Work
from croupier.core.update import Layout, Model
from croupier.core.wire import Schema


def draw_first(run: bytes, number: int, standing: Standing, kept: bool) -> SubFlow:
    """The model as the server is handed it. Raises: ProtocolError when no epoch is held for the round."""
    seed, frame, _ = standing.rule(run, number, kept=kept)
    vector: Tensor = yield Work(DRAW, (Coins(standing.secret).child("first model"),))
    moved: Tensor = yield Work(PERMUTE, (vector, seed, frame.round, False))
    return Model(moved, frame.pack())


@dataclass(frozen=True)
class FirstDraw:
    """Clients that draw the first model: in which run, before which round, who; it has so many coordinates."""

    run: bytes
    number: int
    drawers: tuple[str, ...]
    size: int
    kept: bool = False

    @property
    def spec(self) -> bytes:
        """The digest by which headers name the protocol."""
        return canon.digest(("croupier/1", "first model", self.drawers))

    def given(self, name: str) -> Given:
        """What a party is told."""
        return Given(name, self.run, self.number, 0, self.drawers, len(self.drawers), Layout(()))

    def schemas(self) -> dict[str, Schema]:
        """The one letter, from a client to the server."""
        return {"first model": model_schema(self.size)}

    def client(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Draw it, and hand it over."""
        model: Model = yield from draw_first(given.run, given.round, Standing.of(memory), self.kept)
        body = {"model": model.vector, "frame": frame_tensor(model.frame)}
        yield Exchange((Letter(SERVER, "first model", body),))
        return memory

    def server(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Take what enough of them send alike."""
        done: Model = yield from taken_alike("first model", self.drawers, "drew the first model")
        return {"model": done.vector, "frame": done.frame}
