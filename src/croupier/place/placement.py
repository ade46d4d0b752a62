"""Placements: which parties compute a release, and what each of them sees while doing it.

A pipeline calls the three sub-flows, whichever placement it has (`direct` unless told). Besides playing, a placement
states: who stands in the middle, which parties must not put their views together (`breaks`), what each of them sees
(`sight`), and what it withstands; `statement` prints that, and an audit attacks exactly those parties
(`audit.question`, `audit.seen`). The round loop and deployed servers ask it whether a round may start again
(`engine.loop`, `service.lead`). The helpers below are the messages that placements have in common.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Given, Inbox, Memory, Party, SubFlow, roster_digest
from croupier.core.part import Part
from croupier.core.tier import Tier
from croupier.core.update import Layout
from croupier.core.wire import Schema, attendance, bitmap, chosen
from croupier.encode.encoder import Brief, Encoder, Payload, Released
from croupier.errors import ProtocolError
from croupier.place.secrets import Need, Secrets, simulated
from croupier.place.witness import Witnesses
from croupier.privacy.local import LocalPrivacy
from croupier.release.release import Release, ReleaseContext, Shape

Keys = Mapping[str, Any]
NO_BRIEF: Brief = MappingProxyType({})


class Mechanism(Protocol):
    """The parts of a pipeline that a placement works with."""

    @property
    def privacy(self) -> LocalPrivacy:
        """What a client does to its update first."""

    @property
    def encode(self) -> Encoder:
        """How coordinates are made."""

    @property
    def release(self) -> Release:
        """What may leave."""


@dataclass(frozen=True)
class ServerHoldings:
    """What the server itself holds in a round: its long-lived keys, and the brief with its late part.

    The late part is what the server shows only once updates are fixed, such as RAIN's reference.
    """

    keys: Keys = field(default_factory=dict, repr=False)
    brief: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


NOTHING = ServerHoldings()


@dataclass(frozen=True)
class Tolerance:
    """What a placement withstands, in words that the statement prints."""

    privacy: str
    integrity: str
    liveness: str
    apart: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Sight:
    """What a party sees of clients' updates: each with its sender, what is released, or numbers that are noise.

    `why` says why it is nothing, or what proves it to be noise.
    """

    kind: Literal["named", "released", "noise", "nothing"]
    why: str = ""


# What a forbidden coalition reads: every update with its sender, or whole updates in random order.
Reads = Literal["named", "model"]
NONE: Mapping[tuple[str, ...], Reads] = MappingProxyType({})


class Placement(Part):
    """Three sub-flows: `submit` at the client, `middle` with parties of its own, `collect` at the server."""

    verb: ClassVar[str] = "place"
    lies_in: ClassVar[str] = "croupier.place"
    # The shapes of release that it can compute.
    realises: ClassVar[frozenset[Shape]]
    # Whether it can handle residues in unary.
    unary: ClassVar[bool] = False
    # Whether the server gets every update with its sender, whatever the release.
    keeps_ids: ClassVar[bool] = False
    # Whether a round may start again without the missing: only while nothing that depends on an input has been opened.
    restarts: ClassVar[bool] = False
    # Whether it uses secrets that are good for one sum only: a round that failed may then not be run again.
    spends: ClassVar[bool] = False
    # Whether a client has sent all that it sends before it waits for what the others did.
    sends_once: ClassVar[bool] = True
    # Whether clients sign what they were handed, so that a server cannot hand one of them something else.
    binds: ClassVar[bool] = False
    # Middle parties that see nothing of updates: what they did in an attempt keeps nobody from starting it again.
    bystanders: ClassVar[tuple[str, ...]] = ()
    # Middle parties without whose consent a round is worth nothing.
    witnesses: ClassVar[tuple[str, ...]] = ()
    tolerance: ClassVar[Tolerance]

    @property
    def needs(self) -> frozenset[Need]:
        """Which long-lived secrets its parties must hold before the first round."""
        return frozenset()

    @property
    def clients_check(self) -> bool:
        """Whether clients check what became of their updates: then a round counts only if one of them is content."""
        return self.binds

    def holders(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """Who holds the secrets that are needed."""
        return clients

    def own_keys(self, me: str, own: Secrets) -> Keys:
        """The keys that one party's flow uses, from its own secrets and everybody's public keys."""
        return {}

    def enrol(self, clients: tuple[str, ...], coins: Coins) -> Mapping[str, Keys]:
        """A simulation's keys, by name; nobody sees another's."""
        drawn = simulated(self.needs, self.holders(clients), coins)
        return {name: self.own_keys(name, own) for name, own in drawn.items()}

    def missing_of(self, named: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The clients that a round may start again without, from whom each party of the placement found missing."""
        return frozenset[str]().union(*named.values())

    def misfits(self, mechanism: Mechanism) -> Iterator[str]:
        """What else keeps this placement from working with an encoder and a release."""
        yield from ()

    def check_plan(self, enrolled: int, cohort: int) -> None:
        """Raises: SpecError when so many clients, so many of them invited, do not fit."""

    def check_size(self, mechanism: Mechanism, layout: Layout, clients: int) -> None:
        """Raises: SpecError when updates of this layout, of so many clients a round, are more than it can carry."""

    def costs(self, mechanism: Mechanism, layout: Layout, clients: int) -> tuple[str, ...]:
        """What this placement alone costs in a round, as sentences for `croupier plan`; none where it is little."""
        return ()

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The parties between the clients and the server."""
        return {}

    @abstractmethod
    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """Every kind of message this placement sends, with its fields."""

    @abstractmethod
    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """What a client does with its payload, until it is content with what became of it."""

    @abstractmethod
    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """What the server does to get the `Released`."""

    @abstractmethod
    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """What the letters that reach the server in `collect` amount to."""

    @abstractmethod
    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """What each party learns, as sentences of the statement."""

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """The coalitions that `tolerance.apart` rules out, by their parties' names, and what each could read.

        "clients" among the names are all clients but one.
        """
        return NONE

    def sight(self, mechanism: Mechanism, party: str) -> Sight:
        """What one of the middle parties sees of clients' updates."""
        return Sight("nothing", f"place = {self.use!r} does not say what {party} sees of updates")

    def without_noise(self) -> Self:
        """This placement for malicious clients that add no noise, as an audit plays them: it asks for none."""
        return self

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """What the parties of a coalition in `breaks`, or one party that sees something alone, can read together.

        Raises: ProtocolError when they can read nothing.
        """
        raise ProtocolError(f"place = {self.use!r} does not say what {' and '.join(parties)} can read")


def unkeyed(memory: Memory) -> Memory:
    """A memory as it is kept, without its keys: those reach a party anew in every round."""
    return {name: value for name, value in memory.items() if name != "keys"}


def up_schema(mechanism: Mechanism, given: Given) -> Schema:
    """A client's payload: its coordinates, and what rides beside them."""
    return Schema((mechanism.encode.field(given.layout), *mechanism.encode.luggage(given.inputs)))


def released_schema(mechanism: Mechanism, given: Given) -> Schema:
    """What a release lets out: who was present, the arrays, and luggage as one row a client."""
    encode, release = mechanism.encode, mechanism.release
    arrays = release.fields(encode.dtype, encode.modulus, encode.slots(given.layout))
    beside = tuple(replace(f, shape=("present", *f.shape)) for f in encode.luggage(given.inputs))
    return Schema((attendance(given.roster), *arrays, *beside))


def up_body(payload: Payload) -> dict[str, Tensor]:
    """A payload as a message body."""
    return {"vector": payload.vector, **payload.luggage}


def quorum(mechanism: Mechanism, given: Given) -> int:
    """How many clients a round needs: what the run says, and never fewer than the release can hide among."""
    return max(given.quorum, mechanism.release.least)


def let_out(
    mechanism: Mechanism, given: Given, inbox: Inbox, coins: Coins, late: Brief = NO_BRIEF
) -> dict[str, Tensor]:
    """Compute the release in the clear from the clients' payloads: the message that leaves."""
    rows = [letter.body["vector"] for letter in inbox]
    names = tuple(letter.source for letter in inbox)
    context = ReleaseContext(release_tiers(mechanism, names), late)
    arrays = mechanism.release.compute(rows, given.layout, mechanism.encode.modulus, coins, context)
    beside = {f.name: torch.stack([m.body[f.name] for m in inbox]) for f in mechanism.encode.luggage()}
    return {"present": bitmap(given.roster, names), **arrays, **beside}


def tiers_of(mechanism: Mechanism, names: tuple[str, ...]) -> tuple[Tier, ...]:
    """The public tiers of clients. Raises: ProtocolError when one has none."""
    found = tuple(tier for name in names if (tier := mechanism.privacy.tier(name)) is not None)
    if len(found) != len(names):
        raise ProtocolError(f"privacy = {mechanism.privacy.use!r} gives no tiers; use privacy = 'tiers'")
    return found


def release_tiers(mechanism: Mechanism, names: tuple[str, ...]) -> tuple[Tier, ...]:
    """The public tiers of clients where the release goes by them; none where it does not."""
    return tiers_of(mechanism, names) if mechanism.release.tiered else ()


def residue_bits(mechanism: Mechanism) -> int:
    """Bits of the power of two whose residues a placement adds. Raises: ProtocolError when the encoder gives others."""
    if mechanism.encode.residue_bits is None:
        raise ProtocolError(f"this placement adds residues of a power of two, not encode = {mechanism.encode.use!r}")
    return mechanism.encode.residue_bits


def once(seed: bytes, given: Given) -> Coins:
    """The node of a long-lived secret for one attempt of one round, bound to who was invited: used for one sum."""
    bound = ("run", given.run, "round", given.round, "attempt", given.attempt)
    return Coins(seed).child(*bound, roster_digest(given.roster))


def read_released(
    mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, body: Mapping[str, Tensor], ids: bool
) -> Released:
    """What the server got. Raises: IntegrityError when buckets are not those that public rules give."""
    present, release = chosen(roster, body["present"]), mechanism.release
    release.verify(body, release_tiers(mechanism, present))
    beside = {f.name: body[f.name] for f in mechanism.encode.luggage()}
    beside |= {name: body[name] for name in ("total", "distances") if name in body}
    own = present if ids else None
    sizes, by_size = body.get("sizes"), release.by_size
    return Released(present, body.get("rows"), body.get("sums"), beside, own, layout, sizes, by_size)
