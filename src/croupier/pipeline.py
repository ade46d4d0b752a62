"""A pipeline: five values that fit, and the two flows (client and server) they make together.

A combination that cannot work, or would not hide what its release should, is refused when it is built, with the part to
change. The flows are short: all that differs between protocols is in the parts. `engine.loop` and services drive them,
`statement` asks the parts what they reveal, and `tests/laws/pipelines.py` lists those that the laws are tested on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import pydantic
import torch
from pydantic import model_validator

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.mean import Mean
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Party, Wait, Work, roster_digest
from croupier.core.part import Part
from croupier.core.update import Model, Update, handed_out, meant_for
from croupier.core.wire import Field, Schema
from croupier.encode.encoder import Encoder
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.encode.signs import handed
from croupier.errors import SpecError
from croupier.place.direct import Direct
from croupier.place.labels import ANYBODY, labelled, unlabelled
from croupier.place.placement import Placement, ServerHoldings, unkeyed
from croupier.place.relay import Relay
from croupier.privacy.ledger import Ledger
from croupier.privacy.local import LocalPrivacy, NoNoise
from croupier.release.release import Release
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

_FOR_A_MODEL = Exchange(wait=Wait("model", ("server",)))

__all__ = ["Direct", "FixedPoint", "Floats", "Mean", "NoNoise", "Pipeline", "Relay", "Rows", "Shuffle", "Sum"]


class Pipeline(Part):
    """Privacy, encoding, release, aggregation and placement, checked against each other when built."""

    privacy: LocalPrivacy = pydantic.Field(NoNoise(), description="noise at the client")
    encode: Encoder = pydantic.Field(Floats(), description="how an update becomes numbers to send")
    release: Release = pydantic.Field(Rows(), description="what the server may learn of the updates")
    aggregate: Aggregator = pydantic.Field(Mean(), description="how the released becomes the next model")
    place: Placement = pydantic.Field(Direct(), description="which parties compute the release")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if wrong := next(self._misfits(), None):
            raise SpecError(f"protocol: {wrong}")
        return self

    def _misfits(self) -> Iterator[str]:
        """Every reason why the five parts do not fit together, each with a remedy; the first one is told.

        Parts say what they are and need (`unary`, `hides`, `needs`, ...); only here these are held against each other.
        """
        yield from self._bits_and_signs()
        yield from self._placing()
        yield from self._weighing()
        yield from self._aggregating()

    def _say(self, verb: str) -> str:
        """A part as a description writes it."""
        return f"{verb} = {getattr(self, verb).use!r}"

    def _bits_and_signs(self) -> Iterator[str]:
        """Coordinates that only some releases and rules can take."""
        encode, release, rule, place = self.encode, self.release, self.aggregate, self.place
        if release.unary != encode.unary:
            fitting = "encode = 'residues'" if release.unary else "release = 'mod', 'counts' or 'bits'"
            yield (
                f"{self._say('release')} and {self._say('encode')} do not fit: only one works on bits; use {fitting}"
            )
        if release.unary and not place.unary:
            yield (
                f"{self._say('place')} cannot compute {self._say('release')}, which works on bits; use place = "
                "'relay', or encode = 'fixed' and release = 'sum'"
            )
        if encode.signs_only and (release.shape == "sums" or release.grouped or not release.intact):
            yield (
                f"{self._say('encode')} gives bits of whole rows, which {self._say('release')} cannot take; use "
                "'scored'"
            )
        if release.shape == "scored" and not (encode.signs_only and rule.scores):
            yield f"{self._say('release')} takes encode = 'signs' and aggregate = 'sign-trust' only"
        if rule.scores and release.shape != "scored":
            yield f"{self._say('aggregate')} takes scored sums only; use release = 'scored'"
        if release.signs_only and rule.divides:
            yield (
                f"{self._say('release')} with opens = 'signs' does not tell how large the sum is, and "
                f"{self._say('aggregate')} with output = 'mean' divides it; use output = 'sign', or opens = 'sums'"
            )

    def _placing(self) -> Iterator[str]:
        """Who can compute the release, and what it hides."""
        encode, release, rule, place = self.encode, self.release, self.aggregate, self.place
        if release.shape not in place.realises:
            yield f"{self._say('place')} cannot compute {self._say('release')} ({release.shape}); use place = 'relay'"
        if release.hides and place.keeps_ids:
            yield (
                f"{self._say('place')} shows the server what {self._say('release')} should hide; use place = 'relay'"
            )
        if "ids" in rule.asks and "ids" in release.hides:
            yield f"{self._say('aggregate')} needs to know whose row is whose, and {self._say('release')} hides it"
        if (release.shape == "sums" or release.grouped) and encode.modulus is None:
            yield (
                f"{self._say('release')} adds integers only, and {self._say('encode')} gives floats; use encode = "
                "'fixed'"
            )

    def _weighing(self) -> Iterator[str]:
        """What clients count for, and what else encoder, placement and noise ask of the others."""
        encode, release = self.encode, self.release
        if release.hides and encode.weights == "open":
            yield (
                f"protocol.encode.weights = 'open' would travel beside what {self._say('release')} hides; "
                "use weights = 'slot' or 'uniform'"
            )
        yield from encode.misfits(self)
        if encode.scaled and release.coarse:
            yield (
                f"encode.weights = 'slot' multiplies a row by its client's weight; in {self._say('release')} with "
                "grain 'model' or 'layer' that weight would mark whose pieces belong together; use weights = 'uniform'"
            )
        yield from (f"{self._say('place')} {wrong}" for wrong in self.place.misfits(self))
        if release.grouped and encode.weights != "uniform":
            yield f"{self._say('release')} counts every client alike; use encode.weights = 'uniform'"
        if encode.form not in self.privacy.forms:
            yield (
                f"{self._say('privacy')} works on what a client changed, not on encode.form = {encode.form!r}; "
                f"use encode.form = {self.privacy.forms[0]!r}"
            )

    def _aggregating(self) -> Iterator[str]:
        """What the rule needs of what arrives."""
        encode, release, rule = self.encode, self.release, self.aggregate
        if encode.form not in rule.forms:
            fitting = f"use encode.form = {min(rule.forms)!r}"
            yield f"{self._say('aggregate')} does not take updates as {encode.form!r}; {fitting}"
        if "rows" in rule.asks and release.shape in ("sums", "bucketed"):
            yield (
                f"{self._say('aggregate')} needs every client's values, and {self._say('release')} lets out a sum only"
            )
        if "labels" in rule.asks and (why := unlabelled(self)):
            yield f"{self._say('aggregate')} weighs rows by their published noise, and {why}"
        if release.tiered and self.privacy.tier(ANYBODY) is None:
            yield (
                f"{self._say('release')} puts clients of like noise together, and {self._say('privacy')} publishes "
                "no tiers; use privacy = 'tiers'"
            )
        if "intact" in rule.asks and not release.intact:
            yield (
                f"{self._say('aggregate')} compares whole updates, and {self._say('release')} mixes the pieces of "
                "several; use grain = 'model'"
            )
        if encode.weights == "open" and not rule.linear:
            yield f"{self._say('aggregate')} counts every client alike; use encode.weights = 'uniform'"
        if encode.scaled and not rule.linear:
            yield (
                f"{self._say('aggregate')} is no mean, and encode.weights = 'slot' sends rows multiplied by their "
                "weight"
            )

    def parties(self, roster: Iterable[str]) -> dict[str, Party]:
        """Everybody who takes part in a round."""
        return {**dict.fromkeys(roster, self.client), **self.place.middle(self), "server": self.server}

    def schemas(self, given: Given) -> dict[str, Schema]:
        """Every kind of message of a round, with its fields."""
        model = Field("model", "<f4", (given.layout.size,))
        down = Schema((model, *self.encode.beside_model_fields(), *self.aggregate.public(given.layout)))
        return {"model": down, **self.place.schemas(self, given)}

    def client(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Wait for a model, train, add noise, encode, submit. Reveals: what the placement's `submit` says."""
        (letter,) = yield _FOR_A_MODEL
        model, keys = handed_out(letter.body["model"]), memory.get("keys", {})
        start: torch.Tensor = yield from self.encode.receive(given, memory, model.vector, letter.body)
        public = {field.name for field in self.aggregate.public(given.layout)}
        brief = {name: values for name, values in letter.body.items() if name in public}
        self.aggregate.verify(model, brief, given.layout)
        mine, books = self.privacy.of(given.me), Ledger.read(memory.get("ledger", ()))
        told = b"" if mine.noiseless else canon.digest(model.vector)
        event = mine.event(given.round, told.hex())
        event = event and replace(event, participation=given.participation)
        # Before it trains: what a client cannot afford to send it does not make.
        after = books if event is None else self.privacy.admit(given.me, books, event)
        # Bound to the participation, not the attempt: a second attempt must carry the very same update.
        own = coins.child("participation", given.participation)
        update: Update = yield Work("fit", (start, given.shard, own.child("fit")))
        if self.encode.form == "delta":
            update = replace(update, vector=update.vector - start, form="delta")
        chance = own.child("privacy")
        if told:
            # Another model is another question, and another update another answer: noise that was on one must not be
            # on the other too, or their difference would be bare.
            chance = chance.child("model", told, "update", canon.digest(update.vector))
        update, spent = mine(update, chance)
        update, remembered = yield from self.encode.send(given, memory, update, own)
        payload = self.encode.encode(update, brief, own.child("encode"))
        once = coins.child("attempt", given.attempt, roster_digest(given.roster))
        if self.place.binds:
            brief["handed"] = handed(model.vector, brief["commitment"])
        if event is not None:
            # Written down before anything leaves: whatever happens from here on, it counts as told.
            yield Work("spend", (given.me, event.plain()))
        noted = {**spent.noted, **payload.noted}
        submitting = self.place.submit(self, given, payload, keys, once.child("submit"), brief)
        # Whatever is not needed to submit would be held as long as this client waits for the others.
        del update, payload
        yield from submitting
        kept: dict[str, Any] = {"ledger": after.plain()} if after.events else {}
        return {
            **unkeyed(memory),
            **kept,
            **remembered,
            "noted": noted,
            "spent": spent.mechanism,
        }

    def server(self, given: Given, memory: Memory, coins: Coins) -> Flow:
        """Hand out the model, collect the release, aggregate."""
        models = tuple(Model(**plain) for plain in memory["models"])
        brief: Mapping[str, torch.Tensor] = {}
        public, late = (self.aggregate.public(given.layout), self.aggregate.late(given.layout))
        if public or late:
            brief = yield Work("brief", (models, memory.get("rule", {}), coins.child("brief")))
        told = {field.name: brief[field.name] for field in public}
        yield Exchange(tuple(self._model(who, meant_for(who, models), told) for who in given.roster))
        if self.place.binds:
            brief = {**brief, "handed": handed(meant_for(given.roster[0], models).vector, brief["commitment"])}
        own = ServerHoldings(memory.get("keys", {}), brief)
        released = yield from self.place.collect(self, given, coins.child("collect"), own)
        gathered = labelled(self, released, self.encode.decode(released, brief))
        done: tuple[tuple[Model, ...], Memory] = yield Work(
            "aggregate", (gathered, models, memory.get("rule", {}), coins.child("aggregate"))
        )
        plain: tuple[dict[str, Any], ...] = tuple(model.plain() for model in done[0])
        return {**unkeyed(memory), "models": plain, "rule": done[1], "present": gathered.present}

    def _model(self, who: str, model: Model, told: Mapping[str, torch.Tensor]) -> Letter:
        return Letter(who, "model", {"model": model.vector, **self.encode.beside_model(model), **told})
