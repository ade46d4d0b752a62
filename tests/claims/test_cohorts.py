"""Who is invited changes from round to round, is the same for the same seed, and is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.engine.federation import Federation
from croupier.engine.job.run import run
from croupier.engine.local import Local
from croupier.engine.loop import Continuation, begin, rounds
from croupier.engine.state import Threat
from croupier.errors import SpecError
from tests.claims.tools import SMALL, Bench, bench, bend, lines


@pytest.fixture(scope="module")
def table() -> Bench:
    return bench("digits", ["federation.rounds=8", "federation.cohort=3", "task.split.alpha=5"])


def test_cohorts_vary_by_round_and_are_the_same_for_a_seed(table: Bench) -> None:
    first, again = table.play(), table.play()
    cohorts = [done.cohort for done in first]
    assert cohorts == [done.cohort for done in again]
    assert lines(first) == lines(again)
    assert len(set(cohorts)) >= 5
    assert all(len(set(cohort)) == 3 and list(cohort) == sorted(cohort) for cohort in cohorts)
    assert len({who for cohort in cohorts for who in cohort}) >= 7
    other = bench("digits", ["federation.rounds=8", "federation.cohort=3", "task.split.alpha=5"], seed=4)
    assert cohorts != [done.cohort for done in other.play()]


def test_only_the_invited_talk(table: Bench) -> None:
    for done, line in zip(played := table.play(), lines(played), strict=True):
        assert {who for who in line["bytes"] if who != "server"} == set(done.cohort)
        assert (line["invited"], line["present"], line["messages"]) == (3, 3, 6)
        assert line["bytes"]["server"][1] == sum(line["bytes"][who][0] for who in done.cohort)


def test_participations_are_counted(table: Bench) -> None:
    played = table.play()
    counts: Counter[str] = Counter()
    for done in played:
        counts.update(done.cohort)
        assert dict(done.state.participations) == dict(counts)


def test_a_client_that_never_answered_has_not_taken_part(table: Bench) -> None:
    (done, *_) = table.play(Threat(absent=lambda _: frozenset({"c0"})), cohort=None, rounds=1)
    assert "c0" not in done.state.participations
    assert "c0" not in done.present
    assert "c0" in done.cohort


def test_participations_bind_a_clients_draws(table: Bench) -> None:
    """A client that took part before trains in another order of batches than one that did not."""
    start = begin(table.made.task)
    plan, drive = Federation(rounds=1), Local()
    (fresh,) = rounds(table.spec.protocol, table.made.task, plan, table.coins, drive, start=Continuation(start))
    used = replace(start, participations={"c1": 1})
    (other,) = rounds(table.spec.protocol, table.made.task, plan, table.coins, drive, start=Continuation(used))
    assert lines([fresh])[0]["model"] != lines([other])[0]["model"]


def test_everybody_is_the_cohort_when_it_is_not_set(table: Bench) -> None:
    assert table.play(cohort=None, rounds=1)[0].cohort == table.made.task.enrolled
    assert table.play(cohort=10, rounds=1)[0].cohort == table.made.task.enrolled


def test_a_cohort_cannot_be_larger_than_the_enrolled(table: Bench) -> None:
    with pytest.raises(SpecError, match="only 10 clients are enrolled; invite fewer"):
        table.play(cohort=11)


def test_the_quorum_is_of_the_cohort(table: Bench) -> None:
    (done, *_) = table.play(rounds=1)
    liar = Threat(corrupted={done.cohort[0]: bend(lambda vector: vector[:-1])})
    (line,) = lines(table.play(liar, rounds=1, quorum=0.6))
    assert (line["present"], line["refused"]) == (2, [done.cohort[0]])


def test_cohorts_do_not_depend_on_the_protocol(tmp_path: Path) -> None:
    invited = []
    for preset in ("digits", "digits-sum"):
        result = run(preset, sets=[*SMALL, "federation.cohort=4"], out=tmp_path / preset, seed=6)
        invited.append([sorted(set(line["bytes"]) - {"server", "relay"}) for line in result.metrics])
    assert invited[0] == invited[1]
