"""Two servers in a whole round: too little noise, missing clients, lying clients, and descriptions that do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from scipy.stats import norm
from tests.laws.pipelines import signed as pipeline_with
from tests.laws.toy import CLIENTS, absent, play, through_bytes

from croupier.aggregate.signs import SignTrust
from croupier.core.coins import Coins
from croupier.core.flow import Change, Flow, Given, Letter, Memory, Party
from croupier.core.view import View
from croupier.encode.signs import Signs
from croupier.engine.federation import Federation, check
from croupier.engine.state import Threat
from croupier.errors import CroupierError, IntegrityError, ProtocolError, SpecError, TooFew
from croupier.kernels.field import packed
from croupier.mpc.signatures import signed
from croupier.pipeline import Pipeline
from croupier.place.placement import Mechanism
from croupier.place.two_servers.messages import claim
from croupier.place.two_servers.pair import Pair
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.local import NoNoise
from croupier.privacy.response import Response
from croupier.release.scored import ScoredSum
from croupier.statement import explain

PLACES = {
    "nobody cheats": Pair(malicious=False), "hash": Pair(entropy=0), "product": Pair(entropy=0, check="product"),
}  # fmt: skip
NOISY = Gaussian(clip=1e-3, sigma=1)


def noised(privacy: Any, **fields: Any) -> Pipeline:
    """Signs on two servers, with noise."""
    loose = ScoredSum(gate=False, among=1)
    return Pipeline(privacy=privacy, encode=Signs(), release=loose, aggregate=SignTrust(), place=Pair(**fields))


def test_entropy_in_bits() -> None:
    assert NoNoise().entropy(10**6) == 0
    assert Gaussian(clip=1, sigma=0).entropy(10**6) == 0
    # With all coordinates alike, each sign is the likelier one with chance Phi(clip / (sigma sqrt(size))).
    for clip, sigma, size in ((1.0, 0.5, 100), (5.0, 0.01, 1000), (1e-9, 1.0, 40)):
        kept = norm.cdf(clip / (sigma * math.sqrt(size)))
        assert Gaussian(clip=clip, sigma=sigma).entropy(size) == pytest.approx(-size * math.log2(kept))
    assert Gaussian(clip=1e-9, sigma=1).entropy(40) == pytest.approx(40)
    # What lies in one coordinate leaves the others more: the equal spread is the least.
    skewed = -math.log2(norm.cdf(1 / 0.5)) + 99
    assert Gaussian(clip=1, sigma=0.5).entropy(100) < skewed
    flips = 1 / (1 + math.exp(0.5))
    assert Response(coordinates=4, epsilon=2).entropy(100) == pytest.approx(96 - 4 * math.log2(1 - flips), rel=1e-6)
    assert Response(coordinates=4, epsilon=2).entropy(2) == pytest.approx(-2 * math.log2(1 - flips), rel=1e-6)


def test_no_noise_is_refused_when_built_with_a_remedy() -> None:
    with pytest.raises(SpecError) as caught:
        noised(NoNoise())
    for said in ("place = 'pair'", "entropy = 128", "privacy = 'gaussian'", "malicious = false"):
        assert said in str(caught.value)
    assert noised(NoNoise(), malicious=False)
    assert noised(NoNoise(), entropy=0)


def test_too_little_noise_is_refused_by_the_client_before_it_sends() -> None:
    sent: list[str] = []

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        sent.extend(letter.kind for letter in letters)
        return letters

    threat = Threat(corrupted=dict.fromkeys(CLIENTS, listen))
    with pytest.raises(CroupierError) as caught:
        play(noised(NOISY), count=1, threat=threat)
    for said in ("a row of 30 signs carries 30.0 bits", "protocol.place.entropy = 128", "add noise"):
        assert said in str(caught.value)
    assert sent == []
    assert len(play(noised(NOISY, entropy=29), count=1)[0].present) == 4


@pytest.mark.parametrize("name", PLACES)
def test_a_round_starts_again_without_the_missing(name: str) -> None:
    pipeline = pipeline_with(PLACES[name])
    (done,) = play(pipeline, count=1, threat=absent("c1"))
    assert (done.attempt, done.present) == (1, ("c0", "c2", "c3"))
    with pytest.raises(ProtocolError, match=r"missing c0, c1, c2.*bring the missing back, or lower federation.quorum"):
        play(pipeline, count=1, threat=absent("c0", "c1", "c2"))


@pytest.mark.parametrize("name", PLACES)
def test_or_a_uniform_row_votes(name: str) -> None:
    voting = pipeline_with(PLACES[name].model_copy(update={"missing": "vote"}))
    (done,) = play(voting, count=1, threat=absent("c1"))
    assert (done.attempt, done.present) == (0, ("c0", "c2", "c3"))
    (whole,) = play(voting, count=1)
    assert whole.present == CLIENTS


@pytest.mark.parametrize("name", PLACES)
def test_what_is_said_of_the_sum_counts_the_rows_that_stand_for_the_missing(name: str) -> None:
    strict, voting = (
        pipeline_with(PLACES[name].model_copy(update={"missing": how})).model_copy(
            update={"release": ScoredSum(gate=False, spread=9, among=1)}
        )
        for how in ("restart", "vote")
    )
    (plain,) = play(strict, count=1, threat=absent("c1"))
    (voted,) = play(voting, count=1, threat=absent("c1"))
    # Three clients sent a row each, and four rows were voted on.
    assert len(plain.present) == len(voted.present) == 3
    assert not torch.equal(plain.state.model.vector, voted.state.model.vector)
    row, malicious = "one uniform row for each missing client", PLACES[name].malicious
    for pipeline, votes in ((strict, False), (voting, True)):
        said = explain(pipeline)
        assert (f"named sent, each once, and of {row}, or" in said.integrity_threshold) == (votes and malicious)
        readers = ("server", "second", *(["each client"] if malicious else []))
        assert [row in said.learns[who] for who in readers] == [votes] * len(readers)


def two_faced(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
    """A client that signs one row for each server."""
    changed = []
    for letter in letters:
        if letter.kind == "up" and letter.target == "second" and not isinstance(letter.body, bytes):
            row = letter.body["row"] ^ torch.ones_like(letter.body["row"])
            same = letter.body["handed"]
            message = claim(view.given, view.party, row.numpy(), same.numpy().tobytes())
            mine = torch.frombuffer(bytearray(signed(view.memory["keys"]["identity"], message)), dtype=torch.uint8)
            letter = Letter(letter.target, "up", {"row": row, "signature": mine, "handed": same})
        changed.append(letter)
    return tuple(changed)


@pytest.mark.parametrize("name", ["hash", "product"])
def test_a_client_with_two_rows_is_left_out(name: str) -> None:
    (done,) = play(pipeline_with(PLACES[name]), count=1, threat=Threat(corrupted={"c3": two_faced}))
    assert (done.attempt, done.present) == (1, ("c0", "c1", "c2"))
    (same,) = play(pipeline_with(PLACES[name]), count=1, threat=absent("c3"))
    assert torch.equal(done.state.model.vector, same.state.model.vector)


def two_models(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
    """A client that signs one row for both servers, and says to each that it was handed something else."""
    changed = []
    for letter in letters:
        if letter.kind == "up" and letter.target == "second" and not isinstance(letter.body, bytes):
            row, other = letter.body["row"], letter.body["handed"] ^ torch.ones_like(letter.body["handed"])
            message = claim(view.given, view.party, row.numpy(), other.numpy().tobytes())
            mine = torch.frombuffer(bytearray(signed(view.memory["keys"]["identity"], message)), dtype=torch.uint8)
            letter = Letter(letter.target, "up", {"row": row, "signature": mine, "handed": other})
        changed.append(letter)
    return tuple(changed)


@pytest.mark.parametrize("name", ["hash", "product"])
def test_a_client_with_one_row_for_two_models_is_left_out(name: str) -> None:
    (done,) = play(pipeline_with(PLACES[name]), count=1, threat=Threat(corrupted={"c3": two_models}))
    assert (done.attempt, done.present) == (1, ("c0", "c1", "c2"))
    (same,) = play(pipeline_with(PLACES[name]), count=1, threat=absent("c3"))
    assert torch.equal(done.state.model.vector, same.state.model.vector)


def changing(kind: str, name: str, *targets: str) -> Change:
    """A party that flips a bit of what it sends."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        found = []
        for letter in letters:
            meant = not targets or letter.target in targets
            if letter.kind == kind and meant and not isinstance(letter.body, bytes):
                values = letter.body[name].clone()
                values.view(-1).view(torch.uint8)[0] ^= 1
                letter = Letter(letter.target, kind, {**letter.body, name: values})
            found.append(letter)
        return tuple(found)

    return change


@pytest.mark.parametrize(
    ("who", "kind", "name"),
    [
        ("server", "receipt", "digests"), ("second", "receipt", "signature"), ("server", "receipt", "identity"),
        ("server", "published", "sums"), ("server", "published", "total"), ("server", "published", "signatures"),
    ],
)  # fmt: skip
def test_clients_refuse_what_the_servers_did_not_both_sign(who: str, kind: str, name: str) -> None:
    with pytest.raises(IntegrityError, match="round 1 is refused"):
        play(pipeline_with(PLACES["hash"]), count=1, threat=Threat(corrupted={who: changing(kind, name)}))


@pytest.mark.parametrize("name", ["commitment", "model"])
def test_a_client_that_was_handed_something_else_is_left_out(name: str) -> None:
    told = Threat(corrupted={"server": changing("model", name, "c0")})
    (done,) = play(pipeline_with(PLACES["hash"]), count=1, threat=told)
    assert (done.attempt, done.present) == (1, ("c1", "c2", "c3"))
    (plain,) = play(pipeline_with(PLACES["hash"]), count=1, threat=absent("c0"))
    assert torch.equal(done.state.model.vector, plain.state.model.vector)
    many = Threat(corrupted={"server": changing("model", name, "c0", "c1", "c2")})
    with pytest.raises(ProtocolError, match=r"missing c0, c1, c2"):
        play(pipeline_with(PLACES["hash"]), count=1, threat=many, quorum=1.0)


@pytest.mark.parametrize("name", PLACES)
def test_bytes_and_memory_give_the_same_model(name: str) -> None:
    one, two = (play(pipeline_with(PLACES[name]), drive=drive) for drive in (None, through_bytes()))
    assert torch.equal(one[-1].state.model.vector, two[-1].state.model.vector)


BASE: dict[str, Any] = {
    "encode": "signs", "release": "scored", "aggregate": "sign-trust", "place": {"use": "pair", "malicious": False}
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encode": {"use": "signs", "weights": "open"}}, ("protocol.encode.form", "'open'", "weights = 'uniform'")),
        ({"encode": {"use": "signs", "form": "weights"}}, ("protocol.encode.form = 'weights'", "form = 'delta'")),
        ({"encode": "floats"}, ("release = 'scored'", "encode = 'signs'")),
        ({"encode": {"use": "fixed", "clients": 8}}, ("release = 'scored'", "encode = 'signs'")),
        ({"aggregate": "mean"}, ("release = 'scored'", "aggregate = 'sign-trust'")),
        ({"release": "sum"}, ("encode = 'signs'", "release = 'sum'", "use 'scored'")),
        ({"release": "shuffle", "place": "relay"}, ("encode = 'signs'", "use 'scored'")),
        ({"release": {"use": "shuffle", "grain": "model"}, "place": "relay"}, ("'sign-trust'", "release = 'scored'")),
        ({"place": "direct"}, ("place = 'direct'", "release = 'scored'", "use place = 'relay'")),
        ({"place": {"use": "sum-servers"}}, ("place = 'sum-servers'", "release = 'scored'", "use place = 'relay'")),
        ({"place": {"use": "pair", "check": "crc"}}, ("check", "hash")),
        ({"place": {"use": "pair", "entropy": -1}}, ("entropy", "-1")),
        ({"place": {"use": "pair", "missing": "ignore"}}, ("missing", "restart")),
    ],
)  # fmt: skip
def test_descriptions_that_do_not_fit_say_what_would(change: dict[str, Any], said: tuple[str, ...]) -> None:
    assert Pipeline.parse(BASE)
    with pytest.raises(CroupierError) as caught:
        Pipeline.parse(BASE | change)
    for part in said:
        assert part in str(caught.value)


def test_the_rule_needs_records_of_the_servers_own() -> None:
    with pytest.raises(SpecError, match=r"protocol.aggregate = 'sign-trust'.*set task.root.records=100"):
        check(Pipeline.parse(BASE), 10, Federation())
    check(Pipeline.parse(BASE), 10, Federation(), frozenset({"root"}))
    levelled = Pipeline.parse(BASE | {"release": {"use": "scored", "weights": "levels"}})
    with pytest.raises(SpecError, match=r"federation.cohort = 10.*at least 50"):
        check(levelled, 10, Federation(), frozenset({"root"}))


def test_the_statement_says_who_must_stay_apart() -> None:
    said = str(explain(pipeline_with(PLACES["hash"])))
    assert "dealer" in said
    assert "distance of every row of signs" in said
    assert packed(torch.ones(9).numpy()).tolist() == [255, 1]


def test_weights_that_no_sum_could_hold_are_refused_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.place.two_servers.pair.MOST", 100)
    pipeline = pipeline_with(PLACES["hash"])
    heavy = pipeline.model_copy(update={"release": ScoredSum(gate=False, among=1, weights="relu")})
    with pytest.raises(ProtocolError, match=r"weights = 'relu'.*a sum holds less than 100; use weights = 'equal'"):
        play(heavy, count=1)


def test_one_server_alone_cannot_have_rows_sent_again() -> None:
    """It would see the sum with and without a client: what it says is missing must be what the other says too."""
    pipeline = pipeline_with(PLACES["hash"])

    def lying(given: Given, memory: Memory, coins: Coins) -> Flow:
        flow, answer = pipeline.parties(CLIENTS)["second"](given, memory, coins), None
        while True:
            ask = flow.send(answer)
            if any(letter.kind == "outcome" for letter in getattr(ask, "send", ())):
                raise TooFew("second: a lie", ("c0",))
            answer = yield ask

    with pytest.raises(ProtocolError, match="round 1 cannot go on"):
        play(lying_pair(pipeline, lying), count=1)


def lying_pair(pipeline: Pipeline, second: Party) -> Pipeline:
    """The same with another second server."""

    class Lying(Pair):
        def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
            """The liar in its place."""
            return {**super().middle(mechanism), "second": second}

    return pipeline.model_copy(update={"place": Lying(**dict(pipeline.place))})


def test_a_round_that_the_second_server_is_not_content_with_is_refused() -> None:
    pipeline = pipeline_with(PLACES["hash"])

    def grim(given: Given, memory: Memory, coins: Coins) -> Flow:
        yield from pipeline.parties(CLIENTS)["second"](given, memory, coins)
        raise IntegrityError("something is wrong")

    with pytest.raises(ProtocolError, match="second did not end content"):
        play(lying_pair(pipeline, grim), count=1)
