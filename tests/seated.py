"""Two servers of a scored round at a bare table: rows and dealt letters go in, what each heard comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, Received, SubFlow
from croupier.core.update import Layout, Slice
from croupier.encode.encoder import Released
from croupier.encode.signs import commitment, handed
from croupier.errors import CroupierError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.deal_shares import Check, DealSpec
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.signatures import signed
from croupier.place.two_servers import messages
from croupier.place.two_servers.messages import SERVERS
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.server_flow import ServerFlow
from croupier.release.scored import ScoredSum

# What a server, or the dealer, sends instead of a letter; None sends nothing.
Bend = Callable[[str, Letter], Letter | None]
LOOSE = ScoredSum(gate=False, among=1)


def honest(source: str, letter: Letter) -> Letter:
    """The letter as it is."""
    return letter


@dataclass
class Ended:
    """How both servers ended, what each heard (kind, then source), and everything that was sent, in order."""

    got: dict[str, Released | CroupierError | None] = field(default_factory=dict)
    heard: dict[str, dict[tuple[str, str], Mapping[str, Tensor]]] = field(default_factory=dict)
    sent: list[tuple[str, Letter]] = field(default_factory=list)

    @property
    def released(self) -> Released:
        """What both servers got: the same."""
        one, two = (self.got[name] for name in SERVERS)
        assert isinstance(one, Released), one
        assert isinstance(two, Released), two
        assert one.present == two.present
        assert one.sums is not None
        assert two.sums is not None
        assert torch.equal(one.sums, two.sums)
        assert all(torch.equal(one.luggage[name], two.luggage[name]) for name in ("total", "distances"))
        return one

    @property
    def errors(self) -> dict[str, str]:
        """Why servers ended early."""
        return {name: str(error) for name, error in self.got.items() if isinstance(error, CroupierError)}

    def kinds(self, source: str) -> list[str]:
        """What a server sent, in order."""
        return [letter.kind for who, letter in self.sent if who == source]


@dataclass(frozen=True)
class Seated:
    """A round: one row of bits a client, a reference, and how the servers check each other."""

    rows: Tensor
    reference: Tensor
    check: Check = "none"
    release: ScoredSum = LOOSE
    seed: int = 1
    vote: bool = False
    attempt: int = 0
    keys: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The clients."""
        return tuple(f"c{number}" for number in range(len(self.rows)))

    @property
    def deal(self) -> DealSpec:
        """What is dealt."""
        rows, size = self.rows.shape
        return DealSpec(rows, size, self.check)

    @property
    def coins(self) -> Coins:
        """Everybody's."""
        return Coins.from_seed(self.seed)

    def given(self, me: str) -> Given:
        """What a party is told."""
        layout = Layout((Slice("w", (self.rows.shape[1],)),))
        return Given(me, bytes(16), 0, self.attempt, self.names, 2, layout)

    @cached_property
    def late(self) -> dict[str, Tensor]:
        """The reference and its opening."""
        nonce = byte_tensor(self.coins.child("nonce").export())
        bound = commitment(self.reference, nonce)
        same = handed(torch.zeros(self.rows.shape[1]), bound)
        return {"reference": self.reference, "nonce": nonce, "commitment": bound, "handed": same}

    @cached_property
    def enrolled(self) -> Mapping[str, Mapping[str, Any]]:
        """Everybody's keys."""
        return self.keys or Pair(malicious=self.deal.authentic).enrol(self.names, self.coins.child("keys"))

    @cached_property
    def dealt(self) -> list[Letter]:
        """The dealer's letters."""
        return list(messages.letters(self.deal, self.given("dealer"), self.coins.child("deal")))

    def up(self, name: str, row: Tensor | None = None) -> Received:
        """What a client sends a server: its row, or another one, hidden and signed."""
        (seed,) = [m.body["seed"] for m in self.dealt if m.target == name and not isinstance(m.body, bytes)]
        bits = self.rows[self.names.index(name)] if row is None else row
        hidden = kernel.packed(bits.numpy()) ^ dealer.mask_of(bytes_of(seed), self.deal)
        body = {"row": torch.from_numpy(hidden)}
        if self.deal.authentic:
            body["handed"] = self.late["handed"]
            claim = messages.claim(self.given(name), name, hidden, bytes_of(self.late["handed"]))
            body["signature"] = byte_tensor(signed(self.enrolled[name]["identity"], claim))
        return Received(name, "up", body)

    def halves(self) -> tuple[ShuffleShare, ShuffleShare]:
        """Both servers' parts."""
        bodies = [m.body for m in self.dealt if m.target in SERVERS and not isinstance(m.body, bytes)]
        one, two = (
            messages.share_from_letter(self.deal, self.given(name), me, body)
            for me, (name, body) in enumerate(zip(SERVERS, bodies, strict=True))
        )
        return one, two

    def player(self, me: int, material: ShuffleShare | None = None) -> ServerFlow:
        """A server."""
        name = SERVERS[me]
        keys, coins = self.enrolled.get(name, {}), self.coins.child("server", name)
        return ServerFlow(self.given(name), self.deal, self.release, keys, coins, 2, self.vote, material=material)

    def play(
        self,
        bend: Bend = honest,
        ups: Mapping[str, Sequence[Received]] | None = None,
        hands: Sequence[ShuffleShare] = (),
    ) -> Ended:
        """Both servers to their end; every honest letter must fit its schema."""
        everyone = tuple(self.up(name) for name in self.names)
        given = hands or (None, None)
        flows = {
            name: self.player(me, given[me]).play(dict(self.late) if me == 0 else None)
            for me, name in enumerate(SERVERS)
        }
        table = _Table(self, bend, {name: tuple((ups or {}).get(name, everyone)) for name in SERVERS})
        return table.run(flows)

    def again(self, **change: Any) -> Seated:
        """The same round but for something."""
        return replace(self, **change)


class _Table:
    def __init__(self, seated: Seated, bend: Bend, ups: Mapping[str, tuple[Received, ...]]) -> None:
        self.seated, self.bend, self.ups, self.ended = seated, bend, ups, Ended()
        self.schemas = messages.schemas(seated.deal, seated.given("server"))
        self.box: dict[tuple[str, str], Received] = {}
        for letter in seated.dealt:
            self._post("dealer", letter)

    def run(self, flows: Mapping[str, SubFlow]) -> Ended:
        left = {name: self._resumed(name, flow) for name, flow in flows.items()}
        self.ended.heard = {name: {} for name in flows}
        while left:
            moved = [name for name, steps in left.items() if next(steps) is not None]
            left = {name: steps for name, steps in left.items() if name not in self.ended.got}
            if left and not moved:
                self.ended.got.update(dict.fromkeys(left))
                break
        return self.ended

    def _resumed(self, name: str, flow: SubFlow) -> Iterator[bool | None]:
        """One exchange at a time; None while it waits in vain."""
        answer: Any = None
        while True:
            try:
                ask = flow.send(answer)
            except StopIteration as stop:
                self.ended.got[name] = stop.value
                yield True
                return
            except CroupierError as error:
                self.ended.got[name] = error
                yield True
                return
            assert isinstance(ask, Exchange)
            for letter in ask.send:
                self._post(name, letter)
            while (answer := self._inbox(name, ask)) is None:
                yield None
            yield True

    def _inbox(self, name: str, ask: Exchange) -> tuple[Received, ...] | None:
        if ask.wait is None:
            return ()
        if ask.wait.kind == "up":
            found: tuple[Received, ...] = self.ups[name]
        elif (name, ask.wait.kind) in self.box:
            found = (self.box[name, ask.wait.kind],)
        else:
            return None
        self.ended.heard[name].update({(letter.kind, letter.source): letter.body for letter in found})
        return found

    def _post(self, source: str, letter: Letter) -> None:
        bent = self.bend(source, letter)
        if bent is None:
            return
        assert not isinstance(bent.body, bytes)
        if bent is letter:
            self.schemas[letter.kind].check(bent.body)
        self.ended.sent.append((source, bent))
        self.box[bent.target, bent.kind] = Received(source, bent.kind, bent.body)


def signs(rows: Sequence[str]) -> Tensor:
    """Rows of bits from strings of 0 and 1."""
    return torch.from_numpy(np.array([[int(bit) for bit in row] for row in rows], np.uint8))


def random_rows(count: int, size: int, seed: int) -> Tensor:
    """Rows that agree with none in particular."""
    bits = Coins.from_seed(seed).child("rows").secure().below(2, count * size)
    return torch.from_numpy(bits.astype(np.uint8).reshape(count, size))
