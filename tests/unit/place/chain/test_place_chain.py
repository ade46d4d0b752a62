"""A chain of mix servers: the relay's release under the composed order, receipts, refusals, and who reads what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.laws.pipelines import PIPELINES, bucketed, placed
from tests.laws.toy import CLIENTS, absent, layout_for, play, task

from croupier.core.coins import Coins
from croupier.core.flow import Letter, Received
from croupier.core.view import View
from croupier.core.wire import chosen
from croupier.encode.fixed import FixedPoint
from croupier.engine.federation import Federation, check
from croupier.engine.state import Round, Threat
from croupier.errors import CroupierError, IntegrityError, ProtocolError, SpecError
from croupier.mpc.authentic import bytes_of
from croupier.pipeline import Pipeline
from croupier.place.chain.chain import Chain
from croupier.place.chain.table import MixTable
from croupier.place.relay import Relay
from croupier.place.witness import Witness
from croupier.release.rows import Rows
from croupier.release.shuffle import Shuffle
from croupier.statement import explain
from croupier.systems import naive, rns, total

CHAINED = ["bits, chain", "parameter shuffle, chain of two", "shuffled integers, chain", "buckets of parameters, chain"]

OTHERS = ["bits, chain of pairs", "shuffled models, chain of boxes", "bits, trusted chain", "bits, chain that proves"]


def letters(done: Round, party: str, kind: str) -> dict[str, dict[str, torch.Tensor]]:
    """What reached a party of one kind, by who sent it."""
    boxes = [box for box in done.views[party].inputs if isinstance(box, tuple)]
    found = [one for box in boxes for one in box if getattr(one, "kind", "") == kind]
    return {one.source: dict(one.body) for one in found}


@pytest.mark.parametrize("name", CHAINED)
def test_what_comes_out_is_what_went_in_under_the_composed_order(name: str) -> None:
    pipeline = PIPELINES[name]
    place = pipeline.place
    assert isinstance(place, Chain)
    (done,) = play(pipeline, count=1)
    table = MixTable.of(pipeline, done.views["server"].given)
    shares = [letters(done, server, kind) for server in place.names for kind in ("share", "seed")]
    present = chosen(CLIENTS, letters(done, "mix1", "dealt")["dealer"]["present"])
    inboxes = [done.views[server].inputs for server in place.names]
    held = [
        place.form.held(table, tuple(one for box in inbox if isinstance(box, tuple) for one in box), present)
        for inbox in inboxes
    ]
    rows = np.bitwise_xor.reduce(held)
    for server in place.names:
        hand = Coins(bytes_of(letters(done, server, "dealt")["dealer"]["seed"]))
        rows = table.move(present)(rows, hand.child("order"))
    inbox = done.views["server"].inputs[-2]
    got = place.opened(pipeline, CLIENTS, table.layout, inbox)
    assert got.rows is not None
    assert torch.equal(got.rows, table.numbers(rows))
    assert sum(len(one) for one in shares) == len(CLIENTS) * place.servers


def witness(done: Round, party: str) -> Witness:
    """A party that tells what reached it, and its coins."""
    view = done.views[party]
    boxes = [box for box in view.inputs if isinstance(box, tuple)]
    return Witness(view.given, tuple(one for box in boxes for one in box if isinstance(one, Received)), view.coins)


@pytest.mark.parametrize("name", [*CHAINED, *OTHERS])
def test_those_who_are_kept_apart_read_every_row_with_its_sender(name: str) -> None:
    pipeline = PIPELINES[name]
    (done,) = play(pipeline, count=1, threat=absent("c1"))
    table = MixTable.of(pipeline, done.views["server"].given)
    same = task(layout=layout_for(pipeline))
    relay = play(placed(pipeline, Relay()), count=1, threat=absent("c1"), of=same)[0]
    true = {source: body["vector"] for source, body in letters(relay, "relay", "up").items()}
    for parties in pipeline.place.breaks:
        got = pipeline.place.pooled(pipeline, {party: witness(done, party) for party in parties})
        assert got.ids is not None
        assert got.rows is not None
        assert set(got.ids) == {"c0", "c2", "c3"}
        for who, row in zip(got.ids, got.rows, strict=True):
            assert torch.equal(row, true[who]), (parties, who)
    for party in pipeline.place.middle(pipeline):
        if pipeline.place.sight(pipeline, party).kind != "noise":
            continue
        alone = pipeline.place.pooled(pipeline, {party: witness(done, party)}).rows
        assert alone is not None
        assert not any(torch.equal(row, table.numbers(table.words(own))) for row in alone for own in true.values())


@pytest.mark.parametrize("grain", ["model", "layer", "parameter"])
def test_a_move_is_the_relays_own_shuffle(grain: str) -> None:
    """With one server's order the chain gives the relay's rows, bit for bit."""
    release = Shuffle.parse({"use": "shuffle", "grain": grain})
    table = MixTable.of(naive("parameter"), play(naive("model"), count=1)[0].views["server"].given)
    rows = torch.from_numpy(Coins.from_seed(4).secure().normal(4 * table.layout.size)).float().reshape(4, -1)
    relay = release(list(rows), table.layout, None, Coins.from_seed(7))["rows"]
    moved = release.moved(table.words(rows), table.layout, None, Coins.from_seed(7))
    assert torch.equal(table.numbers(moved), relay)
    assert np.array_equal(release.moved_back(moved, table.layout, None, Coins.from_seed(7)), table.words(rows))


def test_buckets_stay_where_the_relay_has_them() -> None:
    chain, relay = PIPELINES["buckets of parameters, chain"], bucketed(Relay(), "parameter")
    for missing in ((), ("c3",)):
        here, there = (play(one, threat=absent(*missing))[-1].state.model.vector for one in (chain, relay))
        assert torch.allclose(here, there, atol=1e-6)


def test_a_client_that_reached_only_some_servers_ends_the_round_itself() -> None:
    def lose(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(one for one in sent if one.target != "mix2")

    with pytest.raises(IntegrityError, match="mix2 did not sign for what this client sent it"):
        play(PIPELINES["bits, chain"], count=1, threat=Threat(corrupted={"c1": lose}))


@pytest.mark.parametrize(
    ("server", "change", "said"),
    [
        ("mix2", {"signature": lambda values: values ^ 1}, "mix2 did not sign for what this client sent it"),
        ("mix3", {"present": lambda values: values.flip(0) * 0 + 1}, "did not sign for what this client sent it"),
    ],
)
def test_a_receipt_that_does_not_fit_ends_the_round(server: str, change: dict, said: str) -> None:  # type: ignore[type-arg]
    def alter(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def changed(letter: Letter) -> Letter:
            if letter.kind != "receipt" or isinstance(letter.body, bytes):
                return letter
            return replace(letter, body={k: change[k](v) if k in change else v for k, v in letter.body.items()})

        return tuple(changed(letter) for letter in sent)

    threat = replace(absent("c3"), corrupted={server: alter})
    with pytest.raises(IntegrityError, match=said):
        play(PIPELINES["bits, chain"], count=1, threat=threat)


def test_a_copied_share_is_refused() -> None:
    taken: dict[str, Letter] = {}

    def copy(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        for one in sent:
            taken.setdefault(one.target, one)
        return tuple(replace(one, body=taken[one.target].body) if one.kind == "seed" else one for one in sent)

    # c0 and c1 both send mix3 a seed.
    with pytest.raises(CroupierError, match="sent the same share: one of them is a copy"):
        play(PIPELINES["bits, chain"], count=1, threat=Threat(corrupted={"c0": copy, "c1": copy}))


def test_fewer_clients_than_may_be_mixed_are_not() -> None:
    with pytest.raises(ProtocolError, match="2 of the 3 needed reached all mix servers; missing c2, c3"):
        play(PIPELINES["bits, chain"], count=1, threat=absent("c2", "c3"))
    crowd = placed(rns(8, release="bits"), Chain(smallest=3, colluders=2))
    with pytest.raises(ProtocolError, match="4 of the 5 needed"):
        play(crowd, count=1)


def test_what_no_client_sends_is_refused_at_the_end_of_the_chain() -> None:
    pipeline = PIPELINES["parameter shuffle, chain of two"]
    table = MixTable.of(pipeline, play(pipeline, count=1)[0].views["server"].given)
    rows = torch.zeros(3, table.layout.size)
    assert table.released(CLIENTS[:3], table.words(rows)).rows is not None
    rows[1, 5] = torch.inf
    with pytest.raises(IntegrityError, match=r"1 of .* NaN or infinite.*nobody can say who"):
        table.released(CLIENTS[:3], table.words(rows))


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (total(8), "only moves what clients sent, and release = 'sum' does more"),
        (rns(8), "only moves what clients sent, and release = 'mod' does more"),
        (rns(8, release="counts"), "use release = 'shuffle', 'buckets' or 'bits'"),
    ],
)
def test_what_cannot_be_moved_is_refused_when_the_pipeline_is_built(base: Pipeline, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        placed(base, Chain())


@pytest.mark.parametrize(
    ("base", "place", "said"),
    [
        (
            rns(8, release="bits"),
            {"shuffle": "pairs", "servers": 4},
            "protocol.place.servers = 4 with shuffle = 'pairs'",
        ),
        (naive("layer"), {"shuffle": "onion"}, "moves whole rows only"),
        (rns(8, release="bits"), {"shuffle": "onion"}, "moves whole rows only"),
        (Pipeline(release=Rows(), place=Relay()), {"trust": "full"}, "shuffles, and release = 'rows' does not"),
    ],
)
def test_forms_that_do_not_fit_are_refused(base: Pipeline, place: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as error:
        Pipeline.parse({**base.plain(), "place": {"use": "chain", **place}})
    assert said in str(error.value)


def test_a_trusted_chain_gives_the_relays_release_and_takes_fewer_bytes() -> None:
    chain, relay = PIPELINES["bits, trusted chain"], PIPELINES["bits"]
    here, there = play(chain), play(relay)
    assert torch.equal(here[-1].state.model.vector, there[-1].state.model.vector)
    up, unary = (letters(done[0], who, "up")["c0"]["vector"] for done, who in ((here, "mix1"), (there, "relay")))
    field = chain.place.schemas(chain, here[0].views["server"].given)["up"].fields[0]
    assert sum(field.widths) * len(up) < 8 * len(unary)


@pytest.mark.parametrize("name", ["bits, chain", *OTHERS])
def test_every_form_says_how_many_servers_must_live(name: str) -> None:
    said, place = explain(PIPELINES[name]), PIPELINES[name].place
    assert isinstance(place, Chain)
    assert f"of {len(place.names)} must be live" in said.liveness_threshold or name == "bits, trusted chain"
    assert said.must_not_collude


def test_a_box_that_was_altered_on_its_way_is_seen_by_its_sender() -> None:
    def spoil(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(
            replace(one, body={"box": one.body["box"] ^ 1}) if one.kind == "box" else one  # type: ignore[call-overload]
            for one in sent
        )

    with pytest.raises(CroupierError, match="mix1 did not sign for what this client sent it"):
        play(PIPELINES["shuffled models, chain of boxes"], count=1, threat=Threat(corrupted={"c2": spoil}))


def test_a_server_that_marks_a_row_finds_it_again_as_the_statement_says() -> None:
    """The second of two honest-looking servers flips one bit of one client's share: that client's number stands out."""
    pipeline = placed(naive("model"), Chain())
    assert "can mark an update and find it again" in explain(pipeline).privacy_threshold

    def mark(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        def marked(letter: Letter) -> Letter:
            if letter.kind != "masked" or isinstance(letter.body, bytes):
                return letter
            rows = letter.body["rows"].clone()
            rows[2, 0] ^= 1
            return replace(letter, body={**letter.body, "rows": rows})

        return tuple(marked(letter) for letter in sent)

    honest = play(pipeline, count=1)[0].views["server"].inputs[-2]
    cheated = play(pipeline, count=1, threat=Threat(corrupted={"mix2": mark}))[0].views["server"].inputs[-2]
    layout = play(pipeline, count=1)[0].views["server"].given.layout
    one, other = (pipeline.place.opened(pipeline, CLIENTS, layout, inbox).rows for inbox in (honest, cheated))
    assert one is not None
    assert other is not None
    (changed,) = [at for at in range(len(one)) if not torch.equal(one[at], other[at])]
    relay = play(placed(pipeline, Relay()), count=1)[0]
    assert torch.equal(one[changed], letters(relay, "relay", "up")["c2"]["vector"])


def test_the_statement_says_who_must_be_honest_and_what_the_dealer_adds() -> None:
    said = explain(PIPELINES["bits, chain"])
    assert ("the dealer", "any mix server or the server") in said.must_not_collude
    assert "the dealer and the server together, or the dealer and any one mix server, read" in said.privacy_threshold
    assert "3 of 3 must be live" in said.liveness_threshold
    assert said.integrity_threshold.startswith("none")
    assert "more than the sum" in said.learns["server"]
    assert "uniform bits" in said.learns["each mix server"]


def test_a_chain_hides_integers_of_any_width() -> None:
    wide = Pipeline(encode=FixedPoint(clients=8, digits=9), release=Shuffle(), place=Chain(servers=2))
    same = wide.model_copy(update={"place": Relay()})
    assert torch.equal(play(wide)[-1].state.model.vector, play(same)[-1].state.model.vector)


def test_a_client_that_runs_a_mix_server_trusts_that_one_alone() -> None:
    """Each of four clients has a server of its own; its receipt is one of those that it checks."""
    pipeline = PIPELINES["bits, chain that clients run"]
    same = play(placed(pipeline, Relay()))[-1].state.model.vector
    done = play(pipeline)
    assert torch.equal(done[-1].state.model.vector, same)
    for number, client in enumerate(CLIENTS):
        assert f"mix{number + 1}" in letters(done[0], client, "receipt")
    said = explain(pipeline)
    assert "has to trust its own mix server alone, and the dealer to side with nobody" in said.privacy_threshold
    assert "everything where all others collude" in said.privacy_threshold
    assert "its mix server may not be" in said.liveness_threshold
    boxes = placed(naive("model"), Chain(shuffle="onion", servers=4, clients_mix=True))
    assert "the dealer" not in explain(boxes).privacy_threshold
    shared = placed(naive("model"), Chain(shuffle="onion", servers=4, clients_mix=True, threshold=3))
    assert "has to trust 2 mix servers alone" in explain(shared).privacy_threshold


def test_all_other_clients_servers_and_the_server_cannot_tell_two_clients_apart() -> None:
    """Three of four servers and the receiver hold uniform bits for each client: nothing but the release."""
    pipeline = PIPELINES["bits, chain that clients run"]
    (done,) = play(pipeline, count=1)
    table = MixTable.of(pipeline, done.views["server"].given)
    true = letters(play(placed(pipeline, Relay()), count=1)[0], "relay", "up")
    for own in placing(pipeline).names:
        others = {name: witness(done, name) for name in placing(pipeline).names if name != own}
        read = pipeline.place.pooled(pipeline, others)
        assert read.ids == CLIENTS, "who sent a share is known"
        assert read.rows is not None
        for who, row in zip(CLIENTS, read.rows, strict=True):
            wrong = (row ^ table.numbers(table.words(true[who]["vector"]))).numpy()
            ones = np.unpackbits(wrong).mean()
            assert 0.35 < ones < 0.65, "a share that is missing covers half the bits"


def placing(pipeline: Pipeline) -> Chain:
    assert isinstance(pipeline.place, Chain)
    return pipeline.place


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"trust": "full"}, "clients_mix = true with trust = 'full': a client would have to trust"),
        ({"shuffle": "pairs"}, "clients_mix = true with shuffle = 'pairs': a client would have to trust"),
        ({"servers": 3}, "has a mix server for each of 3 clients, and encode = 'residues' is for sums of 8"),
    ],
)
def test_clients_that_cannot_trust_their_own_server_are_refused(place: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as error:
        Pipeline.parse({**rns(8, release="bits").plain(), "place": {"use": "chain", "clients_mix": True, **place}})
    assert said in str(error.value)


@pytest.mark.parametrize(("cohort", "enrolled"), [(None, 5), (3, 4), (4, 5)])
def test_a_client_without_a_mix_server_of_its_own_is_refused(cohort: int | None, enrolled: int) -> None:
    pipeline = placed(naive("model"), Chain(shuffle="onion", servers=4, clients_mix=True))
    with pytest.raises(SpecError, match=r"each of them runs a mix server; set protocol.place.servers="):
        check(pipeline, enrolled, Federation(rounds=1, cohort=cohort))
    check(pipeline, 4, Federation(rounds=1))
    with pytest.raises(SpecError, match="each of them runs a mix server"):
        check(pipeline, 5, Federation(rounds=3, joins={"c4": 2}))
