"""Every audit on classifiers of every shape: what a network or its records do not allow is not run, and the rest is."""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import zoo
from tests.scenes import Here

from croupier import disclosure, inquiry, profiling, soundness
from croupier.audit import experiment, membership
from croupier.audit.secrecy import Depth
from croupier.cli import audit as command
from croupier.errors import SpecError

NUMBERS = count()
DEPTH = Depth(rounds=1, uploads=1, pictures=10, searched=1, steps=2)
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
# What the server of hidden coordinates does with single steps: reads them off, searches, or why it does nothing.
READS = {
    "bare_unbiased": "no biases, and two classes",
    "head_first": "read off",
    "unbiased": "searched",
    "conv": "searched",
    "conv_max": "no layer gives each logit",
    "normed": "read off",
    "unused": "read off",
    "embedding": "no gradient in its inputs",
    "frozen_head": "read off",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The networks as the user's own module in the current directory; its name is new: modules are imported once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(experiment, "Panel", Here)
    monkeypatch.setattr(membership, "MODELS", 2)
    monkeypatch.setattr(membership, "STEPS", 2)
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
    found = inquiry.examine("digits", sets=sets(mine, model, data), seeds=2)
    for row in found.rows:
        for name, attack in row["attacks"].items():
            absent = bool(which) and name.startswith(which)
            assert ("not_run" in attack) is absent
            assert absent or 0 <= attack["rate"] <= 1
            assert not absent or (why in attack["not_run"] and not attack["scored"])
        assert all(0 <= one["rate"] <= 1 for one in row["membership"].values())
    page = found.page()
    command.show(dict(found.plain))
    printed = " ".join(capsys.readouterr().out.split())
    assert ("not run: " in page) is ("not run: " in printed) is bool(why)
    assert why in page
    assert why in printed
    # Where nothing else was run on a view either, its verdict says so.
    assert ("Not judged: its attacks were not run: " in printed) is (which == HEADS)


def test_attacks_find_a_network_beside_its_description(mine: str, tmp_path: Path) -> None:
    """It does not lie in the current directory: what attacks are sent must say where."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.move(f"{mine}.py", folder)
    text = f'[task]\ndata = {{use = "own", make = "{mine}:table"}}\nmodel = {{use = "own", make = "{mine}:bare"}}\n'
    (folder / "mine.toml").write_text(text + 'split = {use = "iid", clients = 3}\n[federation]\nrounds = 1\n')
    assert inquiry.examine(folder / "mine.toml", sets=["run.workers=1"], seeds=2).rows


@pytest.mark.parametrize("model", READS)
def test_secrecy(model: str, mine: str) -> None:
    given = [*sets(mine, model, MODELS[model][0], 4), "federation.cohort=4"]
    secret = disclosure.examine("tazza", sets=given, seeds=2, abreast=1, depth=DEPTH).plain["confidentiality"]
    own, how = secret["orders"][0], READS[model]
    assert own["groups"]
    unread = how not in ("read off", "searched")
    assert bool(own["inversion"]) is not unread
    assert any(line.startswith("Nothing was inverted: ") and how in line for line in secret["says"]) is unread
    told = [one for one in own["inversion"] if (one["knows"], one["moment"]) == ("told", "first model")]
    # Two steps of a search find nothing; what is read off is the record itself.
    assert all((one["psnr"]["rate"] > 30) is (how == "read off") for one in told)


@pytest.mark.parametrize("model", ["conv_max", "unknown"])
def test_integrity(model: str, mine: str) -> None:
    """With uploads in plain order no symmetry is needed, and five clients are too few for one of the baselines."""
    data = "pictures" if model == "conv_max" else "table"
    given = [*sets(mine, model, data, 5), "federation.cohort=5", 'protocol.encode={use="floats",weights="uniform"}']
    found = soundness.examine(
        "tazza", sets=[*given, "task.root.records=20"], seeds=2, abreast=1, depth=DEPTH
    )  # fmt: skip
    assert "Multi-Krum" not in {row["rule"] for row in found.plain["rows"]}
    assert found.plain["not_run"] == {"Multi-Krum": "told of 2 liars it needs 7 clients a round, and 5 are invited"}
    assert "Multi-Krum: not run: " in found.plain["sentences"][-1]
    assert found.plain["sentences"][-1] in found.page()
    drawn = "4 x 4 pixels" if data == "pictures" else "a 1 in every fourth feature"
    assert drawn in found.plain["attacks"]["backdoor"]


def test_profile(mine: str) -> None:
    given = [*sets(mine, "parameter", "table", 16), "task.together=1"]
    found = profiling.profile("intra", sets=given, seeds=2, noises=["no noise"])
    assert list(found.plain["attributes"]) == ["dominant"]
    assert found.page()


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
    asked: list[tuple[Any, str]] = [(inquiry.examine, "digits"), (disclosure.examine, "tazza")]
    for examine, preset in asked:
        given = sets(mine, model, data) + (["federation.cohort=3"] if preset == "tazza" else [])
        with pytest.raises(SpecError, match=why) as caught:
            examine(preset, sets=given, seeds=2)
        assert "\n" not in str(caught.value)


def test_a_network_of_which_nothing_can_be_permuted_is_refused(mine: str) -> None:
    given = [*sets(mine, "frozen_body", "table", 4), "federation.cohort=4"]
    with pytest.raises(SpecError, match="nothing that clients send of this network can be permuted"):
        disclosure.examine("tazza", sets=given, seeds=2, abreast=1)


def test_a_network_with_an_unknown_operation_is_refused_where_its_symmetry_is_asked_for(mine: str) -> None:
    with pytest.raises(SpecError, match="no rule is known for 'fft_fft'"):
        disclosure.examine(
            "tazza", sets=[*sets(mine, "unknown", "table", 4), "federation.cohort=4"], seeds=2, abreast=1
        )
