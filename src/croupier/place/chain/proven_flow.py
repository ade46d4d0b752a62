"""How a mix of encrypted bits is played and watched: by each mix server, and by the server, who mixes nothing.

Everybody who watches goes through the same steps: keys, what went in, every server's step, the coin, the proofs that it
asks for. A mix server has a step of its own among them (`OwnStep`), and opens only after all checks have passed.
`proven` calls it: `serve` is a mix server's part, `finish` the server's, and clients only take the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Inbox, Letter, SubFlow, Wait
from croupier.errors import IntegrityError
from croupier.mpc import curve, elgamal
from croupier.mpc.authentic import bytes_of
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.mpc.many_coin import ManyCoin
from croupier.mpc.occasion import Occasion
from croupier.place.chain.form import SERVER, same_present
from croupier.place.chain.mix_record import MixKeys, MixRecord, OwnStep, key_context


@dataclass(frozen=True)
class Watch:
    """What all watchers of one form share: the servers in their order, and the share of numbers that is proven."""

    names: tuple[str, ...]
    share: float

    @property
    def coin(self) -> ManyCoin:
        """The toss in which all mix servers and the server take part."""
        return ManyCoin((*self.names, SERVER), "mix-coin")

    def others(self, given: Given) -> tuple[str, ...]:
        """All mix servers but this one."""
        return tuple(name for name in self.names if name != given.me)

    def keys(self, given: Given, mine: MixKey | None, coins: Coins) -> SubFlow:
        """All servers' public keys; a server tells its own, with a proof that it knows the private one.

        Raises: IntegrityError that names a server whose proof does not hold.
        """
        occasion, letters = Occasion.of(given), tuple[Letter, ...]()
        if mine is not None:
            proof = elgamal.prove_key(mine, key_context(occasion, given.me), coins.child("key proof"))
            body = {"public": torch.from_numpy(curve.encode(mine.public)[0]), "proof": torch.from_numpy(proof)}
            letters = tuple(Letter(who, "key", body) for who in (*given.roster, *self.others(given), SERVER))
        inbox = yield Exchange(letters, Wait("key", self.others(given)))
        found = {} if mine is None else {given.me: mine.public}
        for letter in inbox:
            who, public = letter.source, curve.decode(letter.body["public"].numpy(), letter.source)
            elgamal.check_key(public, key_context(occasion, who), letter.body["proof"].numpy(), who)
            found[who] = public
        return MixKeys(occasion, {name: found[name] for name in self.names})

    def passes(self, given: Given, record: MixRecord, own: OwnStep | None, coins: Coins) -> SubFlow:
        """All servers' steps, the coin, and the proofs that it asks for; every one is checked as it comes."""
        me, others = given.me, self.others(given)
        for name in self.names:
            if name == me and own is not None:
                body = record.mix(me, own, coins.child("sums"))
                yield Exchange(tuple(Letter(who, hop(name), body) for who in (*others, SERVER)))
            else:
                (letter,) = yield Exchange(wait=Wait(hop(name), (name,)))
                record.check_mix(name, letter.body)
        coin = yield from self.coin.toss(given, record.seen, coins.child("toss"))
        slots, letters = record.table.chosen(coin, self.share), tuple[Letter, ...]()
        if own is not None:
            body = {"present": record.here, **record.prove(me, own, slots, coin, coins.child("prove"))}
            letters = tuple(Letter(who, "shuffle", body) for who in (*others, SERVER))
        inbox = yield Exchange(letters, Wait("shuffle", others))
        same_present(record.table.table, inbox)
        for letter in inbox:
            record.check_proofs(letter.source, slots, coin, letter.body, coins.child("check", letter.source))

    def serve(self, given: Given, record: MixRecord, key: MixKey, coins: Coins) -> SubFlow:
        """A mix server's part once the inputs are fixed: mix, watch, open, and prove more when asked."""
        order = record.table.order(record.present, coins.child("order").export())
        own = OwnStep(order, curve.drawn(coins.child("fresh"), len(order)))
        yield from self.passes(given, record, own, coins)
        parts, proof = record.open(given.me, key, coins.child("open"))
        last, shown = given.me == self.names[-1], record.body(record.steps[-1])["c"]
        body = {
            "present": record.here, "held": record.here if last else torch.zeros_like(record.here),
            "c": shown if last else shown[:0], "parts": parts, "proof": proof,
        }  # fmt: skip
        (asked,) = yield Exchange((Letter(SERVER, "mixed", body),), Wait("asked", (SERVER,)))
        if bool((wrong := asked.body["wrong"]).any()):
            more = record.prove(given.me, own, _places(wrong), b"blame", coins.child("blame"))
            yield Exchange((Letter(SERVER, "blame", {"present": record.here, "wrong": wrong, **more}),))

    def finish(self, given: Given, record: MixRecord, coins: Coins) -> SubFlow:
        """The server's part: watch, collect what all open, and ask who is to blame for what is no bit.

        Raises: IntegrityError that names who does not prove what it must.
        """
        yield from self.passes(given, record, None, coins)
        inbox = yield Exchange(wait=Wait("mixed", self.names))
        same_present(record.table.table, inbox)
        for letter in inbox:
            record.check_open(letter.source, letter.body)
        if not torch.equal(inbox[-1].body["c"], record.body(record.steps[-1])["c"]):
            raise IntegrityError(f"{self.names[-1]} opened something else than it had mixed")
        wrong = record.table.marked(opened_bits(inbox)[1])
        letters = tuple(Letter(name, "asked", {"wrong": wrong}) for name in self.names)
        if bool(wrong.any()):
            answers = yield Exchange(letters, Wait("blame", self.names))
            _blame(record, wrong, answers, coins.child("blame"))
        # All are bits: the mix servers, which wait for this letter, are asked for nothing more.
        yield Exchange(letters)
        return inbox


def hop(name: str) -> str:
    """The kind of letter for a server's step: one for each server, because a party waits for a kind only once."""
    return f"by-{name}"


def _places(wrong: torch.Tensor) -> Sequence[int]:
    found: list[int] = wrong.nonzero()[:, 0].tolist()
    return found


def _blame(record: MixRecord, wrong: torch.Tensor, answers: Inbox, coins: Coins) -> None:
    """Raises: IntegrityError, always: the round is lost. Who cannot prove what it must is named, if any."""
    for letter in answers:
        if not torch.equal(letter.body["wrong"], wrong):
            raise IntegrityError(f"{letter.source} proves other numbers than it was asked for")
        record.check_proofs(letter.source, _places(wrong), b"blame", letter.body, coins.child(letter.source))
    raise IntegrityError(
        f"{int(wrong.sum())} numbers come out with what is no bit, and every server proves that it only moved them"
    )


def checked_bits(keys: MixKeys, inbox: Inbox, coins: Coins) -> dict[str, Ciphertexts]:
    """What clients sent. Raises: IntegrityError that names a client that does not prove that it sent bits."""
    found = {}
    for letter in inbox:
        who, body = letter.source, letter.body
        if bytes_of(body["keys"]) != keys.digest:
            raise IntegrityError(
                f"{who} encrypted under other keys than this server was told: it, or a mix server, told two stories"
            )
        found[who] = elgamal.check_bits(
            body["points"].numpy(), body["scalars"].numpy(), keys.joint, keys.bits_context(who), who,
            coins.child("check bits", who),
        )  # fmt: skip
    return found


def opened_bits(inbox: Inbox) -> tuple[elgamal.Bytes, elgamal.Flags]:
    """What all servers open together, and where it is no bit."""
    shown = inbox[-1].body["c"].numpy().reshape(-1, curve.POINT)
    parts = [curve.decode(one.body["parts"].numpy().reshape(-1, curve.POINT), one.source) for one in inbox]
    return elgamal.opened(curve.decode(shown, inbox[-1].source), parts)
