"""What clients spend in real rounds: written down before it leaves, once, and refused before they train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws.processes import Processes
from tests.laws.toy import BARE, CLIENTS, absent, fit, play, task

from croupier.accounts import accounts, by_tier, closing, round_line
from croupier.aggregate.signs import SignTrust
from croupier.core.coins import Coins
from croupier.core.flow import Flow, Given, Memory, Received, Seat, Work
from croupier.encode.floats import Floats
from croupier.encode.signs import Signs
from croupier.engine.federation import Federation
from croupier.engine.loop import rounds
from croupier.engine.state import Round, Threat
from croupier.engine.work import ReleaseBook
from croupier.errors import Overspent, ProtocolError
from croupier.learn.dp_fit import DpSgd
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.place.two_servers.pair import Pair
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.ledger import Event, Ledger
from croupier.privacy.tiers import Tiers
from croupier.release.scored import ScoredSum
from croupier.release.shuffle import Shuffle
from croupier.statement import explain

WISHES = {"c0": 8.0, "c1": 1.0, "c2": 1.0, "c3": 1.0}


def tiered(**more: Any) -> Pipeline:
    privacy = Tiers(clip=1, wishes=WISHES, **more)
    return Pipeline(privacy=privacy, encode=Floats(form="delta"), release=Shuffle(grain="model"), place=Relay())


def events(done: Round, name: str) -> tuple[Event, ...]:
    return Ledger.read(done.state.memories[name].get("ledger", ())).events


def test_a_client_past_its_budget_trains_nothing_and_sends_nothing() -> None:
    trained: list[str] = []

    def watched(jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        trained.extend(shard for _, shard, _ in jobs)
        return fit(jobs)

    pipeline = tiered(totals={"c0": 13.0})
    first, second, third = play(pipeline, count=3, of=replace(task(), fit=watched))
    assert trained.count("shard of c0") == 2
    assert trained.count("shard of c1") == 3
    assert not first.overspent
    assert not second.overspent
    assert list(third.overspent) == ["c0"]
    assert "c0 (tier 8) takes no part: 2 participations cost it epsilon 12.26" in third.overspent["c0"]
    assert third.present == ("c1", "c2", "c3")
    assert third.traffic.sent["c0"] == 0
    assert [one.source for one in third.refusals] == ["c0"]
    assert dict(third.state.participations) == {"c0": 2, "c1": 3, "c2": 3, "c3": 3}
    assert [len(events(third, name)) for name in CLIENTS] == [2, 3, 3, 3]
    assert [event.round for event in events(third, "c1")] == [0, 1, 2]


def test_too_few_are_left_and_the_error_says_why() -> None:
    pipeline = tiered(budgets=(1.5, 1.5, 2.5, 4.5, 8.5))
    with pytest.raises(ProtocolError) as raised:
        play(pipeline, count=9, quorum=0.75)
    for said in ("round 3 cannot go on", "Cause: c0 (tier 8) takes no part", "its total is 8.5", "raise protocol."):
        assert said in str(raised.value)
    every = tiered(totals=dict.fromkeys(CLIENTS[1:], 1.2))
    with pytest.raises(ProtocolError, match=r"Cause: c1 \(tier 1\) .*\(3 clients are past their budgets\)"):
        play(every, count=9, quorum=0.75)


def test_who_is_lost_after_it_sent_has_spent() -> None:
    pipeline = tiered()

    def broken(given: Given, memory: Memory, coins: Coins) -> Flow:
        yield from pipeline.client(given, memory, coins)
        raise ProtocolError("c1 lost its memory")

    done = play(pipeline, count=2, threat=Threat(parties={"c1": broken}))[-1]
    assert dict(done.state.participations) == {"c0": 2, "c1": 2, "c2": 2, "c3": 2}
    assert [len(events(done, name)) for name in CLIENTS] == [2, 2, 2, 2]
    assert accounts(pipeline, done.state, ["c1"])["c1"].epsilon == pytest.approx(1.4659, abs=1e-3)
    apart = play(pipeline, count=2, threat=Threat(parties={"c1": broken}), drive=Processes(Coins.from_seed(3)))[-1]  # type: ignore[arg-type]
    assert events(apart, "c1") == events(done, "c1")


def test_who_is_absent_spends_nothing() -> None:
    (done,) = play(tiered(), count=1, threat=absent("c1"))
    assert "c1" not in done.state.participations
    assert accounts(tiered(), done.state, ["c1"])["c1"].epsilon == 0


def test_a_second_attempt_is_the_same_release() -> None:
    pipeline = Pipeline(
        privacy=Gaussian(clip=1, sigma=4, budget=2), encode=Signs(), release=ScoredSum(gate=False, among=1),
        aggregate=SignTrust(), place=Pair(malicious=False),
    )  # fmt: skip
    (done,) = play(pipeline, count=1, threat=absent("c3"), of=task(layout=BARE))
    assert done.attempt > 0
    assert not done.overspent, "the budget is for one participation, and this was one"
    assert [len(events(done, name)) for name in CLIENTS[:3]] == [1, 1, 1]
    assert dict(done.state.participations) == {"c0": 1, "c1": 1, "c2": 1}


def test_a_book_knows_what_it_has() -> None:
    book = ReleaseBook()
    one, other = (Event(0, "gaussian", mu=0.5, model=model).plain() for model in ("aa", "bb"))
    assert book.spend([("c0", one), ("c0", one), ("c1", one)]) == [None, None, None]
    book.spend([("c0", other)])
    old = Event(4, "gaussian", mu=0.5).plain()
    kept = book.kept("c0", {"x": 1, "ledger": (old,)})
    assert kept == {"x": 1, "ledger": (old, one, other)}
    assert book.kept("c0", kept) == kept
    assert book.kept("c9", {"x": 1}) == {"x": 1}


def seated(pipeline: Pipeline, memory: Memory, attempt: int, model: float) -> Seat:
    """A client that has just been handed a model."""
    given = Given("c0", bytes(16), 0, attempt, CLIENTS, 2, BARE, "shard of c0")
    seat = Seat.take(pipeline.client, given, memory, Coins.from_seed(1), "keep")
    seat.post()
    seat.deliver(Received("server", "model", {"model": torch.full((BARE.size,), model)}))
    seat.go()
    return seat


def test_a_second_attempt_with_another_model_is_another_release() -> None:
    """What the first attempt sent is in the ledger that the second one reads: here there is room for one release."""
    pipeline, book = tiered(totals={"c0": 8.0}), ReleaseBook()
    first = seated(pipeline, {}, 0, 0.5)
    assert isinstance(first.ask, Work)
    assert first.ask.name == "fit"
    first.finish(fit([first.ask.args])[0])
    assert isinstance(first.ask, Work)
    assert first.ask.name == "spend", "written down before anything is sent"
    book.spend([first.ask.args])
    after = book.kept("c0", {})
    same, other = seated(pipeline, after, 1, 0.5), seated(pipeline, after, 1, 0.25)
    assert isinstance(same.ask, Work)
    assert same.ask.name == "fit"
    assert other.outcome is not None
    assert isinstance(other.outcome.error, Overspent)


def test_budgets_of_different_places_are_alike_in_processes() -> None:
    pipeline = tiered(totals={"c0": 13.0})
    here = play(pipeline, count=3)
    there = play(pipeline, count=3, drive=Processes(Coins.from_seed(3)))  # type: ignore[arg-type]
    assert [dict(done.overspent) for done in there] == [dict(done.overspent) for done in here]
    assert [events(there[-1], name) for name in CLIENTS] == [events(here[-1], name) for name in CLIENTS]


def test_without_noise_nothing_is_booked() -> None:
    pipeline = Pipeline(privacy=Gaussian(clip=1, sigma=0), encode=Floats(form="delta"))
    done = play(pipeline)[-1]
    assert all("ledger" not in memory for memory in done.state.memories.values())
    assert accounts(pipeline, done.state, CLIENTS) == {}


def test_lines_and_tables() -> None:
    pipeline = tiered(totals={"c0": 13.0})
    *_, last = play(pipeline, count=3)
    line = round_line(pipeline, last)
    assert (line["round"], line["unit"], line["delta"]) == (3, "client", 1e-5)
    assert line["clients"]["c1"] == {"tier": "1", "participations": 3, "epsilon": pytest.approx(1.835, abs=1e-3)}
    assert list(line["refused"]) == ["c0"]
    spent = by_tier(accounts(pipeline, last.state, CLIENTS))
    assert {tier: one["clients"] for tier, one in spent.items()} == {"1": 3, "8": 1}
    table = closing(pipeline, last.state, CLIENTS, ["c0"], 3)
    assert [(row["tier"], row["clients"], row["participations"], row["refused"]) for row in table["tiers"]] == [
        (1.0, 3, 3, 0), (8.0, 1, 2, 1),
    ]  # fmt: skip
    assert [row["budget"] for row in table["tiers"]] == [None, [13.0, 13.0]]
    assert list(table["composition"]["8"]) == ["1", "3", "5", "10", "50"]


def test_only_those_invited_spend() -> None:
    plan = Federation(rounds=4, cohort=2, quorum=0.5)
    from croupier.engine.local import Local

    done = list(rounds(tiered(), task(), plan, Coins.from_seed(4), Local()))[-1]
    assert sum(len(events(done, name)) for name in CLIENTS if name in done.state.memories) == 8
    for name in CLIENTS:
        assert len(events(done, name)) == done.state.participations[name]


def test_a_run_with_both_units_says_both_and_counts_one() -> None:
    pipeline = tiered()
    said = explain(pipeline, noise=DpSgd(noise=1.0).claims(), rounds=3).differential_privacy
    assert said.index("The unit is a record; adjacency: one record of one client is left out") < said.index(
        "Besides, unit: a client; adjacency"
    )
    done = play(pipeline)[-1]
    assert {event.unit for name in CLIENTS for event in events(done, name)} == {"client"}
