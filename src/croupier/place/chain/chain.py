"""A mix network: servers in a chain permute what they cannot read; in most forms one honest one suffices.

The source-inference paper (RNS) has such a chain in its Algorithms 8 and 9. As printed, a bit in an onion of its own
grows two thousand times, and keys shared with single clients tell the second server whose bit it is. So servers here
move shares of rows, boxes with whole rows or encrypted bits, or one that is trusted reads updates: `trust`, `shuffle`
and `threshold` pick one of six forms (`form`). Any release that only moves what clients sent can be computed
(`Release.permutes`); mechanism, encoding and aggregation do not change. The presets `rns-chain`, `rns-chain-proofs` and
`intra-chain` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.flow import Given, Inbox, Party, SubFlow
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Brief, Payload, Released
from croupier.errors import ProtocolError, SpecError
from croupier.place.chain.boxes import Boxes
from croupier.place.chain.dealt import Dealt
from croupier.place.chain.escrowed import Escrowed
from croupier.place.chain.form import DEALER, MixForm
from croupier.place.chain.pairs import Pairs
from croupier.place.chain.proven import Proven
from croupier.place.chain.table import MixTable
from croupier.place.chain.trusted import Trusted
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
)
from croupier.place.secrets import Need, Secrets
from croupier.place.witness import Witnesses
from croupier.release.release import Shape

_OFFLINE = "A client may be missing from a round, its mix server may not be"
# The share of numbers that is proven unless a description says another.
_SHARE = 1.0


class Chain(Placement, use="chain"):
    """`servers` parties, mix1, mix2, ..., that permute what they cannot read, one after the other."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"rows", "sums"})
    unary: ClassVar[bool] = True
    bystanders: ClassVar[tuple[str, ...]] = (DEALER,)

    trust: Literal["full", "semi-honest", "malicious"] = Field(
        "semi-honest",
        description="servers that follow the protocol and must not read updates (`semi-honest`); servers that prove "
        "what they do, bit by encrypted bit, for small models (`malicious`); or one, mix1, that may read updates "
        "(`full`), to which residues travel in binary",
    )
    shuffle: Literal["dealer", "pairs", "onion"] = Field(
        "dealer",
        description="with masks that a `dealer` deals; by `pairs` of three servers, of which no two may collude; or "
        "boxes within boxes (`onion`), for whole models only",
    )
    servers: int = Field(
        3, ge=2, le=16, description="how many servers mix, one after the other; 3 where `pairs` do, 1 with full trust"
    )
    smallest: int = Field(
        3, ge=2, description="fewest clients that are mixed, those who are assumed to collude not counted"
    )
    proven: float | None = Field(
        None,
        gt=0,
        le=1,
        description="with `trust = 'malicious'`, the share of the numbers for which every server proves that it only "
        "moved bits, drawn once all have mixed; all of them unless set",
    )
    colluders: int = Field(0, ge=0, description="so many clients are assumed to tell what they sent")
    clients_mix: bool = Field(
        False,
        description="every client runs a mix server, the first of the roster mix1 and so on, and has to trust that one "
        "alone; `servers` is then the number of clients, who are all invited every round",
    )
    threshold: int | None = Field(
        None,
        ge=2,
        description="with `onion`: so many live servers can finish a round that clients have receipts for, and so many "
        "colluding can read every update; all of them without it",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """What the servers are called."""
        return tuple(f"mix{number}" for number in range(1, (1 if self.trust == "full" else self.servers) + 1))

    @model_validator(mode="after")
    def _three(self) -> Self:
        if self.shuffle == "pairs" and self.servers != 3:
            raise SpecError(
                f"protocol.place.servers = {self.servers} with shuffle = 'pairs': each pair of three servers moves "
                "what the third cannot follow; use servers = 3, or shuffle = 'dealer'"
            )
        return self

    @model_validator(mode="after")
    def _own_servers(self) -> Self:
        if self.clients_mix and (self.trust == "full" or self.shuffle == "pairs"):
            given = "trust = 'full'" if self.trust == "full" else "shuffle = 'pairs'"
            raise SpecError(
                f"protocol.place.clients_mix = true with {given}: a client would have to trust servers of others; use "
                "shuffle = 'dealer' or 'onion'"
            )
        return self

    @model_validator(mode="after")
    def _escrow(self) -> Self:
        if self.threshold is None:
            return self
        if self.trust != "semi-honest" or self.shuffle != "onion":
            raise SpecError(
                f"protocol.place.threshold = {self.threshold}: only keys of boxes can be put together by other "
                "servers; use shuffle = 'onion', or leave threshold out"
            )
        if self.threshold >= self.servers:
            raise SpecError(
                f"protocol.place.threshold = {self.threshold} of {self.servers} servers: then none can be missing; use "
                f"2 to {self.servers - 1}, or leave threshold out"
            )
        return self

    @model_validator(mode="after")
    def _proving(self) -> Self:
        if self.trust == "malicious" and self.shuffle != "dealer":
            raise SpecError(
                f"protocol.place.shuffle = {self.shuffle!r} with trust = 'malicious': servers that prove what they do "
                "move encrypted bits and need neither pairs nor boxes; leave shuffle out"
            )
        if self.trust != "malicious" and self.proven is not None:
            raise SpecError(
                f"protocol.place.proven = {self.proven:g} with trust = {self.trust!r}: nothing is proven there; leave "
                "it out, or use trust = 'malicious'"
            )
        return self

    @property
    def form(self) -> MixForm:
        """The form that the options pick: how servers mix."""
        if self.trust == "malicious":
            return Proven(self.names, self.smallest + self.colluders, _SHARE if self.proven is None else self.proven)
        if self.trust == "full":
            return Trusted(self.names, self.smallest + self.colluders)
        if self.threshold is not None:
            return Escrowed(self.names, self.smallest + self.colluders, self.threshold)
        kind: Callable[[tuple[str, ...], int], MixForm] = {"dealer": Dealt, "pairs": Pairs, "onion": Boxes}[
            self.shuffle
        ]
        return kind(self.names, self.smallest + self.colluders)

    @property
    def tolerance(self) -> Tolerance:  # type: ignore[override]
        """As the form says, and for whom."""
        said = self.form.tolerance
        if not self.clients_mix:
            return said
        return replace(said, privacy=f"{self._own_server()}; {said.privacy}", liveness=f"{said.liveness}. {_OFFLINE}")

    def _own_server(self) -> str:
        """Whom a client has to trust that runs a mix server itself."""
        trusted = "its own mix server" if self.threshold is None else f"{self.servers - self.threshold + 1} mix servers"
        dealer = (
            ", and the dealer to side with nobody" if (self.trust, self.shuffle) == ("semi-honest", "dealer") else ""
        )
        return (
            f"each client runs a mix server and has to trust {trusted} alone{dealer}: all other clients, their mix "
            "servers and the server, colluding, learn of it what the release minus their own updates tells, and so "
            "everything where all others collude"
        )

    @property
    def needs(self) -> frozenset[Need]:
        """Keys for signatures: servers sign for clients."""
        return frozenset({"identity"})

    def holders(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """The clients, who must know the servers' keys, and the servers."""
        return (*clients, *self.names)

    def own_keys(self, me: str, own: Secrets) -> Keys:
        """Its own signature key, and everybody's public one."""
        return {"identity": own.identity, "public": dict(own.identities)}

    def misfits(self, mechanism: Mechanism) -> Iterator[str]:
        """Only what clients sent can be moved by who cannot read it, and nothing may travel beside it."""
        if self.trust == "full" and "ids" not in mechanism.release.hides:
            yield f"shuffles, and release = {mechanism.release.use!r} does not; use release = 'shuffle'"
        if self.trust == "malicious" and not mechanism.release.unary:
            yield (
                f"with trust = 'malicious' moves single bits, and release = {mechanism.release.use!r} moves rows; use "
                "release = 'bits' with encode = 'residues', or trust = 'semi-honest'"
            )
        if self.trust != "full" and self.shuffle == "onion" and mechanism.release.pieces != "model":
            yield (
                "with shuffle = 'onion' moves whole rows only, because every piece would need a box of its own; use "
                "release = 'shuffle' or 'buckets' with grain = 'model', or shuffle = 'dealer'"
            )
        if self.trust != "full" and not mechanism.release.permutes:
            yield (
                f"only moves what clients sent, and release = {mechanism.release.use!r} does more; use release = "
                "'shuffle', 'buckets' or 'bits', or place = 'relay' or 'sum-servers'"
            )
        if self.clients_mix and (most := getattr(mechanism.encode, "clients", None)) not in (None, self.servers):
            yield (
                f"with clients_mix = true has a mix server for each of {self.servers} clients, and encode = "
                f"{mechanism.encode.use!r} is for sums of {most}; set protocol.place.servers={most}"
            )
        if mechanism.encode.luggage():
            yield f"hides rows, and encode = {mechanism.encode.use!r} sends something beside them; use place = 'relay'"

    def check_plan(self, enrolled: int, cohort: int) -> None:
        """Raises: SpecError when some clients have no mix server of their own, or servers no client."""
        if self.clients_mix and not enrolled == cohort == self.servers:
            raise SpecError(
                f"protocol.place.servers = {self.servers} with clients_mix = true: {cohort} of {enrolled} clients are "
                f"invited, and each of them runs a mix server; set protocol.place.servers={enrolled} and invite "
                "everybody, from the start"
            )

    def check_size(self, mechanism: Mechanism, layout: Layout, clients: int) -> None:
        """Encrypted bits are dear. Raises: SpecError when they are too many, or their library is missing."""
        self.form.check_size(mechanism, layout, clients)

    def costs(self, mechanism: Mechanism, layout: Layout, clients: int) -> tuple[str, ...]:
        """What the form says that a round costs."""
        return self.form.costs(mechanism, layout, clients)

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers, and who else the form needs."""
        return self.form.middle(mechanism)

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """The form's messages."""
        return self.form.schemas(mechanism, given)

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Send what the form asks for, and check what the servers sign.

        Reveals: uniform bits, boxes or ciphertexts to mix servers; the whole update to the one that has full trust.

        Raises: IntegrityError when a server did not sign for what this client sent it; ProtocolError when this client
        is to run a mix server and there is none for it.
        """
        if self.clients_mix and len(given.roster) != self.servers:
            raise ProtocolError(
                f"protocol.place.servers = {self.servers} with clients_mix = true: {len(given.roster)} clients are "
                "invited, and each of them runs one"
            )
        yield from self.form.submit(mechanism, given, payload, keys, coins)

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """The server's part, as the form plays it."""
        return (yield from self.form.collect(mechanism, given, coins))

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """What came out of the chain."""
        return self.form.opened(MixTable(mechanism, roster, layout), inbox)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server the release, the others as the form says."""
        return {"server": f"{mechanism.release.reveals()}; and which clients took part", **self.form.learns()}

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """The form's coalitions, and what each reads."""
        return self.form.breaks

    def sight(self, mechanism: Mechanism, party: str) -> Sight:
        """What the form shows one of its parties."""
        return self.form.sight(party)

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """What parties that are to stay apart read together; of one server alone, what it sees."""
        given = next(iter(parties.values())).given
        return self.form.pooled(MixTable.of(mechanism, given), parties)
