"""What everybody who watches a mix of ciphertexts holds: keys, what went in, what each server made of it, and checks.

The mix servers and the server each keep such a record and check every step themselves, so that any honest one of them
suffices to stop a wrong one and say whose doing it is. `seen` is a digest of all that was said so far; every proof is
bound to it, to who made it, and to the block that it is about, so that none can be used at another place, in another
round, or by another server. The coin that chooses what is proven is tossed over it: who was shown something else cannot
finish.

`proven` makes the record and `proven_flow` plays with it; `croupier bench mix` times its steps, and
`croupier bench tamper` replaces it by records that cheat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Body
from croupier.core.wire import bitmap
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc import curve, elgamal, shuffle_proof
from croupier.mpc.curve import Points
from croupier.mpc.elgamal import Bytes, Ciphertexts
from croupier.mpc.fixed_points import check_distinct
from croupier.mpc.occasion import Occasion
from croupier.mpc.shuffle_proof import Order, ShuffledBlock
from croupier.place.chain.bit_table import BitTable


@dataclass(frozen=True)
class MixKeys:
    """All servers' public keys of an attempt, in the order of the chain."""

    occasion: Occasion
    keys: Mapping[str, Points]

    @cached_property
    def joint(self) -> Points:
        """The key that bits are encrypted under. Raises: IntegrityError when keys cancel each other."""
        found = curve.joined(*self.keys.values())
        if found is None:
            raise IntegrityError("the keys of the mix servers cancel each other")
        return found

    @cached_property
    def digest(self) -> bytes:
        """A digest that stands for all of the keys."""
        shown = [curve.encode(key).tobytes() for key in self.keys.values()]
        return self.occasion.label("mix keys", *self.keys, *shown)

    def bits_context(self, client: str) -> bytes:
        """What a client's proofs of bits are bound to."""
        return self.occasion.label("mix bits", client, self.digest)


@dataclass(frozen=True)
class OwnStep:
    """What a server did to the bits: from which place each comes, and under which fresh randomness."""

    order: Order = field(repr=False)
    fresh: Sequence[int] = field(repr=False)


class MixRecord:
    """One attempt, as one party watches it: what went in, and what each server made of it."""

    def __init__(self, table: BitTable, keys: MixKeys, present: tuple[str, ...], inputs: Ciphertexts) -> None:
        self.table, self.keys, self.present = table, keys, present
        check_distinct(inputs.packed(), "a client")
        self.steps = [inputs]
        self.here = bitmap(table.table.roster, present)
        said = inputs.packed().tobytes()
        self.seen = keys.occasion.label("mix inputs", keys.digest, bytes(self.here.tolist()), said)

    @classmethod
    def started(cls, table: BitTable, keys: MixKeys, present: tuple[str, ...], body: Body, who: str) -> MixRecord:
        """From what went in, as a mix server tells it; that all were told the same shows when the coin is tossed."""
        return cls(table, keys, present, _ciphers(body, bitmap(table.table.roster, present), who))

    def body(self, ciphers: Ciphertexts) -> dict[str, Tensor]:
        """Ciphertexts as they travel."""
        shape = (len(self.present), self.table.length, curve.POINT)
        shown = {"r": curve.encode(ciphers.r), "c": curve.encode(ciphers.c)}
        return {"present": self.here, **{name: torch.from_numpy(one.reshape(shape)) for name, one in shown.items()}}

    def mix(self, who: str, step: OwnStep, coins: Coins) -> dict[str, Tensor]:
        """A server's own step, and its proof that no block's sum changed: what it sends to everybody."""
        return self.prove_mix(who, step, self.remixed(step), coins)

    def remixed(self, step: OwnStep) -> Ciphertexts:
        """The bits in other places, under fresh randomness."""
        return elgamal.refreshed(self.steps[-1].at(step.order), self.keys.joint, step.fresh)

    def prove_mix(self, who: str, step: OwnStep, after: Ciphertexts, coins: Coins) -> dict[str, Tensor]:
        """Take down a step of one's own, and prove that it kept every block's sum: what is sent to everybody."""
        blocks, context = self.table.blocks(len(self.present)), self._context("sums", who)
        proof = elgamal.prove_sums(self.steps[-1], after, blocks, self.keys.joint, context, step.fresh, coins)
        body = {**self.body(after), "proof": torch.from_numpy(proof)}
        self._take(who, after, proof)
        return body

    def check_mix(self, who: str, body: Body) -> None:
        """Take another server's step down. Raises: IntegrityError that names it when it does not prove its sums."""
        before, after, proof = self.steps[-1], _ciphers(body, self.here, who), body["proof"].numpy()
        blocks = self.table.blocks(len(self.present))
        elgamal.check_sums(before, after, blocks, self.keys.joint, self._context("sums", who), proof, who)
        self._take(who, after, proof)

    def _take(self, who: str, after: Ciphertexts, proof: Bytes) -> None:
        self.steps.append(after)
        self.seen = canon.digest(("mixed", self.seen, who, after.packed().tobytes(), proof.tobytes()))

    def _context(self, purpose: str, who: str, *more: bytes | int) -> bytes:
        return canon.digest(("mix", purpose, self.seen, who, *more))

    def prove(self, who: str, step: OwnStep, slots: Sequence[int], why: bytes, coins: Coins) -> dict[str, Tensor]:
        """Proofs that a server only moved the bits of some numbers."""
        many, wide = len(self.present), self.table.wide
        rows = np.zeros((len(slots), many, wide, shuffle_proof.EACH), np.uint8)
        rest = np.zeros((len(slots), len(self.table.widths), shuffle_proof.WHOLE), np.uint8)
        before, after = self._around(who)
        blocks, spans = self.table.blocks(many), self.table.spans()
        for at, slot in enumerate(slots):
            for number, (block, span) in enumerate(zip(blocks, spans, strict=True)):
                places = block[slot]
                order = np.searchsorted(places, step.order[places])
                each, rest[at, number] = shuffle_proof.prove(
                    ShuffledBlock(before.at(places), after.at(places)), self.keys.joint,
                    self._context("shuffle", who, why, slot, number), order,
                    [step.fresh[place] for place in places.tolist()], coins.child(why, slot, number),
                )  # fmt: skip
                rows[at, :, span] = each.reshape(many, -1, shuffle_proof.EACH)
        return {"rows": torch.from_numpy(rows), "rest": torch.from_numpy(rest)}

    def check_proofs(self, who: str, slots: Sequence[int], why: bytes, body: Body, coins: Coins) -> None:
        """Raises: IntegrityError that names a server that does not prove it."""
        before, after = self._around(who)
        blocks, spans = self.table.blocks(len(self.present)), self.table.spans()
        claims, contexts, proofs = [], [], []
        for at, slot in enumerate(slots):
            for number, (block, span) in enumerate(zip(blocks, spans, strict=True)):
                claims.append(ShuffledBlock(before.at(block[slot]), after.at(block[slot])))
                contexts.append(self._context("shuffle", who, why, slot, number))
                each = body["rows"][at, :, span].numpy().reshape(-1, shuffle_proof.EACH)
                proofs.append((np.ascontiguousarray(each), body["rest"][at, number].numpy()))
        shuffle_proof.check(claims, self.keys.joint, contexts, proofs, who, coins)

    def _around(self, who: str) -> tuple[Ciphertexts, Ciphertexts]:
        at = list(self.keys.keys).index(who)
        return self.steps[at], self.steps[at + 1]

    def open(self, who: str, key: elgamal.MixKey, coins: Coins) -> tuple[Tensor, Tensor]:
        """What a server opens of what came out, and its proof."""
        parts, proof = elgamal.open_part(self.steps[-1], key, self._context("open", who), coins)
        shape = (len(self.present), self.table.length, curve.POINT)
        return torch.from_numpy(curve.encode(parts).reshape(shape)), torch.from_numpy(proof)

    def check_open(self, who: str, body: Body) -> None:
        """Raises: IntegrityError that names a server that opened with another key, or something else."""
        parts = curve.decode(body["parts"].numpy().reshape(-1, curve.POINT), who)
        proof = body["proof"].numpy()
        elgamal.check_part(self.steps[-1], parts, self.keys.keys[who], self._context("open", who), proof, who)


def _ciphers(body: Body, here: Tensor, who: str) -> Ciphertexts:
    """Ciphertexts off the wire.

    Raises: IntegrityError when they are none, or two are the same; ProtocolError when they are of other clients.
    """
    if not torch.equal(body["present"], here):
        raise ProtocolError(f"{who} mixed other clients than this party heard; the round is lost")
    r, c = (body[name].numpy().reshape(-1, curve.POINT) for name in ("r", "c"))
    check_distinct(np.concatenate([r, c], 1), who)
    return Ciphertexts(curve.decode(r, who), curve.decode(c, who))


def key_context(occasion: Occasion, server: str) -> bytes:
    """What a server's proof of its key is bound to."""
    return occasion.label("mix key", server)
