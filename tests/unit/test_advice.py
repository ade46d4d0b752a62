"""Advice follows written rules, for the very numbers that were asked for, and says what is missing."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from tests.shell import Shell

from croupier import explain, plain
from croupier.advice import RULES, WORRIES, Needs, Worry, _played, recommend
from croupier.cli.recommend import COMPLETED
from croupier.errors import SpecError
from croupier.privacy.gdp import sigma_for
from croupier.spec import load

DIGITS = 4_810


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.preset)
def test_every_rule_is_reached_with_just_what_it_needs(rule: object) -> None:
    assert rule in RULES
    one = next(found for found in RULES if found is rule)
    advice = recommend(Needs(one.worry, max(10, one.clients), DIGITS, one.hosts))
    assert advice.preset == one.preset
    assert type(advice.protocol.place) is type(load(one.preset).protocol.place)
    assert advice.statement == explain(advice.protocol, rounds=10)
    # A host is a party that is neither the server nor a client.
    assert len(set(advice.protocol.parties(())) - {"server"}) <= one.hosts


def test_bytes_are_those_of_a_real_round() -> None:
    """A round of the preset, as the run itself counts it; and of no defence, as audits play it."""
    import croupier

    uniform = {"federation.rounds": 1, "protocol.encode.weights": "uniform"}
    none = croupier.plan("digits", sets=uniform, seed=1)
    forecast = croupier.plan("rns-servers", sets={"federation.rounds": 1}, seed=1)
    advice = recommend(Needs("updates", forecast.clients, forecast.parameters, 3))
    assert (advice.up, advice.plain) == (forecast.up, none.up)
    assert advice.plain == pytest.approx(recommend(Needs("model", 10, forecast.parameters)).up)


@pytest.mark.parametrize("parameters", [16_001, 100_000])
def test_bytes_of_larger_models_follow_from_smaller_ones(parameters: int) -> None:
    needs = Needs("updates", 5, parameters, 3)
    played = _played(RULES[0].make(needs), needs, parameters)
    assert abs(recommend(needs).up - played) <= 2


def test_the_budget_of_a_run_is_split_over_its_rounds() -> None:
    advice = recommend(Needs("budgets", 20, DIGITS, 3, rounds=5, epsilon=2.0))
    tier = advice.protocol.privacy.tier("anybody")
    assert tier is not None
    assert advice.protocol.privacy.guarantee() is not None
    assert tier.sigma == pytest.approx(sigma_for(2.0, 1e-5, 1.0, participations=5), rel=1e-3)


def test_few_clients_are_warned() -> None:
    assert not any("much of the others" in one for one in recommend(Needs("updates", 10, DIGITS, 3)).remains)
    assert any("much of the others" in one for one in recommend(Needs("updates", 3, DIGITS, 3)).remains)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (("poisoning", 20, 10, 0), "rain needs 10 clients and 2 hosts at least"),
        (("updates", 1, 10, 0), "clients = 1: give 2 or more"),
        (("updates", 9, 10, 0, 10, 2.0), "epsilon with worry = 'updates'"),
        (("budgets", 9, 10, 3, 10, 0.0), "epsilon = 0: give a number above 0"),
    ],
)
def test_what_cannot_be_is_said(needs: tuple[Worry, int, int, int], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        recommend(Needs(*needs))


def test_the_command_asks_nobody_where_nobody_sits() -> None:
    program = [sys.executable, "-m", "croupier", "recommend"]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--worry is missing" in done.stderr


def test_the_command_answers_for_one_worry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    assert "--worry is named 2 times" in shell.refused("recommend", "--worry", "updates", "--worry", "model")
    told = shell.json("recommend", "--worry", "updates", "--clients", "20", "--parameters", "1000", "--hosts", "3")
    assert (told["preset"], told["worry"]) == ("rns-servers", "updates")
    assert told["up"] < told["plain_up"]


def test_every_worry_has_a_rule() -> None:
    assert {rule.worry for rule in RULES} == set(WORRIES) == set(COMPLETED)
    assert plain().digest() not in {rule.make(Needs(rule.worry, 20, 10, 3)).digest() for rule in RULES}


@pytest.mark.parametrize("raised", [click.Abort, EOFError])
def test_a_question_that_is_left_ends_in_a_line(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(*_: object, **__: object) -> str:
        raise raised

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", leave)
    code, _, said = Shell(monkeypatch, capsys)("recommend")
    assert (code, said.splitlines()[-1]) == (130, "croupier: stopped; nothing was done")
