"""`croupier run` as a person and a program meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.shell import Shell

from croupier.engine.state import Round
from croupier.spec import load
from croupier.toml_read import presets
from croupier.toml_text import to_toml

SMALL = ("-s", "federation.rounds=2", "-s", "task.fit.epochs=1", "-s", "run.workers=1")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    return Shell(monkeypatch, capsys)


def test_a_run_prints_its_table_and_where_it_lies(shell: Shell) -> None:
    code, out, said = shell("run", "digits", *SMALL, "--seed", "7", "--out", "here")
    assert (code, said) == (0, "")
    assert "digits: round by round" in out
    for head in ("round", "accuracy", "loss", "clients", "up/client", "down/client", "seconds", "peak memory"):
        assert head in out
    assert out.count("10/10") == 2
    assert out.count("19.4 kB") == 4
    assert out.endswith("digits: here\n")
    last = json.loads(Path("here/metrics.jsonl").read_text().splitlines()[-1])
    assert f"{last['accuracy']:.1%}" in out
    assert "\x1b" not in out


def test_without_a_description_it_is_digits(shell: Shell) -> None:
    (run,) = shell.json("run", *SMALL, "--seed", "7", "--out", "here")["runs"]
    assert run["name"] == "digits"


def test_without_a_place_it_says_where_it_lies(shell: Shell) -> None:
    code, out, _ = shell("run", *SMALL)
    path = Path(out.splitlines()[-1].removeprefix("digits: "))
    assert code == 0
    assert (path / "summary.json").is_file()


def test_json_is_one_object_with_everything(shell: Shell) -> None:
    found = shell.json("run", "digits-sum", *SMALL, "--seed", "7", "--out", "here")
    (run,) = found["runs"]
    assert run["path"] == "here"
    assert run["metrics"] == [json.loads(line) for line in Path("here/metrics.jsonl").read_text().splitlines()]
    assert run["final"] == run["metrics"][-1]
    assert len(run["timing"]) == 2
    assert run["statement"]["must_not_collude"] == [["relay", "server"]]


def test_a_command_prints_one_object_and_is_quiet_otherwise(tmp_path: Path) -> None:
    """The whole command, its streams and its status, off a terminal."""
    command = [str(Path(sys.executable).with_name("croupier")), "run", "digits", *SMALL, "--seed", "7", "--json"]
    done = subprocess.run([*command, "--out", "here"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found, end = json.JSONDecoder().raw_decode(done.stdout)
    assert done.stdout[end:] == "\n"
    assert found["runs"][0]["final"]["round"] == 2


def test_the_same_seed_gives_the_same_run(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        shell("run", "digits-shuffled", *SMALL, "--seed", "7" if name != "c" else "8", "--out", name)
    a, b, c = (Path(name, "metrics.jsonl").read_bytes() for name in ("a", "b", "c"))
    assert a == b
    assert a != c


def test_several_runs_are_compared(shell: Shell) -> None:
    code, out, said = shell("run", "digits", "digits-shuffled", "digits-sum", *SMALL, "--seed", "7", "--out", "all")
    assert (code, said) == (0, "")
    assert "the server learns" in out
    assert "after the last round" in out
    assert out.count("97.0%") <= 3
    assert [line for line in out.splitlines() if ": all/" in line] == [
        "digits: all/1-digits", "digits-shuffled: all/2-digits-shuffled", "digits-sum: all/3-digits-sum",
    ]  # fmt: skip
    assert all((path / "summary.json").is_file() for path in Path("all").iterdir())


def test_a_run_can_be_compared_with_itself(shell: Shell) -> None:
    found = shell.json("run", "digits", "digits", *SMALL, "--seed", "7", "--out", "all")["runs"]
    assert [run["path"] for run in found] == ["all/1-digits", "all/2-digits"]
    assert found[0]["metrics"] == found[1]["metrics"]


def test_what_was_clamped_or_refused_is_said_below_the_table(shell: Shell) -> None:
    sets = ("-s", "protocol.encode.scale=0.01", "-s", "protocol.aggregate=mean")
    _, out, _ = shell("run", "digits-sum", *SMALL, *sets, "--seed", "7", "--out", "here")
    out = " ".join(out.split())
    assert "clamped (seen by the simulation only)" in out
    assert "of all values sent lay beyond the scale and were clamped; raise protocol.encode.scale" in out
    _, out, _ = shell("run", "digits-sum", *SMALL, "--seed", "7", "--out", "there")
    assert "lay beyond the scale" not in " ".join(out.split())


@pytest.mark.parametrize("name", presets())
def test_print_config_prints_the_whole_description_and_stops(shell: Shell, name: str, tmp_path: Path) -> None:
    code, out, said = shell("run", name, "--print-config", "--set", "federation.rounds=77", "--out", "here")
    assert (code, said) == (0, "")
    Path("printed.toml").write_text(out)
    assert load("printed.toml") == load(name, ["federation.rounds=77"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["printed.toml"]


@pytest.mark.parametrize("name", presets())
def test_print_config_prints_json_where_asked(shell: Shell, name: str, tmp_path: Path) -> None:
    found = shell.json("run", name, "--print-config", "--set", "federation.rounds=77")
    assert found == load(name, ["federation.rounds=77"]).plain()
    assert load(found) == load(name, ["federation.rounds=77"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_print_config_prints_one_description(shell: Shell, extra: tuple[str, ...]) -> None:
    code, out, said = shell("run", "digits", "digits-sum", "--print-config", *extra)
    assert (code, out) == (2, "")
    assert said == "croupier: error: --print-config prints one description: name one\n"


def test_a_printed_description_is_run_alike(shell: Shell) -> None:
    Path("mine.toml").write_text(to_toml(load("digits", SMALL[1::2])))
    shell("run", "mine.toml", "--seed", "3", "--out", "a")
    shell("run", "digits", *SMALL, "--seed", "3", "--out", "b")
    assert Path("a/metrics.jsonl").read_bytes() == Path("b/metrics.jsonl").read_bytes()


def test_an_existing_run_is_refused(shell: Shell) -> None:
    shell("run", *SMALL, "--seed", "7", "--out", "here")
    before = Path("here/metrics.jsonl").read_bytes()
    code, out, said = shell("run", *SMALL, "--seed", "8", "--out", "here")
    assert (code, out) == (2, "")
    assert said == "croupier: error: here holds a run already; resume it with --resume, or choose another --out\n"
    assert Path("here/metrics.jsonl").read_bytes() == before


def test_resuming_a_whole_run_shows_it_again(shell: Shell) -> None:
    shell("run", "digits-sum", *SMALL, "--seed", "7", "--out", "here")
    before = Path("here/metrics.jsonl").read_bytes()
    code, out, said = shell("run", "--resume", "here")
    assert (code, said) == (0, "")
    assert "digits-sum: round by round" in out
    assert Path("here/metrics.jsonl").read_bytes() == before
    (run,) = shell.json("run", "--resume", "here")["runs"]
    assert run["final"]["round"] == 2


@pytest.mark.parametrize("extra", [("digits",), ("--seed", "1"), ("--out", "x"), ("--print-config",)])
def test_resume_takes_nothing_else(shell: Shell, extra: tuple[str, ...]) -> None:
    code, _, said = shell("run", "--resume", "here", *extra)
    assert code == 2
    assert "--resume takes everything from the run directory" in said


def test_other_packages_are_noted_on_the_side(shell: Shell) -> None:
    shell("run", *SMALL, "--seed", "7", "--out", "here")
    manifest = json.loads(Path("here/manifest.json").read_text())
    manifest["packages"]["torch"] = "0.9"
    Path("here/manifest.json").write_text(json.dumps(manifest))
    code, out, said = shell("run", "--resume", "here", "--json")
    assert code == 0
    assert json.loads(out)["runs"][0]["final"]["round"] == 2
    assert said == f"here: begun with torch 0.9, resumed with {version('torch')}: last bits may differ\n"


@pytest.mark.parametrize("at", ["the data", "a round"])
def test_an_interrupt_says_how_to_go_on(shell: Shell, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "croupier.engine.job.job.assemble" if at == "the data" else "croupier.engine.job.job.metrics_of", stop
    )
    code, out, said = shell("run", *SMALL, "--seed", "7", "--out", "here")
    assert (code, out) == (130, "")
    kept = "rounds that ended are kept; go on with: croupier run --resume here"
    assert said == f"stopped; {'nothing had begun' if at == 'the data' else kept}\n"
    assert Path("here").exists() == (at == "a round")


def test_an_interrupt_of_several_names_the_one_that_was_stopped(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from croupier.engine.job import job
    from croupier.engine.job.result import metrics_of

    real = metrics_of

    def stop(done: Round) -> dict[str, Any]:
        if Path("all/2-digits-sum").exists():
            raise KeyboardInterrupt
        return real(done)

    monkeypatch.setattr(job, "metrics_of", stop)
    code, _, said = shell("run", "digits", "digits-sum", *SMALL, "--seed", "7", "--out", "all")
    assert code == 130
    assert said == "stopped; rounds that ended are kept; go on with: croupier run --resume all/2-digits-sum\n"
    assert Path("all/1-digits/summary.json").is_file()


def test_no_words_at_all_show_the_help(shell: Shell) -> None:
    _, out, said = shell()
    assert all(name in out + said for name in ("run", "explain", "doctor", "bench"))


def test_a_bug_is_not_dressed_up_as_an_error(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("croupier.engine.job.run.run", broken)
    with pytest.raises(ZeroDivisionError):
        shell("run", "digits")
