"""`croupier audit` and `croupier reproduce` as a person and a program meet them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.scenes import Here
from tests.shell import Shell

from croupier.audit import experiment, membership
from croupier.cli import audit
from croupier.learn.datasets import Synthetic
from croupier.learn.models import Mlp
from croupier.papers import ENTRIES
from croupier.papers.entry import Entry
from croupier.spec import load

TINY = (
    "-s", "task.split.clients=3", "-s", "task.model.hidden=[16]", "-s", "task.fit.epochs=1", "-s", "run.workers=1",
)  # fmt: skip
DEFENCES = ["none", "model shuffle", "layer shuffle", "parameter shuffle", "sum only"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """In an empty folder; attacks run in this process, in few runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    monkeypatch.setattr(experiment, "Panel", Here)
    monkeypatch.setattr(membership, "MODELS", 3)
    monkeypatch.setattr(membership, "STEPS", 5)
    monkeypatch.setattr(audit, "RUNS", 2)
    return Shell(monkeypatch, capsys)


def test_audit_fast_gives_one_object_and_a_report(shell: Shell) -> None:
    found = shell.json("audit", "--fast", *TINY, "--seed", "3")
    assert [row["defence"] for row in found["rows"]] == DEFENCES
    assert (found["name"], found["rounds"], found["runs"], found["seeds"]) == ("digits-uneven", 2, 2, [3, 4])
    assert found["task"]["split"] == {"use": "dirichlet", "clients": 3, "alpha": 0.1, "least": 20}
    for row in found["rows"]:
        assert {"defence", "accuracy", "bytes_per_client", "attacks"} <= row.keys()
        for attack in row["attacks"].values():
            assert {"rate", "low", "high", "prior", "chance"} <= attack.keys()
            assert attack["low"] <= attack["rate"] <= attack["high"]
            assert attack["chance"] == 1 / 3
    assert found["made"].endswith("Z")
    assert found["command"].startswith("croupier audit --fast")
    page = Path(found["report"])
    assert page.parent == Path("audits")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    beside = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert beside == {key: value for key, value in found.items() if key != "report"}
    assert sorted(path.suffix for path in page.parent.iterdir()) == [".html", ".json"]


def test_audit_for_people_prints_a_table_and_a_sentence_a_defence(shell: Shell) -> None:
    where = ("--report", "new/page.html", "--out", "x.json")
    code, out, said = shell("audit", *TINY, "-s", "federation.rounds=1", "--seeds", "2", *where)
    assert (code, said) == (0, "")
    assert "digits-uneven: whose record is it? Means over rounds and 2 runs" in out
    assert "1/n = 33.3%" in out
    assert all(f"  {name}: " in out for name in DEFENCES)
    assert out.endswith("report: new/page.html\n")
    assert Path("new/page.html").is_file()
    written = json.loads(Path("x.json").read_text())
    assert written["report"] == "new/page.html"
    assert written["rows"] == json.loads(Path("new/page.json").read_text())["rows"]


def test_audit_prints_its_description_and_stops(shell: Shell, tmp_path: Path) -> None:
    _, out, _ = shell("audit", "--fast", "--print-config")
    Path("spec.toml").write_text(out)
    assert load("spec.toml") == load("digits-uneven", audit.FAST)
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
    ],
)
def test_audit_refuses_bad_input_in_one_line(shell: Shell, words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert shell.refused("audit", *words) == said
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
    monkeypatch.setattr("croupier.inquiry.examine", never)
    assert shell.refused("audit", "--fast", "--report", report).startswith(said)


def test_reproduce_lists_what_there_is(shell: Shell, tmp_path: Path) -> None:
    code, out, said = shell("reproduce")
    assert (code, said) == (0, "")
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in ENTRIES)
    entries = shell.json("reproduce")["entries"]
    assert list(entries) == sorted(ENTRIES)
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
        for name, rate in zip((*DEFENCES[:4], "RNS"), (0.462, 0.393, 0.370, 0.211, 0.1), strict=True)
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
    entry = ENTRIES["rns/table7"]
    assert isinstance(entry, Entry)
    (case,) = entry.cases("smoke")
    setting = replace(case.setting, data=Synthetic(records=800), model=Mlp(hidden=(8,)))
    small = replace(case, setting=setting, defences=case.defences[:1])
    monkeypatch.setitem(ENTRIES, entry.name, replace(entry, cases=lambda _: [small]))
    words = ("reproduce", "rns/table7", "--only", "synthetic", "--seeds", "3", "--out", "new/x.json")
    found = shell.json(*words)
    assert len(found["seeds"]) == 3
    assert json.loads(Path("new/x.json").read_text()) == found
    assert not Path("reproductions").exists()


def test_audit_of_tiers_asks_what_clients_are_like(shell: Shell) -> None:
    found = shell.json("audit", "intra", "-s", "federation.rounds=2", "-s", "run.workers=1", "--seeds", "2")
    assert found["kind"] == "croupier profile audit"
    assert {arm["view"] for arm in found["arms"]} == {"rows", "model", "layer", "parameter", "sums"}
    assert {arm["noise"] for arm in found["arms"]} == {"no noise", "noise as in the paper's Table 1", "tiers"}
    assert Path(found["report"]).read_text("utf-8").startswith("<!doctype html>")


def test_audit_refuses_a_profile_without_tiers(shell: Shell) -> None:
    assert "--kind source" in shell.refused("audit", "digits", "--kind", "profile")


def test_audit_of_clusters_asks_what_malicious_clients_break(shell: Shell) -> None:
    small = ("-s", "task.data.use=digits", "-s", "task.split.clients=10", "-s", "federation.rounds=1")
    words = ("audit", "tazza-mnist", "--fast", "--seeds", "2", *small, *TINY[2:], "--report", "page.html")
    found = shell.json(*words, "-s", "task.root.records=20")
    assert (found["kind"], found["name"], found["runs"]) == ("croupier integrity audit", "tazza-mnist", 2)
    assert {row["rule"] for row in found["rows"]} >= {"Clusters", "FedAvg", "FLTrust"}
    assert "Who was in which cluster" in Path("page.html").read_text("utf-8")
    assert {order["first"] for order in found["confidentiality"]["orders"]} == {"clients", "open"}
    assert json.loads(Path("page.json").read_text("utf-8"))["rows"] == found["rows"]


def test_audit_refuses_integrity_without_clusters(shell: Shell) -> None:
    assert "clusters" in shell.refused("audit", "digits", "--kind", "integrity")


SECRET = (
    "audit", "tazza", "--kind", "secrecy", "--fast", "--seeds", "2", "-s", "task.split.clients=6",
    "-s", "federation.cohort=3", "-s", "federation.rounds=1", *TINY[2:], "-s", "protocol.aggregate=mean",
)  # fmt: skip


def test_audit_of_secrecy_is_that_part_alone(shell: Shell) -> None:
    found = shell.json(*SECRET, "--seed", "4", "--report", "page.html", "--out", "x.json")
    assert (found["kind"], found["name"], found["seeds"]) == ("croupier secrecy audit", "tazza", [4, 5])
    assert (found["clients"], found["cohort"], found["rounds"], found["runs"]) == (6, 3, 1, 2)
    assert {order["first"] for order in found["confidentiality"]["orders"]} == {"clients", "open"}
    assert "rows" not in found
    assert json.loads(Path("x.json").read_text("utf-8")) == found
    beside = json.loads(Path("page.json").read_text("utf-8"))
    assert beside == {key: value for key, value in found.items() if key != "report"}
    page = Path("page.html").read_text("utf-8")
    assert "Croupier secrecy audit" in page
    assert found["command"] in page


def test_audit_of_secrecy_for_people_prints_tables_and_sentences(shell: Shell) -> None:
    code, out, said = shell(*SECRET, "--report", "page.html")
    assert (code, said) == (0, "")
    assert " ".join(out.split()).startswith(
        "tazza: what a curious server reads. 6 clients, 3 a round, up to 1 rounds in each setting"
    )
    for word in ("recovered, absolute", "PSNR, dB", "one client's upload", "mean of all", "left out in 2 of 2"):
        assert word in out
    assert "clusters" not in out
    assert "the mean public record, which needs no upload" in " ".join(out.split())
    assert out.endswith("report: page.html\n")


def test_audit_of_secrecy_refuses_what_hides_nothing_and_changes_no_description(shell: Shell) -> None:
    said = shell.refused("audit", "digits", "--kind", "secrecy")
    assert said.startswith("protocol.encode = 'floats': a secrecy audit")
    assert "use 'hidden-units', or --kind source" in said
    assert load(shell.json("audit", "tazza", "--kind", "secrecy", "--fast", "--print-config")) == load("tazza")


def test_audit_refuses_lpips_where_no_picture_is_inverted(shell: Shell) -> None:
    assert "--lpips" in shell.refused("audit", "digits", "--lpips", "alex")
