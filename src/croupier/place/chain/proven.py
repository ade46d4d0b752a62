"""The chain of servers that prove what they do: encrypted bits, any one honest server, and blame by name.

The source-inference paper (RNS) asks for such proofs in its Algorithms 8 and 9, but they cannot be made as printed: no
proof fits a chain of boxes, and trap bits that servers know beforehand show only that the traps were not altered.

Here clients encrypt single bits under the joint key of all mix servers, with proofs that they are bits. Each mix server
in turn permutes the bits of every block, gives them fresh randomness and proves that no block's sum changed. Once all
have, a coin that nobody chooses says for which numbers every mix server must prove that it only moved what it was
given. Then all open together and prove that, too. What is no bit in the end was marked by a mix server, in a number
that was not proven: the server asks all of them to prove that number, and who cannot is named. But a mix server that
puts clients' own bits back in such a number leaves no trace. So only `proven = 1` hides updates from mix servers that
do not follow the protocol.

`chain.Chain` uses it for `trust = "malicious"` (preset `rns-chain-proofs`). `proven_flow` plays it, `mix_record` checks
it, `proven_words` says what it withstands, and `proven_cost` what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Body, Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Field, Schema
from croupier.encode.encoder import Payload, Released
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc import curve, elgamal, shuffle_proof
from croupier.mpc.authentic import byte_tensor
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.place.chain import proven_words, receipts
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.form import SERVER, MixForm, same_present
from croupier.place.chain.mix_record import MixRecord
from croupier.place.chain.proven_cost import MixSizes
from croupier.place.chain.proven_flow import Watch, checked_bits, hop, opened_bits
from croupier.place.chain.table import MixTable, as_side
from croupier.place.placement import Keys, Mechanism, Reads, Sight, Tolerance, unkeyed
from croupier.place.witness import Witnesses

_DIGEST = 32


@dataclass(frozen=True)
class Proven(MixForm):
    """Encrypted bits, and proofs of a share of the numbers."""

    share: float
    # The class of the record by which a party watches the mix; cheating servers of `croupier bench tamper` have others.
    record: type[MixRecord] = MixRecord

    @property
    def watch(self) -> Watch:
        """What all who watch the mix share."""
        return Watch(self.names, self.share)

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            table, key = BitTable.of(mechanism, given), MixKey.make(coins.child("key"))
            keys = yield from self.watch.keys(given, key, coins)
            inbox = yield Exchange(wait=Wait("bits", given.roster, 0))
            receipts.refuse_copies(inbox)
            found = checked_bits(keys, inbox, coins)
            present = yield from receipts.agreed(given, inbox, self.names, (SERVER,))
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            yield Exchange(tuple(receipts.issued(given, memory["keys"], inbox, present)))
            record = self.record(table, keys, present, Ciphertexts.joined([found[who] for who in present]))
            if given.me == self.names[0]:
                yield Exchange((Letter(SERVER, "inputs", record.body(record.steps[0])),))
            yield from self.watch.serve(given, record, key, coins)
            return unkeyed(memory)

        return dict.fromkeys(self.names, server)

    def submit(self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins) -> SubFlow:
        """Encrypt every bit, prove that it is one, and check what the servers sign."""
        table = BitTable.of(mechanism, given)
        told = yield from self.watch.keys(given, None, coins)
        bits, context = table.bits(payload.vector), told.bits_context(given.me)
        points, scalars = elgamal.encrypt(bits, told.joint, context, coins.child("bits"))
        body: Body = {
            "keys": byte_tensor(told.digest), "points": torch.from_numpy(points), "scalars": torch.from_numpy(scalars),
        }  # fmt: skip
        sent = dict.fromkeys(self.names, body)
        yield Exchange(tuple(Letter(name, "bits", body) for name in self.names))
        yield from receipts.checked(given, keys, sent, self.least(mechanism, given))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins) -> SubFlow:
        """Watch, open, and blame. Raises: IntegrityError that names who does not prove what it must."""
        keys = yield from self.watch.keys(given, None, coins)
        heard = yield Exchange(wait=Wait("here", self.names))
        present = receipts.met(given, [letter.body["present"] for letter in heard])
        receipts.enough(mechanism, given, present, self.least(mechanism, given))
        (told,) = yield Exchange(wait=Wait("inputs", self.names[:1]))
        record = self.record.started(BitTable.of(mechanism, given), keys, present, told.body, told.source)
        inbox = yield from self.watch.finish(given, record, coins)
        return self.opened(record.table.table, inbox)

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """The bits, as rows. Raises: IntegrityError where something is no bit."""
        present, (bits, wrong) = same_present(table, inbox), opened_bits(inbox)
        if wrong.any():
            raise IntegrityError("what came out of the chain is not all bits")
        return table.released(present, BitTable(table).rows(bits))

    @property
    def last(self) -> tuple[str, ...]:
        """All servers open together."""
        return self.names

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Keys, bits with proofs, receipts, steps, the coin, proofs of shuffles, openings, and proofs of blame."""
        table = BitTable.of(mechanism, given)
        present, many = table.table.present_field(), len(table.widths)
        proof, wrong = _bytes("proof", elgamal.PROOF), Field("wrong", "|u1", (table.slots,), top=1)

        def points(name: str, side: str = "present") -> Field:
            return _bytes(name, side, table.length, curve.POINT)

        def proofs(side: int | str) -> tuple[Field, ...]:
            rows = _bytes("rows", side, "present", table.wide, shuffle_proof.EACH)
            return rows, _bytes("rest", side, many, shuffle_proof.WHOLE)

        bits = (
            _bytes("keys", _DIGEST), _bytes("points", table.length, elgamal.BIT_POINTS),
            _bytes("scalars", table.length, elgamal.BIT_SCALARS),
        )  # fmt: skip
        return {
            "key": Schema((_bytes("public", curve.POINT), _bytes("proof", elgamal.KEY_PROOF))),
            "bits": Schema(bits), **receipts.schemas(given), **self.watch.coin.schemas(),
            "inputs": Schema((present, points("r"), points("c"))),
            **{hop(name): Schema((present, points("r"), points("c"), proof)) for name in self.names},
            "shuffle": Schema((present, *proofs(table.asked(self.share)))),
            "mixed": Schema((present, as_side(present, "held"), points("c", "held"), points("parts"), proof)),
            "asked": Schema((wrong,)), "blame": Schema((present, wrong, *proofs("wrong"))),
        }  # fmt: skip

    def check_size(self, mechanism: Mechanism, layout: Layout, clients: int) -> None:
        """Raises: SpecError when bits are too many to encrypt one by one, with the cost; or without the library."""
        self._sizes(mechanism, layout, clients).check()

    def costs(self, mechanism: Mechanism, layout: Layout, clients: int) -> tuple[str, ...]:
        """Bytes and seconds, from measured rates."""
        return (self._sizes(mechanism, layout, clients).said(),)

    def _sizes(self, mechanism: Mechanism, layout: Layout, clients: int) -> MixSizes:
        table = BitTable(MixTable(mechanism, (), layout))
        return MixSizes(clients, table.slots, table.widths, len(self.names), self.share)

    def learns(self) -> dict[str, str]:
        """Mix servers learn nothing of updates."""
        return proven_words.learns()

    @property
    def tolerance(self) -> Tolerance:
        """Any one honest server is enough."""
        return proven_words.tolerance(len(self.names), self.share)

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """All servers together can open every bit."""
        return {self.names: "named"}

    def sight(self, party: str) -> Sight:
        """A mix server sees nothing that it can open."""
        return Sight("nothing", f"each mix server learns {self.learns()['each mix server']}")

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """Every client's bits, opened with all servers' keys. Raises: ProtocolError when one is not there."""
        if lacking := [name for name in self.names if name not in parties]:
            raise ProtocolError(f"without the key of {lacking[0]} nobody can open what clients sent")
        secrets = [MixKey.make(parties[name].own.child("key")).secret for name in self.names]
        bits, found = BitTable(table), {}
        for who, body in parties[self.names[0]].received("bits").items():
            ciphers = Ciphertexts.unpacked(body["points"].numpy()[:, : elgamal.PAIR].copy(), who)
            plain, _ = elgamal.opened(ciphers.c, [curve.times(ciphers.r, [one] * len(ciphers)) for one in secrets])
            found[who] = torch.from_numpy(bits.rows(plain)[0])
        return Released(tuple(found), torch.stack([*found.values()]), ids=tuple(found), layout=table.layout)


def _bytes(name: str, *sides: int | str) -> Field:
    return Field(name, "|u1", sides)
