"""An audit from a description to a report: what is compared, what is asked, and what counts."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.scenes import hasten

import croupier
from croupier.audit import described
from croupier.audit.arms import arms_of
from croupier.audit.described import audit
from croupier.audit.report.read import SCHEMA
from croupier.audit.report.result import Report
from croupier.audit.setting import Setting, setting_of
from croupier.audit.verdict import LEAST_RUNS
from croupier.core.coins import Coins
from croupier.errors import CroupierError, SpecError, StoreError
from croupier.learn.assemble import assemble
from croupier.learn.data import Dataset, Windows
from croupier.learn.datasets import Digits
from croupier.spec import load

CLIENTS = 4
TINY = (
    f"task.split.clients={CLIENTS}", "task.split.least=20", "task.model.hidden=[16]", "task.fit.epochs=1",
    "federation.rounds=2", "run.workers=1",
)  # fmt: skip
OLD = ("shuffle-model", "shuffle-layer", "shuffle-parameter", "sum")
ASKED = ("source", "membership")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture(scope="module")
def found() -> Report:
    """One small audit for all that only read it."""
    with pytest.MonkeyPatch.context() as patch:
        hasten(patch)
        return audit("digits", sets=TINY, seeds=2, seed=5, against=OLD, questions=ASKED)


def finite(rate: Mapping[str, Any], middle: str = "rate") -> bool:
    return all(isinstance(rate[name], float) for name in (middle, "low", "high")) and (
        rate["low"] <= rate[middle] <= rate["high"]
    )


def test_an_audit_gives_one_object_with_the_own_protocol_first(found: Report) -> None:
    plain = json.loads(json.dumps(found.plain, allow_nan=False))
    assert (plain["kind"], plain["schema"]) == ("croupier audit", SCHEMA)
    assert (plain["clients"], plain["cohort"], plain["rounds"], plain["runs"]) == (CLIENTS, CLIENTS, 2, 2)
    assert (plain["seeds"], plain["shadow"], plain["chance"]) == ([5, 6], 0.05, 1 / CLIENTS)
    assert plain["task"]["split"]["clients"] == CLIENTS
    assert "5.0% of its records" in plain["threat"]
    assert [row["defence"] for row in plain["rows"]] == ["digits", "none", *OLD]
    assert plain["rows"][0]["protocol"] == plain["protocol"]
    assert plain["rows"][0]["own"] is True
    assert list(plain["questions"]) == list(ASKED)


def test_every_row_has_what_was_promised(found: Report) -> None:
    for row in found.plain["rows"]:
        assert 0 < row["accuracy"] < 1
        assert row["accuracy"] == row["accuracy_by_round"][-1]["rate"]
        assert row["bytes_per_client"] > 2 * 1000
        assert row["server_learns"]
        assert row["statement"]
        for name, question in row["questions"].items():
            assert {"adversary", "value", "low", "high", "prior", "gain", "control", "status"} <= question.keys()
            assert question["adversary"] in question["adversaries"]
            for attack in question["adversaries"]["server"]["attacks"].values():
                assert finite(attack, "value")
                assert finite(attack["gain"])
                assert attack["gain"]["rate"] == pytest.approx(attack["value"] - attack["prior"])
                assert attack["title"]
                assert name == "membership" or [each["round"] for each in attack["by_round"]] == [1, 2]
        server = row["questions"]["source"]["adversaries"]["server"]
        assert "labels" in server["facts"]["prior_made_of"]
        caught = row["questions"]["membership"]["adversaries"]["server"]["facts"]["tpr_at_1_percent_fpr"]
        assert all(0 <= share <= 1 for share in caught.values())


def test_defences_train_alike_and_have_the_same_prior(found: Report) -> None:
    """A sum is rounded, the rest is the same to the last bit; the own protocol counts clients by their records."""
    own, first, *others = found.plain["rows"]
    for row in (own, *others):
        assert row["questions"]["source"]["prior"] == first["questions"]["source"]["prior"]
    for row in others:
        assert row["accuracy"] == pytest.approx(first["accuracy"], abs=0.01)


def test_the_same_seeds_give_the_same_report(found: Report, here: None) -> None:
    again = audit(load("digits", TINY), seeds=2, seed=5, against=OLD, questions=ASKED)

    def timeless(report: Report) -> list[Any]:
        return [{key: one for key, one in row.items() if key != "seconds_per_round"} for row in report.plain["rows"]]

    assert timeless(again) == timeless(found)


def test_a_protocol_that_is_one_of_those_compared_stands_once(here: None) -> None:
    got = audit("digits-uneven", sets=TINY, seeds=2, against=["shuffle-model"], questions=["source"])
    assert [row["defence"] for row in got.plain["rows"]] == ["digits-uneven", "shuffle-model"]
    # Its attacks are controlled on itself: it is undefended.
    assert got.plain["rows"][1]["questions"]["source"]["adversaries"]["server"]["attacks"]["algorithm2"]["control"]


def test_protocols_that_do_not_fit_the_task_are_left_out_with_the_reason(here: None) -> None:
    sets = [*TINY, "task.split.clients=3"]
    got = audit("digits", sets=sets, seeds=2, against=["tazza", "shuffle-model"], questions=["source"])
    assert [row["defence"] for row in got.plain["rows"]] == ["digits", "none", "shuffle-model"]
    assert "agree on a rule" in got.plain["left_out"]["tazza"]


def test_two_arms_of_one_name_are_told_apart() -> None:
    """A description that has the name of a protocol which it is not; one that is it stands once."""
    uneven = load("digits-uneven", TINY)
    task = uneven.task
    made = assemble(task.data, task.split, task.model, task.fit, Coins.from_seed(0))

    def arms(name: str, against: str) -> list[tuple[str, str]]:
        spec = uneven.model_copy(update={"name": name})
        found, _ = arms_of(spec, setting_of(spec), [against], made, None)
        assert [arm.own for arm in found] == [True, *[False] * (len(found) - 1)]
        return [(arm.key, arm.pipeline.release.use) for arm in found]

    assert arms("shuffle-model", "shuffle-model") == [("own-shuffle-model", "rows"), ("shuffle-model", "shuffle")]
    assert arms("none", "shuffle-model") == [("none", "rows"), ("shuffle-model", "shuffle")]


def test_a_report_is_a_page(found: Report, tmp_path: Path) -> None:
    path = found.save(tmp_path / "page.html")
    text = path.read_text("utf-8")
    assert text == found.page()
    assert text.startswith("<!doctype html>")
    assert all(row["title"].lower() in text.lower() for row in found.plain["rows"])
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
        ({"source": "rns", "sets": ["federation.cohort=1", *TINY]}, r"federation.cohort = 1: .*enrol more clients"),
        ({"source": "digit"}, r"'digit' is neither a file nor a preset; did you mean 'digits'\?"),
        ({"sets": ["task.data=digitz"]}, r"task.data = 'digitz': .* did you mean 'digits'\?"),
        ({"questions": ["sourse"]}, r"questions = 'sourse': there is none; did you mean 'source'\?"),
        ({"adversary": ["relai"], "source": "rns"}, r"adversary = 'relai': .* did you mean 'relay'\?"),
        ({"against": ["shuffle-modle"]}, r"against = 'shuffle-modle': .* did you mean 'shuffle-model'\?"),
    ],
)  # fmt: skip
def test_bad_input_names_field_value_and_remedy(arguments: dict[str, Any], said: str, here: None) -> None:
    with pytest.raises(CroupierError) as raised:
        audit(**{"seeds": 2, "questions": ["source"], **arguments})
    assert re.match(said, str(raised.value)), str(raised.value)


def test_whose_a_window_of_a_series_is_cannot_be_asked(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def forecast(self: Digits, folder: Path | None) -> Dataset:
        rows = Windows(torch.arange(900.0), torch.arange(800), 4)
        return Dataset("series", "forecast", 0, rows, rows, "", "")

    monkeypatch.setattr(Digits, "load", forecast)
    sets = ["task.split=iid", "task.model=lstm", "federation.rounds=1", "run.workers=1"]
    got = audit("digits", sets=sets, seeds=2, against=[], questions=["source"])
    cell = got.plain["rows"][0]["questions"]["source"]
    assert cell["status"] == "not-run"
    assert "windows of one series" in cell["why"]


def test_sampling_of_clients_is_part_of_the_report(here: None) -> None:
    sets = [*TINY, "task.split.clients=6", "federation.cohort=3", "federation.rounds=1"]
    got = audit("digits", sets=sets, seeds=2, against=[], questions=["source"])
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
    got = croupier.audit(own(mine), seeds=2, against=[], questions=["source"])
    assert isinstance(got, croupier.Report)
    assert got.plain["name"] == "mine"
    assert got.plain["task"]["model"] == {"use": "own", "make": f"{mine}:network"}
    assert [row["defence"] for row in got.plain["rows"]] == ["mine"]
    assert got.plain["rows"][0]["accuracy"] > 1 / 3
    assert got.page()


def test_a_report_says_what_its_data_are(mine: str, here: None) -> None:
    got = croupier.audit(own(mine), seeds=2, against=[], questions=["carries"]).plain["data"]
    assert (got["train"], got["test"], got["inputs"], got["classes"]) == (400, 80, [5], 3)
    assert 1 / 3 < got["share"] < 0.6
    assert len(got["digest"]) == 64


def test_a_model_that_attacks_cannot_read_is_an_error_not_a_number(mine: str, here: None) -> None:
    table = own(mine)
    table["task"]["model"]["make"] = f"{mine}:missing"
    with pytest.raises(SpecError, match=r"task.model.make = .*: .* has no function 'missing'; "):
        croupier.audit(table, seeds=2)


def test_the_settings_of_a_description_are_the_experiments() -> None:
    spec = load("digits", [*TINY, "task.fit.lr=0.5", "task.together=3", "task.augment=none"])
    got = setting_of(spec)
    assert isinstance(got, Setting)
    assert (got.data, got.split, got.model, got.fit) == (
        spec.task.data, spec.task.split, spec.task.model, spec.task.fit,
    )  # fmt: skip
    assert (got.plan, got.augment, got.together, got.workers) == (spec.federation, spec.task.augment, 3, 1)


def test_fast_draws_records_of_large_data_and_says_so(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [one for one in TINY if "rounds" not in one]
    small.append("federation.rounds=2")
    whole = audit("digits", sets=small, against=["nothing"], questions=["membership"], fast=True, seeds=2)
    assert whole.plain["bounds"] == []
    monkeypatch.setattr(described, "FAST_TRAINED", 300)
    monkeypatch.setattr(described, "FAST_HELD", 50)
    some = audit("digits", sets=small, against=["nothing"], questions=["membership"], fast=True)
    assert (some.plain["runs"], some.plain["seeds"]) == (LEAST_RUNS, [0, 1, 2, 3])
    first, second = some.plain["bounds"]
    assert "300 of 1442 training records were drawn, anew for each run, and 355 of 355 test records" in first
    assert "30 records of each client" in second
    assert "Malicious clients flip labels or replace the model" in second
    assert first in html.unescape(some.page())
    assert some.plain["rows"][0]["accuracy"] != whole.plain["rows"][0]["accuracy"]


def test_fast_says_how_many_rounds_it_left_out(here: None) -> None:
    small = [one for one in TINY if "rounds" not in one]
    asked: dict[str, Any] = {"against": ["nothing"], "questions": ["carries"], "fast": True, "seeds": 2}
    (said,) = audit("digits", sets=[*small], **asked).plain["bounds"]
    assert said == "--fast: 2 of the 10 rounds that are described were played; more rounds may tell more."
    assert audit("digits", sets=[*small, "federation.rounds=2"], **asked).plain["bounds"] == []
