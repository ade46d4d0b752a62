"""carry: the same coins give the same views by reference, through bytes, and with every party in its own process."""

from __future__ import annotations

from typing import Any

import pytest

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.wire import Schema
from croupier.engine.federation import Federation
from croupier.engine.loop import rounds
from croupier.engine.state import Round, Threat
from croupier.pipeline import Pipeline
from tests.laws.pipelines import COMPLETING, PIPELINES
from tests.laws.processes import Processes
from tests.laws.toy import SEED, absent, layout_for, play, task, through_bytes


def binds(done: list[Round]) -> list[Any]:
    """What a run binds: every view, every state, and the bytes of every party."""
    return [
        (
            {name: view.digest().hex() for name, view in one.views.items()},
            canon.digest(one.state.plain()).hex(),
            dict(one.traffic.sent),
            dict(one.traffic.got),
        )
        for one in done
    ]


def check_bytes(pipeline: Pipeline, threat: Threat | None = None) -> None:
    """By reference and through bytes."""
    plain = binds(play(pipeline, threat=threat))
    assert plain == binds(play(pipeline, threat=threat, drive=through_bytes())), "bytes carried something else"


@pytest.mark.parametrize("name", PIPELINES)
def test_through_bytes(name: str) -> None:
    check_bytes(PIPELINES[name])


@pytest.mark.parametrize("name", COMPLETING)
def test_through_bytes_with_one_client_missing(name: str) -> None:
    check_bytes(PIPELINES[name], absent("c2"))


def through_processes(pipeline: Pipeline, threat: Threat) -> list[Round]:
    """The same run with a process for each party."""
    plan = Federation(rounds=2)
    drive = Processes(Coins.from_seed(99))
    return list(
        rounds(
            pipeline,
            task(layout=layout_for(pipeline)),
            plan,
            Coins.from_seed(SEED),
            drive,
            threat=threat,
            keep={"*": "digest"},
        )
    )


@pytest.mark.parametrize(
    ("name", "missing"), [*((name, ()) for name in PIPELINES), *((name, ("c1",)) for name in COMPLETING)]
)
def test_through_processes(name: str, missing: tuple[str, ...]) -> None:
    threat = absent(*missing)
    apart = through_processes(PIPELINES[name], threat)
    assert binds(apart) == binds(play(PIPELINES[name], threat=threat))


def test_swapped_bytes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    unpack = Schema.unpack

    def swapped(self: Schema, data: bytes) -> Any:
        values = unpack(self, data)
        last = values[self.fields[-1].name].reshape(-1)
        last[[0, -1]] = last[[-1, 0]]
        return values

    monkeypatch.setattr(Schema, "unpack", swapped)
    with pytest.raises(AssertionError, match="bytes carried something else"):
        check_bytes(PIPELINES["parameter shuffle"])
