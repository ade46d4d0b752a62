"""Several servers of which one honest one suffices: each adds shares that tell it nothing.

It is additive sharing with compressed shares, and a tag that clients alone can make and check. A client sends one
server a long share and each other a seed; which server gets the long one goes round with the client's place. The
servers agree on who reached all of them, each sends one sum, and the sums add up to the clients' sum. That is
published, and every client checks that it carries the tags of exactly the clients named, itself among them.

The presets `rns-servers`, `intra-sum`, `intra-london-sum` and `flower` use it, with `mpc.shares` and `mpc.tags`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Choices, Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema, attendance, bitmap, chosen, place_of
from croupier.encode.encoder import Brief, Encoder, Payload, Released
from croupier.errors import IntegrityError, ProtocolError, TooFew
from croupier.kernels import packed
from croupier.kernels.packed import Key
from croupier.kernels.shares import P
from croupier.mpc.shares import added, rest, stretched, unpacked
from croupier.mpc.tags import Tagger
from croupier.place.labels import places_of, places_together, together, too_few
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Placement,
    Reads,
    ServerHoldings,
    Sight,
    Tolerance,
    once,
    quorum,
    residue_bits,
)
from croupier.place.secrets import Need, Secrets
from croupier.place.witness import Witnesses
from croupier.release.release import Shape

# Sums of more bits would not be told apart in the field of the tags, which has about 2^61 elements.
MOST_BITS = 60
_EACH = "each sum server"


class SumServers(Placement, use="sum-servers"):
    """`servers` parties, sum1, sum2, ..., that add what they cannot read."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"sums", "bucketed"})
    spends: ClassVar[bool] = True
    tolerance: ClassVar[Tolerance] = Tolerance(
        privacy="the server and all sum servers but one, colluding and malicious; whoever hands clients different "
        "models can single one out. Of the clients it hides a sum of those present, of which colluders know their own "
        "part. A malicious sum server can leave clients out, down to the quorum; one that is told a sum sees it",
        integrity="the server and all sum servers, colluding: a client present refuses a published sum that is not "
        "exactly the sum of the clients named, at least the quorum and itself among them, but for a chance of 2^-60. "
        "Clients may be shown different sums, each true of the clients that it names. One client that tells a "
        "server the clients' secret undoes this, not the privacy. The tag covers the published sum, not the model "
        "that the server makes of it; and no client's own values are bounded: one that lies can move the sum anywhere",
        liveness="all sum servers and the server; a round completes with the clients that reached all sum servers, "
        "above the quorum, and is lost when a client reached only some of them. Any client can end a round by a "
        "wrong tag, and it looks like the servers' doing",
        apart=(
            ("one sum server", "all the others"),
            ("any client", "the server or a sum server (or the tags prove nothing)"),
        ),
    )

    servers: int = Field(3, ge=2, le=16, description="how many servers, of which one honest one suffices")
    _padded: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        """What the servers are called."""
        return tuple(f"sum{number}" for number in range(1, self.servers + 1))

    @property
    def needs(self) -> frozenset[Need]:
        """One secret that all clients share and no server knows; a roster of other clients takes a new one."""
        return frozenset({"group"})

    @property
    def clients_check(self) -> bool:
        """They check the tag of what is published."""
        return True

    def own_keys(self, me: str, own: Secrets) -> Keys:
        """The clients' secret."""
        return {"group": own.group}

    def misfits(self, mechanism: Mechanism) -> Iterator[str]:
        """Shares are of residues of one power of two."""
        bits = mechanism.encode.residue_bits
        if bits is None:
            yield f"adds residues of a power of two, not encode = {mechanism.encode.use!r}; use encode = 'fixed'"
        elif bits > MOST_BITS:
            yield f"takes sums of {MOST_BITS} bits at most, not {bits}; use fewer digits"

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The sum servers."""

        def adder(given: Given, memory: Memory, coins: Coins) -> Flow:
            me, others = self.names.index(given.me), tuple(name for name in self.names if name != given.me)
            long = tuple(who for place, who in enumerate(given.roster) if place % self.servers == me)
            short = tuple(who for place, who in enumerate(given.roster) if place % self.servers != me)
            inbox = yield Exchange(wait=Wait("share", long, 0))
            inbox += yield Exchange(wait=Wait("seed", short, 0))
            here = bitmap(given.roster, tuple(letter.source for letter in inbox))
            seen = yield Exchange(
                tuple(Letter(name, "here", {"present": here}) for name in others), Wait("here", others)
            )  # fmt: skip
            for letter in seen:
                here = here & letter.body["present"]
            present = chosen(given.roster, here)
            if len(present) < (least := quorum(mechanism, given)):
                missing = chosen(given.roster, 1 - here)
                few = TooFew(
                    f"{given.me}: {len(present)} of the {least} needed reached all sum servers; missing "
                    f"{', '.join(missing[:8])}", missing,
                )  # fmt: skip
                raise too_few(mechanism, given, few)
            own = {letter.source: letter for letter in inbox}
            groups = together(mechanism, present)
            added = [self._added(mechanism, given.layout, tuple(own[who] for who in group)) for group in groups]
            body = self._body(mechanism, given, here, [sums for sums, _ in added], [tag for _, tag in added])
            yield Exchange((Letter("server", "sum", body),))
            return memory

        return dict.fromkeys(self.names, adder)

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """A long share, a seed, who is here, a server's sum, and what is published."""
        vector = wire.packed("vector", (), mechanism.encode.slots(given.layout), residue_bits(mechanism))
        tag = wire.Field("tag", "<i8", (1,), P - 1)
        present = attendance(given.roster)
        # What is long comes first: it then lies on whole words wherever a message does.
        sums = Schema((vector, tag, present))
        if mechanism.release.grouped:
            # As many sums and tags as there are buckets, which depends on who is present.
            grouped = replace(present, name="grouped")
            several = replace(vector, shape=("grouped", *vector.shape)), replace(tag, shape=("grouped",))
            sums = Schema((present, grouped, *several))
        return {
            "share": Schema((vector, tag)),
            "seed": Schema((wire.Field("seed", "|u1", (32,)),)),
            "here": Schema((present,)),
            "sum": sums,
            "published": sums,
        }

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Share, and check what is published. Reveals: to each sum server a uniform share.

        Raises: IntegrityError when the published sum is not that of the clients it names, or leaves this one out.
        """
        encode, bits, count = mechanism.encode, residue_bits(mechanism), len(payload.vector)
        tagger = self._tagger(given, keys, bits)
        key, mine = tagger.key(count), place_of(given.roster, given.me)
        holder = mine % self.servers
        seeds = {name: coins.child("seed", name).export() for at, name in enumerate(self.names) if at != holder}
        pad = int(tagger.pads[mine]) + _weight(encode, key, count, bits, int(payload.vector[-1]))
        share, left = rest(payload.vector, pad, tuple(seeds.values()), bits, key)
        long = Letter(self.names[holder], "share", {"vector": share, "tag": torch.tensor([left])})
        short = (Letter(to, "seed", {"seed": torch.tensor(list(s), dtype=torch.uint8)}) for to, s in seeds.items())
        sending = [Exchange((long, *short), Wait("published", ("server",)))]
        # A client that waits holds no copy of its update or of what it sent: nobody needs them any more.
        del payload, share, long
        body = (yield sending.pop())[0].body
        if (present := len(places_of(body["present"]))) < quorum(mechanism, given):
            raise IntegrityError(f"the published sum is of {present} clients, fewer than the round needs")
        if not body["present"][mine]:
            raise IntegrityError("a client that sent its update is missing from the published sum")
        groups = places_together(mechanism, given.roster, body["present"])
        sums = body["vector"].reshape(-1, packed.size(count, bits)).numpy()
        if len(groups) != len(sums):
            raise IntegrityError(f"{len(sums)} sums are published, and the clients named give {len(groups)} buckets")
        for group, total, tag in zip(groups, sums, body["tag"].tolist(), strict=True):
            form = packed.form(key, total, count, bits)
            form += _weight(encode, key, count, bits, packed.last(total, count, bits))
            if not tagger.fits(form, tag, group):
                raise IntegrityError(
                    "the published sum is not the sum of the clients that it names: its tag does not fit"
                )

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """Add the servers' sums and publish them."""
        inbox = yield Exchange(wait=Wait("sum", self.names))
        sums = self._totals(mechanism, given.roster, given.layout, inbox)
        tags = [sum(column) % P for column in zip(*(letter.body["tag"].tolist() for letter in inbox), strict=True)]
        body = self._body(mechanism, given, inbox[0].body["present"], sums, tags)
        yield Exchange(tuple(Letter(name, "published", body) for name in given.roster))
        return self._released(mechanism, given.layout, chosen(given.roster, inbox[0].body["present"]), sums)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """The servers' sums, added. Raises: ProtocolError when they are not of the same clients."""
        sums = self._totals(mechanism, roster, layout, inbox)
        return self._released(mechanism, layout, chosen(roster, inbox[0].body["present"]), sums)

    def _totals(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Sequence[Tensor]:
        """The servers' sums, added, packed: one, or one a bucket."""
        bits, slots = residue_bits(mechanism), mechanism.encode.slots(layout)
        present = inbox[0].body["present"]
        if other := [letter.source for letter in inbox if not torch.equal(letter.body["present"], present)]:
            raise ProtocolError(f"{inbox[0].source} and {other[0]} added different clients; the round is lost")
        many = len(places_together(mechanism, roster, present))
        rows = [letter.body["vector"].reshape(-1, packed.size(slots, bits)) for letter in inbox]
        if other := [letter.source for letter, row in zip(inbox, rows, strict=True) if len(row) != many]:
            raise ProtocolError(f"{other[0]} did not add as the buckets of the clients present say; the round is lost")
        return [added(row, (), slots, bits) for row in zip(*rows, strict=True)]

    def _released(
        self, mechanism: Mechanism, layout: Layout, names: tuple[str, ...], sums: Sequence[Tensor]
    ) -> Released:
        """What the server has of packed sums, unpacked."""
        found = unpacked(torch.stack(tuple(sums)), mechanism.encode.slots(layout), residue_bits(mechanism))
        if not mechanism.release.grouped:
            return Released(names, sums=found[0], layout=layout)
        sizes = torch.tensor([len(group) for group in together(mechanism, names)], dtype=torch.int32)
        return Released(names, found, layout=layout, sizes=sizes, by_size=True)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server and the clients the sum, a sum server nothing."""
        sums = "sums of all buckets" if mechanism.release.grouped else "sum"
        return {
            "server": f"{mechanism.release.reveals()}; and which clients took part",
            _EACH: "which clients took part, and uniform numbers that depend on nobody's update",
            "each client": f"the published {sums}, and which clients took part",
        }

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """All servers' shares of an update add up to it."""
        return {self.names: "named"}

    def sight(self, mechanism: Mechanism, party: str) -> Sight:
        """A sum server sees shares, which are uniform."""
        return Sight("noise", f"{_EACH} learns {self.learns(mechanism)[_EACH]}")

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """Of every client the sum of the shares that these sum servers hold: its update, where these are all of them.

        A client alone reads what is published.
        """
        servers = [parties[name] for name in self.names if name in parties]
        if not servers:
            (client, *_) = parties.values()
            inbox = tuple(letter for letter in client.letters if letter.kind == "published")
            return self.opened(mechanism, client.given.roster, client.given.layout, inbox)
        given = servers[0].given
        held = [letter for one in servers for letter in one.letters if letter.kind in ("share", "seed")]
        parts = {who: tuple(letter for letter in held if letter.source == who) for who in given.roster}
        names = tuple(who for who, letters in parts.items() if len(letters) == len(servers))
        slots, bits = mechanism.encode.slots(given.layout), residue_bits(mechanism)
        rows = torch.stack([self._added(mechanism, given.layout, parts[who])[0] for who in names])
        rows = unpacked(rows, slots, bits)
        return Released(names, rows, ids=names, layout=given.layout)

    def _added(self, mechanism: Mechanism, layout: Layout, inbox: Inbox) -> tuple[Tensor, int]:
        """The sum of the shares in some clients' letters, packed, and that of the shares of their tags."""
        rows, drawn, tag = list[Tensor](), list[Choices](), 0
        for letter in inbox:
            if letter.kind == "share":
                rows.append(letter.body["vector"])
                part = int(letter.body["tag"][0])
            else:
                numbers, part = stretched(letter.body["seed"].numpy().tobytes())
                drawn.append(numbers)
            tag = (tag + part) % P
        return added(rows, drawn, mechanism.encode.slots(layout), residue_bits(mechanism)), tag

    def _body(
        self, mechanism: Mechanism, given: Given, present: Tensor, sums: Sequence[Tensor], tags: Sequence[int]
    ) -> dict[str, Tensor]:
        """A message with sums: one, or one a bucket."""
        if not mechanism.release.grouped:
            return {"vector": sums[0], "tag": torch.tensor(tags), "present": present}
        grouped = torch.tensor([number < len(tags) for number in range(len(given.roster))], dtype=torch.uint8)
        several = {"vector": torch.stack(tuple(sums)), "tag": torch.tensor(tags)}
        return {"present": present, "grouped": grouped, **several}

    def _tagger(self, given: Given, keys: Keys, bits: int) -> Tagger:
        return Tagger(once(keys["group"], given).child("tags"), bits, len(given.roster), self._padded)


def _weight(encode: Encoder, key: Key, count: int, bits: int, last: int) -> int:
    """What the form of residues lacks where the last one is a weight, which is never negative."""
    return key.at(count - 1) << bits if encode.scaled and last >> (bits - 1) else 0
