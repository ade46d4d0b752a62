"""carry, over the network, where clients agree on a secret first: the simulation's views of rounds and agreements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.attempt import Attempt, AttemptResult
from croupier.core.coins import Coins
from croupier.encode.hidden import HiddenUnits
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.errors import ProtocolError
from croupier.pipeline import Pipeline
from croupier.service import announcer
from croupier.service.member import Member
from croupier.service.roster import Timetable
from croupier.service.seated import Hook
from tests.laws.pipelines import HIDDEN
from tests.laws.services import QUICK, Deployment, Down, Seen, deployed, killing
from tests.laws.test_carry_services import views_of, views_seen
from tests.laws.toy import CLIENTS, SEED, absent, task

EVERY_ROUND = [name for name, pipeline in HIDDEN.items() if pipeline.encode.every_round]
# Four must agree: one of five may be missing.
FIVE = (*CLIENTS, "c4")
Sittings = list[dict[str, bytes]]


def simulated(
    pipeline: Pipeline, clients: Sequence[str], plan: Federation, missing: tuple[str, ...]
) -> tuple[list[Round], Sittings]:
    """The rounds of a simulation, and what binds every party's view of each agreement before them."""
    before: Sittings = []

    def drive(attempt: Attempt) -> AttemptResult:
        result = Local()(attempt)
        if attempt.attempt_id.spec != pipeline.digest():
            before.append({name: view.digest() for name, view in result.views.items()})
        return result

    done = rounds(
        pipeline, task(clients), plan, Coins.from_seed(SEED), drive, threat=absent(*missing), keep={"*": "keep"}
    )
    return list(done), before


def sittings_of(seen: Seen) -> Sittings:
    """The same of what services agreed on, in the order in which it was called; drawing the first model is no part."""
    found: dict[tuple[int, str, int], dict[str, bytes]] = {}
    for (number, what, count, name), view in seen.items():
        if what not in ("round", "first model"):
            found.setdefault((number, what, count), {})[name] = view.digest()
    return list(found.values())


def check_same(
    pipeline: Pipeline,
    clients: Sequence[str] = CLIENTS,
    *,
    plan: Federation | None = None,
    missing: tuple[str, ...] = (),
    times: Timetable = QUICK,
    hooks: Mapping[str, Hook] | None = None,
) -> Seen:
    """The same rounds in one process and as services."""
    plan = plan or Federation(rounds=2)
    here, before = simulated(pipeline, clients, plan, missing)
    made = Deployment(
        pipeline, task(clients), plan, Coins.from_seed(SEED), times, absent=frozenset(missing), hooks=hooks or {}
    )
    seen, lines, ended = deployed(made)
    assert {name: error for name, error in ended.items() if error is not None} == {}
    assert views_seen(seen) == views_of(here), "the network carried something else"
    assert sittings_of(seen) == before, "the network carried another agreement"
    assert [line["model"] for line in lines] == [canon.digest(one.state.model.vector).hex() for one in here]
    # The server cannot read a model in hidden coordinates: it has nothing to measure.
    assert all("norm" not in line for line in lines)
    return seen


@pytest.mark.parametrize("name", HIDDEN)
def test_agreements_through_services(name: str) -> None:
    seen = check_same(HIDDEN[name])
    drawn = {number for number, what, _, _ in seen if what == "first model"}
    assert drawn == ({0} if HIDDEN[name].encode.clients_start else set())


@pytest.mark.parametrize("name", EVERY_ROUND)
def test_agreements_through_services_with_one_client_missing(name: str) -> None:
    check_same(HIDDEN[name], FIVE, missing=("c1",), times=Timetable(phase=1.0, round=20.0, hold=1.0))


@pytest.mark.parametrize("newcomers", ["epoch", "welcome"])
def test_newcomers_through_services(newcomers: str) -> None:
    pipeline = Pipeline(encode=HiddenUnits(newcomers=newcomers))
    seen = check_same(pipeline, FIVE, plan=Federation(rounds=3, cohort=4, joins={"c4": 2}))
    called = {what for number, what, _, _ in seen if number == 1 and what != "round"}
    assert called == ({"joint", "move"} if newcomers == "epoch" else {"welcome"})


def test_the_last_rule_is_handed_on_through_services() -> None:
    """Four of six are invited anew each time: those who were not there are told the rule that the model lies under."""
    plan = Federation(rounds=3, cohort=4, carry=True)
    seen = check_same(Pipeline(encode=HiddenUnits(agree="round", fetch="anyone")), (*FIVE, "c5"), plan=plan)
    assert "hand on" in {what for _, what, _, _ in seen}


@pytest.mark.parametrize("step", ["open", "got:commit all", "leave:reveal", "leave:compare", "sent:compare"])
def test_a_client_that_is_killed_while_it_agrees_goes_on_where_it_was(step: str) -> None:
    """Killed right after it signed, too: it signs the same outcome, and holds it."""
    check_same(HIDDEN["hidden units"], hooks={"c2": killing(step)})


@pytest.mark.parametrize("step", ["open", "got:echo", "leave:reveal all", "end"])
def test_a_server_that_is_killed_while_clients_agree_goes_on_where_it_was(step: str) -> None:
    """Killed after the agreement, too: it asks what clients hold, and does not call for another."""
    check_same(HIDDEN["hidden units"], hooks={"server": killing(step)})
    check_same(HIDDEN["hidden units, agreed on every round"], hooks={"server": killing(step)})


def test_a_client_that_is_gone_after_it_signed_remembers_that_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never hears the outcome. Started again it signs no other one for the number, and nobody else gets one."""
    monkeypatch.setattr(announcer, "FAREWELL", 0.5)
    times = Timetable(phase=0.5, round=8.0, hold=0.5)
    found: dict[str, Standing] = {}

    async def afterwards(folder: Path, members: Mapping[str, Member]) -> None:
        for name in CLIENTS:
            party = made.party(members[name], folder, {})
            if (player := party.resume()) is not None:
                await party.end(player, await player.play())
            found[name] = Standing.of(party.memory())
            await party.close()
            party.store.close()

    made = Deployment(
        HIDDEN["hidden units"], task(), Federation(rounds=1), Coins.from_seed(SEED), times,
        hooks={"c2": killing("sent:compare", Down)},
    )  # fmt: skip
    _, lines, ended = deployed(made, afterwards)
    assert not lines
    assert "no agreement among 4 clients" in str(ended["server"])
    assert (found["c2"].signed, found["c2"].epoch) == (0, None)
    with pytest.raises(ProtocolError, match="an outcome for number 0 is signed already"):
        found["c2"].check(0, 0)
    # The others hold what it signed, and no later outcome was made without it.
    assert {found[who].epoch.number for who in CLIENTS if who != "c2"} == {0}  # type: ignore[union-attr]


def test_a_client_that_breaks_off_is_complained_about_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt is among the others, who complained with their signatures; the round is held without it."""
    monkeypatch.setattr(announcer, "FAREWELL", 0.5)
    times = Timetable(phase=1.0, round=15.0, hold=0.5)
    made = Deployment(
        HIDDEN["hidden units, agreed on every round"], task(FIVE), Federation(rounds=1), Coins.from_seed(SEED), times,
        hooks={"c3": killing("got:commit all", Down)},
    )  # fmt: skip
    seen, lines, ended = deployed(made)
    assert {name: error for name, error in ended.items() if error is not None} == {}
    rosters = [view.given.roster for (_, what, _, name), view in seen.items() if what == "joint" and name == "server"]
    others = tuple(who for who in FIVE if who != "c3")
    assert rosters == [FIVE, others]
    assert [(line["present"], line["invited"]) for line in lines] == [(4, 5)]


def too_few(**plan: bool) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Rounds that three of five clients come to, where four must agree."""
    pipeline = Pipeline(encode=HiddenUnits(agree="round", first="open"))
    times = Timetable(phase=0.5, round=8.0, hold=0.5)
    made = Deployment(
        pipeline, task(FIVE), Federation(rounds=2, **plan), Coins.from_seed(SEED), times, frozenset({"c1", "c3"})
    )
    _, lines, ended = deployed(made)
    return lines, ended


def test_a_round_that_too_few_can_agree_on_is_passed_over_where_it_may_be() -> None:
    lines, ended = too_few(carry=True)
    assert lines == []
    assert {name: error for name, error in ended.items() if error is not None} == {}
    _, ended = too_few()
    assert str(ended["server"]) == "round 1 cannot go on: 3 clients can agree on the rule, and 4 are needed"


def test_another_agreement_is_caught() -> None:
    pipeline, plan = HIDDEN["hidden units"], Federation(rounds=1)
    seen, _, _ = deployed(Deployment(pipeline, task(), plan, Coins.from_seed(SEED + 1)))
    _, before = simulated(pipeline, CLIENTS, plan, ())
    assert len(sittings_of(seen)) == len(before)
    assert sittings_of(seen) != before
