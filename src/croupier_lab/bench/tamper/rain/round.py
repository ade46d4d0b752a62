"""One round of RAIN's two servers that can be played with or without a cheating server, and which results are right.

A `TwoServerRound` holds what does not depend on the cheat: what clients hold, the reference, keys, and what is dealt.
`tampering` makes one for each trial, and honest ones whose letters can be sent again; `trial` plays the cheat. What is
right is not played but computed: `honest` asks the release itself. `messages`, `shuffle`, `dealt_shares` and `rosters`,
which list the ways to cheat, take types and helpers from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from croupier.aggregate.signs import SignTrust
from croupier.core.attempt import Attempt, AttemptId, AttemptResult
from croupier.core.coins import Coins, Stream
from croupier.core.flow import Coalition, Exchange, Flow, Given, Letter, Memory, Party
from croupier.core.update import Layout, Slice, Update
from croupier.core.view import View
from croupier.encode.signs import Signs, commitment, handed
from croupier.engine.local import Local
from croupier.engine.state import run_id
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes
from croupier.mpc import dealer
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.signatures import signed
from croupier.pipeline import Pipeline
from croupier.place.two_servers import messages
from croupier.place.two_servers.messages import DEALER, SERVERS
from croupier.place.two_servers.pair import Pair
from croupier.release.scored import ScoredSum
from croupier_lab.bench.tamper.rain.cheating_server import CheatingServer, Deviation
from croupier_lab.bench.tamper.verdicts import body_of

ROSTER = ("c0", "c1", "c2", "c3", "c4")
# Clients that may side with the server that cheats.
COLLUDERS = ("c3", "c4")
# One in so many of a client's signs is not the reference's.
_APART = 4
Before = Literal["nothing", "round", "attempt"]
Change = Callable[[tuple[Letter, ...], View], tuple[Letter, ...]]


class Unchecked(Pair):
    """The control: tags are never compared, and what the shuffle's check gives is not looked at."""

    _checked: ClassVar[bool] = False


@dataclass(frozen=True)
class RoundSetting:
    """How large a round is, and how it is checked. Rows of 205 numbers and more go through compiled loops."""

    params: int = 37
    check: Literal["hash", "product"] = "hash"
    missing: Literal["restart", "vote"] = "restart"
    checked: bool = True

    @cached_property
    def pipeline(self) -> Pipeline:
        """The protocol."""
        # Safeguards that would refuse so small a round are off: a least noise in the rows (`entropy`), a limit on
        # distances (`gate`), and a least number of rows to add up (`among`).
        place = (Pair if self.checked else Unchecked)(entropy=0, check=self.check, missing=self.missing)
        return Pipeline(encode=Signs(), release=ScoredSum(gate=False, among=1), aggregate=SignTrust(), place=place)

    @property
    def place(self) -> Pair:
        """Its two servers."""
        if not isinstance(self.pipeline.place, Pair):
            raise AssertionError("two servers compute this release")
        return self.pipeline.place

    @cached_property
    def layout(self) -> Layout:
        """A layout of one tensor."""
        return Layout((Slice("w", (self.params,)),))


@dataclass(frozen=True)
class TamperedRound:
    """A tampering of one round.

    `letters` rewrites the cheater's letters, `tamper` is what it does within, and `clients` rewrites colluders'
    letters. `free` has, by client, all rows that count as right in its place: a colluder may choose its own, and for a
    client that is left out a uniform row may stand. `late` is another reference that the cheater plays with.
    """

    letters: Change = lambda letters, view: letters
    tamper: Deviation = field(default_factory=Deviation)
    clients: Mapping[str, Change] = field(default_factory=dict)
    free: Mapping[str, tuple[Bytes, ...]] = field(default_factory=dict)
    late: Mapping[str, Tensor] | None = None


@dataclass
class TwoServerRound:
    """Everything about a round but who cheats: what clients hold, the reference, and everybody's keys."""

    setting: RoundSetting
    coins: Coins
    number: int = 0
    attempt: int = 0

    def __post_init__(self) -> None:
        draw = self.coins.child("rows", self.number, self.attempt).secure()
        size = self.setting.params
        reference = draw.below(2, size).astype(np.uint8)
        self.rows = {who: reference ^ (draw.below(_APART, size) == 0).astype(np.uint8) for who in ROSTER}
        # The true reference. The server is bound to it from the start, and shows it after the uploads, in "late".
        self.late = opened(reference, draw)
        self.keys = self.setting.place.enrol(ROSTER, self.coins.child("enrol"))
        self.run = run_id(self.coins)
        self.given = self.given_of("server")
        self.deal = self.setting.place.deal(self.given)
        self.schemas = self.setting.pipeline.schemas(self.given)
        self.sent: dict[str, list[Letter]] = {}

    def given_of(self, who: str) -> Given:
        """What a party is told."""
        return Given(who, self.run, self.number, self.attempt, ROSTER, 2, self.setting.layout, shard=who)

    def coins_of(self, who: str) -> Coins:
        """A party's coins."""
        return self.coins.child("party", who, self.number, self.attempt)

    @cached_property
    def orders(self) -> list[Any]:
        """Both servers' secret permutations."""
        deal = self.coins_of(DEALER).child("deal")
        seeds = [deal.child("hand", me).export() for me in (0, 1)]
        return [Coins(seed).child("order").secure().permutation(len(ROSTER)) for seed in seeds]

    @cached_property
    def masks(self) -> dict[str, Bytes]:
        """What hides each client's row, as dealt."""
        found = dealer.seeds(self.deal, self.coins_of(DEALER).child("deal"))
        return {who: dealer.mask_of(seed, self.deal) for who, seed in zip(ROSTER, found, strict=True)}

    def material(self, me: int) -> ShuffleShare:
        """What a server was dealt, from the letter that it came in."""
        kind = f"hand{me}"
        (body,) = (body_of(letter) for letter in self.sent[DEALER] if letter.kind == kind)
        return messages.share_from_letter(self.deal, self.given, me, body)

    def parties(self, cheater: str = "", tampered: TamperedRound | None = None) -> dict[str, Party]:
        """Everybody's flows; whatever they send is noted in `sent`."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            seat = self.setting.place._seat(self.setting.pipeline, given, self.keys[given.me], coins)
            late: Mapping[str, Tensor] = self.late
            if given.me == cheater and tampered is not None:
                seat, late = CheatingServer(**vars(seat), tamper=tampered.tamper), tampered.late or late
            if given.me == "server":
                body = {"model": torch.zeros(self.setting.params), "commitment": self.late["commitment"]}
                yield Exchange(tuple(Letter(who, "model", body) for who in ROSTER))
            return {"released": (yield from seat.play(dict(late) if given.me == "server" else None))}

        middle = self.setting.place.middle(self.setting.pipeline)
        found = {**dict.fromkeys(ROSTER, self.setting.pipeline.client), **middle, **dict.fromkeys(SERVERS, server)}
        return {name: self._noted(party) for name, party in found.items()}

    def _noted(self, party: Party) -> Party:
        def noted(given: Given, memory: Memory, coins: Coins) -> Flow:
            flow, answer = party(given, memory, coins), None
            while True:
                try:
                    ask = flow.send(answer)
                except StopIteration as stop:
                    return dict(stop.value)
                self.sent.setdefault(given.me, []).extend(getattr(ask, "send", ()))
                answer = yield ask

        return noted

    def sit(
        self,
        cheater: str = "",
        tampered: TamperedRound | None = None,
        coalition: Coalition | None = None,
        keep: tuple[str, ...] = (),
    ) -> AttemptResult:
        """Play the round, and keep the views of clients, of the coalition, and of those in `keep`."""
        parties = self.parties(cheater, tampered)
        kept = (*ROSTER, *keep, *(coalition.members if coalition else ()))
        return Local()(
            Attempt(
                attempt_id=AttemptId(self.setting.pipeline.digest(), self.run, self.number, self.attempt),
                parties=parties,
                givens={who: self.given_of(who) for who in parties},
                memories={who: {"keys": self.keys.get(who, {})} for who in parties},
                coins={who: self.coins_of(who) for who in parties}, schemas=self.schemas, bench={"fit": self._fit},
                coalition=coalition, keep=dict.fromkeys(kept, "keep"),
            )
        )  # fmt: skip

    def _fit(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
        signs = [2.0 * torch.from_numpy(self.rows[shard]).float() - 1.0 for _, shard, _ in jobs]
        return [
            Update(start + sign, self.setting.layout, {"weight": torch.ones(1, dtype=torch.float64)})
            for (start, _, _), sign in zip(jobs, signs, strict=True)
        ]

    def honest(self, free: Mapping[str, tuple[Bytes, ...]]) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
        """What may come out: one result, or one for every choice of those who are free to choose."""
        options = [free.get(who, (self.rows[who],)) for who in ROSTER]
        for rows in product(*options):
            found = self.setting.pipeline.release.against(  # type: ignore[attr-defined]
                [torch.from_numpy(row) for row in rows], self.late["reference"], Coins.from_seed(0)
            )
            yield found["sums"], found["total"], sorted(found["distances"].tolist())


def opened(reference: Bytes, draw: Stream) -> dict[str, Tensor]:
    """A reference with its commitment, and what opens it."""
    bits, nonce = torch.from_numpy(reference), torch.frombuffer(bytearray(draw.bytes(32)), dtype=torch.uint8)
    bound = commitment(bits, nonce)
    return {"reference": bits, "nonce": nonce, "commitment": bound, "handed": handed(torch.zeros(len(bits)), bound)}


def signed_up(round_: TwoServerRound, who: str, bits: Bytes, handed: Tensor | None = None) -> dict[str, Tensor]:
    """A client's upload of some bits, as it would sign it; `handed` is what all were handed, unless given."""
    row = kernel.packed(bits) ^ round_.masks[who]
    same = round_.late["handed"] if handed is None else handed
    claim = messages.claim(round_.given_of(who), who, row, bytes_of(same))
    mine = byte_tensor(signed(round_.keys[who]["identity"], claim))
    return {"row": torch.from_numpy(row), "signature": mine, "handed": same}


def mask_bits(round_: TwoServerRound, who: str) -> Bytes:
    """The uniform row that stands for a client that is missing."""
    row: Bytes = kernel.bits_of(round_.masks[who][None], round_.setting.params)[0]
    return row
