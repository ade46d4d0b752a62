"""Sum servers and masks: who may be missing, what is refused, what is sent, and what is never shown."""

from __future__ import annotations

import random
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.toy import CLIENTS, absent, play, through_bytes

from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.core.flow import Change, Exchange, Letter, Received
from croupier.core.view import View
from croupier.encode.encoder import Payload
from croupier.encode.fixed import FixedPoint
from croupier.engine.local import Local
from croupier.engine.post import Packet
from croupier.engine.state import Threat
from croupier.errors import CroupierError, IntegrityError, ProtocolError
from croupier.kernels.shares import P
from croupier.mpc import shares
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.servers import SumServers
from croupier.release.sums import Sum
from croupier.statement import explain
from croupier.systems import sum_servers
from croupier_lab.bench.speed.secure_sum import SecureSumSize, _itemised, drawn, one_sum, seated

SERVERS = sum_servers(8)
MASKS = SERVERS.model_copy(update={"place": Masks()})
BOTH = {"sum servers": SERVERS, "masks": MASKS}


def saying(*kinds: str, target: str = "") -> Change:
    """A party that keeps some of its letters to itself."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(m for m in letters if not (m.kind in kinds and target in ("", m.target)))

    return change


def test_one_client_missing_and_the_round_completes_with_those_present() -> None:
    done = play(SERVERS, threat=absent("c1"))
    assert [one.present for one in done] == [("c0", "c2", "c3")] * 2
    same = play(SERVERS.model_copy(update={"place": SumServers(servers=5)}), threat=absent("c1"))
    assert torch.equal(done[-1].state.model.vector, same[-1].state.model.vector)


def test_too_few_clients_end_the_round() -> None:
    with pytest.raises(ProtocolError, match=r"2 of the 3 needed reached all sum servers; missing c0, c3"):
        play(SERVERS, threat=absent("c0", "c3"), quorum=0.75)


@pytest.mark.parametrize("server", ["sum1", "sum2", "sum3"])
def test_a_client_that_reached_only_some_servers_ends_the_round(server: str) -> None:
    threat = Threat(corrupted={"c0": saying("share", "seed", target=server)})
    with pytest.raises(IntegrityError, match="a client that sent its update is missing from the published sum"):
        play(SERVERS, threat=threat)


@pytest.mark.parametrize("server", ["sum2", "server"])
def test_a_missing_server_ends_the_round(server: str) -> None:
    with pytest.raises((ProtocolError, KeyError)):
        play(SERVERS, threat=absent(server))


def test_a_client_that_waits_holds_no_copy_of_its_update_or_of_what_it_sent() -> None:
    coins = Coins.from_seed(3)
    attempt = seated(SERVERS, drawn(50, 8, coins), coins).attempt
    given, keys = attempt.givens["c00"], attempt.memories["c00"]["keys"]
    payload = Payload(torch.ones(50, dtype=torch.int32))
    held = [weakref.ref(payload.vector)]
    flow = SERVERS.place.submit(SERVERS, given, payload, keys, coins)
    del payload
    exchange = next(flow)
    assert isinstance(exchange, Exchange)
    held.append(weakref.ref(dict(exchange.send[0].body)["vector"]))  # type: ignore[arg-type]
    assert held[1]() is not None
    del exchange
    assert [one() for one in held] == [None, None]


def test_masks_lose_the_round_when_one_is_missing_and_say_so() -> None:
    with pytest.raises(ProtocolError, match=r"missing c1\. Masks cancel only when every invited.*sum-servers") as said:
        play(MASKS, threat=absent("c1"))
    assert "quorum" not in str(said.value)


def off_by_one(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
    """A sum server whose sum is off by one."""

    def moved(letter: Letter) -> Letter:
        assert not isinstance(letter.body, bytes)
        if letter.kind != "sum":
            return letter
        vector = letter.body["vector"].clone()
        vector[0] ^= 1
        return replace(letter, body={**letter.body, "vector": vector})

    return tuple(moved(letter) for letter in letters)


def test_a_wrong_sum_is_refused() -> None:
    with pytest.raises(IntegrityError, match="round 1 is refused: the published sum is not the sum of the clients"):
        play(SERVERS, threat=Threat(corrupted={"sum2": off_by_one}))


def test_a_wrong_sum_that_no_client_gets_to_see_is_refused_too() -> None:
    def deaf(mail: list[Packet]) -> list[Packet]:
        # A client gets the model and no published sum, which is longer by who is present and the tag.
        return [p for p in mail if Header.unpack(bytes(p.data[:148])).kind != "published"]

    with pytest.raises(ProtocolError, match="no client ended content"):
        play(SERVERS, threat=Threat(corrupted={"sum2": off_by_one}), drive=through_bytes(network=deaf))


def test_one_client_that_hears_nothing_does_not_end_the_round() -> None:
    (done,) = play(SERVERS, count=1, threat=Threat(corrupted={"server": saying("published", target="c2")}))
    assert done.present == CLIENTS


@pytest.mark.parametrize("count", [643_850, 1000, 7])
def test_a_long_share_takes_no_byte_more_than_its_bits(count: int) -> None:
    pipeline = sum_servers(10, digits=5)
    assert isinstance(pipeline.encode, FixedPoint)
    assert pipeline.encode.bits == 21
    size = SecureSumSize(params=count, clients=10)
    parts = _itemised(pipeline, size)
    assert parts["payload"] == -(-21 * count // 8)
    assert sum(parts.values()) - parts["payload"] < 1000
    assert parts["tag"] == 8
    if count > 1000:
        return
    updates = drawn(count, 10, Coins.from_seed(1))
    result, _ = one_sum(pipeline, updates, Coins.from_seed(2), Coins.from_seed(3))
    seeds = 2 * (parts["header"] + 32)
    assert {result.traffic.sent[name] for name in updates} == {parts["payload"] + 8 + parts["header"] + seeds}


def raising(*_: Any, **__: Any) -> Any:
    """What no secret may be drawn from."""
    raise AssertionError("a generator that is no cipher was asked for a secret")


@pytest.fixture
def no_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every generator of NumPy, torch and Python is out of order."""
    for module, names in {
        np.random: ("default_rng", "Generator", "Philox", "PCG64", "RandomState", "seed", "rand", "randint", "random",
                    "bytes", "normal", "shuffle", "permutation", "choice", "randn"),
        torch: ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "manual_seed", "Generator",
                "bernoulli", "normal", "seed"),
        torch.Tensor: ("random_", "uniform_", "normal_", "bernoulli_"),
        random: ("random", "randint", "randrange", "getrandbits", "shuffle", "sample", "choice", "seed", "Random"),
        Coins: ("fast", "sampler", "ambient"),
    }.items():  # fmt: skip
        for name in names:
            monkeypatch.setattr(module, name, raising)


@pytest.mark.parametrize("name", BOTH)
def test_no_generator_is_reachable_from_a_secret(name: str, request: pytest.FixtureRequest) -> None:
    updates = {size: drawn(size, 4, Coins.from_seed(1)) for size in (5, 3000)}
    for given in updates.values():
        # Compiled loops are loaded first: their compiler knows NumPy's generators by name.
        one_sum(BOTH[name], given, Coins.from_os(), Coins.from_os())
    request.getfixturevalue("no_generators")
    for size, given in updates.items():
        result, total = one_sum(BOTH[name], given, Coins.from_os(), Coins.from_os())
        assert not [o.error for o in result.outcomes.values() if o.error]
        assert total is not None
        assert len(total) == size


def test_a_secret_from_a_generator_is_caught(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = drawn(5, 4, Coins.from_seed(1))
    request.getfixturevalue("no_generators")

    def weak(seed: bytes) -> Any:
        return np.random.default_rng(seed[0]), 0

    monkeypatch.setattr(shares, "stretched", weak)
    with pytest.raises(AssertionError, match="no cipher"):
        one_sum(SERVERS, updates, Coins.from_seed(1), None)


def test_the_statement_of_sum_servers() -> None:
    said = explain(SERVERS)
    assert said.must_not_collude[0] == ("one sum server", "all the others")
    assert any("any client" in group[0] and "tags" in group[1] for group in said.must_not_collude)
    assert "all sum servers but one, colluding and malicious" in said.privacy_threshold
    assert "the server and all sum servers, colluding" in said.integrity_threshold
    assert "2^-60" in said.integrity_threshold
    assert "no client's own values are bounded" in said.integrity_threshold
    assert "lost when a client reached only some" in said.liveness_threshold
    assert set(said.learns) == {"server", "each sum server", "each client", "the network"}
    assert "sum of the encoded updates" in said.learns["server"]
    assert "which clients took part" in said.learns["each sum server"]
    assert said.learns["each client"].endswith("its own update; the published sum, and which clients took part")


def test_the_statement_of_masks() -> None:
    said = explain(MASKS)
    assert said.must_not_collude[0] == ("server", "all clients but one")
    assert any("directory" in who for group in said.must_not_collude for who in group)
    assert "any clients but two" in said.privacy_threshold
    assert said.integrity_threshold.startswith("none")
    assert "every invited client" in said.liveness_threshold
    assert set(said.learns) == {"server", "each client", "the network"}
    assert said.learns["each client"].endswith("which clients are invited, and their public keys")


def secrets(pipeline: Pipeline) -> tuple[list[Any], list[str]]:
    """Everything that a failed round leaves behind, and how its secrets would look in print."""
    updates = drawn(5, 4, Coins.from_seed(1))
    made = seated(pipeline, updates, Coins.from_seed(7))
    heard: list[Letter] = []

    def listen(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        heard.extend(letters)
        return tuple(letters[:-1])

    from croupier.core.flow import corrupt

    parties = {name: corrupt(party, listen) for name, party in made.attempt.parties.items()}
    attempt = replace(made.attempt, parties=parties, keep=dict.fromkeys(parties, "keep"))
    result = Local(Coins.from_seed(9))(attempt)
    hidden: list[bytes] = []
    for memory in attempt.memories.values():
        keys = memory["keys"]
        hidden += [keys[name] for name in ("group", "private") if name in keys]
    for letter in heard:
        if letter.kind == "seed" and not isinstance(letter.body, bytes):
            hidden.append(letter.body["seed"].numpy().tobytes())
    shown = [form for secret in hidden for form in _forms(secret)]
    return [result, attempt, *heard, *(o.error for o in result.outcomes.values()), *result.views.values()], shown


def _forms(secret: bytes) -> list[str]:
    return [secret.hex(), repr(secret)[2:-1], ", ".join(map(str, secret[:8])), str(int.from_bytes(secret, "little"))]


@pytest.mark.parametrize("name", BOTH)
def test_no_secret_is_in_any_print(name: str) -> None:
    left, shown = secrets(BOTH[name])
    assert shown
    errors = [one for one in left if isinstance(one, CroupierError)]
    assert errors, "the round was meant to fail"
    for one in left:
        text = f"{one!r} {one} {getattr(one, '__cause__', '')}"
        assert not [form for form in shown if form in text], type(one).__name__


def test_a_secret_in_a_print_is_caught() -> None:
    secret = Coins.from_seed(1).export()
    as_tensor = torch.frombuffer(bytearray(secret), dtype=torch.uint8)
    for text in (repr({"seed": secret}), secret.hex(), repr(as_tensor.tolist())):
        assert [form for form in _forms(secret) if form in text]


@pytest.mark.parametrize("place", [SumServers(), Masks()])
def test_what_cannot_be_added_is_refused_when_the_pipeline_is_built(place: SumServers | Masks) -> None:
    with pytest.raises(CroupierError, match="works on bits"):
        Pipeline.parse({"encode": {"use": "residues", "clients": 4}, "release": "mod", "place": place.use})
    (why,) = place.misfits(Pipeline())
    assert "residues of a power of two, not encode = 'floats'; use encode = 'fixed'" in why


def test_sums_that_the_field_cannot_hold_are_refused() -> None:
    wide = FixedPoint(clients=1 << 30, digits=9)
    assert wide.bits > 60
    with pytest.raises(CroupierError, match="60 bits at most"):
        Pipeline(encode=wide, release=Sum(), place=SumServers())


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("again", ["attempt", "round_"])
def test_no_attempt_and_no_round_uses_a_key_twice(name: str, again: str) -> None:
    updates = drawn(5, 4, Coins.from_seed(1))
    bodies: dict[int, dict[tuple[str, str, str], bytes]] = {0: {}, 1: {}}
    for attempt in (0, 1):
        made = seated(BOTH[name], updates, Coins.from_seed(7), **{again: attempt})
        result = Local()(replace(made.attempt, keep=dict.fromkeys(made.attempt.parties, "keep")))
        for party, view in result.views.items():
            for letter in (letter for inbox in view.inputs for letter in inbox):
                if letter.kind in ("share", "seed", "up"):
                    body = b"".join(values.numpy().tobytes() for values in letter.body.values())
                    bodies[attempt][letter.source, party, letter.kind] = body
    assert bodies[0].keys() == bodies[1].keys()
    assert bodies[0]
    assert not [key for key in bodies[0] if bodies[0][key] == bodies[1][key]]


def test_a_client_is_not_content_with_a_sum_of_fewer_than_the_quorum() -> None:
    """All servers together publish the true sum of one client to that client: its tag fits, but it hides nothing."""
    updates = drawn(4, 4, Coins.from_seed(1))
    made = seated(SERVERS, updates, Coins.from_seed(7))
    alone = made.attempt.givens["c00"]
    keys = made.attempt.memories["c00"]["keys"]
    payload = SERVERS.encode.encode(updates["c00"], {}, Coins.from_seed(2))
    flow = SERVERS.place.submit(SERVERS, alone, payload, keys, Coins.from_seed(3))
    ask = next(flow)
    assert isinstance(ask, Exchange)
    bits = FixedPoint(clients=8).bits
    drawn_shares, tag = [], 0
    for letter in ask.send:
        assert not isinstance(letter.body, bytes)
        if letter.kind == "share":
            long = letter.body["vector"]
            tag += int(letter.body["tag"][0])
        else:
            numbers, part = shares.stretched(letter.body["seed"].numpy().tobytes())
            drawn_shares.append(numbers)
            tag += part
    present = torch.tensor([1, 0, 0, 0], dtype=torch.uint8)
    total = shares.added([long], drawn_shares, 4, bits)
    assert torch.equal(shares.unpacked(total, 4, bits), payload.vector)
    body = {"present": present, "vector": total, "tag": torch.tensor([tag % P])}
    with pytest.raises(IntegrityError, match="of 1 clients, fewer than the round needs"):
        flow.send((Received("server", "published", body),))
