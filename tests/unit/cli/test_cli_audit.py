"""`croupier audit` and `croupier reproduce` as a person and a program meet them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.scenes import Here, hasten
from tests.shell import Shell

from croupier.learn.datasets import Synthetic
from croupier.learn.models import Mlp
from croupier.spec import load
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.source_inference import experiment

TINY = (
    "-s", "task.split.clients=3", "-s", "task.model.hidden=[16]", "-s", "task.fit.epochs=1", "-s", "run.workers=1",
)  # fmt: skip
FEW = ("-q", "source", "-q", "membership", "--against", "shuffle-model", "--against", "sum", "--seeds", "2")
DEFENCES = ["digits-uneven", "shuffle-model", "sum"]
SHOWN = ["none", "model shuffle", "layer shuffle", "parameter shuffle", "RNS"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """In an empty folder; attacks run in this process, an audit's and a figure's, in few runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    hasten(monkeypatch)
    monkeypatch.setattr(experiment, "Panel", Here)
    return Shell(monkeypatch, capsys)


def test_audit_fast_gives_one_object_and_a_report(shell: Shell) -> None:
    found = shell.json("audit", "digits-uneven", "--fast", *TINY, *FEW, "--seed", "3")
    assert [row["defence"] for row in found["rows"]] == DEFENCES
    assert (found["name"], found["rounds"], found["runs"], found["seeds"]) == ("digits-uneven", 2, 2, [3, 4])
    assert found["task"]["split"] == {"use": "dirichlet", "clients": 3, "alpha": 0.1, "least": 20}
    for row in found["rows"]:
        assert {"defence", "accuracy", "bytes_per_client", "questions"} <= row.keys()
        for attack in row["questions"]["source"]["adversaries"]["server"]["attacks"].values():
            assert {"value", "low", "high", "prior", "gain"} <= attack.keys()
            assert attack["low"] <= attack["value"] <= attack["high"]
        for question in row["questions"].values():
            assert {"adversary", "value", "low", "high", "prior", "gain", "control", "status"} <= question.keys()
    assert found["made"].endswith("Z")
    assert found["command"].startswith("croupier audit digits-uneven --fast")
    page = Path(found["report"])
    assert page.parent == Path("audits")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    beside = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert beside == {key: value for key, value in found.items() if key != "report"}
    assert sorted(path.suffix for path in page.parent.iterdir()) == [".csv", ".html", ".json", ".md"]


def test_audit_for_people_prints_a_matrix_and_the_verdict(shell: Shell) -> None:
    where = ("--report", "new/page.html", "--out", "x.json")
    code, out, said = shell("audit", "digits-uneven", *TINY, "-s", "federation.rounds=1", *FEW, *where)
    assert (code, said) == (0, "")
    assert "digits-uneven: 2 runs" in out
    assert (
        "! leak or damage, * worst case, . none found, ? cannot tell, = proved, - does not apply, x did not run."
        in " ".join(out.split())
    )
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in DEFENCES)
    assert "  server: " in out
    assert "named+prior" not in out
    assert out.endswith("report: new/page.html\n")
    written = json.loads(Path("x.json").read_text())
    assert written["report"] == "new/page.html"
    assert written["rows"] == json.loads(Path("new/page.json").read_text())["rows"]
    assert written["verdict"]["sentence"] in " ".join(out.split())


def test_every_attack_is_shown_when_asked_for(shell: Shell) -> None:
    words = ("audit", "digits-uneven", *TINY, "-s", "federation.rounds=1", *FEW, "--report", "page.html", "-v")
    _, out, _ = shell(*words)
    assert all(name in out for name in ("named+prior", "algorithm2-matched", "tuned", "lira", "gain (95 %)"))


def test_the_own_protocol_is_attacked_by_those_who_are_named(shell: Shell) -> None:
    words = (*TINY, "-s", "federation.rounds=1", "-q", "source", "--against", "nothing", "--seeds", "2")
    found = shell.json("audit", "rns", *words, "-a", "relay", "-a", "server+relay")
    assert [row["defence"] for row in found["rows"]] == ["rns", "none"]
    asked = found["rows"][0]["questions"]["source"]["adversaries"]
    assert {key: one["forbidden"] for key, one in asked.items()} == {"relay": False, "server+relay": True}


def test_audit_prints_its_description_and_stops(shell: Shell, tmp_path: Path) -> None:
    _, out, _ = shell("audit", "digits-uneven", "--fast", "--print-config")
    Path("spec.toml").write_text(out)
    assert load("spec.toml") == load("digits-uneven", ["federation.rounds=2"])
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]
    assert load(shell.json("audit", "digits-sum", "--print-config")) == load("digits-sum")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shadow", "0.7"), "--shadow = 0.7: a share above 0 and below 0.5 of each client's records is withheld"),
        (("--noise", "rotated"), "noise = 'rotated': no distort has that name; did you mean 'rotate'?"),
        (
            ("-s", "task.split=natural"),
            "task.split = 'natural': 'digits' does not say who owns a record; use task.split = \"iid\" or "
            '"dirichlet"',
        ),
        (("-s", "federation.cohort=11"), "federation.cohort = 11: only 10 clients are enrolled; invite fewer"),
        (("-q", "sauce"), "--question = 'sauce': there is none; did you mean 'source'?"),
        (
            ("--against", "rns-server"),
            "--against = 'rns-server': no protocol has that name; did you mean 'rns-servers'?",
        ),
        (("-a", "relay"), "--adversary = 'relay': this protocol has no party 'relay'; known: "),
    ],
)
def test_audit_refuses_bad_input_in_one_line(shell: Shell, words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert shell.refused("audit", "digits-uneven", *words).startswith(said)
    assert not list(tmp_path.iterdir())


def never(*_: object, **__: object) -> None:
    raise AssertionError("nothing should have been run")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("file/page.html", "--report = file/page.html: cannot make its folder (File exists); choose another"),
        ("file/deep/page.html", "--report = file/deep/page.html: cannot make its folder (Not a directory); choose"),
        ("folder", "--report = folder: is a folder; name a file in it"),
        ("page.json", "--report = page.json: the numbers would take the page's place; name it page.html"),
    ],
)
def test_a_report_that_cannot_be_written_is_said_before_the_work(
    shell: Shell, report: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    monkeypatch.setattr("croupier.audit.described.audit", never)
    assert shell.refused("audit", "--fast", "--report", report).startswith(said)


def test_two_reports_are_compared(shell: Shell) -> None:
    words = ("audit", "digits-uneven", *TINY, "-s", "federation.rounds=1", *FEW)
    shell(*words, "--report", "one.html")
    shell(*words, "--seed", "7", "--shadow", "0.1", "--report", "two.html")
    assert "Nothing changed." in shell("report", "compare", "one.json", "one.json")[1]
    _, out, _ = shell("report", "compare", "one.json", "two.json")
    assert out.startswith("Verdict ")
    assert "data the same" in out.splitlines()[0]
    assert "Not comparable: the settings differ" in out
    assert "setting shadow: 0.05 -> 0.1" in out
    assert shell.json("report", "compare", "one.json", "two.json")["comparable"] is False
    assert "two.html: is no JSON; give the .json" in shell.refused("report", "compare", "one.json", "two.html")
    assert "cannot be read (No such file" in shell.refused("report", "compare", "one.json", "three.json")


def test_reproduce_lists_what_there_is(shell: Shell, tmp_path: Path) -> None:
    code, out, said = shell("reproduce")
    assert (code, said) == (0, "")
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in FIGURES)
    entries = shell.json("reproduce")["entries"]
    assert list(entries) == sorted(FIGURES)
    assert entries["rns/table7"]["source"].endswith("Table 7")
    needy = {name for name, entry in entries.items() if entry["needs_data"]}
    assert {"rns/figure1", "tazza/figure4"} <= needy
    assert not needy & {"rns/table7", "rns/table8", "rns/table1", "tazza/figure14"}
    assert {line.split()[0] for line in out.splitlines() if line[20:21] == "*"} == needy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rns/table77",), "'rns/table77' is no figure or table that is known; did you mean 'rns/table7'?"),
        (("rns/table7", "--scale", "papr"), "--scale = 'papr': no such scale; did you mean 'paper'?"),
        (("rns/table7", "--only", "MNIST"), "--only = 'MNIST': no case of rns/table7 holds that; known: synthetic/MLP"),
        (("rns/figure1",), "mnist/"),
        (("rns/table7", "--out", "file/x.json"), "--out = file/x.json: cannot make its folder (File exists)"),
        (("rns/table7", "--device", "tpu"), "run.device = 'tpu': a device is cpu, cuda, or cuda with a number"),
        (("rns/table7", "--device", "cuda"), "run.device = 'cuda': this torch sees no CUDA device"),
    ],
)
def test_reproduce_refuses_bad_input_in_one_line(shell: Shell, words: tuple[str, ...], said: str) -> None:
    Path("file").touch()
    assert shell.refused("reproduce", *words).startswith(said)
    assert not Path("reproductions").exists()


@pytest.mark.parametrize("name", ["rns/figure1", "tazza/figure4", "intra/table1"])
def test_reproduce_names_the_data_folder_and_no_other_data(shell: Shell, name: str) -> None:
    said = shell.refused("reproduce", name)
    assert said.endswith("pass --data FOLDER or set CROUPIER_DATA to a folder laid out as docs/data.md says")


def test_reproduce_runs_and_keeps_its_result(shell: Shell) -> None:
    """Synthetic data: nothing else is needed."""
    code, out, said = shell("reproduce", "rns/table7", "--scale", "smoke", "--seed", "1")
    assert (code, said) == (0, "")
    path = Path(out.splitlines()[-1].removeprefix("result: "))
    assert path.parent == Path("reproductions")
    found = json.loads(path.read_text("utf-8"))
    assert (found["entry"], found["scale"], found["seeds"]) == ("rns/table7", "smoke", [1, 2])
    assert found["made"].endswith("Z")
    assert found["command"] == "croupier reproduce rns/table7 --scale smoke --seed 1"
    assert found["seconds"] > 0
    (case,) = found["cases"]
    assert "alpha = 0.1: the paper does not say" in case["substitutions"]
    printed = {row["defence"]: row["printed"] for row in case["rows"]}
    assert printed == {
        name: {"rate": rate, "where": "Table 7"}
        for name, rate in zip(SHOWN, (0.462, 0.393, 0.370, 0.211, 0.1), strict=True)
    }
    for words in ("46.2%", "synthetic/MLP,", "instead of the paper's: another draw of the set"):
        assert words in " ".join(out.split())
    assert all(said[:40] in " ".join(out.split()) for said in found["says"])


def test_reproduce_fills_in_a_ledger(shell: Shell) -> None:
    found = shell.json("reproduce", "rns/table1", "--out", "new/x.json")
    assert json.loads(Path("new/x.json").read_text()) == found
    assert (found["kind"], found["scale"]) == ("croupier ledger", "smoke")
    first = found["rows"][0]
    assert (first["task"], first["unary"], first["paper_form"], first["paper"]) == ("CNN, MNIST", 1.09, 1.25, 1.04)
    code, out, _ = shell("reproduce", "rns/table1")
    assert code == 0
    assert "Table 1" in out
    assert "Transformer, Newsgroups" in out
    for words in (("--only", "CNN"), ("--seeds", "3")):
        assert "leave out --only and --seeds" in shell.refused("reproduce", "rns/table1", *words)


def test_reproduce_prints_one_object(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 7 made small."""
    entry = FIGURES["rns/table7"]
    assert entry.experiments is not None
    (case,) = entry.experiments("smoke")
    setting = replace(case.setting, data=Synthetic(records=800), model=Mlp(hidden=(8,)))
    small = replace(case, setting=setting, defences=case.defences[:1])
    monkeypatch.setitem(FIGURES, entry.name, replace(entry, experiments=lambda _: [small]))
    words = ("reproduce", "rns/table7", "--only", "synthetic", "--seeds", "3", "--out", "new/x.json")
    found = shell.json(*words)
    assert len(found["seeds"]) == 3
    assert json.loads(Path("new/x.json").read_text()) == found
    assert not Path("reproductions").exists()
