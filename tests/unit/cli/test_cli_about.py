"""`croupier explain` and `croupier doctor`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from croupier.cli import main
from croupier.spec import load
from croupier.toml_read import about, presets

LEARNED = {
    "digits": "every client's whole update, and whose it is",
    "digits-model": "every client's whole update, as a row without a name",
    "digits-layer": "rows without names that differ in order from layer to layer",
    "digits-shuffled": "the values of every parameter, as a set",
    "digits-sum": "the sum of the encoded updates",
    "rns": "the sum of the encoded updates of the clients present, exact",
    "rns-bits": "and so more than the sum",
}


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.delenv("CROUPIER_DATA", raising=False)

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["croupier", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, said = capsys.readouterr()
        assert (ended.value.code or 0, said) == (0, "")
        return out

    return run


@pytest.mark.parametrize("preset", LEARNED)
def test_explain_says_what_the_server_learns(shell: Any, preset: str) -> None:
    found = json.loads(shell("explain", preset, "--json"))
    assert LEARNED[preset] in found["learns"]["server"]
    relayed = preset != "digits"
    assert found["must_not_collude"] == ([["relay", "server"]] if relayed else [])
    assert ("relay" in found["learns"]) == relayed
    assert "no differential privacy is claimed" in found["differential_privacy"]
    assert found["name"] == preset
    text = " ".join(shell("explain", preset).split())
    assert text.startswith(f"{preset}: who learns what, what that rests on, and what is not claimed server learns:")
    assert text.endswith(f" parts: {' '.join(found['backend'].split())}")
    assert LEARNED[preset] in text
    assert ("relay with server" if relayed else "nobody is kept apart") in text


def test_only_shuffled_bits_leak_more_than_the_sum(shell: Any) -> None:
    said = {name: json.loads(shell("explain", name, "--json")) for name in ("rns", "rns-bits")}
    assert "more than the sum" not in said["rns"]["learns"]["server"]
    assert "(0, 0) from (1, -1)" in said["rns-bits"]["learns"]["server"]
    assert any("residues modulo 5, 7, 8, 9, 11, 13, in unary" in line for line in said["rns"]["encoding"])


def test_the_table_judges_what_the_paper_prints(shell: Any) -> None:
    found = json.loads(shell("explain", "rns", "--table", "--json"))
    cells = {(row["clients"], row["digits"]): row for row in found["table"]}
    assert len(cells) == 7 * 10
    assert cells[10, 5]["moduli"] == [3, 5, 7, 8, 11, 13, 17]
    assert (cells[10, 5]["bits"], cells[10, 5]["sum"], cells[10, 5]["one_modulus"]) == (57, 64, 21)
    assert cells[10_000, 16]["bits"] == 371
    claims = {(row["where"].split(",")[0], row["clients"], row["digits"], row["bits"]): row for row in found["printed"]}
    assert claims["Table 1", 10, 5, 58]["lossless"] is False
    assert claims["Table 1", 10, 5, 58]["most_sums"] == 510_510
    assert claims["Table 9", 10_000, 8, 160]["lossless"] is False
    assert claims["Table 9", 1000, 8, 160]["lossless"] is True
    text = shell("explain", "rns", "--table")
    assert " 57 bits: 3, 5, 7, 8, 11, 13, 17\n" in text
    assert "1.81" in text
    assert text.count("breaks its condition") == sum(not row["lossless"] for row in found["printed"])


def test_explain_follows_settings(shell: Any) -> None:
    sets = ("--set", "protocol.place=relay")
    assert "place relay" in json.loads(shell("explain", "digits", *sets, "--json"))["backend"]


@pytest.mark.parametrize("preset", presets())
def test_explain_speaks_of_every_preset(shell: Any, preset: str) -> None:
    assert {"backend", "learns", "anonymity", "robustness"} <= set(json.loads(shell("explain", preset, "--json")))


def test_a_result_is_also_written(shell: Any, tmp_path: Path) -> None:
    out = shell("explain", "digits", "--json", "--out", str(tmp_path / "said.json"))
    assert (tmp_path / "said.json").read_text() == out
    shell("doctor", "--out", str(tmp_path / "doctor.json"))
    assert "datasets" in json.loads((tmp_path / "doctor.json").read_text())


def test_doctor_shows_licences_and_what_is_missing(shell: Any) -> None:
    found = json.loads(shell("doctor", "--json"))
    assert found["data_folder"] is None
    assert found["datasets"]["digits"]["present"]
    assert not found["datasets"]["mnist"]["present"]
    assert all(facts["licence"] for facts in found["datasets"].values())
    absent = (
        "activity",
        "cifar10",
        "households",
        "intra-london",
        "intra-london-sum",
        "mnist",
        "newsgroups",
        "tazza-mnist",
    )
    assert {name: facts["present"] for name, facts in found["presets"].items()} == {
        name: name not in absent for name in presets()
    }
    assert all(facts["about"] == about(name) for name, facts in found["presets"].items())
    assert found["packages"]["torch"]
    text = shell("doctor")
    assert "CC BY 4.0" in text
    assert "pass --data FOLDER or set CROUPIER_DATA" in text
    missing = " ".join(text.split()).partition("presets whose data are missing here: ")[2]
    assert missing.startswith(", ".join(absent))
    assert "\n  rns-servers       Digits, summed by three servers; clients check the sum.\n" in text


def test_doctor_checks_a_description(shell: Any) -> None:
    assert shell("doctor", "digits").endswith("digits: can run here\n")
    found = json.loads(shell("doctor", "digits", "--json"))
    assert found["checked"] == {"spec": "digits", "digest": load("digits").task.data.load(None).digest}


@pytest.mark.parametrize("words", [("explain", "digits-sum"), ("doctor", "digits-sum")])
def test_print_config_everywhere(shell: Any, words: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(shell(*words, "--print-config"))
    assert load(tmp_path / "spec.toml") == load("digits-sum")


@pytest.mark.parametrize("words", [("explain", "digits-sum"), ("doctor", "digits-sum")])
def test_print_config_is_json_where_asked(shell: Any, words: tuple[str, str]) -> None:
    assert json.loads(shell(*words, "--print-config", "--json")) == load("digits-sum").plain()


def test_bench_prints_what_it_would_measure(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(shell("bench", "simulate", "--clients", "30", "--print-config"))
    spec = load(tmp_path / "spec.toml")
    assert spec.task.split.plain() == {"use": "iid", "clients": 30}
    found = json.loads(shell("bench", "simulate", "--clients", "30", "--print-config", "--json"))
    assert load(found) == spec
