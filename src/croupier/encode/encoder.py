"""Encoders: how an update becomes coordinates on the wire, and how the server reads what was released.

An encoder may need more of a run than that: something that clients agree on before a round, a part of the client's flow
when it gets a model or sends an update, words in the statement. It says so by its hooks, which do nothing by default;
the round loop (`engine.loop`), the pipeline, the placements and the statement call them and know no encoder by name.

A pipeline asks its encoder which form it sends (weights or differences), how rows are weighed, and modulo what sums are
taken, and refuses releases and aggregators that do not fit. A coordinate of what is sent is also called a slot here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Coins, Node
from croupier.core.flow import Given, Memory, SubFlow
from croupier.core.part import Part
from croupier.core.update import NO_LUGGAGE, Form, Gathered, Layout, Model, Modulus, Update
from croupier.errors import ProtocolError, SpecError

if TYPE_CHECKING:
    from croupier.agree.before_round import AgreementRules, AgreementSetting
    from croupier.agree.epochs import Epochs
    from croupier.encode.residues import Counted

# What the server hands out besides the model, by name (a scale, a reference): see `aggregate.aggregator`.
Brief = Mapping[str, Tensor]
Weights = Literal["uniform", "open", "slot"]


@dataclass(frozen=True)
class Payload:
    """What leaves a client (the vector, and luggage beside it), and what the client notes for itself.

    `noted` (clamped values and the like) stays at home: it depends on private data.
    """

    vector: Tensor = field(repr=False)
    luggage: Mapping[str, Tensor] = field(default_factory=lambda: NO_LUGGAGE, repr=False)
    noted: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Released:
    """What a release let out: rows or sums, who was present, and luggage, where nothing is hidden or votes are counted.

    `layout` is needed where coordinates are not all treated alike. `sizes` says how many clients each row is a sum of,
    and `by_size` whether it counts for as many.
    """

    present: tuple[str, ...]
    rows: Tensor | None = None
    sums: Tensor | None = None
    luggage: Mapping[str, Tensor] = field(default_factory=lambda: NO_LUGGAGE)
    ids: tuple[str, ...] | None = None
    layout: Layout | None = None
    sizes: Tensor | None = None
    by_size: bool = False


@dataclass(frozen=True)
class PublicGrid:
    """Where values are rounded to: multiples of `step` up to `edge`, sums of so many clients modulo `modulus`."""

    step: float
    edge: float
    modulus: int
    clients: int


class Encoder(Part):
    """How an update becomes coordinates.

    `encode` runs at the client, `decode` at the server, `receive` and `send` within the client's flow of a round.
    `weights`: `uniform` counts every client alike; `open` sends the number of records beside the row, in the clear;
    `slot` multiplies the update by records / cap and sends that factor as one more coordinate, released like the rest.
    """

    verb: ClassVar[str] = "encode"
    lies_in: ClassVar[str] = "croupier.encode"
    # Whether clients must agree on a secret, once before the first round or again before later ones.
    agrees: ClassVar[bool] = False
    # Whether coordinates are bare signs, one bit each, which belong together as whole rows and have no size.
    signs_only: ClassVar[bool] = False
    # Whether coordinates are the update's own numbers, each in its place, or (with weights = "slot") these times a
    # factor that the row itself tells, rounded once more.
    verbatim: ClassVar[bool] = False

    form: Form = Field(
        "weights", description="send trained `weights`, or their difference to the model that was handed out (`delta`)"
    )
    weights: Weights = Field(
        "uniform",
        description="what clients count for: `uniform`: alike; `open`: by records, sent in the clear; `slot`: by one "
        "more released coordinate",
    )
    cap: int | None = Field(None, ge=1, description="with `weights = 'slot'`: most records that a client may count for")

    @model_validator(mode="after")
    def _cap_fits(self) -> Self:
        if (self.weights == "slot") != (self.cap is not None):
            raise SpecError(
                f"protocol.encode.cap = {self.cap} with weights = {self.weights!r}: weights = 'slot' needs it (set "
                "protocol.encode.cap to the largest number of records a client may count for), and nothing else does"
            )
        return self

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The type of a coordinate on the wire."""

    @property
    def modulus(self) -> Modulus:
        """What sums are taken modulo; None where coordinates are not residues."""
        return None

    @property
    def residue_bits(self) -> int | None:
        """Bits of the power of two that coordinates are residues of, so that shares of them add up; None without."""
        return None

    def signed(self, residues: Tensor) -> Tensor:
        """The integers that such residues stand for. Raises: ProtocolError where coordinates are no residues."""
        raise ProtocolError(f"encode = {self.use!r} gives no residues of a power of two")

    @property
    def unary(self) -> bool:
        """Whether coordinates are residues in unary, as bits."""
        return isinstance(self.modulus, tuple)

    @property
    def scaled(self) -> bool:
        """Whether rows arrive multiplied by their weight."""
        return self.weights == "slot"

    def slots(self, layout: Layout) -> int:
        """How many coordinates travel for a vector of this layout."""
        return layout.size + self.scaled

    def field(self, layout: Layout) -> wire.Field:
        """The vector as it leaves a client."""
        return wire.Field("vector", self.dtype, (self.slots(layout),), share_last=self.scaled)

    def luggage(self, inputs: tuple[int, ...] = ()) -> tuple[wire.Field, ...]:
        """What travels beside a row; `inputs` is the shape of a record."""
        return (wire.Field("weight", "<f8", (1,), positive=True),) if self.weights == "open" else ()

    @abstractmethod
    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """What the client sends."""

    @abstractmethod
    def decode(self, released: Released, brief: Brief) -> Gathered:
        """What the server makes of what was released."""

    def decode_apart(self, released: Released, brief: Brief) -> Gathered:
        """The same for audits, where rows need be nobody's update, nor add up to one: shares, or single residues."""
        return self.decode(released, brief)

    def counted(self, released: Released, brief: Brief) -> Counted | None:
        """The ones that were counted for every parameter's sum, for an audit; None where none were counted so."""
        return None

    def public_grid(self) -> PublicGrid | None:
        """The grid that values are rounded to, to the nearest point of it; None where there is none."""
        return None

    @property
    def rules(self) -> AgreementRules | None:
        """What clients agree on before rounds, and how; None where nothing has to be agreed on."""
        return None

    @property
    def clients_start(self) -> bool:
        """Whether the clients draw the first model, so that the server has none before the first round."""
        return False

    @property
    def every_round(self) -> bool:
        """Whether those invited agree on something anew before every round."""
        return False

    @property
    def keeps_rule(self) -> bool:
        """Whether one secret order of coordinates, agreed on by the clients, serves all rounds of an epoch."""
        return False

    @property
    def sends_records(self) -> bool:
        """Whether a record of the client's own travels beside each update."""
        return False

    def beside_model(self, model: Model) -> dict[str, Tensor]:
        """What the server hands out beside a model, in the fields of `beside_model_fields`."""
        return {}

    def beside_model_fields(self) -> tuple[wire.Field, ...]:
        """What travels beside a model that is handed out."""
        return ()

    def before_rounds(self, setting: AgreementSetting) -> Epochs | None:
        """Who makes the clients ready for each round; None where nothing has to be agreed on."""
        return None

    def receive(self, given: Given, memory: Memory, vector: Tensor, beside: Brief) -> SubFlow:
        """A client's part when it is handed a model: the vector that it trains from."""
        yield from ()
        return vector

    def send(self, given: Given, memory: Memory, update: Update, coins: Coins) -> SubFlow:
        """A client's part before it encodes: the update that is encoded, and what to remember."""
        yield from ()
        return update, {}

    def misfits(self, mechanism: Any) -> Iterator[str]:
        """What keeps this encoder from working with the other parts of a pipeline, in words with a remedy."""
        rule = mechanism.aggregate
        if "samples" in rule.asks and not self.sends_records:
            yield (
                f"aggregate = {rule.use!r} asks about clients' own records, and encode = {self.use!r} sends none; use "
                "encode = {use='hidden-units', samples=true}, or probes_from = 'noise'"
            )
        if "samples" not in rule.asks and self.sends_records:
            yield (
                f"encode = {self.use!r} with samples = true sends records that aggregate = {rule.use!r} does not look "
                "at; use samples = false, or aggregate = {use='clusters', probes_from='samples'}"
            )

    def check_plan(self, enrolled: int, cohort: int, joins: bool, rule: Any) -> None:
        """Raises: SpecError when so many clients, or clients that join later, do not fit this encoder and its rule."""

    def server_learns(self) -> str:
        """What the server learns besides, as the end of a sentence of the statement."""
        return ""

    def claims_none(self) -> str:
        """Why no differential privacy is claimed whatever the other parts say; empty where they may speak."""
        return ""

    def meets(self, enrolled: int, invited: int, by_name: bool) -> tuple[str, ...]:
        """Lines of the statement where so many clients are enrolled, and so many of them invited to a round.

        `by_name`: the aggregation tells clients apart.
        """
        return ()

    def waits_for(self) -> str:
        """Whom a run waits for beyond those for whom the placement does; empty where nobody."""
        return ""

    def says(self) -> tuple[str, ...]:
        """Lines of the statement: losses and what travels in the clear."""
        how = {
            "uniform": "every client counts alike; numbers of records are not sent",
            "open": "each client's number of records is sent in the clear beside its update",
            "slot": f"each client's number of records (up to {self.cap}) travels as one more released coordinate",
        }
        return (how[self.weights],)

    def warns(self) -> Mapping[str, str]:
        """Lines of the statement with a head of their own: what one might think it gives, and does not."""
        return {}

    def _factor(self, update: Update) -> tuple[float, int]:
        """records / cap, and whether the client's records were more than the cap lets count."""
        if self.cap is None:
            return 1.0, 0
        count = float(update.luggage["weight"][0])
        return min(count / self.cap, 1.0), int(count > self.cap)


def row_weights(encoder: Encoder, released: Released) -> Tensor:
    """One weight a row, for rows that came with theirs beside them or all count alike."""
    count = len(released.present)
    return released.luggage["weight"][:, 0] if encoder.weights == "open" else torch.ones(count, dtype=torch.float64)
