"""Every audit on classifiers of every shape: what a network or its records do not allow is not run, and the rest is."""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path

import pytest
from tests import zoo
from tests.scenes import hasten

from croupier.audit.described import audit
from croupier.cli import findings as command
from croupier.errors import SpecError

NUMBERS = count()
ASKED, COMPARED = ("source", "membership"), ("shuffle-model", "shuffle-layer", "shuffle-parameter", "sum")
# What replaces a last layer; what is trained on shadow sets of which some records were left out.
HEADS, TUNED = ("algorithm3", "algorithm5"), ("tuned+prior",)
# The model, its records, and which attacks on it are not run and why; none where there is no reason.
MODELS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "bare": ("table", (), ""),
    "bare_unbiased": ("two", (), ""),
    "head_first": ("table", (), ""),
    "unbiased": ("table", (), ""),
    "parameter": ("table", (), ""),
    "conv": ("pictures", (), ""),
    "conv_max": ("pictures", HEADS, "no layer gives each logit"),
    "normed": ("table", TUNED, "cannot be trained on one record: raise --shadow"),
    "log_chances": ("table", HEADS, "ends in a log-softmax"),
    "tied": ("table", HEADS, "no layer gives each logit"),
    "unused": ("two", (), ""),
    "embedding": ("words", (), ""),
    "frozen_head": ("table", HEADS, "no layer that is trained gives each logit"),
    "frozen_body": ("table", (), ""),
}
# Without a trained first layer that is linear and has a bias, records span nothing.
SPANLESS = {"bare_unbiased", "unbiased", "conv", "conv_max", "embedding", "frozen_body"}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The networks as the user's own module in the current directory; its name is new: modules are imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    hasten(monkeypatch)
    name = f"zoo{next(NUMBERS)}"
    shutil.copy(zoo.__file__, f"{name}.py")
    return name


def sets(module: str, model: str, data: str, clients: int = 3) -> list[str]:
    return [
        f'task.data={{use="own",make="{module}:{data}"}}', f'task.model={{use="own",make="{module}:{model}"}}',
        f'task.split={{use="iid",clients={clients}}}', "task.fit.epochs=1", "federation.rounds=1", "run.workers=1",
    ]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_source(model: str, mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, which, why = MODELS[model]
    found = audit("digits", sets=sets(mine, model, data), seeds=2, questions=ASKED, against=COMPARED)
    for row in found.rows:
        cells = {name: row["questions"][name]["adversaries"]["server"]["attacks"] for name in ASKED}
        for name, attack in cells["source"].items():
            absent = bool(which) and name.startswith(which)
            assert ("not_run" in attack) is absent
            assert absent or 0 <= attack["value"] <= 1
            assert not absent or (why in attack["not_run"] and not attack["scored"])
        for name, attack in cells["membership"].items():
            absent = name == "spans" and model in SPANLESS
            assert ("not_run" in attack) is absent
            assert absent or 0 <= attack["value"] <= 1
    page = found.page()
    command.show(dict(found.plain), verbose=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert why in page
    assert not why or "not run" in printed


def test_attacks_find_a_network_beside_its_description(mine: str, tmp_path: Path) -> None:
    """It does not lie in the current directory: what attacks are sent must say where."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.move(f"{mine}.py", folder)
    text = f'[task]\ndata = {{use = "own", make = "{mine}:table"}}\nmodel = {{use = "own", make = "{mine}:bare"}}\n'
    (folder / "mine.toml").write_text(text + 'split = {use = "iid", clients = 3}\n[federation]\nrounds = 1\n')
    assert audit(folder / "mine.toml", sets=["run.workers=1"], seeds=2, questions=ASKED, against=[]).rows


@pytest.mark.parametrize(
    ("model", "data", "why"),
    [
        ("chances", "table", r"task.model = 'zoo\d+:chances': it gives probabilities, .*; return logits"),
        ("one_logit", "two", r"it gave \(2, 1\); return a tensor of shape \(inputs, 2\): a logit for each class"),
        ("pair", "table", r"it gave tuple; return a tensor of shape \(inputs, 3\)"),
        ("double", "table", "is not float32; call .float"),
        ("bare", "one", "task.data: all records are of one class, .*; give two or more"),
    ],
)
def test_what_no_attack_could_read_is_refused_in_a_line(model: str, data: str, why: str, mine: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        audit("digits", sets=sets(mine, model, data), seeds=2)
    assert "\n" not in str(caught.value)
