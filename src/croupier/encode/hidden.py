"""Tazza's encoding: weights in coordinates that only the clients know, permuted along the network's own symmetries."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.epoch import Frame
from croupier.core.update import Gathered, Update
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError

FRAME = 40


class HiddenUnits(Floats, use="hidden-units"):
    """Floats, of which hidden units and inputs are permuted by a rule that clients agree on and the server never sees.

    Every round has a rule of its own, derived from the epoch's secret, unless one is `kept` for the whole epoch: then
    what the server remembers stays valid, and more of its views lie in the same coordinates. `first`: the first model
    is drawn by the `clients` from their secret and handed to the server permuted, or is the server's, in the `open`.
    From: Tazza section 5.3, along symmetries that leave the network what it is.
    """

    agrees: ClassVar[bool] = True

    kept: bool = False
    first: Literal["clients", "open"] = "clients"

    @model_validator(mode="after")
    def _moves(self) -> Self:
        if self.form == "delta" and not self.kept:
            raise SpecError(
                "protocol.encode.form = 'delta': a difference under this round's rule cannot be added to a model under "
                "the last one's; use form = 'weights', or kept = true"
            )
        return self

    def luggage(self) -> tuple[wire.Field, ...]:
        """In whose coordinates an update lies."""
        return (*super().luggage(), frame_field())

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """The vector, and its frame."""
        payload = super().encode(update, brief, coins)
        return Payload(payload.vector, {**payload.luggage, "frame": frame_tensor(update.frame)}, payload.noted)

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """The rows of the frame that most updates lie in; updates of another cannot be added to them, and are left out.

        Raises: ProtocolError when two frames are as frequent.
        """
        frames = [bytes(row.tolist()) for row in released.luggage["frame"]]
        (first, most), *others = Counter(frames).most_common()
        if others and others[0][1] == most:
            raise ProtocolError(
                f"{most} updates are in {Frame.unpack(first)} and as many in {Frame.unpack(others[0][0])}: they may "
                "not be mixed, and neither is the clients' for certain"
            )
        kept = [at for at, frame in enumerate(frames) if frame == first]
        got = super().decode(released, brief)
        if got.rows is None or got.weights is None:
            raise ProtocolError("permuted updates arrive as rows")
        names = tuple(released.present[at] for at in kept)
        return Gathered(
            names, got.rows[kept], weights=got.weights[kept], scaled=got.scaled, ids=None if got.ids is None else names,
            frame=first, form=got.form,
        )  # fmt: skip

    def says(self) -> tuple[str, ...]:
        """What is permuted, and by what."""
        rule = "one rule for the whole epoch, which is weaker" if self.kept else "another rule every round"
        return (
            *super().says(),
            f"hidden units and inputs are permuted along the network's symmetries, by {rule}, that all enrolled "
            "clients agree on and the server never sees",
        )

    def warns(self) -> dict[str, str]:
        """What the permutation is worth: where the server is curious, nothing to rely on."""
        once = "once for the epoch, because all uploads lie in one order" if self.kept else "round by round"
        found = {
            "open": (
                f"the server has the first model in plain order, so it can find the rule {once}, for all clients "
                "alike: what it holds is then what it would hold without a permutation"
            ),
            "clients": (
                f"the clients draw the first model, so no view is in plain order. The server can bring all uploads "
                f"into one order, {once}, and read gradients in it. Which unit or input is which stays unknown, but "
                "for what the data tell: of pictures public ones of the same kind tell much"
            ),
        }[self.first]
        return {
            "permutation": (
                "obfuscation, not encryption. Under every rule the values of a row are the same, and so are norms and "
                "singular values: each unit keeps its own mark"
            ),
            "matching": (
                "weights of an upload are matched with those of the model that was handed out, by one assignment a "
                f"layer and no search among orders. Here {found}. Measured by: croupier audit"
            ),
            "a leak": (
                "one client that tells the secret opens every round of the epoch, earlier ones too, and every client's "
                "updates; nobody notices"
            ),
            "instead": (
                "for updates that the server must not see use place = 'sum-servers' with encode = 'fixed' and release "
                "= 'sum': it needs no permutation, and rules that compare updates cannot be had with it"
            ),
        }


def frame_field() -> wire.Field:
    """A frame on the wire; all zeros where coordinates are plain."""
    return wire.Field("frame", "|u1", (FRAME,))


def frame_tensor(frame: bytes) -> Tensor:
    """A frame as it travels."""
    return torch.frombuffer(bytearray(frame or bytes(FRAME)), dtype=torch.uint8)


def frame_of(values: Tensor) -> Frame | None:
    """A frame as it came; None where coordinates are plain."""
    data = bytes(values.tolist())
    return Frame.unpack(data) if any(data) else None
