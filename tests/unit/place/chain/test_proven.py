"""A chain that proves: the relay's bits under the composed order, cheats named, descriptions that fit or do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.laws.pipelines import PIPELINES, placed
from tests.laws.toy import CLIENTS, DOZEN, TINY, play, task
from tests.unit.place.chain.test_place_chain import letters

from croupier.core.coins import Coins
from croupier.core.flow import Coalition, Letter, Received
from croupier.core.view import View
from croupier.engine.state import Round, Threat
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.mpc import curve, elgamal
from croupier.mpc.authentic import bytes_of
from croupier.mpc.occasion import Occasion
from croupier.pipeline import Pipeline
from croupier.place.chain import mix_record
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.chain import Chain
from croupier.place.chain.form import SERVER
from croupier.place.chain.mix_record import MixRecord, OwnStep
from croupier.place.chain.proven import Proven
from croupier.place.relay import Relay
from croupier.statement import explain
from croupier.systems import naive, rns

NAME = "bits, chain that proves"
PIPELINE = PIPELINES[NAME]
# Of twelve numbers one is proven.
SPARSE = Pipeline.parse({
    **PIPELINE.plain(), "place": {"use": "chain", "trust": "malicious", "servers": 2, "proven": 0.05},
})  # fmt: skip


def test_what_comes_out_is_the_relays_bits_under_the_composed_order() -> None:
    (done,) = play(PIPELINE, count=1)
    relay = play(placed(PIPELINE, Relay()), count=1, of=task(layout=TINY))[0]
    table = BitTable.of(PIPELINE, done.views["server"].given)
    rows = np.stack([body["vector"].numpy() for body in letters(relay, "relay", "up").values()])
    for server in ("mix1", "mix2"):
        coins = done.views[server].coins
        assert coins is not None
        rows = table.table.move(CLIENTS)(rows, Coins(coins.child("order").export()))
    opened = tuple(Received(one, "mixed", body) for one, body in letters(done, "server", "mixed").items())
    got = PIPELINE.place.opened(PIPELINE, CLIENTS, TINY, opened)
    assert got.rows is not None
    assert np.array_equal(got.rows.numpy(), rows)
    assert torch.equal(done.state.model.vector, relay.state.model.vector)


class Adder(MixRecord):
    """Adds one to a bit, and nothing else."""

    def mix(self, who: str, step: OwnStep, coins: Coins) -> dict[str, torch.Tensor]:
        """One ciphertext is another's, and the proof is of what should be there."""
        body = super().mix(who, step, coins)
        body["c"] = body["c"].clone()
        first = curve.decode(body["c"][0, 0].numpy(), who)
        body["c"][0, 0] = torch.from_numpy(curve.encode(curve.plus(first, curve.base([1])))[0])
        return body


class Marker(MixRecord):
    """Adds a thousand to one bit and takes it from another of the same block: the sum stays, the bits can be found."""

    def remixed(self, step: OwnStep) -> elgamal.Ciphertexts:
        after = super().remixed(step)
        c = after.c.copy()
        pair = self.table.blocks(len(self.present))[0][0][:2]
        c[pair] = curve.plus(c[pair], curve.base([1000, -1000]))
        return replace(after, c=c)


def cheat(pipeline: Pipeline, who: str, record: type[MixRecord]) -> Threat:
    """One mix server that watches and mixes in a way of its own."""
    assert isinstance(pipeline.place, Chain)
    form = pipeline.place.form
    assert isinstance(form, Proven)
    return Threat(parties={who: replace(form, record=record).middle(pipeline)[who]})


@pytest.mark.parametrize("who", ["mix1", "mix2"])
def test_a_server_that_changes_a_sum_is_named(who: str) -> None:
    with pytest.raises(CroupierError, match=f"{who} does not prove that it kept the sum"):
        play(PIPELINE, count=1, threat=cheat(PIPELINE, who, Adder))


@pytest.mark.parametrize("who", ["mix1", "mix2"])
def test_a_server_that_marks_bits_of_a_number_that_is_not_proven_is_named_when_they_are_opened(who: str) -> None:
    found = set()
    for seed in range(2):
        with pytest.raises(CroupierError, match=f"{who} does not prove that it only moved") as error:
            play(SPARSE, count=1, threat=cheat(SPARSE, who, Marker), of=task(layout=DOZEN), coins=Coins.from_seed(seed))
        found.add(str(error.value))
    assert found


def altered(kind: str, name: str, place: int = 0) -> Any:
    """A party that flips a bit of one field of all its letters of a kind."""

    def change(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def one(letter: Letter) -> Letter:
            if letter.kind != kind or isinstance(letter.body, bytes):
                return letter
            values = letter.body[name].clone()
            values.reshape(-1)[place] ^= 1
            return replace(letter, body={**letter.body, name: values})

        return tuple(one(letter) for letter in sent)

    return change


@pytest.mark.parametrize(("party", "kind", "name", "said"), [
    ("c1", "bits", "scalars", "c1 does not prove that what it sent are bits"),
    ("c1", "bits", "keys", "c1 encrypted under other keys"),
    ("mix2", "key", "proof", "mix2"),
    ("mix1", "inputs", "present", "mix1 was refused at server"),
    ("mix2", "shuffle", "rest", "mix2"),
    ("mix2", "mix-coin-o", "value", "mix2 opened another part of the coin"),
    ("mix1", "mixed", "parts", "mix1"),
])  # fmt: skip
def test_who_sends_something_else_is_named(party: str, kind: str, name: str, said: str) -> None:
    with pytest.raises(CroupierError, match=said):
        play(PIPELINE, count=1, threat=Threat(corrupted={party: altered(kind, name, -1 if name == "rest" else 0)}))


def test_a_client_cannot_send_anothers_bits() -> None:
    taken: list[Any] = []

    def copy(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        for one in sent:
            if one.kind == "bits" and not isinstance(one.body, bytes):
                taken.append(one.body)
        return tuple(replace(one, body=taken[0]) if one.kind == "bits" else one for one in sent)

    with pytest.raises(CroupierError, match="sent the same share: one of them is a copy"):
        play(PIPELINE, count=1, threat=Threat(corrupted={"c0": copy, "c1": copy}))


@pytest.mark.parametrize(("base", "place", "said"), [
    (rns(8, release="bits"), {"trust": "malicious", "shuffle": "pairs", "servers": 3}, "leave shuffle out"),
    (rns(8, release="bits"), {"proven": 0.1}, "protocol.place.proven = 0.1 with trust = 'semi-honest'"),
    (rns(8, release="bits"), {"trust": "malicious", "proven": 1.5}, "proven"),
    (naive("parameter"), {"trust": "malicious"}, "moves single bits, and release = 'shuffle' moves rows"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(base: Pipeline, place: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as error:
        Pipeline.parse({**base.plain(), "place": {"use": "chain", **place}})
    assert said in str(error.value)


def test_the_statement_says_who_must_be_honest_what_is_proven_and_the_chances() -> None:
    said = explain(placed(rns(8, release="bits"), Chain(trust="malicious", servers=4, proven=0.05)))
    assert said.must_not_collude == (("one mix server", "all the others"),)
    assert "moved the bits of 5 % of the numbers" in said.privacy_threshold
    assert "1 - (1 - 0.05)^t (5 % for t = 1, 40.1 % for t = 10, 99.4 % for t = 100)" in said.privacy_threshold
    assert "in each round it is caught" in said.privacy_threshold
    assert "who would be caught can fall silent, lose the round, and try again" in said.privacy_threshold
    assert "^t)^R (93.5 % for t = 10 and R = 3, 44.8 % for t = 100 and R = 100)" in said.privacy_threshold
    assert said.integrity_threshold.startswith("any one honest mix server")
    assert "4 of 4 must be live" in said.liveness_threshold
    assert "as long as mix servers follow the protocol" in said.privacy_threshold
    assert "other times for other scalars" in said.privacy_threshold
    whole = explain(placed(rns(8, release="bits"), Chain(trust="malicious", servers=4))).privacy_threshold
    assert "doing what they like" in whole
    assert "moved the bits of all numbers" in whole
    assert "fall silent" not in whole


class PutBack(MixRecord):
    """The last server: the bits that clients sent, each in its own place again, in the last of the numbers.

    Its sums hold because one place takes what is left of the block as it came.
    """

    def remixed(self, step: OwnStep) -> elgamal.Ciphertexts:
        """The clients' own bits under fresh randomness."""
        after, first, came = super().remixed(step), self.steps[0], self.steps[-1]
        r, c = after.r.copy(), after.c.copy()
        for rows in self.table.blocks(len(self.present)):
            at = rows[-1]
            back = elgamal.refreshed(first.at(at), self.keys.joint, [step.fresh[place] for place in at])
            last, rest = at[-1], at[:-1]
            for out, new, unit, before, now in (
                (r, back.r, curve.base([1]), first.r, came.r), (c, back.c, self.keys.joint, first.c, came.c),
            ):  # fmt: skip
                out[at] = new
                others = curve.total(before, rest)
                assert others is not None
                left = curve.joined(curve.total(now, at), curve.minus(others), curve.times(unit, [step.fresh[last]]))
                assert left is not None
                out[last] = left[0]
        return elgamal.Ciphertexts(r, c)


def own_bits(done: Round) -> npt.NDArray[np.int64]:
    """What every client encrypted, opened with all servers' keys: to check with, as no party can."""
    found = []
    secrets = []
    for server in ("mix1", "mix2"):
        coins = done.views[server].coins
        assert coins is not None
        secrets.append(elgamal.MixKey.make(coins.child("key")).secret)
    for who, body in letters(done, "mix1", "bits").items():
        sent = elgamal.Ciphertexts.unpacked(body["points"].numpy()[:, :66].copy(), who)
        found.append(elgamal.opened(sent.c, [curve.times(sent.r, [key] * len(sent)) for key in secrets])[0])
    return np.stack(found)


def put_back(proven: float, seed: int) -> Round:
    """A round whose last mix server puts bits back."""
    place = {"use": "chain", "trust": "malicious", "servers": 2, "proven": proven}
    pipeline = Pipeline.parse({**PIPELINE.plain(), "place": place})
    assert isinstance(pipeline.place, Chain)
    form = pipeline.place.form
    assert isinstance(form, Proven)
    threat = Threat(parties={"mix2": replace(form, record=PutBack).middle(pipeline)["mix2"]})
    return play(pipeline, count=1, of=task(layout=DOZEN), threat=threat, coins=Coins.from_seed(seed))[0]


def test_bits_that_are_put_back_are_missed_where_the_coin_misses_and_never_where_all_is_proven() -> None:
    """As the statement says: below a share of 1 nothing shows, though every row is its client's own again."""
    done = put_back(0.05, 0)
    mixed = letters(done, "server", "mixed")
    shown = curve.decode(mixed["mix2"]["c"].numpy().reshape(-1, 33), "mix2")
    parts = [curve.decode(mixed[one]["parts"].numpy().reshape(-1, 33), one) for one in ("mix1", "mix2")]
    bits, wrong = elgamal.opened(shown, parts)
    wide = BitTable.of(SPARSE, done.views["server"].given).wide
    assert not wrong.any()
    assert np.array_equal(bits.reshape(len(CLIENTS), -1)[:, -wide:], own_bits(done)[:, -wide:])
    with pytest.raises(ProtocolError, match="mix2 does not prove that it only moved"):
        put_back(1.0, 0)


class Waits(PutBack):
    """The same, by a server that can be asked what it has seen."""

    live: ClassVar[list[MixRecord]] = []

    def mix(self, who: str, step: OwnStep, coins: Coins) -> dict[str, torch.Tensor]:
        self.live.append(self)
        return super().mix(who, step, coins)


Held = Mapping[str, tuple[Letter, ...]]


def silent_when_caught(held: Held, views: Mapping[str, View]) -> Held:
    """mix2 opens its part of the coin last: only where the coin misses the number that it put back."""
    own = next((one for one in held["mix2"] if one.kind == "mix-coin-o"), None)
    if own is None or isinstance(own.body, bytes):
        return held
    view, record = views["mix2"], Waits.live[-1]
    boxes = [box for box in view.inputs if isinstance(box, tuple)]
    told = {one.source: bytes_of(one.body["value"]) for box in boxes for one in box if one.kind == own.kind}
    told["mix2"] = bytes_of(own.body["value"])
    parts = [told[name] for name in ("mix1", "mix2", SERVER)]
    coin = Occasion.of(view.given).label("coin out", "mix-coin", record.seen, *parts)
    caught = record.table.slots - 1 in record.table.chosen(coin, 0.5)
    return {"mix2": ()} if caught else held


def test_who_would_be_caught_falls_silent_and_tries_again_as_the_statement_says() -> None:
    """Of a dozen numbers six are proven. Where the coin hits, it is missing and not named as a cheat."""
    place = {"use": "chain", "trust": "malicious", "servers": 2, "proven": 0.5}
    pipeline = Pipeline.parse({**PIPELINE.plain(), "place": place})
    speaks = cheat(pipeline, "mix2", Waits)
    silent = replace(speaks, coalition=Coalition(frozenset({"mix2"}), silent_when_caught))
    for threat, said in ((speaks, "mix2 does not prove that it only moved"), (silent, "'mix-coin-o'; missing mix2")):
        with pytest.raises(ProtocolError, match=said):
            play(pipeline, count=1, of=task(layout=DOZEN), threat=threat, coins=Coins.from_seed(3))
    (again,) = play(pipeline, count=1, of=task(layout=DOZEN), threat=silent, coins=Coins.from_seed(4))
    assert again.present == CLIENTS


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SpecError("proofs of a mix need coincurve: pip install croupier[proofs], or use a mix without proofs")

    monkeypatch.setattr(curve, "check_library", missing)
    with pytest.raises(SpecError, match=r"pip install croupier\[proofs\]"):
        play(PIPELINE, count=1)
    assert explain(PIPELINE).learns


def test_done_views_hold_no_secret_scalars() -> None:
    (done,) = play(PIPELINE, count=1)
    shown = repr(OwnStep(np.arange(2), [12345678901234567890])) + repr(mix_record.MixKeys)
    assert "12345678901234567890" not in shown
    assert isinstance(done, Round)
