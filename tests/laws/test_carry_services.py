"""carry, over the network: every party a service with a store of its own gives the views of the simulation."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.engine.state import Round
from croupier.service.member import Member
from croupier.service.roster import Timetable
from tests.laws.pipelines import COMPLETING, PIPELINES
from tests.laws.services import QUICK, Deployment, Seen, deployed, killing
from tests.laws.toy import SEED, absent, layout_for, play, task


def check_same(name: str, missing: tuple[str, ...] = (), times: Timetable = QUICK) -> None:
    """The same rounds in one process and as services."""
    pipeline = PIPELINES[name]
    here = play(pipeline, threat=absent(*missing))
    made = Deployment(
        pipeline, task(layout=layout_for(pipeline)), Federation(rounds=2), Coins.from_seed(SEED),
        times, absent=frozenset(missing),
    )  # fmt: skip
    seen, lines, ended = deployed(made, check_nothing_left)
    assert {name: error for name, error in ended.items() if error is not None} == {}
    assert views_seen(seen) == views_of(here), "the network carried something else"
    assert [line["model"] for line in lines] == [canon.digest(one.state.model.vector).hex() for one in here]


async def check_nothing_left(folder: Path, members: Mapping[str, Member]) -> None:
    """Once the run is over no store has a key that opens bodies, or a body; and killed parties end so, too."""
    for name in members:
        with closing(sqlite3.connect(folder / name / "store.db")) as db:
            kept = db.execute("SELECT vault FROM attempts WHERE vault IS NOT NULL UNION SELECT vault FROM own_keys")
            assert kept.fetchall() == [], f"{name} kept a key"
            assert db.execute("SELECT count(*) FROM held").fetchone() == (0,), f"{name} kept letters"
        assert not list((folder / name / "bodies").iterdir())


@pytest.mark.parametrize(
    ("party", "step"),
    [(who, step) for who in ("server", "sum1", "c1") for step in ("open", "end")] + [("server", "leave:model")],
)
def test_a_killed_party_leaves_no_key_either(party: str, step: str) -> None:
    made = Deployment(
        PIPELINES["sum servers"], task(), Federation(rounds=2), Coins.from_seed(SEED), hooks={party: killing(step)}
    )
    _, lines, ended = deployed(made, check_nothing_left)
    assert len(lines) == 2
    assert {name: error for name, error in ended.items() if error is not None} == {}


def views_of(done: list[Round]) -> dict[tuple[int, str], bytes]:
    """What binds every view, by round and party."""
    return {(one.number, name): view.digest() for one in done for name, view in one.views.items()}


def views_seen(seen: Seen) -> dict[tuple[int, str], bytes]:
    """The same of the rounds that services played."""
    return {(number, name): view.digest() for (number, what, _, name), view in seen.items() if what == "round"}


@pytest.mark.parametrize("name", PIPELINES)
def test_through_services(name: str) -> None:
    check_same(name)


@pytest.mark.parametrize("name", COMPLETING)
def test_through_services_with_one_client_missing(name: str) -> None:
    """Real clocks: those who wait go on after a step of the timetable, or start again without the missing."""
    check_same(name, ("c1",), Timetable(phase=1.0, round=10.0, hold=1.0))


def test_another_seed_is_caught() -> None:
    pipeline = PIPELINES["sum servers"]
    seen, _, _ = deployed(Deployment(pipeline, task(), Federation(rounds=1), Coins.from_seed(SEED + 1)))
    assert views_seen(seen) != views_of(play(pipeline, count=1))
