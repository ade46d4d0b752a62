"""What a timed RAIN round is played on: made-up rows, everybody's keys, and what every client sends.

Both servers make the same inputs from one seed, so that nothing of them need be sent. `bench/speed/rain_servers` plays
them on two servers, and `bench/speed/rain_round` (`croupier bench rain`) applies the same rule to them in the clear.
`papers.rain.cost` takes its sizes from here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.envelope import Envelope, Header
from croupier.core.flow import Exchange, Given, Letter, Received
from croupier.core.update import Layout, Slice
from croupier.core.wire import Schema
from croupier.encode.encoder import Payload
from croupier.encode.signs import NONCE, Signs, commitment, handed
from croupier.errors import ProtocolError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.deal_shares import DealSpec
from croupier.place.two_servers import messages
from croupier.place.two_servers.pair import Pair
from croupier.release.scored import ScoredSum
from croupier_lab.bench.size import BenchSize

Mode = Literal["semi-honest", "malicious"]
RUN = bytes(16)


class RainRoundSize(BenchSize):
    """How much is shuffled: clients, parameters, who may cheat, and whether material is read from a file."""

    clients: int = Field(100, ge=3, description="Clients, and so rows of signs.")
    params: int = Field(100_000, ge=16, description="Parameters, and so signs of a row.")
    mode: Mode = Field("malicious", description="Whether a server may cheat.")
    streamed: bool = Field(False, description="Read dealt material from a file, or a seed.")
    repeats: int = Field(3, ge=1, description="Timed rounds; the best counts.")


@dataclass(frozen=True)
class RoundInputs:
    """What a round is played on: rows of signs, the reference, and everybody's keys."""

    size: RainRoundSize
    given: Given
    deal: DealSpec
    release: ScoredSum
    rows: kernel.Bytes
    late: Mapping[str, Tensor]
    keys: Mapping[str, Mapping[str, Any]]
    coins: Coins

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """The schema of every message of the round."""
        return messages.schemas(self.deal, self.given)


def laid(size: RainRoundSize, coins: Coins, number: int) -> RoundInputs:
    """Made-up rows around a made-up reference, for the round with this number."""
    names = tuple(f"c{number:04d}" for number in range(size.clients))
    layout = Layout((Slice("w", (size.params,)),))
    given = Given("server", RUN, 0, 0, names, 2, layout)
    place = Pair(malicious=size.mode == "malicious")
    deal = place.deal(given)
    chance = coins.child("rows").secure()

    def drawn() -> kernel.Bytes:
        found = np.frombuffer(chance.bytes(deal.width), np.uint8)
        if deal.spare:
            found[-1] &= 0xFF >> deal.spare
        return found

    reference = drawn()
    # A bit differs from the reference's where one coin shows heads and at least one of two others does: 3 of 8.
    rows = np.stack([reference ^ (drawn() & (drawn() | drawn())) for _ in names])
    nonce = torch.zeros(NONCE, dtype=torch.uint8)
    late = {"reference": unpacked(reference, size.params), "nonce": nonce}
    late["commitment"] = commitment(late["reference"], nonce)
    late["handed"] = handed(torch.zeros(size.params), late["commitment"])
    keys = place.enrol(names, coins.child("keys"))
    return RoundInputs(size, given, deal, ScoredSum(), rows, late, keys, coins.child("deal", number))


def unpacked(row: kernel.Bytes, count: int) -> Tensor:
    return torch.from_numpy(np.unpackbits(row, count=count, bitorder="little"))


def client_uploads(table: RoundInputs) -> tuple[list[Received], float, int]:
    """What every client sends a server, the median seconds of a client, and a client's bytes to both servers."""
    size = table.size
    place = Pair(malicious=size.mode == "malicious")
    seeds, spent, ups, total = dealer.seeds(table.deal, table.coins), [], [], 0
    for name, seed, row in zip(table.given.roster, seeds, table.rows, strict=True):
        given = Given(name, RUN, 0, 0, table.given.roster, 2, table.given.layout)
        vector = unpacked(row, size.params)
        started = time.perf_counter()
        keys, own = table.keys.get(name, {}), table.coins.child("submit", name)
        flow = place.submit(_Bare(), given, Payload(vector), keys, own, table.late)
        next(flow)
        dealt = Received("dealer", "seed", {"seed": torch.frombuffer(bytearray(seed), dtype=torch.uint8)})
        ask = flow.send((dealt,))
        sent = ask.send if isinstance(ask, Exchange) else ()
        spent.append(time.perf_counter() - started)
        total = sum(len(wrapped(table.schemas, name, letter)) for letter in sent)
        ups.append(Received(name, "up", sent[0].body))  # type: ignore[arg-type]
    return ups, sorted(spent)[len(spent) // 2], total


class _Bare:
    """As much of a pipeline as a client's half needs."""

    encode, release = Signs(), ScoredSum()

    @property
    def privacy(self) -> Any:
        """A mechanism whose noise passes every check: rows are made up as they are sent."""
        return _Noised()


class _Noised:
    def entropy(self, size: int) -> float:
        """Bits of noise in a row: more than anybody asks for."""
        return float("inf")


def wrapped(schemas: Mapping[str, Schema], source: str, letter: Letter) -> bytes:
    if isinstance(letter.body, bytes):
        raise ProtocolError("an honest letter has a body of arrays")
    body = schemas[letter.kind].pack(letter.body)
    header = Header(bytes(32), RUN, 0, 0, letter.kind, source, letter.target, 0, len(body))
    return Envelope(header, body).pack()
