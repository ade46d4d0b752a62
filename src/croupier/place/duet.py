"""The two servers' common flow: both play the same part, from what was dealt to what is published.

Order matters: who takes part is signed first; then the reference is shown; then rows are shuffled; with tags, the
shuffle is checked, and only then distances and the sum are opened, each checked before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema, attendance, bitmap, chosen
from croupier.encode.encoder import Released
from croupier.encode.signs import commitment, reference_fields
from croupier.errors import IntegrityError, TooFew
from croupier.kernels.field import Bytes
from croupier.mpc import dealer
from croupier.mpc.authentic import (
    Held,
    Side,
    byte_tensor,
    bytes_of,
    check_schemas,
    toss,
    toss_schemas,
    value_schema,
)
from croupier.mpc.dealer import Deck, Hand
from croupier.mpc.field import PRIME
from croupier.mpc.tallies import Tally
from croupier.place.cuts import Cut
from croupier.place.placement import Keys
from croupier.place.roster import root_of, signed, verified
from croupier.place.scoring import Scoring, Table, beside
from croupier.release.scored import ScoredSum

SECOND = "second"
SERVERS = ("server", SECOND)


def row_digest(row: Bytes) -> bytes:
    """What a row is known by."""
    return canon.digest(("row", row.tobytes()))


def upload_digest(body: Mapping[str, Tensor]) -> bytes:
    """What servers compare of a client's upload: all that it signed, its row and what it was handed."""
    return canon.digest(("upload", row_digest(body["row"].numpy()), bytes_of(body["handed"])))


def claim(given: Given, who: str, row: Bytes, handed: bytes) -> bytes:
    """What a client signs: this row in this attempt, and no other, made from what it was handed."""
    return canon.digest(("up", given.run, given.round, given.attempt, who, row_digest(row), handed))


def outcome(root: bytes, sums: Tensor, total: Tensor) -> bytes:
    """What the servers sign at the end."""
    return canon.digest(("outcome", root, sums, total))


def levels(rows: int) -> list[int]:
    """How many pairs each level of a tree over so many rows multiplies."""
    found = []
    while rows > 1:
        found.append(rows // 2)
        rows -= rows // 2
    return found


def schemas(deck: Deck, given: Given) -> Mapping[str, Schema]:
    """Every message of a round."""
    count, row = deck.rows, (Field("row", "|u1", (deck.width,), spare=deck.spare),)
    rows = Schema((Field("rows", "|u1", (count, deck.width), spare=deck.spare),))
    digest, sign = Field("identity", "|u1", (32,)), Field("signature", "|u1", (64,))
    told = Schema((Field("seed", "|u1", (32,)),))
    found = {"seed": told, "w": rows, "q": rows, "late": Schema(reference_fields(deck.size))}
    if not deck.authentic:
        shares = Field("numbers", "<i4", (deck.rows * deck.size,))
        short = {name: Schema((Field("value", "<i4", (size,)),)) for name, size in (("hd", count), ("z", deck.size))}
        hands = {"hand0": told, "hand1": Schema((*told.fields, shares))}
        return found | short | hands | {"up": Schema(row), "here": Schema((attendance(given.roster),))}
    digests = Field("digests", "|u1", (count, 32))
    sent = Field("sent", "|u1", (count,), 1)
    return {
        **found, **_hands(deck, told),
        "up": Schema((*row, sign, Field("handed", "|u1", (32,)))),
        "here": Schema((
            attendance(given.roster), digests, Field("commitment", "|u1", (32,)), Field("handed", "|u1", (32,)),
        )),
        "forward": Schema((
            sent, Field("rows", "|u1", ("sent", deck.width), spare=deck.spare),
            Field("signatures", "|u1", ("sent", 64)), Field("handed", "|u1", ("sent", 32)),
        )),
        "root": Schema((sign,)), "receipt": Schema((digest, digests, sign)),
        "key": Schema((Field("key", "|u1", (32,)),)),
        **({} if deck.check == "hash" else toss_schemas("e")),
        **{f"mul{at}": value_schema(4 * pairs, deck.over) for at, pairs in enumerate(levels(count))},
        "blind": value_schema(2, deck.over), "zero": value_schema(1, deck.over), **check_schemas("v0", deck.over),
        **check_schemas("v1", deck.over),
        "hd": value_schema(count, PRIME), **check_schemas("v2", PRIME),
        "z": value_schema(deck.size, PRIME), **check_schemas("v3", PRIME),
        "outcome": Schema((sign,)),
        "published": Schema((
            Field("sums", "<i8", (deck.size,)), Field("total", "<i8", (1,)), Field("signatures", "|u1", (2, 64)),
        )),
    }  # fmt: skip


def _hands(deck: Deck, told: Schema) -> dict[str, Schema]:
    size, extras = deck.matrices * deck.rows * deck.size, (deck.extras, deck.over.words)
    bound = Field("bound", "|u1", (32,))
    numbers = (Field("numbers", "<i8", (size,)), Field("tags", "<i8", (size,)))
    dealt = (Field("values", "<i8", extras), Field("value_tags", "<i8", extras))
    return {"hand0": Schema((*told.fields, bound)), "hand1": Schema((*told.fields, bound, *numbers, *dealt))}


def letters(deck: Deck, given: Given, coins: Coins) -> Iterator[Letter]:
    """What the dealer sends: a seed to every client, a seed to the first server, and the rest to the second."""
    for who, seed in zip(given.roster, dealer.seeds(deck, coins), strict=True):
        yield Letter(who, "seed", {"seed": byte_tensor(seed)})
    hands = [coins.child("hand", me).export() for me in (0, 1)]
    bounds = [dealer.bound_of(seed, me) for me, seed in enumerate(hands)]
    beside = [{"bound": byte_tensor(bounds[1 - me])} if deck.authentic else {} for me in (0, 1)]
    yield Letter(SERVERS[0], "hand0", {"seed": byte_tensor(hands[0]), **beside[0]})
    wide = np.int64 if deck.authentic else np.int32
    rest = {name: torch.from_numpy(array.view(wide)) for name, array in dealer.rest(deck, coins).items()}
    yield Letter(SERVERS[1], "hand1", {"seed": byte_tensor(hands[1]), **beside[1], **rest})


def hand_from(deck: Deck, given: Given, me: int, body: Mapping[str, Tensor]) -> Hand:
    """A hand from the dealer's letter."""
    told = {name: values.numpy().view(np.uint64 if deck.authentic else np.uint32) for name, values in body.items()
            if name not in ("seed", "bound")}  # fmt: skip
    bound = bytes_of(body["bound"]) if deck.authentic else b""
    seed = bytes_of(body["seed"])
    bounds = (dealer.bound_of(seed, 0), bound) if me == 0 else (bound, dealer.bound_of(seed, 1))
    identity = canon.digest(("dealt", given.run, given.round, given.attempt, *bounds))
    return dealer.hand_of(seed, me, deck, identity, bound, told)


@dataclass
class Player:
    """One of the two servers in one attempt."""

    given: Given
    deck: Deck
    release: ScoredSum
    keys: Keys = field(repr=False)
    coins: Coins
    least: int
    vote: bool = False
    checks: bool = True
    hand: Hand | None = field(default=None, repr=False)
    cut: Cut | None = None

    @property
    def me(self) -> int:
        """0 or 1."""
        return SERVERS.index(self.given.me)

    @property
    def peer(self) -> str:
        """The other one."""
        return SERVERS[1 - self.me]

    @property
    def scoring(self) -> Scoring:
        """What is computed of the shuffled rows."""
        return Scoring(self.release, self.deck)

    def play(self, late: Mapping[str, Tensor] | None) -> SubFlow:
        """Everything, from the dealt hand to what is released; `late` is what the first server alone knows so far.

        Raises: TooFew while nothing is opened and clients are missing; IntegrityError when the other server cheats.
        """
        hand, gates = yield from self._dealt()
        rows, present, root, late = yield from self._gathered(hand, late)
        hidden = yield from self._shuffled(hand, rows)
        tally = Tally(self.deck, hand.shares, self.me, hand.point)
        if self.deck.authentic:
            yield from self._sound(hand, tally, rows, hidden)
        table = Table(self.scoring, tally, self.peer, gates, partial(self._open, hand))
        released = yield from self._released(table, hidden, late, present)
        if self.deck.authentic:
            yield from self._published(root, released)
        return released

    def _released(self, table: Table, hidden: Bytes, late: Mapping[str, Tensor], present: tuple[str, ...]) -> SubFlow:
        found = yield from table.play(hidden, late["reference"].numpy())
        return Released(present, sums=found["sums"], luggage=beside(found), layout=self.given.layout)

    def _dealt(self) -> SubFlow:
        kinds = () if self.hand else (f"hand{self.me}",)
        told = yield from self._told((*kinds, *self.scoring.kinds(self.me)))
        if self.hand is None:
            self.hand = hand_from(self.deck, self.given, self.me, told[f"hand{self.me}"])
        return self.hand.take(), self.scoring.received(self.me, told)

    def _told(self, kinds: tuple[str, ...]) -> SubFlow:
        """What the dealer sent, by kind, before anything else happens."""
        if self.cut is not None:
            return (yield from self.cut.hand(self.me, kinds, self._met, self.coins))
        found = dict[str, Mapping[str, Tensor]]()
        for kind in kinds:
            (letter,) = yield Exchange(wait=Wait(kind, ("dealer",)))
            found[kind] = letter.body
        return found

    def _gathered(self, hand: Hand, late: Mapping[str, Tensor] | None) -> SubFlow:
        """The hidden rows that both servers hold, who sent them, what binds them, and the reference."""
        inbox = yield Exchange(wait=Wait("up", self.given.roster, 0))
        got = {letter.source: letter.body for letter in inbox if self._genuine(letter.source, letter.body)}
        root = b""
        if self.deck.authentic:
            got, bound, same = yield from self._agreed(got, late)
            rows = self._rows(got)
            digests = torch.stack([byte_tensor(row_digest(row)) for row in rows])
            root = root_of(self.given, hand.identity, bound + same, digests)
            yield from self._signed(root, hand.identity, digests)
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
        if not self.deck.authentic:
            return True
        message = claim(self.given, who, body["row"].numpy(), bytes_of(body["handed"]))
        return verified(self.keys["public"][who], message, bytes_of(body["signature"]))

    def _agreed(self, got: Mapping[str, Mapping[str, Tensor]], late: Mapping[str, Tensor] | None) -> SubFlow:
        """The rows that either server can show a signature for; a client that signed two uploads is left out."""
        own = {name: upload_digest(body) for name, body in got.items()}
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
        sizes = {"row": ("rows", self.deck.width), "signature": ("signatures", 64), "handed": ("handed", 32)}
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
            if name in got and upload_digest(got[name]) != upload_digest(body):
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
        none = np.zeros(self.deck.width, np.uint8)
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
        if self.deck.authentic and not fits:
            raise IntegrityError(f"round aborted: {self.peer} shows another reference than it had fixed")
        return letter.body

    def _shuffled(self, hand: Hand, rows: Bytes) -> SubFlow:
        """The rows in an order that neither server knows, hidden by what the dealer shared."""
        if self.me == 0:
            sent = torch.from_numpy(rows[hand.order] ^ hand.masks)
            (letter,) = yield Exchange((Letter(self.peer, "w", {"rows": sent}),), Wait("q", (self.peer,)))
            return letter.body["rows"].numpy()
        (letter,) = yield Exchange(wait=Wait("w", (self.peer,)))
        hidden = letter.body["rows"].numpy()[hand.order] ^ hand.masks
        yield Exchange((Letter(self.peer, "q", {"rows": torch.from_numpy(hidden)}),))
        return hidden

    def _sound(self, hand: Hand, tally: Tally, rows: Bytes, hidden: Bytes) -> SubFlow:
        """That the shuffled rows are the clients' rows. Raises: IntegrityError.

        Products over all rows of (point - fingerprint), before and after, are compared under a random factor.
        """
        side = self._side(hand)
        dealt = dict(hand.dealt())
        before, after, point = yield from self._fingerprints(hand, tally, rows, hidden, dealt, side)
        over, count = self.deck.over, self.deck.rows
        none = Held(np.zeros_like(before.values), np.zeros_like(before.tags))
        sides = [side.plus(side.sub(none, part), point) for part in (before, after)]
        tree = Held(
            np.concatenate([part.values.reshape(1, count, -1) for part in sides]),
            np.concatenate([part.tags.reshape(1, count, -1) for part in sides]),
        )
        used = 0
        for at, pairs in enumerate(levels(count)):
            left, right = (_part(tree, slice(start, 2 * pairs, 2)).shaped(2 * pairs) for start in (0, 1))
            triple = _triple(dealt, used, 2 * pairs)
            found: Held = yield from side.multiply(f"mul{at}", left, right, triple)
            tree, used = _joined(found.shaped(2, pairs), _part(tree, slice(2 * pairs, None))), used + 2 * pairs
        apart = side.sub(_flat(tree, 0), _flat(tree, 1))
        hiding = yield from side.multiply("blind", dealt["blind"], apart, _triple(dealt, used, 1))
        # Before the difference is opened: whether it is 0 may not depend on altered products.
        yield from side.check("v0")
        zero = yield from side.open("zero", hiding)
        yield from side.check("v1")
        if over.total(zero).any() and self.checks:
            raise IntegrityError("round aborted: the shuffled rows are not the clients' rows")

    def _fingerprints(
        self, hand: Hand, tally: Tally, rows: Bytes, hidden: Bytes, dealt: Mapping[str, Held], side: Side
    ) -> SubFlow:
        """Shares of what rows are known by before and after, under a key that nobody knew until now; and a point."""
        if self.deck.check == "hash":
            (letter,) = yield self._swap("key", {"key": byte_tensor(hand.key)})
            theirs = bytes_of(letter.body["key"])
            if canon.digest(("hash key", 1 - self.me, theirs)) != hand.bound:
                raise IntegrityError(f"round aborted: {self.peer} opens another key than was dealt")
            key = dealer.joined(hand.key, theirs)
            before = side.plus(dealt["before"], dealer.row_hashes(key, rows))
            after = side.plus(dealt["after"], dealer.row_hashes(key, hidden))
            return before, after, self.deck.over.draw(Coins(key).child("point").secure(), 1)
        chance: Coins = yield from toss(self.given, self.me, self.peer, "e", self.coins)
        keys = PRIME.draw(chance.child("keys").secure(), self.deck.size).reshape(-1)
        before, after = tally.fingerprints(rows, keys, 1), tally.fingerprints(hidden, keys, 0)
        return before, after, PRIME.draw(chance.child("point").secure(), 1)

    def _side(self, hand: Hand, shares: bool = False) -> Side:
        over = PRIME if shares else self.deck.over
        key = np.array([[hand.point]], np.uint64) if shares else hand.tag_key
        return Side(self.me, self.peer, over, key, self.given, self.coins, checks=self.checks)

    def _open(self, hand: Hand, kind: str, step: str, held: Held) -> SubFlow:
        """Numbers from both servers' shares, checked where they carry tags."""
        if self.deck.authentic:
            side = self._side(hand, shares=True)
            found = yield from side.open(kind, held)
            yield from side.check(step)
            return found.reshape(-1)
        return (yield from self._plainly(kind, step, held))

    def _plainly(self, kind: str, step: str, held: Held) -> SubFlow:
        mine = torch.from_numpy(held.values.view(np.int32))
        (letter,) = yield self._swap(kind, {"value": mine})
        return held.values + letter.body["value"].numpy().view(np.uint32)

    def _published(self, root: bytes, released: Released) -> SubFlow:
        """Both servers sign what came out, and the clients are told."""
        if released.sums is None:
            raise IntegrityError("round aborted: nothing came out")
        total = released.luggage["total"]
        message = outcome(root, released.sums, total)
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


def _part(tree: Held, columns: slice) -> Held:
    return Held(tree.values[:, columns], tree.tags[:, columns])


def _joined(one: Held, two: Held) -> Held:
    return Held(np.concatenate([one.values, two.values], 1), np.concatenate([one.tags, two.tags], 1))


def _flat(tree: Held, row: int) -> Held:
    return Held(tree.values[row], tree.tags[row])


def _triple(dealt: Mapping[str, Held], start: int, count: int) -> tuple[Held, Held, Held]:
    part = slice(start, start + count)
    return dealt["x"].at(part), dealt["y"].at(part), dealt["z"].at(part)
