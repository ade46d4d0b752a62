"""Agreements under random faults: no two honest clients ever have different rules, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.shell import Shell

from croupier.agree import commit_reveal as joint
from croupier.agree.agreement import AgreementCall
from croupier.agree.board import Turn
from croupier.agree.pbft import agreement as pbft
from croupier.agree.pbft import replica
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.flow import SubFlow
from croupier.errors import TooFew
from croupier_lab.bench.agreement import faults_and_cost
from croupier_lab.bench.agreement.faults_and_cost import (
    FAILURES,
    AgreementSize,
    FormName,
    cost,
    form_of,
    judge,
    measure,
    show,
    trials,
)


def played(name: FormName, schedules: int, seed: int = 1) -> dict[str, Any]:
    return trials(name, form_of(name), AgreementSize(schedules=schedules), Coins.from_seed(seed), lambda _: None)


@pytest.mark.parametrize("name", ["joint", "pbft"])
def test_no_two_honest_clients_ever_accept_different_rules(name: FormName) -> None:
    total = played(name, 40)
    assert {what: total[what] for what in FAILURES} == dict.fromkeys(FAILURES, 0)
    # The schedules are worth something: many attempts ended badly, many well, and there were twins.
    assert total["agreed"] > 150
    assert total["aborted"] > 8
    assert total["twins"] > 4
    assert total["faulty_clients"] > 15


def _loose(self: joint.CommittingClient, turn: Turn, purpose: str, digest: bytes) -> SubFlow:
    yield from self._turn(turn, {"digest": digest, "signature": self._sign(purpose, digest)})


def _no_comparing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(joint.CommittingClient, "_alike", _loose)


def _no_promise(patch: pytest.MonkeyPatch) -> None:
    """Clients sign a second outcome for a number, and attempts of a number go on for ever."""
    patch.setattr(Standing, "check", lambda *_: None)
    patch.setattr(AgreementCall, "again", lambda self, _: replace(self, attempt=self.attempt + 1))


def _small_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica, "quorum", lambda clients, faulty: clients // 2)


def _open_digest(patch: pytest.MonkeyPatch) -> None:
    """The secret itself is what everybody compares."""
    patch.setattr(joint, "rule_digest", lambda run, number, secret: secret)


def _no_reason(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TooFew, "__str__", lambda _: "")


PLANTED: list[tuple[FormName, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("joint", _no_comparing, "splits"),
    ("joint", _no_promise, "splits"),
    ("pbft", _small_quorum, "splits"),
    ("joint", _open_digest, "leaks"),
    ("joint", _no_reason, "unnamed"),
]


@pytest.mark.parametrize(("name", "plant", "what"), PLANTED)
def test_planted_faults_are_found(
    name: FormName, plant: Callable[[pytest.MonkeyPatch], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    coins = Coins.from_seed(1)
    assert any(judge(name, form_of(name), coins.child(number), 3).failures[what] for number in range(60))


def test_who_takes_too_many_turns_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults_and_cost, "deadline", lambda *_: 3)
    assert played("joint", 1)["late"] > 0


def test_a_bad_head_loses_clients_when_views_cannot_change() -> None:
    form, coins = pbft.pbft(views=1), Coins.from_seed(1)
    assert any(judge("pbft", form, coins.child(number), 3).failures["lost"] for number in range(140, 180))


@pytest.mark.parametrize("name", ["joint", "pbft"])
def test_what_is_counted(name: FormName) -> None:
    found = cost(name, 5, Coins.from_seed(1), 2)
    clients, header = 5, 148
    assert found["seconds"] > 0
    if name == "joint":
        assert found["messages"] == 8 * clients
        notes = 128 + 96 + clients * (112 + 64) + 96
        assert found["client_up_bytes"] == 4 * header + notes
        down = 128 * clients + 96 * clients * 2 + (112 + 64) * clients + 4 * clients
        assert found["client_down_bytes"] == 4 * header + down
        assert found["bytes"] == clients * (found["client_up_bytes"] + found["client_down_bytes"])
    else:
        assert found["messages"] == 9 * clients + 1
        assert found["bytes"] < cost("joint", 5, Coins.from_seed(1), 1)["bytes"]


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    found = shell.json("bench", "agree", "--schedules", "2", "--clients", "4", "--clients", "5", "--rounds", "3")
    assert [(row["form"], row["clients"]) for row in found["cost"]] == [
        ("joint", 4), ("joint", 5), ("pbft", 4), ("pbft", 5),
    ]  # fmt: skip
    assert found["faults"]["joint"]["schedules"] == 2
    assert found["strangers"]["share"] == pytest.approx(0.3305, abs=1e-4)
    assert found["strangers"]["rounds"] == 3
    assert "schedules = 7" in shell("bench", "agree", "--schedules", "7", "--print-config")[1]


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    show(measure(AgreementSize(schedules=20, clients=(4,), rounds=2), 1, heard.append))
    assert heard == [
        "joint: 20 of 20",
        "pbft: 20 of 20",
        "joint: timed among 4 clients",
        "pbft: timed among 4 clients",
        "2 rounds that agree anew",
    ]
    said = capsys.readouterr().out
    assert "splits 0" in said
    assert "33.0% of the rounds" in said
    assert "of 2 rounds were lost" in said
