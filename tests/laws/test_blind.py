"""blind: an attack runs in a fresh process that holds only bytes of views and declared knowledge.
prior: every success stands beside the best attack with the same knowledge and no view."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from croupier.audit import blind, experiment
from croupier.audit.blind import Blind
from croupier.audit.knowledge import Knowledge
from croupier.audit.source import ATTACKS
from croupier.cli import main
from croupier.cli.audit import defences
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.core.view import facts
from croupier.errors import CroupierError
from croupier.federate import Federation, rounds
from croupier.learn.assemble import assemble
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.runtime.local import Local

SETTING = experiment.Setting(
    Digits(), Dirichlet(alpha=0.1, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=2), Federation(rounds=1), records=10
)


def view_of(defence: experiment.Defence) -> tuple[dict[str, Any], Knowledge, Tensor]:
    """One round's view of the server, the adversary's knowledge, and the truth."""
    coins = Coins.from_seed(1)
    held = experiment._Withheld(SETTING.split, SETTING.shadow)
    made = assemble(SETTING.data, held, SETTING.model, SETTING.fit, coins, workers=1, together=64)
    knowledge, truth = experiment._ask(SETTING, defence, made, held, coins.child("audit"))
    (done,) = rounds(defence.pipeline, made.task, SETTING.plan, coins, Local(), keep={"server": "keep"})
    return facts(done.views["server"]), knowledge, truth


@pytest.fixture(scope="module")
def process() -> Iterator[Blind]:
    """One fresh process for all cases."""
    with Blind() as started:
        yield started


CASES = [(defence, attack) for defence in defences() for attack in ("prior", *defence.attacks)]


def check(process: Blind, attack: str, view: Mapping[str, Any] | None, knowledge: Knowledge) -> None:
    """The same guesses here and in the fresh process."""
    coins = Coins.from_seed(8)
    job = {"attack": attack, "view": view, "knowledge": knowledge.plain(), "coins": coins.export()}
    here = blind.mount(canon.load(canon.dump(job)))
    try:
        there = process.guess(attack, view, knowledge, coins)
    except CroupierError as error:
        raise AssertionError(f"the fresh process could not: {error}") from None
    assert torch.equal(here, there), "the fresh process guessed otherwise"


@pytest.mark.parametrize(("defence", "attack"), CASES, ids=[f"{d.name}-{a}" for d, a in CASES])
def test_blind(process: Blind, defence: experiment.Defence, attack: str) -> None:
    view, knowledge, _ = view_of(defence)
    check(process, attack, None if attack == "prior" else view, knowledge)


def test_a_planted_peek_is_caught(process: Blind, monkeypatch: pytest.MonkeyPatch) -> None:
    view, knowledge, truth = view_of(defences()[0])

    def peek(seen: Gathered | None, known: Knowledge, coins: Coins) -> Tensor:
        return torch.nn.functional.one_hot(truth, len(known.clients)).T.double()

    monkeypatch.setitem(ATTACKS, "named", peek)
    with pytest.raises(AssertionError, match="guessed otherwise"):
        check(process, "named", view, knowledge)


def test_what_the_process_is_sent_holds_no_truth() -> None:
    view, knowledge, truth = view_of(defences()[3])
    sent = canon.dump({"view": view, "knowledge": knowledge.plain()})
    assert canon.dump(truth)[4:] not in sent
    trained = {row.numpy().tobytes() for row in knowledge.records[0]}
    shadow = {row.numpy().tobytes() for inputs, _ in knowledge.shadows for row in inputs}
    # Digits has a few pictures twice; shadow and training records are otherwise different ones.
    assert len(trained & shadow) <= 1


def test_audit_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "task.fit.epochs=2", "--set", "federation.rounds=1"]
    monkeypatch.setattr(sys, "argv", ["croupier", "audit", "--fast", "--json", *sets])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["defence"] for row in found["rows"]] == ["none", "model shuffle", "layer shuffle", "parameter shuffle"]
    for row in found["rows"]:
        assert {"defence", "accuracy", "bytes_per_client", "attacks"} <= row.keys()
        for attack in row["attacks"].values():
            assert attack["low"] <= attack["rate"] <= attack["high"]
            assert attack["chance"] == 0.1
    undefended = found["rows"][0]["attacks"]
    # The positive control, and the point of the prior: knowledge alone is far above 1/n.
    assert undefended["named"]["low"] > 0.1
    assert undefended["prior"]["low"] > 0.1
