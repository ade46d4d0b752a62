"""The two servers' common flow: both play the same part, from what was dealt to what is published.

Order matters: who takes part is agreed first (with tags, signed too); then the reference is shown; then rows are
shuffled; with tags, the shuffle is checked, and only then distances and the sum are opened, each checked before it is
used. `pair` plays it at both servers, `shuffle_flows` derives the other shuffles from it, and the laboratory a cheating
server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import bitmap, chosen
from croupier.encode.encoder import Released
from croupier.encode.signs import commitment, reference_fields
from croupier.errors import IntegrityError, TooFew
from croupier.kernels.field import Bytes
from croupier.mpc import dealer
from croupier.mpc.authentic import TaggedShares, TagHolder, byte_tensor, bytes_of, toss
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.field import PRIME
from croupier.mpc.signatures import root_of, signed, verified
from croupier.mpc.tallies import Tally
from croupier.place.placement import Keys
from croupier.place.two_servers import messages
from croupier.place.two_servers.cut_and_choose import Cut
from croupier.place.two_servers.messages import DEALER, SERVERS
from croupier.place.two_servers.scoring import ScoreFlow, Scoring, beside
from croupier.place.two_servers.shuffle_check import products_differ
from croupier.release.scoring import ScoreRule


@dataclass
class ServerFlow:
    """One of the two servers in one attempt; with `vote` a uniform row stands for each missing client."""

    given: Given
    deal: DealSpec
    release: ScoreRule
    keys: Keys = field(repr=False)
    coins: Coins
    least: int
    vote: bool = False
    checks: bool = True
    material: ShuffleShare | None = field(default=None, repr=False)
    cut: Cut | None = None

    @property
    def me(self) -> int:
        """0 for the first server, 1 for the second."""
        return SERVERS.index(self.given.me)

    @property
    def peer(self) -> str:
        """The name of the other server."""
        return SERVERS[1 - self.me]

    @property
    def scoring(self) -> Scoring:
        """What is computed of the shuffled rows."""
        return Scoring(self.release, self.deal)

    def play(self, late: Mapping[str, Tensor] | None) -> SubFlow:
        """Everything, from the dealt material to what is released; `late` is what the first server alone knows so far.

        Raises: TooFew while nothing is opened and clients are missing; IntegrityError when the other server cheats.
        """
        material, gates = yield from self._dealt()
        rows, present, root, late = yield from self._gathered(material, late)
        hidden = yield from self._shuffled(material, rows)
        tally = Tally(self.deal, material.shares, self.me, material.point)
        if self.deal.authentic:
            yield from self._sound(material, tally, rows, hidden)
        table = ScoreFlow(self.scoring, tally, self.peer, gates, partial(self._open, material))
        released = yield from self._released(table, hidden, late, present)
        if self.deal.authentic:
            yield from self._published(root, released)
        return released

    def _released(
        self, table: ScoreFlow, hidden: Bytes, late: Mapping[str, Tensor], present: tuple[str, ...]
    ) -> SubFlow:
        found = yield from table.play(hidden, late["reference"].numpy())
        return Released(present, sums=found["sums"], luggage=beside(found), layout=self.given.layout)

    def _dealt(self) -> SubFlow:
        kinds = () if self.material else (f"hand{self.me}",)
        told = yield from self._from_dealer((*kinds, *self.scoring.kinds(self.me)))
        if self.material is None:
            self.material = messages.share_from_letter(self.deal, self.given, self.me, told[f"hand{self.me}"])
        return self.material.take(), self.scoring.received(self.me, told)

    def _from_dealer(self, kinds: tuple[str, ...]) -> SubFlow:
        """What the dealer sent, by kind, before anything else happens."""
        if self.cut is not None:
            return (yield from self.cut.material(self.me, kinds, self._met, self.coins))
        found = dict[str, Mapping[str, Tensor]]()
        for kind in kinds:
            (letter,) = yield Exchange(wait=Wait(kind, (DEALER,)))
            found[kind] = letter.body
        return found

    def _gathered(self, material: ShuffleShare, late: Mapping[str, Tensor] | None) -> SubFlow:
        """The hidden rows that both servers hold, who sent them, what binds them, and the reference."""
        inbox = yield Exchange(wait=Wait("up", self.given.roster, 0))
        got = {letter.source: letter.body for letter in inbox if self._genuine(letter.source, letter.body)}
        root = b""
        if self.deal.authentic:
            got, bound, same = yield from self._agreed(got, late)
            rows = self._rows(got)
            digests = torch.stack([byte_tensor(messages.row_digest(row)) for row in rows])
            root = root_of(self.given, material.identity, bound + same, digests)
            yield from self._signed(root, material.identity, digests)
        else:
            bound = b""
            present = yield from self._met(tuple(got))
            got = {name: got[name] for name in present}
            rows = self._rows(got)
        late = yield from self._shown(late, bound)
        return rows, tuple(name for name in self.given.roster if name in got), root, late

    def _met(self, mine: tuple[str, ...], kind: str = "here") -> SubFlow:
        """The clients that reached both servers. Raises: TooFew."""
        here = bitmap(self.given.roster, mine)
        (seen,) = yield self._swap(kind, {"present": here})
        present = chosen(self.given.roster, here & seen.body["present"])
        self._enough(present)
        return present

    def _genuine(self, who: str, body: Mapping[str, Tensor]) -> bool:
        if not self.deal.authentic:
            return True
        message = messages.claim(self.given, who, body["row"].numpy(), bytes_of(body["handed"]))
        return verified(self.keys["public"][who], message, bytes_of(body["signature"]))

    def _agreed(self, got: Mapping[str, Mapping[str, Tensor]], late: Mapping[str, Tensor] | None) -> SubFlow:
        """The rows that either server can show a signature for; a client that signed two uploads is left out."""
        own = {name: messages.upload_digest(body) for name, body in got.items()}
        digests = torch.stack([byte_tensor(own.get(name, bytes(32))) for name in self.given.roster])
        said = {name: byte_tensor(bytes(32)) if late is None else late[name] for name in ("commitment", "handed")}
        (seen,) = yield self._swap(
            "here", {"present": bitmap(self.given.roster, tuple(got)), "digests": digests, **said}
        )
        theirs = dict(zip(self.given.roster, (bytes_of(d) for d in seen.body["digests"]), strict=True))
        both = yield from self._forwarded(got, tuple(name for name in got if theirs[name] != own[name]))
        told = said if late is not None else seen.body
        # A client that was handed another model than the rest would stand out: it is left out instead.
        same = bytes_of(told["handed"])
        kept = {
            name: both[name] for name in self.given.roster if name in both and bytes_of(both[name]["handed"]) == same
        }
        self._enough(tuple(kept))
        return kept, bytes_of(told["commitment"]), same

    def _forwarded(self, got: Mapping[str, Mapping[str, Tensor]], news: tuple[str, ...]) -> SubFlow:
        """Both servers' signed rows, once each has told the other what it lacks or has differently."""
        none = torch.zeros(0, dtype=torch.uint8)
        sizes = {"row": ("rows", self.deal.width), "signature": ("signatures", 64), "handed": ("handed", 32)}
        sent = {
            many: torch.stack([got[name][one] for name in news]) if news else none.reshape(0, size)
            for one, (many, size) in sizes.items()
        }
        (more,) = yield self._swap("forward", {"sent": bitmap(self.given.roster, news), **sent})
        both = dict(got)
        for place, name in enumerate(chosen(self.given.roster, more.body["sent"])):
            body = {one: more.body[many][place] for one, (many, _) in sizes.items()}
            if not self._genuine(name, body):
                raise IntegrityError(f"round aborted: {self.peer} forwarded a row that its client did not sign")
            # Two rows, or one row for two models: both servers now hold both, and leave the client out alike.
            if name in got and messages.upload_digest(got[name]) != messages.upload_digest(body):
                both.pop(name, None)
            else:
                both[name] = body
        return both

    def _enough(self, present: tuple[str, ...]) -> None:
        missing = tuple(name for name in self.given.roster if name not in present)
        if len(present) < self.least or (missing and not self.vote):
            raise TooFew(
                f"{self.given.me}: {len(present)} clients reached both servers, of {len(self.given.roster)} that "
                f"material was dealt for; missing {', '.join(missing[:8])}", missing,
            )  # fmt: skip

    def _rows(self, got: Mapping[str, Mapping[str, Tensor]]) -> Bytes:
        """Hidden rows in the order of the roster; zeros for the missing, whose row is then their uniform mask."""
        none = np.zeros(self.deal.width, np.uint8)
        return np.stack([got[name]["row"].numpy() if name in got else none for name in self.given.roster])

    def _signed(self, root: bytes, identity: bytes, digests: Tensor) -> SubFlow:
        mine = signed(self.keys["identity"], root)
        (seen,) = yield self._swap("root", {"signature": byte_tensor(mine)})
        if not verified(self.keys["public"][self.peer], root, bytes_of(seen.body["signature"])):
            raise IntegrityError(f"round aborted: {self.peer} does not sign the same rows")
        receipt = {"identity": byte_tensor(identity), "digests": digests, "signature": byte_tensor(mine)}
        yield Exchange(tuple(Letter(name, "receipt", receipt) for name in self.given.roster))

    def _shown(self, late: Mapping[str, Tensor] | None, bound: bytes) -> SubFlow:
        """The reference, shown only now. Raises: IntegrityError when it is not the one that was committed to."""
        if late is not None:
            shown = {name.name: late[name.name] for name in reference_fields(1)}
            yield Exchange((Letter(self.peer, "late", shown),))
            return late
        (letter,) = yield Exchange(wait=Wait("late", (self.peer,)))
        fits = bytes_of(commitment(letter.body["reference"], letter.body["nonce"])) == bound
        if self.deal.authentic and not fits:
            raise IntegrityError(f"round aborted: {self.peer} shows another reference than it had fixed")
        return letter.body

    def _shuffled(self, material: ShuffleShare, rows: Bytes) -> SubFlow:
        """The rows in an order that neither server knows, hidden by what the dealer shared."""
        if self.me == 0:
            sent = torch.from_numpy(rows[material.order] ^ material.masks)
            (letter,) = yield Exchange((Letter(self.peer, "w", {"rows": sent}),), Wait("q", (self.peer,)))
            return letter.body["rows"].numpy()
        (letter,) = yield Exchange(wait=Wait("w", (self.peer,)))
        hidden = letter.body["rows"].numpy()[material.order] ^ material.masks
        yield Exchange((Letter(self.peer, "q", {"rows": torch.from_numpy(hidden)}),))
        return hidden

    def _sound(self, material: ShuffleShare, tally: Tally, rows: Bytes, hidden: Bytes) -> SubFlow:
        """That the shuffled rows are the clients' rows (`shuffle_check` says how). Raises: IntegrityError."""
        side = self._side(material)
        dealt = dict(material.dealt())
        before, after, point = yield from self._fingerprints(material, tally, rows, hidden, dealt, side)
        differ: bool = yield from products_differ(side, self.deal.rows, dealt, before, after, point)
        if differ and self.checks:
            raise IntegrityError("round aborted: the shuffled rows are not the clients' rows")

    def _fingerprints(
        self,
        material: ShuffleShare,
        tally: Tally,
        rows: Bytes,
        hidden: Bytes,
        dealt: Mapping[str, TaggedShares],
        side: TagHolder,
    ) -> SubFlow:
        """Shares of rows' fingerprints before and after, under a key that nobody knew until now; and a point."""
        if self.deal.check == "hash":
            (letter,) = yield self._swap("key", {"key": byte_tensor(material.key)})
            theirs = bytes_of(letter.body["key"])
            if canon.digest(("hash key", 1 - self.me, theirs)) != material.bound:
                raise IntegrityError(f"round aborted: {self.peer} opens another key than was dealt")
            key = dealer.joined(material.key, theirs)
            before = side.plus(dealt["before"], dealer.row_hashes(key, rows))
            after = side.plus(dealt["after"], dealer.row_hashes(key, hidden))
            return before, after, self.deal.over.draw(Coins(key).child("point").secure(), 1)
        chance: Coins = yield from toss(self.given, self.me, self.peer, "e", self.coins)
        keys = PRIME.draw(chance.child("keys").secure(), self.deal.size).reshape(-1)
        before, after = tally.fingerprints(rows, keys, 1), tally.fingerprints(hidden, keys, 0)
        return before, after, PRIME.draw(chance.child("point").secure(), 1)

    def _side(self, material: ShuffleShare, shares: bool = False) -> TagHolder:
        over = PRIME if shares else self.deal.over
        key = np.array([[material.point]], np.uint64) if shares else material.tag_key
        return TagHolder(self.me, self.peer, over, key, self.given, self.coins, checks=self.checks)

    def _open(self, material: ShuffleShare, kind: str, step: str, held: TaggedShares) -> SubFlow:
        """Numbers from both servers' shares, checked where they carry tags."""
        if self.deal.authentic:
            side = self._side(material, shares=True)
            found = yield from side.open(kind, held)
            yield from side.check(step)
            return found.reshape(-1)
        return (yield from self._plainly(kind, step, held))

    def _plainly(self, kind: str, step: str, held: TaggedShares) -> SubFlow:
        mine = torch.from_numpy(held.values.view(np.int32))
        (letter,) = yield self._swap(kind, {"value": mine})
        return held.values + letter.body["value"].numpy().view(np.uint32)

    def _published(self, root: bytes, released: Released) -> SubFlow:
        """Both servers sign what came out, and the clients are told."""
        if released.sums is None:
            raise IntegrityError("round aborted: nothing came out")
        total = released.luggage["total"]
        message = messages.outcome(root, released.sums, total)
        mine = signed(self.keys["identity"], message)
        (seen,) = yield self._swap("outcome", {"signature": byte_tensor(mine)})
        theirs = bytes_of(seen.body["signature"])
        if not verified(self.keys["public"][self.peer], message, theirs):
            raise IntegrityError(f"round aborted: {self.peer} does not sign the same outcome")
        if self.me == 0:
            signatures = torch.stack([byte_tensor(mine), byte_tensor(theirs)])
            body = {"sums": released.sums, "total": total, "signatures": signatures}
            yield Exchange(tuple(Letter(name, "published", body) for name in self.given.roster))

    def _swap(self, kind: str, body: Mapping[str, Tensor]) -> Exchange:
        return Exchange((Letter(self.peer, kind, body),), Wait(kind, (self.peer,)))
