"""Cut and choose over whole sets of dealt material: all but one are opened and computed again, the one left is used.

It is a check on the dealer, who is otherwise trusted to deal correct material. The dealer fixes the root seed of every
set by a digest and deals all sets. When the servers hold theirs, and every client has said that it holds its own, a
joint coin picks the set to keep. The dealer opens the roots of the others, and each party computes what it should have
been dealt from them. A dealer that is wrong in one set is not caught when that one is kept: with probability 1 over the
number of sets. Servers and clients tell each other which digests they were given, so that a dealer cannot open one root
to some and another to others.

`pair` uses it where `protocol.place.decks` is above 1: its dealer plays `dealt`, servers `material` (in `server_flow`),
clients `seed` (in `client_flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema, attendance
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc.authentic import byte_tensor, bytes_of, toss, toss_schemas

# One whole set from its root.
Deal = Callable[[Coins], Iterator[Letter]]
Body = Mapping[str, Tensor]
STEP = "cut"


@dataclass(frozen=True)
class Cut:
    """So many sets, which `deal` makes from their roots, for these servers."""

    decks: int
    deal: Deal
    given: Given
    servers: tuple[str, str]
    dealer: str

    def schemas(self, one: Mapping[str, Schema]) -> dict[str, Schema]:
        """All messages; `one` are those by which a single set is dealt, and each set has its own."""
        many = self.decks
        digests = Field("digests", "|u1", (many, 32))
        return {
            **{_kind(kind, at): schema for kind, schema in one.items() for at in range(many)},
            "roots": Schema((digests,)), "bound": Schema((digests,)),
            "ready": Schema((Field("held", "|u1", (1,), 1),)), "acked": Schema((attendance(self.given.roster),)),
            **toss_schemas(STEP),
            "kept": Schema((Field("kept", "|u1", (1,), many - 1), digests)),
            "opened": Schema((Field("roots", "|u1", (many - 1, 32)),)),
        }  # fmt: skip

    def dealt(self, coins: Coins) -> SubFlow:
        """The dealer's part. Raises: ProtocolError when the servers do not keep the same set.

        Were it to open what one of them asks for, that server could see the set that is used.
        """
        roots = [coins.child("deck", at).export() for at in range(self.decks)]
        digests = torch.stack([byte_tensor(self._digest(at, root)) for at, root in enumerate(roots)])
        everybody = (*self.given.roster, *self.servers)
        sets = (
            Letter(letter.target, _kind(letter.kind, at), letter.body)
            for at, root in enumerate(roots)
            for letter in self.deal(Coins(root))
        )
        bound = tuple(Letter(name, "roots", {"digests": digests}) for name in everybody)
        one, two = yield Exchange((*sets, *bound), Wait("kept", self.servers))
        kept = int(one.body["kept"])
        if kept != int(two.body["kept"]):
            raise ProtocolError("the servers do not keep the same set; nothing is opened")
        opened = {"roots": torch.stack([byte_tensor(root) for at, root in enumerate(roots) if at != kept])}
        yield Exchange(tuple(Letter(name, "opened", opened) for name in everybody))

    def material(
        self, me: int, kinds: tuple[str, ...], met: Callable[[tuple[str, ...], str], SubFlow], coins: Coins
    ) -> SubFlow:
        """A server's part: the letters of the set that is kept, by kind. Raises: IntegrityError when others are wrong.

        `met` is the sub-flow by which servers find out which clients reached both of them.
        """
        peer = self.servers[1 - me]
        sets, digests = yield from self._held(kinds)
        (seen,) = yield Exchange((Letter(peer, "bound", {"digests": digests}),), Wait("bound", (peer,)))
        if not torch.equal(seen.body["digests"], digests):
            raise IntegrityError("round aborted: the servers were given different digests of what was dealt")
        # The coin comes after everybody holds all sets: else the dealer could deal to a client by what was chosen.
        inbox = yield Exchange(wait=Wait("ready", self.given.roster, 0))
        present = yield from met(tuple(letter.source for letter in inbox), "acked")
        chance: Coins = yield from toss(self.given, me, peer, STEP, coins)
        kept = int(chance.child("kept").secure().below(self.decks)[0])
        said = {"kept": torch.tensor([kept], dtype=torch.uint8), "digests": digests}
        told = tuple(Letter(name, "kept", said) for name in (*present, self.dealer))
        yield from self._checked(kept, sets, digests, told)
        return sets[kept]

    def seed(self, kind: str) -> SubFlow:
        """A client's part: its letter of the set that is kept. Raises: IntegrityError when another one is wrong."""
        sets, digests = yield from self._held((kind,))
        held = {"held": torch.ones(1, dtype=torch.uint8)}
        inbox = yield Exchange(tuple(Letter(name, "ready", held) for name in self.servers), Wait("kept", self.servers))
        for letter in inbox:
            same = torch.equal(letter.body["kept"], inbox[0].body["kept"])
            if not same or not torch.equal(letter.body["digests"], digests):
                raise IntegrityError(f"{letter.source} keeps another set, or was given other digests of what was dealt")
        kept = int(inbox[0].body["kept"])
        yield from self._checked(kept, sets, digests, ())
        return sets[kept][kind]

    def kept(self, opened: Tensor, digests: Tensor) -> int:
        """Which set was not opened, found from the opened roots and the digests of all roots."""
        roots = [bytes_of(root) for root in opened]
        wrong = (at for at, root in enumerate(roots) if self._digest(at, root) != bytes_of(digests[at]))
        return next(wrong, self.decks - 1)

    def _held(self, kinds: tuple[str, ...]) -> SubFlow:
        """All sets that this party was dealt, and the digests of all sets' roots."""
        sets = list[dict[str, Body]]()
        for at in range(self.decks):
            sets.append({})
            for kind in kinds:
                (letter,) = yield Exchange(wait=Wait(_kind(kind, at), (self.dealer,)))
                sets[at][kind] = letter.body
        (bound,) = yield Exchange(wait=Wait("roots", (self.dealer,)))
        return sets, bound.body["digests"]

    def _checked(
        self, kept: int, sets: list[dict[str, Body]], digests: Tensor, told: tuple[Letter, ...]
    ) -> SubFlow:  # fmt: skip
        (opened,) = yield Exchange(told, Wait("opened", (self.dealer,)))
        others = [at for at in range(self.decks) if at != kept]
        for at, root in zip(others, (bytes_of(root) for root in opened.body["roots"]), strict=True):
            if self._digest(at, root) != bytes_of(digests[at]):
                raise IntegrityError("round aborted: the dealer opens another root than it had fixed")
            if not all(_same(body, sets[at][kind]) for kind, body in self._wanted(root, len(sets[at]))):
                raise IntegrityError(f"round aborted: set {at} was not dealt as its root says: the dealer is at fault")

    def _wanted(self, root: bytes, count: int) -> Iterator[tuple[str, Body | bytes]]:
        """What this party is dealt from a root: so many letters. What is dealt after them is not computed."""
        mine = ((letter.kind, letter.body) for letter in self.deal(Coins(root)) if letter.target == self.given.me)
        return islice(mine, count)

    def _digest(self, at: int, root: bytes) -> bytes:
        return canon.digest(("deck", self.given.run, self.given.round, self.given.attempt, at, root))


def _kind(kind: str, at: int) -> str:
    return f"{kind}.{at}"


def _same(one: Mapping[str, Tensor] | bytes, two: Body) -> bool:
    if isinstance(one, bytes) or set(one) != set(two):
        return False
    return all(torch.equal(one[name], two[name]) for name in two)
