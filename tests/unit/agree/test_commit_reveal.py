"""A joint secret through a relay: everybody ends with the same one, or stops and says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from tests.boards import RUN, all_of, call, handing, names, once, saying, silent, table
from torch import Tensor

from croupier.agree.agreement import AgreementCall, removable
from croupier.agree.board import SERVER
from croupier.agree.commit_reveal import JOINT, TURNS, CommittingClient
from croupier.agree.standing import Standing
from croupier.core.attempt import Attempt
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Coalition, Letter
from croupier.core.view import View, replay
from croupier.engine.local import Local
from croupier.errors import ProtocolError, SpecError
from croupier.mpc.authentic import byte_tensor
from croupier.mpc.joint import DRAW, Draw, Terms, close, rule_digest, rule_seed
from croupier.mpc.signatures import signed
from croupier_lab.bench.agreement.faults_and_cost import leaks
from croupier_lab.bench.agreement.table import AgreementAttempt, settle, tries
from croupier_lab.bench.agreement.two_faced_clients import Bundle

Body = Mapping[str, Tensor]


def refused(tried: AgreementAttempt, why: str) -> None:
    """Nobody got a secret, and everybody has a reason; one of them is this."""
    assert tried.held == {}
    assert set(tried.aborts) == set(tried.call.roster)
    assert any(why in reason for reason in tried.aborts.values()), tried.aborts


@pytest.mark.parametrize("count", [4, 5, 9])
def test_everybody_holds_the_same_fresh_secret(count: int) -> None:
    agreed = settle(JOINT, call(count, number=2, start=5), table(count), attempts=1)
    (secret,) = set(agreed.secrets.values())
    assert len(secret) == 32
    assert agreed.epoch == Epoch(2, 5, names(count), rule_digest(RUN, 2, secret))
    assert secret.hex() not in repr(agreed)
    others = [
        settle(JOINT, call(count, **more), table(count, seed=seed)).epoch
        for more, seed in (({}, 1), ({"number": 2}, 2))
    ]
    assert len({agreed.epoch.digest, *(epoch.digest for epoch in others)}) == 3


def test_through_bytes_and_by_reference_are_the_same() -> None:
    one, two = (settle(JOINT, call(), table(drive=drive)) for drive in (Local(), Local(Coins.from_seed(9))))
    assert one.secrets == two.secrets
    assert one.traffic[0].messages == two.traffic[0].messages == 2 * len(TURNS) * 4


def test_views_replay() -> None:
    at = table()
    attempt = at.attempt(JOINT, call())
    result = at.drive(attempt)
    for name, party in attempt.parties.items():
        _, memory = replay(party, result.views[name])
        assert memory == result.outcomes[name].memory


def test_the_relay_sees_no_secret() -> None:
    tried = once(JOINT, call(), table())
    secrets = {standing.secret for standing in tried.held.values()}
    server = tried.result.views[SERVER]
    assert leaks(secrets, [server]) == 0
    draws = {tried.result.views[who].coins.child("draw").export() for who in tried.call.roster}
    assert leaks(draws, [server]) == 0
    # The search finds what is there: the digest is, and so is a seed in hex, put there.
    (digest,) = {s.epoch.digest for s in tried.held.values() if s.epoch}
    assert leaks({digest}, [server]) == 1
    (secret,) = secrets
    planted = replace(server, inputs=[rule_seed(RUN, secret, 3).hex().encode()])
    assert leaks(secrets, [planted]) == 1


def test_fewer_than_four_are_refused() -> None:
    with pytest.raises(SpecError, match=r"3 clients are to agree.*fewer than 4 are refused.*Enrol more"):
        call(3)
    with pytest.raises(SpecError, match="once, in order"):
        AgreementCall(RUN, 0, 0, ("d", "c", "b", "a"))
    for number, start, last in ((1, 0, 0), (0, 0, 1)):
        with pytest.raises(SpecError, match="for the one round whose number it has"):
            AgreementCall(RUN, number, start, names(4), last=last)
    with pytest.raises(SpecError, match="may not be called 'server'"):
        AgreementCall(RUN, 0, 0, ("a", "b", "c", "server"))


@pytest.mark.parametrize("turn", ["commit", "echo", "reveal", "compare"])
def test_silence_stops_everybody_and_can_be_complained_about(turn: str) -> None:
    at = table(tamper=silent("c2", turn))
    tried = once(JOINT, call(), at)
    honest = {who: why for who, why in tried.aborts.items() if who != "c2"}
    assert all(f"no '{turn}' from c2" in why for why in honest.values())
    assert set(honest) == {"c0", "c1", "c3"}
    public = at.keys["c0"]["public"]
    assert removable(tried.call.terms, tried.complaints, public, 1) == {"c2"}
    assert removable(tried.call.terms, tried.complaints, public, 3) == frozenset()
    # Complaints are for one attempt, and only their author can make them.
    assert not removable(replace(tried.call, attempt=1).terms, tried.complaints, public, 1)
    stolen = {"c0": tried.complaints["c0"], "c1": tried.complaints["c0"], "c3": tried.complaints["c0"]}
    assert not removable(tried.call.terms, stolen, public, 1)
    with pytest.raises(ProtocolError, match=r"no agreement among 4 clients in 2 attempts.*Leave out c2"):
        settle(JOINT, call(), at, attempts=2)


def test_a_restart_draws_afresh_and_ends_well_once_everybody_behaves() -> None:
    result: list[Attempt] = []

    def first(attempt: Attempt) -> Attempt:
        result.append(attempt)
        return silent("c2", "reveal")(attempt) if len(result) == 1 else attempt

    agreed = settle(JOINT, call(), table(tamper=first))
    assert [s.attempt_id.attempt for s in result] == [0, 1]
    assert agreed.epoch.number == 0
    draws = {s.coins[who].child("draw").export() for s in result for who in names(4)}
    assert len(draws) == 8


def test_an_attempt_that_fails_after_a_signature_costs_the_number() -> None:
    seen: list[Attempt] = []

    def tamper(attempt: Attempt) -> Attempt:
        seen.append(attempt)
        drop = handing("compare", lambda bundle: None if bundle.target != "c0" else bundle)
        return drop(attempt) if len(seen) == 1 else attempt

    one, two = tries(JOINT, call(), table(tamper=tamper), 2)
    # c0 alone has the rule of number 0; nobody signs another for it, and nobody uses it once 1 is signed.
    assert set(one.held) == {"c0"}
    assert (two.call.number, two.call.attempt) == (1, 0)
    assert set(two.held) == set(names(4))
    same = replace(two.call, number=0, attempt=1)
    again = once(JOINT, same, table(standings={**one.standings}))
    refused(again, "an outcome for number 0 is signed already, so none is signed for 0; agree under number 1")


def test_a_single_round_whose_number_is_spent_is_lost() -> None:
    now = AgreementCall.single(RUN, 4, names(4))
    assert now.again({}) == replace(now, attempt=1)
    assert now.again({"c0": Standing(signed=4)}) == AgreementCall.single(RUN, 5, names(4))


def test_a_reveal_of_something_else_is_refused_by_name() -> None:
    keys = table().keys["c1"]

    def other(body: Body, view: View) -> Body:
        terms, commits = Terms.of(view.given, 0), view.inputs[0][0].body["key"]
        text = Draw.make(Coins.from_seed(5))
        boxes = [
            close(terms, "reveal", ("c1", who), commits[at].numpy().tobytes(), text.value + text.nonce,
                  Coins.from_seed(100 + at))
            for at, who in enumerate(view.given.roster)
        ]  # fmt: skip
        signs = [
            signed(keys["identity"], terms.label("reveal", "c1", who, box))
            for who, box in zip(view.given.roster, boxes, strict=True)
        ]
        rows = {"box": boxes, "signature": signs}
        return {name: torch.stack([byte_tensor(row) for row in values]) for name, values in rows.items()}

    tried = once(JOINT, call(), table(tamper=saying("c1", "reveal", other)))
    refused(tried, "c1 revealed something else than it is committed to")
    assert all(tried.complaints[who].keys() == {"c1"} for who in ("c0", "c2", "c3"))


def test_a_reveal_to_some_only_gives_nobody_the_rule() -> None:
    def partly(body: Body, view: View) -> Body:
        boxes = body["box"].clone()
        boxes[2:] = 0
        return {**body, "box": boxes}

    tried = once(JOINT, call(), table(tamper=saying("c1", "reveal", partly)))
    refused(tried, "reveal of c1 does not carry its signature")
    refused(tried, "no 'compare' from c2, c3")


def test_a_copied_commitment_is_refused() -> None:
    def copy(bundle: Bundle) -> Bundle:
        return replace(bundle, rows={**bundle.rows, "c1": bundle.rows["c0"]})

    refused(once(JOINT, call(), table(tamper=handing("commit", copy))), "commitment of c1 does not carry its signature")

    def same(body: Body, view: View) -> Body:
        stolen = seen["commit"]
        message = Terms.of(view.given, 0).label(
            "commitment", "c1", body["key"].numpy().tobytes(), stolen.numpy().tobytes()
        )
        sign = signed(table().keys["c1"]["identity"], message)
        return {**body, "commitment": stolen, "signature": byte_tensor(sign)}

    seen: dict[str, Tensor] = {}

    def listen(body: Body, view: View) -> Body:
        seen["commit"] = body["commitment"]
        return body

    # c0 sits down first, so c1 has heard it before it speaks.
    both = all_of(saying("c0", "commit", listen), saying("c1", "commit", same))
    refused(once(JOINT, call(), table(tamper=both)), "two participants sent the same commitment")


@pytest.mark.parametrize("turn", [turn.name for turn in TURNS])
@pytest.mark.parametrize("how", ["drop", "swap", "garble", "withhold"])
def test_a_relay_that_tells_one_reader_something_else_stops_everybody(turn: str, how: str) -> None:
    def spoil(bundle: Bundle) -> Bundle | None:
        rows = dict(bundle.rows)
        if bundle.target != "c3":
            return bundle
        match how:
            case "withhold":
                return None
            case "drop":
                del rows["c1"]
            case "swap":
                rows["c0"], rows["c1"] = rows["c1"], rows["c0"]
            case "garble":
                rows["c1"] = {name: values ^ 1 for name, values in rows["c1"].items()}
        return replace(bundle, rows=rows)

    tried = once(JOINT, call(), table(tamper=handing(turn, spoil)))
    assert "c3" in tried.aborts
    assert len({standing.secret for standing in tried.held.values()}) <= 1
    # Only in the last turn can others have ended before it.
    assert set(tried.held) == ({"c0", "c1", "c2"} if turn == "compare" else set())
    wanted = {"drop": f"no '{turn}' from c1", "withhold": f"missing {SERVER}"}.get(how, "does not carry its signature")
    assert wanted in tried.aborts["c3"]


@pytest.mark.parametrize("turn", [turn.name for turn in TURNS])
def test_notes_of_another_attempt_number_or_run_are_refused(turn: str) -> None:
    for earlier in (call(attempt=1), call(number=1), replace(call(), run=bytes(16)), call(start=1)):
        old: dict[str, Bundle] = {}

        def keep(bundle: Bundle, old: dict[str, Bundle] = old) -> Bundle:
            old[bundle.target] = bundle
            return bundle

        def repeat(bundle: Bundle, old: dict[str, Bundle] = old) -> Bundle:
            return replace(bundle, rows={**bundle.rows, "c1": old[bundle.target].rows["c1"]})

        once(JOINT, earlier, table(tamper=handing(turn, keep)))
        tried = once(JOINT, call(), table(tamper=handing(turn, repeat)))
        refused(tried, "of c1 does not carry its signature for round 0, attempt 0")


def test_a_digest_that_only_one_signs_stops_everybody() -> None:
    for turn, purpose in (("echo", "echo"), ("compare", "digest")):

        def lie(body: Body, view: View, purpose: str = purpose) -> Body:
            message = Terms.of(view.given, 0).label(purpose, "c1", bytes(32))
            sign = signed(table().keys["c1"]["identity"], message)
            return {"digest": byte_tensor(bytes(32)), "signature": byte_tensor(sign)}

        tried = once(JOINT, call(), table(tamper=saying("c1", turn, lie)))
        assert {who for who, why in tried.aborts.items() if f"c1 signed another {purpose}" in why} >= {"c0", "c2", "c3"}


def test_a_coalition_that_speaks_last_cannot_choose_and_may_only_withhold() -> None:
    seen: list[int] = []

    def watch(held: Mapping[str, tuple[Letter, ...]], views: Mapping[str, View]) -> Mapping[str, tuple[Letter, ...]]:
        kinds = {letter.kind for letters in held.values() for letter in letters}
        seen.append(len(kinds))
        return {who: () if kinds == {"reveal"} else letters for who, letters in held.items()}

    def tamper(attempt: Attempt) -> Attempt:
        return replace(attempt, coalition=Coalition(frozenset({"c0", "c1"}), watch))

    tried = once(JOINT, call(5), table(5, tamper=tamper))
    assert seen
    assert set(tried.aborts) >= {"c2", "c3", "c4"}
    assert "no 'reveal' from c0, c1" in tried.aborts["c2"]


def test_promises_keep_rules_apart() -> None:
    secret = bytes(range(32))
    epoch = Epoch(3, 10, names(4), rule_digest(RUN, 3, secret))
    new = Standing()
    with pytest.raises(ProtocolError, match="no epoch is held"):
        new.rule(RUN, 10)
    held = new.signs(3).holds(epoch, secret)
    assert Standing.of({"standing": held.plain()}) == held
    assert secret.hex() not in repr(held)
    seed, frame, after = held.rule(RUN, 12)
    assert (seed, frame, after.used) == (rule_seed(RUN, secret, 12), epoch.frame(12), 12)
    assert after.rule(RUN, 12)[0] == seed
    assert held.rule(RUN, 12, kept=True)[0] == held.rule(RUN, 13, kept=True)[0] == rule_seed(RUN, secret, 10)
    with pytest.raises(ProtocolError, match="round 11 comes after round 12"):
        after.rule(RUN, 11)
    with pytest.raises(ProtocolError, match="epoch 3 may be over, because an outcome for number 4 was signed"):
        held.signs(4).rule(RUN, 12)
    with pytest.raises(ProtocolError, match="the secret held is not that of epoch 3 of this run"):
        held.rule(bytes(16), 12)
    with pytest.raises(ProtocolError, match=r"reach back to round 12.*start it with round 13"):
        after.check(4, 12)
    after.check(4, 13)


def test_a_round_of_its_own_is_the_same_with_fewer() -> None:
    """Agreement per round: the number and the start are the round's, the roster is its cohort."""
    at, standings = table(9), dict[str, Standing]()
    for number, cohort in enumerate((names(9)[:4], names(9)[3:8], names(9)[2:7])):
        now = AgreementCall.single(RUN, number, cohort)
        agreed = settle(JOINT, now, replace(at, standings=standings))
        standings |= agreed.standings
        rules = {standings[who].rule(RUN, number)[0] for who in cohort}
        assert len(rules) == 1
        with pytest.raises(ProtocolError, match=f"round {number + 1} lies after epoch {number}, which ends with round"):
            standings[cohort[0]].rule(RUN, number + 1)
        standings |= {who: standings[who].rule(RUN, number)[2] for who in cohort}


def test_a_member_shows_nothing_of_its_keys() -> None:
    at = table()
    me = CommittingClient(call().given("c0"), call().terms, at.keys["c0"], Coins.from_seed(1), Standing())
    assert at.keys["c0"]["identity"].hex() not in repr(me)
    assert "identity" not in repr(me)
    assert DRAW == 64
