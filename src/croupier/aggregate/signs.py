"""The step of RAIN: along the weighted votes of the rows that lie near a trusted reference direction.

The server's side of RAIN: it makes the reference from its root records, commits to it before clients train, shows it
once rows are fixed (`late`), and moves the model by what `release.scored` lets out. The weights of the rows are not its
to choose: the rule for them is in the release. Presets `rain` and `rain-honest`, and `systems.rain`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.core import wire
from croupier.core.flow import Memory
from croupier.core.update import Form, Gathered, Layout, Model
from croupier.encode.encoder import Brief
from croupier.encode.signs import NONCE, bits_field, bits_of, commitment, reference_fields
from croupier.errors import ProtocolError


class SignTrust(Aggregator, use="sign-trust"):
    """The model moves by `lr` times the weighted mean of the accepted signs, or, with `output` "sign", times its sign.

    The reference is the sign of what the server's own root data teach (`reference` "root"), or the sign of the last
    step's votes, ties counted as up ("last", once a step was taken; until then as "root"). `shown` "late" commits to it
    before the clients train and shows it to those who compute the release once all updates are fixed; "public" shows it
    to everybody at once as well, so that a client can copy it. When no row is accepted the model stays, or follows what
    the root data teach (`empty`).

    From: RAIN, equations 9 to 12; `reference` "last" is the next direction of its Algorithm 2. Not as printed: the late
    reference.
    """

    forms: ClassVar[frozenset[Form]] = frozenset({"delta"})
    scores: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"root"})

    lr: float = Field(
        0.0005,
        gt=0,
        description="how far a weight moves in a round at most; tuned for 300 rounds by `croupier reproduce "
        "rain/rate`, fewer rounds need more",
    )
    output: Literal["mean", "sign"] = Field(
        "mean", description="a step along the `mean` of the accepted signs, or its `sign`; a tie does not move"
    )
    reference: Literal["root", "last"] = Field(
        "root",
        description="what the server's own records teach (`root`, needs `task.root.records`), or the sign of the "
        "`last` step, from round two",
    )
    shown: Literal["late", "public"] = Field(
        "late",
        description="when the reference is shown: `late`, once all updates are fixed, or `public` at once, so that "
        "clients can copy it",
    )
    empty: Literal["stay", "reference"] = Field(
        "stay",
        description="where no row is accepted the model stays (`stay`) or follows the server's own records "
        "(`reference`)",
    )

    @property
    def divides(self) -> bool:
        """Whether it divides the votes by their weight: with output = 'mean'."""
        return self.output == "mean"

    def public(self, layout: Layout) -> tuple[wire.Field, ...]:
        """A commitment to the reference, and the reference itself where all may know it."""
        beside = (bits_field("reference", layout.size),) if self.shown == "public" else ()
        return (wire.Field("commitment", "|u1", (32,)), *beside)

    def late(self, layout: Layout) -> tuple[wire.Field, ...]:
        """The reference, and what opens its commitment."""
        return reference_fields(layout.size)

    def brief(self, desk: Desk, memory: Memory) -> Brief:
        """The reference of a round, with its commitment. Raises: ProtocolError without root data."""
        bits = memory["last"] if self.reference == "last" and "last" in memory else self._taught(desk)
        nonce = desk.coins.child("nonce").secure().bytes(NONCE)
        opening = torch.frombuffer(nonce, dtype=torch.uint8)
        return {"reference": bits, "nonce": opening, "commitment": commitment(bits, opening)}

    def _taught(self, desk: Desk) -> Tensor:
        if desk.fit is None:
            raise ProtocolError("aggregate = 'sign-trust' needs root data; set task.root.records, 100 for example")
        start = desk.models[0].vector
        bits, _ = bits_of(desk.fit(start, desk.coins.child("root")) - start, desk.coins.child("ties"))
        return bits

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """The next model, and the memory: how many rounds had no accepted row, and the last direction if it is used."""
        if gathered.sums is None or gathered.weights is None:
            raise ProtocolError("aggregate = 'sign-trust' takes scored sums; use release = 'scored'")
        start, total = desk.models[0], int(gathered.weights.sum())
        votes = gathered.sums.double()
        after = {**memory, "empty": int(memory.get("empty", 0)) + (total == 0)}
        if total == 0 and self.empty == "reference":
            votes, total = 2.0 * self._taught(desk).double() - 1.0, 1
        if total == 0:
            return (Model(start.vector, gathered.frame),), after
        step = votes.sign() if self.output == "sign" else votes / total
        if self.reference == "last":
            after["last"] = (votes >= 0).to(torch.uint8)
        moved = start.vector.double() + self.lr * step
        return (Model(moved.float(), gathered.frame),), after

    def tolerates(self) -> str:
        """What follows from the rule alone."""
        copied = (
            "the reference is public, or follows from what is: rows that copy it all but for coordinates of their "
            "choice are accepted, however many they are"
            if self.shown == "public" or self.reference == "last"
            else "the reference is shown only after all updates are fixed, so that no row of a round can copy it; the "
            "one of the round before, which attackers can guess from models, may still lie near"
        )
        return (
            "only that every accepted row lies within the threshold of the reference, and the mean of their signs with "
            f"it: the step is no better than the reference in the worst case, and {copied}. Rows farther from the "
            "reference than honest ones (random or flipped signs) are turned away while the threshold is set by honest "
            "rows. Beyond half of the clients nothing is claimed without trust in the root data"
        )
