"""The secret that a run's clients agree on before the first round, where their encoder hides coordinates by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.sitting import Drive, Traffic
from croupier.core.update import Model
from croupier.encode.hidden import HiddenUnits
from croupier.encode.shuffled import Shuffled
from croupier.encode.symmetry import Symmetry
from croupier.errors import CroupierError
from croupier.pipeline import Pipeline
from croupier.place.agree import agree
from croupier.place.board import enrol
from croupier.place.call import Call, Table
from croupier.place.frames import seed_of
from croupier.place.placement import Keys
from croupier.place.standing import Standing


@dataclass
class Permuting:
    """Moves vectors along a network's symmetries; what a rule moves where is worked out once a round."""

    symmetry: Callable[[], Symmetry]
    known: dict[tuple[bytes, int], Shuffled] = field(default_factory=dict, repr=False)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Vectors under the rule of a seed and a round, or back."""
        return [self.moved(*job) for job in jobs]

    def moved(self, vector: Tensor, seed: bytes, number: int, back: bool) -> Tensor:
        """One vector."""
        key = (seed, number)
        if key not in self.known:
            symmetry = self.symmetry()
            self.known[key] = symmetry.under(symmetry.rule(seed, number))
        return self.known[key].invert(vector) if back else self.known[key].apply(vector)


@dataclass(frozen=True)
class Epochs:
    """What each client holds after the agreement, and what it took; empty where nothing is agreed on."""

    run: bytes
    standings: Mapping[str, Standing] = field(default_factory=dict, repr=False)
    traffic: tuple[Traffic, ...] = ()

    @classmethod
    def agreed(cls, pipeline: Pipeline, enrolled: tuple[str, ...], run: bytes, coins: Coins, drive: Drive) -> Epochs:
        """Let all enrolled clients agree, once for the whole run. Raises: SpecError, ProtocolError."""
        if not pipeline.encode.agrees:
            return cls(run)
        node = coins.child("epoch")
        table = Table(enrol(enrolled, node.child("identities")), node.child("agree"), drive)
        done = agree(Call(run, 0, 0, enrolled), table)
        return cls(run, done.standings, done.traffic)

    def added(self, keys: Mapping[str, Keys]) -> dict[str, Keys]:
        """The clients' keys, with what they agreed on."""
        told = {name: {"standing": standing.plain()} for name, standing in self.standings.items()}
        return {name: {**keys.get(name, {}), **told.get(name, {})} for name in {**keys, **told}}

    def plain(self, model: Model, permuting: Permuting | None) -> Model:
        """A model in plain coordinates, as any client can read it."""
        if not model.frame or permuting is None:
            return model
        frame = Frame.unpack(model.frame)
        seed = seed_of(next(iter(self.standings.values())), self.run, frame)
        return replace(model, vector=permuting.moved(model.vector, seed, frame.round, True), frame=b"")

    def first(self, encode: HiddenUnits, fresh: Callable[[Coins], Tensor], permuting: Permuting) -> Model:
        """The first model, drawn by the clients from their secret, as the server is handed it."""
        standing = next(iter(self.standings.values()))
        seed, frame, _ = standing.rule(self.run, 0, kept=encode.kept)
        vector = fresh(Coins(standing.secret).child("first model"))
        return Model(permuting.moved(vector, seed, frame.round, False), frame.pack())
