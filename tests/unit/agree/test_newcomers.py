"""Clients that are enrolled later: a new epoch, or the old one's secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.boards import all_of, bent
from tests.unit.agree.test_agreed_rounds import secrets
from tests.unit.agree.test_epochs import SETS, played, seen_by_server

from croupier.agree.move_model import movers_of
from croupier.agree.standing import Standing
from croupier.core.attempt import Attempt
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
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
from croupier.statement import explain
from croupier_lab.bench.agreement.lost_rules import bare_task

JOINS = "federation.joins={c3=2,c5=2,c7=3}"
FEW = ("task.split.clients=10", "federation.cohort=7")
MEAN = ("protocol.aggregate=mean", "protocol.encode.first=open", *FEW)


def bare(count: int = 3, threat: Threat | None = None, joins: dict[str, int] | None = None, **more: Any) -> list[Round]:
    """Rounds of the bare task, with a client that joins in the second."""
    plan = Federation(rounds=count, joins={"c004": 2} if joins is None else joins)
    pipeline, keep = Pipeline(encode=HiddenUnits(**more)), {"server": "keep"}
    task, coins = bare_task(8), Coins.from_seed(3)
    return list(rounds(pipeline, task, plan, coins, Local(), threat=threat or Threat(), keep=keep))  # type: ignore[arg-type]


def standing(done: Round, who: str) -> Standing:
    return Standing.of(done.state.memories[who])


@pytest.mark.parametrize("newcomers", ["epoch", "welcome"])
@pytest.mark.parametrize("kept", ["false", "true"])
def test_training_is_the_same_as_in_plain_coordinates(newcomers: str, kept: str) -> None:
    sets = (f"protocol.encode.newcomers={newcomers}", f"protocol.encode.kept={kept}")
    hidden, task, _, coins = played(*MEAN, JOINS, *sets, keep={"server": "keep"})
    plain, *_ = played(*MEAN, JOINS, "protocol.encode=floats")
    assert [one.metrics for one in hidden] == [one.metrics for one in plain]
    state = hidden[-1].state
    assert torch.equal(plain_model(task.task, coins, state).vector, plain[-1].state.model.vector)
    numbers = [Frame.unpack(one.state.model.frame).number for one in hidden]
    assert numbers == ([0, 1, 2] if newcomers == "epoch" else [0, 0, 0])
    seen, known = seen_by_server(hidden), secrets(hidden)
    assert len(known) == (3 if newcomers == "epoch" else 1)
    wanted = [*known, *(rule_seed(run_id(coins), one, number) for one in known for number in range(3))]
    assert all(form not in seen for one in wanted for form in (one, one.hex().encode(), one[::-1]))


def test_nobody_is_invited_before_it_joins() -> None:
    done, *_ = played("protocol.encode=floats", "protocol.aggregate=mean", JOINS, *FEW)
    assert not {"c3", "c5", "c7"} & set(done[0].cohort)
    assert {"c3", "c5"} & set(done[1].cohort)
    everyone = bare(joins={"c004": 2, "c001": 3})
    assert [len(one.cohort) for one in everyone] == [6, 7, 8]


def test_a_new_epoch_tells_newcomers_nothing_of_earlier_rounds() -> None:
    done = bare()
    early = Frame.unpack(done[0].state.model.frame)
    assert standing(done[0], "c000").behind(early)
    assert standing(done[1], "c004").behind(Frame.unpack(done[1].state.model.frame))
    assert all(standing(one, "c004").behind(early) is None for one in done[1:])
    # Those who held the old secret moved the model, and do not hold it any longer.
    assert standing(done[1], "c000").behind(early) is None
    # Three of seven, and the model there and back.
    movers = movers_of(tuple(f"c{n:03}" for n in range(8) if n != 4), 1, early)
    moved = [letter for view in done[1].before for inbox in view.inputs for letter in inbox if letter.kind == "moved"]
    assert tuple(letter.source for letter in moved) == movers
    assert len(movers) == 5


def test_a_welcomed_newcomer_can_open_all_that_was() -> None:
    done = bare(newcomers="welcome")
    early = Frame.unpack(done[0].state.model.frame)
    assert standing(done[1], "c004").behind(early)
    assert {standing(done[2], who).secret for who in done[2].cohort} == {standing(done[0], "c000").secret}


def test_agreed_on_every_round_a_newcomer_is_as_everybody() -> None:
    done = bare(agree="round")
    assert done[1].present == done[1].cohort
    assert "c004" in done[1].present
    assert not any(one.lost for one in done)


def other(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
    """A client that moves another model."""
    if letters[0].kind != "moved":
        return letters
    (one,) = letters
    assert not isinstance(one.body, bytes)
    return (replace(one, body={**one.body, "model": one.body["model"] + 1}),)


def lying(count: int) -> Threat:
    """So many of those who move the model move another."""

    def tamper(attempt: Attempt) -> Attempt:
        if "move" not in attempt.schemas:
            return attempt
        return all_of(*(bent(who, other) for who in sorted(attempt.parties)[:count]))(attempt)

    return Threat(tamper=tamper)


def test_a_third_of_the_movers_change_nothing_and_more_are_found() -> None:
    honest, outvoted = bare(), bare(threat=lying(2))
    assert [one.state.model.frame for one in outvoted] == [one.state.model.frame for one in honest]
    assert torch.equal(outvoted[-1].state.model.vector, honest[-1].state.model.vector)

    with pytest.raises(
        ProtocolError, match=r"cannot be moved to the new epoch: of 5 clients .* 2 sent the same, and 3"
    ):
        bare(threat=Threat(tamper=lambda attempt: lying(2).tamper(_silenced(attempt))))


def _silenced(attempt: Attempt) -> Attempt:
    """One more says nothing: three would have to send the same, and only two do."""
    if "move" not in attempt.schemas:
        return attempt
    return bent(sorted(attempt.parties)[2], lambda letters, view: ())(attempt)


def test_a_run_with_newcomers_goes_on_where_it_stopped(tmp_path: Path) -> None:
    sets = (*SETS, "task.split.clients=8", "federation.cohort=5", "federation.joins={c3=2,c5=3}")
    whole = run("tazza", sets=sets, out=tmp_path / "whole", seed=9)
    again = run("tazza", sets=sets, out=tmp_path / "again", seed=9)
    for file in sorted((again.path / "checkpoints").iterdir())[-2:]:
        file.unlink()
    (again.path / "summary.json").unlink()
    assert resume(again.path).metrics == whole.metrics


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (("federation.joins={c03=11}",), "name one from 1 to 10"),
        (("federation.joins={c03=0}",), "name one from 1 to 10"),
        (("protocol.encode.agree=round", "protocol.encode.newcomers=welcome"), "no epoch to be welcomed into"),
    ],
)
def test_what_makes_no_sense_is_refused_when_built(sets: tuple[str, ...], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        load("tazza", sets)


def test_what_cannot_be_run_is_refused_before_the_first_round(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"federation\.joins\.c99: no client is called 'c99'"):
        run("tazza", sets=("federation.joins={c99=2}",), out=tmp_path / "a", seed=1)
    with pytest.raises(SpecError, match="only 19 clients are enrolled from the start"):
        run("tazza", sets=("federation.joins={c03=2}", "federation.cohort=20"), out=tmp_path / "b", seed=1)
    adam = ("protocol.aggregate={use='mean',step='adam'}", "protocol.encode.kept=true", "federation.joins={c03=2}")
    with pytest.raises(SpecError, match="newcomers = 'welcome'"):
        run("tazza", sets=adam, out=tmp_path / "c", seed=1)


def test_the_statement_says_what_newcomers_learn() -> None:
    welcomed = explain(load("tazza", ("protocol.encode.newcomers=welcome",)).protocol)
    assert any("can open every earlier round of the epoch" in line for line in welcomed.encoding)
    assert any("links the epochs" in line for line in explain(load("tazza").protocol).encoding)
