"""Rounds whose clients agree anew each time: nothing is trained differently, and nothing opened that is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.boards import all_of, bent, silent
from tests.unit.agree.test_epochs import played, seen_by_server

from croupier.agree.pbft.views import NONE, heads
from croupier.agree.standing import Standing
from croupier.agree.welcome import invitation
from croupier.core.attempt import Attempt
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch, Frame, disjoint_cohort_chance
from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.encode.hidden import HiddenUnits
from croupier.engine.federation import Federation
from croupier.engine.job.run import resume, run
from croupier.engine.local import Local
from croupier.engine.loop import plain_model, rounds
from croupier.engine.state import Round, Threat, run_id
from croupier.errors import ProtocolError, SpecError
from croupier.mpc.joint import rule_seed
from croupier.pipeline import Pipeline
from croupier.spec import load
from croupier_lab.bench.agreement import lost_rules as bench

MEAN = "protocol.aggregate=mean"
ROUND = "protocol.encode.agree=round"
PBFT = "protocol.encode.by=pbft"


def bare(
    count: int, *, clients: int = 100, cohort: int = 10, threat: Threat | None = None, carry: bool = False, **more: str
) -> list[Round]:
    """Rounds of the bare task: agreements and frames, and no training."""
    pipeline = Pipeline(encode=HiddenUnits(**{"agree": "round", **more}))
    plan, coins = Federation(rounds=count, cohort=cohort, carry=carry), Coins.from_seed(3)
    keep = {"server": "keep"}
    task = bench.bare_task(clients)
    return list(rounds(pipeline, task, plan, coins, Local(), threat=threat or Threat(), keep=keep))  # type: ignore[arg-type]


def secrets(done: list[Round]) -> set[bytes]:
    """Every secret that any client held after any round."""
    memories = [memory for one in done for memory in one.state.memories.values() if "standing" in memory]
    held = [Standing.of(memory) for memory in memories]
    return {one.secret for one in held} | {secret for one in held for _, secret in one.older}


@pytest.mark.parametrize("by", ["joint", "pbft"])
def test_training_is_the_same_as_in_plain_coordinates(by: str) -> None:
    hidden, task, _, coins = played(
        MEAN, ROUND, "protocol.encode.first=open", f"protocol.encode.by={by}", "federation.rounds=2",
        keep={"server": "keep"},
    )  # fmt: skip
    plain, *_ = played(MEAN, "protocol.encode=floats", "federation.rounds=2")
    assert [one.metrics for one in hidden] == [one.metrics for one in plain]
    state = hidden[-1].state
    assert torch.equal(plain_model(task.task, coins, state).vector, plain[-1].state.model.vector)
    assert not torch.equal(state.model.vector, plain[-1].state.model.vector)
    # One secret a round, which nobody but clients saw.
    seen, known = seen_by_server(hidden), secrets(hidden)
    assert len(known) == 2
    wanted = [*known, *(rule_seed(run_id(coins), one, number) for one in known for number in range(2))]
    assert all(form not in seen for one in wanted for form in (one, one.hex().encode(), one[::-1]))
    assert Frame.unpack(hidden[0].state.model.frame).digest in seen


def test_rounds_that_nobody_can_open_are_lost_and_counted() -> None:
    done = bare(13)
    holders: set[str] = set()
    held = -1
    for one in done:
        unknown = one.number > 0 and not holders & set(one.cohort)
        assert bool(one.lost) == unknown
        assert set(one.without_rule or ()) == (set(one.cohort) if unknown else set())
        assert one.present == (() if unknown else one.cohort)
        if unknown:
            assert f"knows the rule of round {held + 1} " in one.lost
            assert one.state.model.frame == done[one.number - 1].state.model.frame
        else:
            assert Frame.unpack(one.state.model.frame).round == one.number
            holders, held = set(one.cohort), one.number
    assert 0 < sum(bool(one.lost) for one in done) < 12


def test_a_third_of_cohorts_are_strangers_to_the_last_one() -> None:
    # As many cohorts as the loop would draw; that it loses those and no others is shown above.
    names, coins = tuple(range(100)), Coins.from_seed(5)
    drawn = [set(coins.child("cohort", at).sampler().choice(names, 10, replace=False).tolist()) for at in range(4000)]
    apart = sum(not one & other for one, other in pairwise(drawn)) / 3999
    assert apart == pytest.approx(disjoint_cohort_chance(100, 10), abs=3 * (0.33 * 0.67 / 3999) ** 0.5)


def test_few_may_hand_on_a_rule_and_too_few_who_know_it_lose_the_round() -> None:
    epoch = Epoch(3, 3, ("a",), bytes(32), 3)
    call = invitation(bytes(16), epoch, ("b", "c"))
    assert call.again({"a": Standing(3)}).least == call.least == 2
    # Four came, and all but one hold models whose rule nobody there knows: without carry, too, the next round is held.
    sets = ("federation.rounds=12", "federation.cohort=4", "task.split.clients=20", "task.fit.epochs=1", ROUND)
    done, *_ = played(*sets)
    lost = [one for one in done if one.lost]
    assert lost
    assert len(done) == 12
    assert any("clients can agree on the rule, and 4 are needed" in one.lost for one in lost)


def test_with_anyone_to_ask_none_is_lost() -> None:
    done = bare(6, fetch="anyone")
    assert not any(one.lost for one in done)
    assert all(one.present == one.cohort for one in done)
    # The bench's own numbers.
    found = bench.played(20, 4, 6, Coins.from_seed(1))
    assert 0 <= found["low"] <= found["measured"] <= found["high"] <= 1
    assert found["share"] == disjoint_cohort_chance(20, 4)


def test_those_who_hold_the_last_rule_may_be_gone() -> None:
    first = bare(1, clients=12, cohort=6)[0]
    gone = frozenset(first.cohort)
    done = bare(
        2, clients=12, cohort=6, fetch="anyone", threat=Threat(absent=lambda number: gone if number else gone - gone)
    )
    assert done[1].lost
    assert set(done[1].without_rule or ()) == set(done[1].cohort) - gone


def test_a_false_holder_opens_nothing() -> None:
    """What is handed on is held against the frame's digest: a client that gets another secret stays a stranger."""

    def garbled(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if letters[0].kind != "give":
            return letters
        (one,) = letters
        assert not isinstance(one.body, bytes)
        return (replace(one, body={**one.body, "box": one.body["box"] ^ 1}),)

    def tamper(attempt: Attempt) -> Attempt:
        return all_of(*(bent(who, garbled) for who in attempt.parties if who != "server"))(attempt)

    done = bare(2, clients=12, cohort=6, carry=True, threat=Threat(tamper=tamper))
    knew = set(done[0].cohort) & set(done[1].cohort)
    assert knew
    assert set(done[1].without_rule or ()) == set(done[1].cohort) - knew


def heads_of(number: int, cohort: tuple[str, ...], last: bytes) -> tuple[str, ...]:
    return heads(cohort, number, Frame.unpack(last).digest if last else NONE)


def kinds(done: Round) -> set[str]:
    """What the server was sent in the agreements before a round."""
    return {letter.kind for view in done.before for inbox in view.inputs for letter in inbox}


def test_a_silent_head_is_replaced_in_a_run() -> None:
    def tamper(attempt: Attempt) -> Attempt:
        roster = next(iter(attempt.givens.values())).roster
        return silent(heads_of(0, roster, b"")[0], "propose.0")(attempt)

    (done,) = bare(1, clients=7, cohort=7, by="pbft", threat=Threat(tamper=tamper))
    calm = bare(1, clients=7, cohort=7, by="pbft")[0]
    assert "propose.1" in kinds(done)
    assert "propose.1" not in kinds(calm)
    # It says nothing, and hears what the others decide.
    assert done.present == done.cohort
    assert not done.lost


def test_a_head_that_tells_two_seeds_ends_in_one_rule_or_a_named_abort() -> None:
    """It hands half of the clients boxes that hold nothing: they do not prepare, and the view changes."""

    def halved(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if letters[0].kind != "propose.0":
            return letters
        one = letters[0]
        assert not isinstance(one.body, bytes)
        box = one.body["box"].clone()
        box[: len(box) // 2] ^= 1
        return (replace(one, body={**one.body, "box": box}),)

    def tamper(attempt: Attempt) -> Attempt:
        roster = next(iter(attempt.givens.values())).roster
        return bent(heads_of(0, roster, b"")[0], halved)(attempt)

    (done,) = bare(1, clients=7, cohort=7, by="pbft", threat=Threat(tamper=tamper))
    assert "propose.1" in kinds(done)
    assert len(secrets([done])) == 1


def test_more_than_a_third_silent_is_a_named_abort() -> None:
    def bend_from(first: int) -> Callable[[Attempt], Attempt]:
        def tamper(attempt: Attempt) -> Attempt:
            given = next(iter(attempt.givens.values()))
            if given.round < first:
                return attempt
            order = heads_of(given.round, given.roster, b"")
            return all_of(*(silent(who, "key") for who in order[:3]))(attempt)

        return tamper

    with pytest.raises(ProtocolError, match="round 1 cannot go on: no agreement among 7 clients"):
        bare(1, clients=7, cohort=7, by="pbft", threat=Threat(tamper=bend_from(0)))
    # Carried, the round is lost with the reason, and the next is held by those who know the rule of the last.
    done = bare(2, clients=7, cohort=7, by="pbft", carry=True, threat=Threat(tamper=bend_from(1)))
    assert "no agreement among" in done[1].lost
    assert done[1].state.model.frame == done[0].state.model.frame


def test_no_relay_makes_the_faulty_a_third_by_keeping_the_others_away() -> None:
    """It hands out nothing, so that everybody blames every head: PBFT is tried again among all, or not at all."""
    rosters: list[tuple[str, ...]] = []

    def tamper(attempt: Attempt) -> Attempt:
        if "propose.0" not in attempt.schemas:
            return attempt
        rosters.append(attempt.givens["server"].roster)
        return bent("server", lambda letters, view: letters if letters[0].kind == "key all" else ())(attempt)

    with pytest.raises(ProtocolError, match="no agreement among 10 clients"):
        bare(1, clients=10, cohort=10, by="pbft", threat=Threat(tamper=tamper))
    assert rosters
    assert {len(roster) for roster in rosters} == {10}
    away = frozenset({"c001", "c004", "c005"})
    (done,) = bare(1, clients=10, cohort=10, by="pbft", threat=Threat(absent=lambda _: away))
    assert set(done.present) == set(done.cohort) - away
    with pytest.raises(ProtocolError, match="no agreement among 10 clients"):
        bare(1, clients=10, cohort=10, by="pbft", threat=Threat(absent=lambda _: away | {"c008"}))


@pytest.mark.parametrize("agree", ["epoch", "round"])
def test_a_model_of_the_servers_own_in_plain_coordinates_is_not_trained_on(agree: str) -> None:
    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(bared(letter) if letter.kind == "model" and view.given.round else letter for letter in letters)

    def bared(letter: Letter) -> Letter:
        assert not isinstance(letter.body, bytes)
        return replace(letter, body={**letter.body, "frame": torch.zeros_like(letter.body["frame"])})

    with pytest.raises(ProtocolError, match="a model came in plain coordinates"):
        bare(2, clients=6, cohort=6, agree=agree, threat=Threat(corrupted={"server": change}))


def test_a_client_that_says_nothing_is_left_out_of_a_joint_agreement() -> None:
    (done,) = bare(1, clients=6, cohort=6, threat=Threat(tamper=lambda attempt: _without(attempt, "c002")))
    assert set(done.present) == set(done.cohort) - {"c002"}
    assert Standing.of(done.state.memories["c000"]).epoch.roster == done.present  # type: ignore[union-attr]


def _without(attempt: Attempt, who: str) -> Attempt:
    return silent(who, "echo")(attempt) if who in attempt.parties else attempt


def test_clusters_keep_the_rules_of_their_models(tmp_path: Path) -> None:
    sets = ("federation.rounds=3", "task.fit.epochs=1", "run.workers=1", ROUND)
    whole = run("tazza", sets=sets, out=tmp_path / "whole", seed=9)
    again = run("tazza", sets=sets, out=tmp_path / "again", seed=9)
    sorted((again.path / "checkpoints").iterdir())[-1].unlink()
    (again.path / "summary.json").unlink()
    assert resume(again.path).metrics == whole.metrics
    assert all(line["lost"] == "" for line in whole.metrics)
    assert whole.metrics[0]["strangers"] == 0


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ((ROUND, "protocol.encode.kept=true"), "is not kept; use agree = 'epoch'"),
        ((PBFT,), "use agree = 'round', or by = 'joint'"),
        (("protocol.encode.fetch=anyone",), "holds an epoch's secret already"),
        ((ROUND, MEAN, "protocol.encode.form=delta"), "kept = true"),
        ((ROUND, "protocol.aggregate={use='mean',step='adam'}"), "kept = true"),
        ((ROUND, MEAN, "protocol.place=sum-servers"), "cannot compute"),
    ],
)
def test_contradictions_are_refused(sets: tuple[str, ...], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        load("tazza", sets)


def test_three_clients_may_not_agree() -> None:
    with pytest.raises(SpecError, match=r"3 clients would agree on a rule.*federation\.cohort: invite at least 4"):
        bare(1, clients=9, cohort=3)
    with pytest.raises(SpecError, match="enrol at least 4"):
        bare(1, clients=3, cohort=3, agree="epoch")
