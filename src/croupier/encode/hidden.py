"""Tazza's encoding: weights in coordinates that only the clients know, permuted along the network's own symmetries.

The client's part of a round changes with it: before training the model is put back into plain order, and the trained
weights are permuted before they leave. Both are work that the driver does (`encode.permuting`), because only whoever
trains has the network. Rules come from what clients agreed on (`agree`); the server sees frames, which say whether two
uploads lie in one order and nothing about it. Presets `tazza` and `tazza-mnist` use it; `encode.hidden_words` holds its
sentences of the statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from croupier.agree.agreement import LEAST
from croupier.agree.before_round import AgreementRules, AgreementSetting
from croupier.agree.coordinates import permuted, plainly, shown
from croupier.agree.epochs import Epochs
from croupier.agree.standing import Standing
from croupier.core import wire
from croupier.core.coins import Coins, Node
from croupier.core.epoch import Frame, frame_field, frame_tensor
from croupier.core.flow import Given, Memory, SubFlow, Work
from croupier.core.update import Gathered, Model, Update
from croupier.encode import hidden_words as words
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError


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
    This is Tazza's section 5.3, along symmetries that leave the network what it is.
    """

    agrees: ClassVar[bool] = True
    verbatim: ClassVar[bool] = False

    kept: bool = Field(
        False,
        description="one rule for the whole epoch instead of one a round: weaker, and what rules that remember need",
    )
    first: Literal["clients", "open"] = Field(
        "clients",
        description="the first model is drawn by the `clients` from their secret, or is the server's, in the `open`",
    )
    agree: Literal["epoch", "round"] = Field(
        "epoch",
        description="on one secret before the first round (`epoch`), or anew every `round` among those invited, as "
        "the paper has it",
    )
    by: Literal["joint", "pbft"] = Field(
        "joint",
        description="a `joint` secret that nobody chooses, or, with `agree = 'round'`, a head's seed by `pbft`; four "
        "clients at least",
    )
    fetch: Literal["cohort", "anyone"] = Field(
        "cohort",
        description="with `agree = 'round'`, who hands on the last rule: earlier clients of this `cohort`, or, "
        "failing these, `anyone`",
    )
    newcomers: Literal["epoch", "welcome"] = Field(
        "epoch",
        description="after `federation.joins`: all agree on a new secret (`epoch`), or newcomers are told the old one "
        "(`welcome`)",
    )
    samples: bool = Field(
        False,
        description="each upload takes along one record of the client's own, in the rule's order of inputs, every "
        "round",
    )

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

    @property
    def rules(self) -> AgreementRules:
        """What clients agree on, and how."""
        return AgreementRules(self.agree, self.by, self.fetch, self.newcomers, self.kept)

    @property
    def clients_start(self) -> bool:
        """With first = 'clients'."""
        return self.first == "clients"

    @property
    def every_round(self) -> bool:
        """With agree = 'round'."""
        return self.agree == "round"

    @property
    def keeps_rule(self) -> bool:
        """With kept = true."""
        return self.kept

    @property
    def sends_records(self) -> bool:
        """With samples = true."""
        return self.samples

    def beside_model(self, model: Model) -> dict[str, Tensor]:
        """In whose coordinates the model lies."""
        return {"frame": frame_tensor(model.frame)}

    def beside_model_fields(self) -> tuple[wire.Field, ...]:
        """The frame."""
        return (frame_field(),)

    def before_rounds(self, setting: AgreementSetting) -> Epochs | None:
        """Clients agree on a secret, for an epoch or a round."""
        return Epochs.of(self.rules, setting)

    def receive(self, given: Given, memory: Memory, vector: Tensor, beside: Brief) -> SubFlow:
        """The model in plain coordinates."""
        return (yield from plainly(given, Standing.of(memory), vector, beside["frame"], self.first))

    def send(self, given: Given, memory: Memory, update: Update, coins: Coins) -> SubFlow:
        """The update under the round's rule, and a record with it where one is sent."""
        standing = Standing.of(memory)
        if self.samples:
            record = yield Work("sample", (given.shard, coins.child("sample")))
            sample = yield from shown(given, standing, record, self.kept)
            update = replace(update, luggage={**update.luggage, "sample": sample})
        update, standing = yield from permuted(given, standing, update, self.kept)
        return update, {"standing": standing.plain()}

    def misfits(self, mechanism: Any) -> Iterator[str]:
        """What cannot be done in coordinates that the server does not know."""
        mine, rule = f"encode = {self.use!r}", mechanism.aggregate
        if mechanism.release.hides:
            yield (
                f"{mine} permutes updates that the server sees, each with its frame, and release = "
                f"{mechanism.release.use!r} hides them; use release = 'rows', or encode = 'fixed' and no permutation"
            )
        if {"root", "forward"} & rule.asks:
            yield (
                f"aggregate = {rule.use!r} compares updates with the server's own training, which is in plain "
                f"coordinates where {mine} is not; use aggregate = 'clusters'"
            )
        if self.samples and not mechanism.privacy.noiseless:
            yield (
                f"{mine} with samples = true sends records that no noise covers, so that privacy = "
                f"{mechanism.privacy.use!r} would claim what is not so; use samples = false, or privacy = 'none'"
            )
        if self.first == "open" and (self.form == "delta" or not rule.anew):
            yield (
                f"{mine} with first = 'open' hands out a first model in plain coordinates, and aggregate = "
                f"{rule.use!r} would add to it what lies in the clients' (form = {self.form!r}); use first = 'clients'"
            )
        if not self.kept and not rule.anew:
            yield (
                f"aggregate = {rule.use!r} needs the last model, or a state of its own, in the coordinates of this "
                f"round, and {mine} changes them every round; use kept = true, which is weaker, or a plain mean"
            )
        yield from super().misfits(mechanism)

    def check_plan(self, enrolled: int, cohort: int, joins: bool, rule: Any) -> None:
        """Raises: SpecError when an aggregator remembers what newcomers would change, or too few would agree."""
        if joins and self.newcomers == "epoch" and not rule.anew:
            raise SpecError(
                f"federation.joins: protocol.aggregate = {rule.use!r} remembers something in the epoch's coordinates, "
                "and newcomers start a new one; use protocol.encode.newcomers = 'welcome'"
            )
        many, key = (cohort, "federation.cohort: invite") if self.every_round else (enrolled, "enrol")
        if many < LEAST:
            raise SpecError(
                f"protocol.encode.agree = {self.agree!r}, by = {self.by!r}: {many} clients would agree on a rule, and "
                f"among fewer than {LEAST} no faulty one can be outvoted; {key} at least {LEAST}"
            )

    def server_learns(self) -> str:
        """The records, where they are sent."""
        return "one record of each client every round, its values in another order" if self.samples else ""

    def claims_none(self) -> str:
        """Where records are sent."""
        if not self.samples:
            return ""
        return (
            "no differential privacy is claimed, for records or for clients: one record of each client travels beside "
            "its update, with its values as they are"
        )

    def meets(self, enrolled: int, invited: int, by_name: bool) -> tuple[str, ...]:
        """How often nobody who is invited knows the last rule, where clients agree on one every round."""
        return words.lost_rounds(self.rules, enrolled, invited, by_name) if self.every_round else ()

    def waits_for(self) -> str:
        """Those who have to agree."""
        return words.waits_for(self.rules)

    def says(self) -> tuple[str, ...]:
        """What is permuted, and by what."""
        return (*super().says(), *words.permuted(self.rules), *(words.RECORDS if self.samples else ()))

    def warns(self) -> dict[str, str]:
        """What the permutation is worth: where the server is curious, nothing to rely on."""
        return words.warnings(self.rules, self.first)
