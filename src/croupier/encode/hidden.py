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
NEWCOMERS = {
    "epoch": "when clients are enrolled later, all agree on a new secret, and clients that hold both move the models "
    "to it: newcomers are told no earlier secret. But such a model is seen in both coordinates: whoever matches the "
    "two, the server or a newcomer that sees earlier uploads, links the epochs",
    "welcome": "clients that are enrolled later are told the epoch's secret, sealed, by its holders: they can open "
    "every earlier round of the epoch, should they see its uploads, and so can anybody whom they tell",
}


class HiddenUnits(Floats, use="hidden-units"):
    """Floats, of which hidden units and inputs are permuted by a rule that clients agree on and the server never sees.

    Every round has a rule of its own, derived from the epoch's secret, unless one is `kept` for the whole epoch: then
    what the server remembers stays valid, and more of its views lie in the same coordinates. `first`: the first model
    is drawn by the `clients` from their secret and handed to the server permuted, or is the server's, in the `open`.
    `agree`: all enrolled clients agree once for an `epoch`, or those invited agree anew every `round`, as the paper has
    it. `by`: on a secret that nobody chooses (`joint`), or on a head's by PBFT. Agreed on every round, a model lies
    under a rule that only an earlier round's clients know: `fetch` says who hands it on to the rest, those of them in
    this `cohort` or `anyone` of them. A round of which nobody can open the model is lost.
    `newcomers`: when clients are enrolled later, all agree on a new `epoch` and move the models there, or the newcomers
    are told the secret of the one that goes on (`welcome`). With `samples` each upload takes along one record of the
    client's own, its values permuted as the round's rule permutes inputs.
    From: Tazza section 5.3, along symmetries that leave the network what it is.
    """

    agrees: ClassVar[bool] = True

    kept: bool = False
    first: Literal["clients", "open"] = "clients"
    agree: Literal["epoch", "round"] = "epoch"
    by: Literal["joint", "pbft"] = "joint"
    fetch: Literal["cohort", "anyone"] = "cohort"
    newcomers: Literal["epoch", "welcome"] = "epoch"
    samples: bool = False

    @model_validator(mode="after")
    def _agreed(self) -> Self:
        if self.agree == "round" and self.kept:
            raise SpecError(
                "protocol.encode.kept = true with agree = 'round': a rule that is agreed on every round is not kept; "
                "use agree = 'epoch', or kept = false"
            )
        if self.newcomers == "welcome" and self.agree == "round":
            raise SpecError(
                "protocol.encode.newcomers = 'welcome' with agree = 'round': there is no epoch to be welcomed into, "
                "and who is invited agrees like everybody else; use agree = 'epoch', or leave it out"
            )
        if self.by == "pbft" and self.agree == "epoch":
            raise SpecError(
                "protocol.encode.by = 'pbft' with agree = 'epoch': PBFT decides without some, who might go on with an "
                "older secret; use agree = 'round', or by = 'joint'"
            )
        if self.fetch == "anyone" and self.agree == "epoch":
            raise SpecError(
                "protocol.encode.fetch = 'anyone' with agree = 'epoch': everybody holds an epoch's secret already; use "
                "agree = 'round', or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _moves(self) -> Self:
        if self.form == "delta" and not self.kept:
            raise SpecError(
                "protocol.encode.form = 'delta': a difference under this round's rule cannot be added to a model under "
                "the last one's; use form = 'weights', or kept = true"
            )
        return self

    def luggage(self, inputs: tuple[int, ...] = ()) -> tuple[wire.Field, ...]:
        """In whose coordinates an update lies, and a record in the same."""
        sample = (wire.Field("sample", "<f4", inputs),) if self.samples else ()
        return (*super().luggage(), frame_field(), *sample)

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """The vector, its frame, and the record that goes along."""
        payload = super().encode(update, brief, coins)
        beside = {"frame": frame_tensor(update.frame)}
        beside |= {"sample": update.luggage["sample"]} if self.samples else {}
        return Payload(payload.vector, {**payload.luggage, **beside}, payload.noted)

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
            frame=first, form=got.form, samples=released.luggage["sample"][kept] if self.samples else None,
        )  # fmt: skip

    def says(self) -> tuple[str, ...]:
        """What is permuted, and by what."""
        rule = "one rule for the whole epoch, which is weaker" if self.kept else "another rule every round"
        who = "all enrolled clients" if self.agree == "epoch" else "the clients of each round"
        return (
            *super().says(),
            f"hidden units and inputs are permuted along the network's symmetries, by {rule}, that {who} agree on and "
            "the server never sees",
            *self._agreement(),
            *self._sampled(),
        )

    def _sampled(self) -> tuple[str, ...]:
        """What a record that goes along tells."""
        if not self.samples:
            return ()
        return (
            "with each update the server gets one record of that client, every round it takes part: its values in "
            "another order. Sorted values, mean and contrast are in the clear, and so is the class that any model "
            "gives it; all records of a round are in the same order, so that smoothness and co-occurrence put them "
            "back (croupier reproduce tazza/figure18 measures how far), and a rule that is matched or told opens them. "
            "No noise covers them. Probes of noise need none of this",
        )

    def _agreement(self) -> tuple[str, ...]:
        """What it means that those invited agree anew every round, or for those who are enrolled later."""
        if self.agree == "epoch":
            return (NEWCOMERS[self.newcomers],)
        chosen = (
            "a seed that its head draws, by PBFT: of those invited fewer than a third may be faulty or absent, and a "
            "head that tells the server its seed, or takes one that the server knows, is not found out"
            if self.by == "pbft"
            else "a joint secret, which nobody chooses"
        )
        asked = (
            "those of this cohort who took part in it hand it on to the others, and a round that has none of them is "
            "lost and counted: the model stays"
            if self.fetch == "cohort"
            else "where nobody of this cohort took part in it, any client that did is asked for it, and must be there "
            "to answer; if none is, the round is lost and counted"
        )
        return (
            f"the clients of every round agree on {chosen}. The last model lies under the rule of an earlier round: "
            f"{asked}. Whoever is handed a rule can open that round's uploads, should it see them",
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
                "one client that tells the secret opens every round of the epoch, earlier ones too, every client's "
                "updates, and by matching the other epochs; nobody notices"
                if self.agree == "epoch"
                else "one client that tells the secrets it holds opens the rounds of these, and matching the others; "
                "nobody notices"
            ),
            "instead": (
                "for updates that the server must not see use sum servers (croupier run rns-servers --print-config "
                "shows such a protocol): they need no permutation, and allow no rule that compares updates"
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
