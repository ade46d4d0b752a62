"""Cheats in a mix whose servers prove what they do, for `proven_rounds`: nothing wrong may get by.

Three things are tried there. First, whole rounds in which a server, a client or the network cheats: none may end with
a wrong sum. Second, a round in which one server adds one and nobody checks anything, which must let much by. Third,
marks that no sum and no opened bit shows, which only the proof of a shuffle can find: they are caught as often as the
coin chooses one of the numbers that they lie in, and this chance is computed. This file holds the cheats and the
control of the first two, and plays the third (`detection`).

A *number* is one coordinate of an update, and a *block* is the bits of all clients for one number and one modulus
(`place.chain.bit_table`). There are few of both, because every trial costs hundreds of multiplications of points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Body, Given, Party
from croupier.core.update import Layout, Slice, Update
from croupier.encode.residues import Residues
from croupier.errors import IntegrityError
from croupier.mpc import curve, elgamal
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.mpc.occasion import Occasion
from croupier.pipeline import Pipeline
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.chain import Chain
from croupier.place.chain.form import MixForm
from croupier.place.chain.mix_record import MixKeys, MixRecord, OwnStep
from croupier.place.chain.proven import Proven
from croupier.place.chain.table import MixTable
from croupier.release.bits import Bits
from croupier_lab.bench.speed.secure_sum import drawn

NAMES, CLIENTS, PARAMS = ("mix1", "mix2"), ("c00", "c01", "c02"), 2
# The detection of marks is measured on so many numbers, of which this share is proven.
SLOTS, SHARE = 6, 0.3
# How sure the interval is in which the count of caught marks must lie.
CONFIDENCE = 0.999


def pipeline(share: float = 0.5) -> Pipeline:
    """Bits of three clients through two mix servers that prove this share of the numbers."""
    place = Chain(trust="malicious", servers=len(NAMES), proven=share)
    return Pipeline(encode=Residues(clients=len(CLIENTS), steps=7), release=Bits(), place=place)


def updates(coins: Coins) -> dict[str, Update]:
    """The first client's bits are all 0 and the second's all 1, as if both had told them to the server that cheats."""
    made = drawn(PARAMS, len(CLIENTS), coins)
    # With 7 steps -1/7 is the integer -1. Its residue of a modulus m is m - 1, written as m - 1 ones: every bit there.
    made["c00"] = replace(made["c00"], vector=torch.zeros(PARAMS))
    made["c01"] = replace(made["c01"], vector=torch.full((PARAMS,), -1 / 7))
    return made


class _Cheat(MixRecord):
    """A server that changes what it mixed, before it proves anything of it."""

    def _places(self, step: OwnStep, client: int) -> Sequence[int]:
        """Where a client's bits lie once they are moved."""
        found: list[int] = np.flatnonzero(step.order // self.table.length == client).tolist()
        return found

    def _shifted(self, after: Ciphertexts, places: Sequence[int], by: Sequence[int]) -> Ciphertexts:
        c = after.c.copy()
        c[list(places)] = curve.plus(c[list(places)], curve.base(by))
        return replace(after, c=c)


class AddsOne(_Cheat):
    """Adds one to a client's bit, which stays a bit."""

    def remixed(self, step: OwnStep) -> Ciphertexts:
        return self._shifted(super().remixed(step), self._places(step, 0)[:1], [1])


class MarksFar(_Cheat):
    """Adds a thousand to one bit and takes a thousand from another of its block."""

    def remixed(self, step: OwnStep) -> Ciphertexts:
        pair = self.table.blocks(len(self.present))[0][0][:2].tolist()
        return self._shifted(super().remixed(step), pair, [1000, -1000])


class Replaces(_Cheat):
    """Puts a bit of its own in the place of a client's."""

    def remixed(self, step: OwnStep) -> Ciphertexts:
        after = super().remixed(step)
        at = self._places(step, 1)[0]
        own = Ciphertexts(curve.base([step.fresh[at]]), curve.multiples(self.keys.joint, [step.fresh[at]]))
        r, c = after.r.copy(), after.c.copy()
        r[at], c[at] = own.r[0], own.c[0]
        return Ciphertexts(r, c)


class Copies(_Cheat):
    """Takes a client's bit twice, under other randomness, and another's not at all."""

    def remixed(self, step: OwnStep) -> Ciphertexts:
        order = np.array(step.order)
        order[self._places(step, 1)[0]] = order[self._places(step, 0)[0]]
        return elgamal.refreshed(self.steps[-1].at(order), self.keys.joint, step.fresh)


class Exchanges(_Cheat):
    """Exchanges two numbers' bits: every bit is still somebody's, but in another block."""

    def remixed(self, step: OwnStep) -> Ciphertexts:
        blocks = self.table.blocks(len(self.present))[0]
        order = np.array(step.order)
        order[blocks[0]], order[blocks[1]] = order[blocks[1]], order[blocks[0]].copy()
        return elgamal.refreshed(self.steps[-1].at(order), self.keys.joint, step.fresh)


class OpensOther(_Cheat):
    """Opens its part with a key that is not the one it announced."""

    def open(self, who: str, key: MixKey, coins: Coins) -> tuple[Tensor, Tensor]:
        """Open with another key."""
        return super().open(who, MixKey.make(coins.child("other")), coins)


class MarksHidden(_Cheat):
    """Marks bits so that neither a sum nor what is opened shows it.

    It adds one to a bit that is known to be 0 and takes one from a bit that is known to be 1, in the first blocks of
    some numbers.
    """

    numbers: Sequence[int] = ()

    def remixed(self, step: OwnStep) -> Ciphertexts:
        after, blocks = super().remixed(step), self.table.blocks(len(self.present))[0]
        for number in self.numbers:
            came = step.order[blocks[number]] // self.table.length
            pair = [int(blocks[number][came == client][0]) for client in (0, 1)]
            after = self._shifted(after, pair, [1, -1])
        return after


class BlindRecord(MixRecord):
    """What the control's honest parties keep: they take what others say without a check."""

    def check_mix(self, who: str, body: Body) -> None:
        """Take it as it is."""
        shown = (curve.decode(body[name].numpy().reshape(-1, curve.POINT), who) for name in ("r", "c"))
        self._take(who, Ciphertexts(*shown), body["proof"].numpy())

    def check_proofs(self, who: str, slots: Sequence[int], why: bytes, body: Body, coins: Coins) -> None:
        """Check nothing."""

    def check_open(self, who: str, body: Body) -> None:
        """Check nothing."""


class BlindAdder(BlindRecord, AddsOne):
    """What the control's cheating server keeps: it adds one, as `AddsOne` does."""


class BlindChain(Chain):
    """The control's placement: every party keeps a `BlindRecord`."""

    @property
    def form(self) -> MixForm:
        """The same form, without checks."""
        return cheating(super().form, BlindRecord)


# Cheats by what they do. All are always caught: each changes a sum, opens to no bit, uses a key that was not told, or
# moves bits of both numbers out of their blocks, where one of the two is proven.
CHEATS: Mapping[str, type[MixRecord]] = {
    "change a sum": AddsOne, "mark far": MarksFar, "replace a bit": Replaces, "copy a bit": Copies,
    "exchange numbers": Exchanges, "open with another key": OpensOther,
}  # fmt: skip
# The fields that are altered, by sender and kind of letter.
LETTERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "mix1": {
        "key": ("public", "proof"), "inputs": ("r", "c", "present"), "by-mix1": ("r", "c", "proof", "present"),
        "mix-coin-c": ("digest",), "mix-coin-o": ("value", "nonce"), "shuffle": ("rows", "rest"),
        "mixed": ("parts", "proof", "present"), "receipt": ("signature", "present"), "here": ("present",),
    },
    "mix2": {
        "key": ("public", "proof"), "by-mix2": ("r", "c", "proof", "present"), "mix-coin-o": ("value", "nonce"),
        "shuffle": ("rows", "rest"), "mixed": ("parts", "proof", "present", "c"),
    },
    "c02": {"bits": ("points", "scalars", "keys")},
}  # fmt: skip


def cheating(form: MixForm, record: type[MixRecord]) -> Proven:
    """The same form, whose parties keep and check this kind of record."""
    if not isinstance(form, Proven):
        raise AssertionError("only a chain that proves has records")
    return replace(form, record=record)


def party(whole: Pipeline, who: str, record: type[MixRecord]) -> Party:
    """A mix server that cheats."""
    if not isinstance(whole.place, Chain):
        raise AssertionError("only a chain has mix servers")
    return cheating(whole.place.form, record).middle(whole)[who]


@dataclass(frozen=True)
class MarkBench:
    """What is the same in all trials of hidden marks: the table, keys, and what clients sent."""

    table: BitTable
    keys: MixKeys
    inputs: Ciphertexts

    @classmethod
    def make(cls, coins: Coins) -> MarkBench:
        """Three clients' bits: all 0, all 1, and drawn."""
        layout = Layout((Slice("w", (SLOTS,)),))
        table = BitTable(MixTable(pipeline(), CLIENTS, layout))
        secrets = {name: MixKey.make(coins.child("key", name)) for name in NAMES}
        given = Given(NAMES[0], bytes(16), 0, 0, CLIENTS, 2, layout)
        keys = MixKeys(Occasion.of(given), {name: key.public for name, key in secrets.items()})
        third = coins.child("bits").secure().below(2, table.length)
        bits = np.concatenate([np.zeros(table.length), np.ones(table.length), third]).astype(np.uint8)
        points, _ = elgamal.encrypt(bits, keys.joint, b"marks", coins.child("encrypt"))
        return cls(table, keys, Ciphertexts.unpacked(points[:, : elgamal.PAIR].copy(), "the clients"))

    def found(self, changed: int, coins: Coins) -> bool:
        """Whether marks in so many numbers are caught. Raises: IntegrityError when a proof of sums shows them."""
        chance = coins.child("choice").secure()
        order = self.table.order(CLIENTS, coins.child("order").export())
        step = OwnStep(order, curve.drawn(coins.child("fresh"), len(order)))
        cheat = MarksHidden(self.table, self.keys, CLIENTS, self.inputs)
        cheat.numbers = chance.permutation(SLOTS)[:changed].tolist()
        watcher = MixRecord(self.table, self.keys, CLIENTS, self.inputs)
        watcher.check_mix(NAMES[0], cheat.mix(NAMES[0], step, coins.child("sums")))
        coin = coins.child("coin").export()
        slots = self.table.chosen(coin, SHARE)
        proof = cheat.prove(NAMES[0], step, slots, coin, coins.child("prove"))
        try:
            watcher.check_proofs(NAMES[0], slots, coin, proof, coins.child("check"))
        except IntegrityError:
            return True
        return False


def caught(slots: int, proven: int, changed: int) -> float:
    """The chance that of `slots` numbers one of the `changed` is among those `proven`, all choices being as likely."""
    if changed > slots - proven:
        return 1.0
    return 1 - math.comb(slots - changed, proven) / math.comb(slots, proven)


def detection(trials: int, coins: Coins) -> list[dict[str, Any]]:
    """How often hidden marks in 0, 1, 2 and 3 numbers are caught, beside the chance computed from the coin's draws."""
    bench = MarkBench.make(coins.child("bench"))
    proven, rows = bench.table.asked(SHARE), []
    for changed in (0, 1, 2, 3):
        # Of no marks none is caught, which few trials show.
        many = trials if changed else max(1, trials // 10)
        hits = sum(bench.found(changed, coins.child("marks", changed, number)) for number in range(many))
        chance = caught(SLOTS, proven, changed)
        low, high = binom.interval(CONFIDENCE, many, chance) if 0 < chance < 1 else (chance * many,) * 2
        rows.append({
            "changed": changed, "numbers": SLOTS, "proven": proven, "trials": many, "caught": hits,
            "rate": hits / many, "computed": chance, "low": float(low) / many, "high": float(high) / many,
            "within": bool(low <= hits <= high),
        })  # fmt: skip
    return rows
