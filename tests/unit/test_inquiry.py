"""An audit from a description to findings: what is compared, what counts, and in what words."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.scenes import Here

import croupier
from croupier.audit import experiment, membership
from croupier.audit.experiment import Defence, Setting
from croupier.audit.outcome import Member, Outcome
from croupier.audit.score import Rate, gain, over_runs
from croupier.errors import CroupierError, SpecError, StoreError
from croupier.inquiry import Findings, controlled, defences, examine, notes, rows, verdict
from croupier.learn.data import Dataset, Windows
from croupier.learn.datasets import Digits
from croupier.spec import load
from croupier.systems import plain

CLIENTS = 4
PRIOR = [0.30, 0.31, 0.32, 0.33]
TINY = (
    f"task.split.clients={CLIENTS}", "task.split.least=20", "task.model.hidden=[16]", "task.fit.epochs=1",
    "federation.rounds=2", "run.workers=1",
)  # fmt: skip


def outcome(runs: Mapping[str, Sequence[float]], name: str = "none") -> Outcome:
    """What a defence came to in four runs, attack by attack; the prior is always there."""
    every = {"prior": PRIOR, **runs}
    overall = {attack: over_runs(rates) for attack, rates in every.items()}
    gains = {attack: [a - b for a, b in zip(rates, PRIOR, strict=True)] for attack, rates in every.items()}
    flat = Rate(0.5, 0.4, 0.6)
    members = {attack: Member(flat, flat, flat, flat) for attack in ("loss", "rows", "lira")}
    success = {attack: {1: rate} for attack, rate in overall.items()}
    return Outcome(name, 1 / CLIENTS, (5, 5), {1: flat}, 100.0, success, overall, gains, members)


BOTH = ["named", "named+prior"]


def test_a_leak_is_said_with_its_numbers() -> None:
    got = verdict(
        outcome({"named": [0.5, 0.51, 0.53, 0.52], "named+prior": [0.6, 0.61, 0.63, 0.62]}), BOTH, "named+prior"
    )
    assert got["leaks"] == "yes"
    assert got["sentence"].startswith(
        "Leaks whose record it is: an attack names the right client for 61.5% of the records, the same adversary "
        "without a view for 31.5%. The view adds +30.0 points ("
    )


def test_no_leak_found_says_what_could_have_gone_unseen() -> None:
    found = outcome({"named": [0.1, 0.5, 0.2, 0.4], "named+prior": [0.25, 0.36, 0.33, 0.30]})
    got = verdict(found, BOTH, "named+prior")
    assert got["leaks"] == "unclear"
    high = max(found.leak("named").high, found.leak("named+prior").high)
    assert got["sentence"].startswith("Cannot tell: the best of these attacks changes the adversary's success by ")
    assert got["sentence"].endswith(f"They may gain up to {100 * high:.1f} points; other attacks may gain more.")


def test_nothing_scored_is_not_judged() -> None:
    got = verdict(outcome({"named": [0.9, 0.91, 0.92, 0.93]}), [], "named")
    assert got == {
        "leaks": "unclear", "sentence": "Not judged: no attack on it passed its control on undefended updates.",
    }  # fmt: skip


def test_attacks_that_were_not_run_are_not_said_to_have_failed() -> None:
    none = replace(outcome({}), unsuited={"named": "why", "named+prior": "why"})
    assert verdict(none, [], "named+prior")["sentence"] == "Not judged: its attacks were not run: why."
    some = replace(outcome({"named": BAD}), unsuited={"named+prior": "why"})
    assert "no attack on it passed its control" in verdict(some, [], "named+prior")["sentence"]


def test_an_attack_that_is_worse_than_the_prior_is_no_leak() -> None:
    got = verdict(outcome({"named": [0.01, 0.02, 0.03, 0.04]}), ["named"], "named+prior")
    assert got["leaks"] == "unclear"
    assert "gain up to 0.0 points" in got["sentence"]
    assert "95\u00a0%" in got["sentence"]


def test_too_few_runs_are_not_judged() -> None:
    found = replace(outcome({"named": [0.9, 0.91, 0.92, 0.93]}), gains={"named": [0.5, 0.5, 0.5]})
    assert verdict(found, ["named"], "named")["sentence"] == "Not judged: 3 runs are too few; ask for 4 or more."


def between(low: float, high: float) -> list[float]:
    """Four gains whose interval is above zero at a doubt of `high`, but not at `low`."""
    for step in range(1, 4000):
        gains = [step / 10000 + spread for spread in (-0.02, -0.003, 0.003, 0.02)]
        if gain(gains, high).low > 0 >= gain(gains, low).low:
            return gains
    raise AssertionError("there are none")


def test_one_level_everywhere_of_one_attack_or_of_all_others_together() -> None:
    """The one named in advance is judged by its own 95 % interval, the others by 95 % for all of them together."""
    edge = [prior + more for prior, more in zip(PRIOR, between(0.025, 0.05), strict=True)]
    nothing = [0.25, 0.36, 0.33, 0.30]
    got = verdict(outcome({"named": nothing, "named+prior": edge}), BOTH, "named+prior")
    assert got["leaks"] == "yes"
    assert re.search(r"95\u00a0%\)", got["sentence"])
    # The same numbers, but found by one of two others: not enough, for each has half the doubt.
    three = ["named", "tuned", "named+prior"]
    one = outcome({"named": edge, "tuned": nothing, "named+prior": nothing})
    assert verdict(one, three, "named+prior")["leaks"] == "unclear"
    clear = [prior + more for prior, more in zip(PRIOR, between(0.0125, 0.025), strict=True)]
    two = outcome({"named": clear, "tuned": nothing, "named+prior": nothing})
    found = verdict(two, three, "named+prior")
    assert found["leaks"] == "yes"
    assert "95\u00a0% for 2 attacks together" in found["sentence"]


def test_no_interval_of_another_level_is_shown() -> None:
    every = json.dumps(rows(compared(), outcomes({}))) + " ".join(notes(40))
    assert not re.search(r"9[0-46-9](\.\d+)?[\s\u00a0]*%", every.replace("99 of", ""))


NAMES = ("none", "model shuffle")
GOOD, BAD = [0.60, 0.61, 0.63, 0.62], [0.25, 0.26, 0.24, 0.26]
EVERY = ("named", "named+prior", "algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior")


def outcomes(control: Mapping[str, Sequence[float]]) -> list[Outcome]:
    """Undefended and model-shuffled; all attacks do well on the second, and on the first unless said otherwise."""
    good = dict.fromkeys(EVERY, GOOD)
    return [outcome({**good, **control}, NAMES[0]), outcome(good, NAMES[1])]


def compared() -> list[Defence]:
    return [defence for defence in defences(CLIENTS) if defence.name in NAMES]


def test_an_attack_that_fails_its_control_is_not_scored() -> None:
    """Its interval on undefended updates reaches down to 1/n: then what it says of a defence says nothing."""
    found = rows(compared(), outcomes({"algorithm2": BAD, "algorithm2+prior": BAD}))
    attacks = found[1]["attacks"]
    assert {name for name, attack in attacks.items() if not attack["scored"]} == {"algorithm2", "algorithm2+prior"}
    for name in ("algorithm2", "algorithm2+prior"):
        assert attacks[name]["control"]["passed"] is False
        assert attacks[name]["control"]["low"] <= attacks[name]["chance"]
        assert attacks[name]["rate"] == pytest.approx(sum(GOOD) / 4)
    assert attacks["prior"]["scored"] is True
    # The others did pass, and convict.
    assert found[1]["verdict"]["leaks"] == "yes"


def test_a_verdict_hears_only_attacks_that_passed() -> None:
    found = rows(compared(), outcomes({name: BAD for name in EVERY if name.startswith("algorithm2")}))
    assert found[1]["verdict"]["sentence"].startswith("Not judged")
    assert found[0]["verdict"]["leaks"] == "yes"


def test_the_control_mounts_every_attack_on_undefended_updates_once() -> None:
    every = defences(CLIENTS)
    first, *others = controlled(every)
    assert others == list(every[1:])
    assert first.attacks == every[0].attacks
    mounted = (*first.attacks, *first.control)
    assert len(mounted) == len(set(mounted))
    assert set(mounted) == {name for defence in every for name in defence.attacks}


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Attacks run in this process, and the adversary trains few models of its own."""
    patch.setattr(experiment, "Panel", Here)
    patch.setattr(membership, "MODELS", 3)
    patch.setattr(membership, "STEPS", 5)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture(scope="module")
def found() -> Findings:
    """One small audit for all that only read it."""
    with pytest.MonkeyPatch.context() as patch:
        hasten(patch)
        return examine("digits", sets=TINY, seeds=2, seed=5)


def finite(rate: Mapping[str, Any]) -> bool:
    return all(isinstance(rate[name], float) for name in ("rate", "low", "high")) and (
        rate["low"] <= rate["rate"] <= rate["high"]
    )


def test_examine_gives_one_object_with_a_row_for_each_defence(found: Findings) -> None:
    plain = json.loads(json.dumps(found.plain, allow_nan=False))
    assert plain["kind"] == "croupier audit"
    assert (plain["clients"], plain["cohort"], plain["rounds"], plain["runs"]) == (CLIENTS, CLIENTS, 2, 2)
    assert (plain["seeds"], plain["shadow"], plain["chance"]) == ([5, 6], 0.05, 1 / CLIENTS)
    assert plain["task"]["split"]["clients"] == CLIENTS
    assert "5.0% of the client's records" in plain["threat"]
    assert [row["defence"] for row in plain["rows"]] == [defence.name for defence in defences(CLIENTS)]
    assert found.rows == found.plain["rows"]


def test_every_row_has_what_was_promised(found: Findings) -> None:
    for row, defence in zip(found.rows, defences(CLIENTS), strict=True):
        assert 0 < row["accuracy"] < 1
        assert row["accuracy"] == row["accuracy_by_round"][-1]["rate"]
        assert row["bytes_per_client"] > 2 * 1000
        assert row["server_learns"]
        assert set(row["attacks"]) == {"prior", *defence.attacks}
        for attack in row["attacks"].values():
            assert finite(attack)
            assert attack["chance"] == 1 / CLIENTS
            assert attack["prior"] == row["attacks"]["prior"]["rate"]
            assert attack["leak"]["rate"] == pytest.approx(attack["rate"] - attack["prior"])
            assert finite(attack["leak"])
            assert finite(attack["control"])
            assert [each["round"] for each in attack["by_round"]] == [1, 2]
            assert attack["best_round"]["rate"] == max(each["rate"] for each in attack["by_round"])
            assert attack["title"]
        assert set(row["membership"]) == set(defence.membership)
        assert all(finite(member) and member["chance"] == 0.5 for member in row["membership"].values())
        assert row["verdict"]["leaks"] in ("yes", "unclear")


def test_all_defences_have_the_same_prior_and_much_the_same_accuracy(found: Findings) -> None:
    """They train alike; a sum is rounded, the rest is the same to the last bit."""
    first, *others = found.rows
    for row in others:
        assert row["attacks"]["prior"]["rate"] == first["attacks"]["prior"]["rate"]
        assert row["accuracy"] == pytest.approx(first["accuracy"], abs=0.01)


def test_the_same_seeds_give_the_same_findings(found: Findings, here: None) -> None:
    assert examine(load("digits", TINY), seeds=2, seed=5).plain == found.plain
    # And other seeds another: the two runs differ.
    assert found.rows[0]["attacks"]["prior"]["low"] < found.rows[0]["attacks"]["prior"]["high"]


def test_findings_are_a_page(found: Findings, tmp_path: Path) -> None:
    path = found.save(tmp_path / "page.html")
    text = path.read_text("utf-8")
    assert text == found.page()
    assert text.startswith("<!doctype html>")
    assert all(row["defence"] in text for row in found.rows)
    assert found.save(tmp_path / "new" / "page.html").read_text("utf-8") == text
    with pytest.raises(StoreError, match=r"cannot be written .* choose another path"):
        found.save(tmp_path / "page.html" / "none" / "page.html")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"shadow": 0.7}, r"^shadow = 0.7: a share above 0 and below 0.5"),
        ({"shadow": 0.0}, r"^shadow = 0.0: a share above 0"),
        ({"shadow": float("nan")}, r"^shadow = nan"),
        ({"seeds": 1}, r"^seeds = 1: .* at least 2"),
        ({"seeds": 0}, r"^seeds = 0: .* at least 2"),
        ({"noise": "rotat"}, r"noise = 'rotat': no distort has that name; did you mean 'rotate'\?"),
        ({"noise": {"use": "colour", "y": 1}}, r"noise.y: unknown key.*"),
        ({"noise": {"use": "colour", "x": 3}}, r"noise.x = 3: .*less than or equal to 1"),
        ({"noise": "mirror"}, r"noise = 'mirror': needs pictures, but inputs have the shape \(64,\); use 'clean'"),
        ({"sets": ["task.split=natural"]}, r"task.split = 'natural': 'digits' does not say who owns a record"),
        ({"sets": ["task.split=iid", "task.split.clients=300"]}, r"task.split: c\d+ has \d records, too few .*fewer"),
        ({"sets": ["federation.cohort=5", *TINY]}, r"federation.cohort = 5: only 4 clients are enrolled; invite fewer"),
        ({"sets": ["federation.cohort=1", *TINY]}, r"federation.cohort = 1: .*enrol more clients"),
        ({"source": "digit"}, r"'digit' is neither a file nor a preset; did you mean 'digits'\?"),
        ({"sets": ["task.data=digitz"]}, r"task.data = 'digitz': .* did you mean 'digits'\?"),
    ],
)  # fmt: skip
def test_bad_input_names_field_value_and_remedy(arguments: dict[str, Any], said: str, here: None) -> None:
    with pytest.raises(CroupierError) as raised:
        examine(**{"seeds": 2, **arguments})
    assert re.match(said, str(raised.value)), str(raised.value)


def test_forecasts_are_refused(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def forecast(self: Digits, folder: Path | None) -> Dataset:
        rows = Windows(torch.arange(900.0), torch.arange(800), 4)
        return Dataset("series", "forecast", 0, rows, rows, "", "")

    monkeypatch.setattr(Digits, "load", forecast)
    with pytest.raises(
        SpecError, match=r"task.data = 'digits': .* windows of one series .*; use data of single records"
    ):
        examine("digits", sets=["task.split=iid"], seeds=2)


def test_sampling_of_clients_is_part_of_the_findings(here: None) -> None:
    got = examine("digits", sets=[*TINY, "task.split.clients=6", "federation.cohort=3", "federation.rounds=1"], seeds=2)
    assert (got.plain["clients"], got.plain["cohort"], got.plain["chance"]) == (6, 3, 1 / 3)


NUMBERS = count()
OWN = """
import numpy as np
from torch import nn


def records(folder):
    draw = np.random.default_rng(1)
    y = draw.integers(0, 3, 480)
    x = draw.normal(size=(480, 5)) + 2 * np.eye(5)[y]
    return x[:400], y[:400], x[400:], y[400:]


def network(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, classes))


def endless(shape, classes):
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten())
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own in the current directory; its name is new, because modules are imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"audited{next(NUMBERS)}"
    Path(f"{name}.py").write_text(OWN)
    return name


def own(module: str) -> dict[str, Any]:
    return {
        "name": "mine",
        "task": {
            "data": {"use": "own", "make": f"{module}:records"}, "model": {"use": "own", "make": f"{module}:network"},
            "split": {"use": "dirichlet", "clients": 3, "alpha": 1.0, "least": 20}, "fit": {"epochs": 1},
        },
        "federation": {"rounds": 1},
        "run": {"workers": 1},
    }  # fmt: skip


def test_ones_own_task_is_audited_by_its_python_name(mine: str) -> None:
    """With the fresh process: it must find the module too."""
    got = croupier.examine(own(mine), seeds=2)
    assert isinstance(got, croupier.Findings)
    assert got.plain["name"] == "mine"
    assert got.plain["task"]["model"] == {"use": "own", "make": f"{mine}:network"}
    assert [row["defence"] for row in got.rows] == [defence.name for defence in defences(3)]
    assert got.rows[0]["accuracy"] > 1 / 3
    assert got.page()


def test_a_model_that_attacks_cannot_read_is_an_error_not_a_number(mine: str, here: None) -> None:
    table = own(mine)
    table["task"]["model"]["make"] = f"{mine}:missing"
    with pytest.raises(SpecError, match=r"task.model.make = .*: .* has no function 'missing'; "):
        croupier.examine(table, seeds=2)


def test_the_settings_of_a_description_are_the_experiments() -> None:
    from croupier.inquiry import setting_of

    spec = load("digits", [*TINY, "task.fit.lr=0.5", "task.together=3", "task.augment=none"])
    got = setting_of(spec)
    assert isinstance(got, Setting)
    assert (got.data, got.split, got.model, got.fit) == (
        spec.task.data, spec.task.split, spec.task.model, spec.task.fit,
    )  # fmt: skip
    assert (got.plan, got.augment, got.together, got.workers) == (spec.federation, spec.task.augment, 3, 1)


def test_a_finer_shuffle_that_leaks_accuses_the_coarser_ones() -> None:
    """A server can shuffle what it sees: its view tells at least as much as a finer one."""
    compared = [
        Defence(name, plain("uniform"), ("named", "named+prior"), ())
        for name in ("none", "model shuffle", "layer shuffle", "parameter shuffle", "sum only")
    ]
    nothing, much = [0.25, 0.36, 0.33, 0.30], [0.6, 0.61, 0.63, 0.62]
    outcomes = [
        outcome(dict.fromkeys(BOTH, much if one.name in ("none", "layer shuffle") else nothing), one.name)
        for one in compared
    ]
    got = {row["defence"]: row["verdict"] for row in rows(compared, outcomes)}
    assert [got[one.name]["leaks"] for one in compared] == ["yes", "yes", "yes", "unclear", "unclear"]
    assert got["model shuffle"]["sentence"].startswith("Leaks, because 'layer shuffle' does: ")
    assert "By itself: Cannot tell" in got["model shuffle"]["sentence"]
