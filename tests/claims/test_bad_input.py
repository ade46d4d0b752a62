"""Every bad input gives one clear line with its remedy and a status, and leaves no run that looks whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from croupier.cli import main
from croupier.engine.job.run import run
from croupier.errors import ProtocolError, SpecError

SMALL = ("federation.rounds=2", "task.fit.epochs=1", "run.workers=1")


def _try(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["croupier", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, said


BAD = {
    "no data folder": (["mnist"], "pass --data FOLDER or set CROUPIER_DATA"),
    "a data folder that is none": (["mnist", "--data", "{tmp}/nowhere"], "which is no folder; pass --data"),
    "an empty data folder": (["households", "--data", "{tmp}"], "lcl_households.npz is missing in"),
    "an unknown key": (["digits", "--set", "federatoin.rounds=3"], "did you mean 'federation.rounds'?"),
    "an unknown nested key": (
        ["digits", "--set", "task.fit.momentun=0.5"],
        "task.fit.momentun: unknown key of 'sgd' (--set task.fit=sgd starts it afresh); did you mean 'momentum'?",
    ),
    "a key of another part": (
        ["digits", "--set", "task.fit.beta1=0.5"],
        "task.fit.beta1: unknown key of 'sgd' (--set task.fit=sgd starts it afresh); known: batch, ",
    ),
    "an unknown part": (["digits", "--set", "protocol.release=shufle"], "did you mean 'shuffle'?"),
    "an unknown preset": (["digit"], "did you mean 'digits'?"),
    "no value": (["digits", "--set", "federation.rounds"], "write key=value"),
    "alpha 0": (["digits", "--set", "task.split.alpha=0"], "task.split.alpha = 0: input should be greater than 0"),
    "alpha below 0": (["digits", "--set", "task.split.alpha=-0.5"], "task.split.alpha = -0.5: input should be greater"),
    "more clients than samples": (
        ["digits", "--set", "task.split.clients=5000"],
        "task.split.clients = 5000: 'digits' has 1442 training records, too few to give each client 1; "
        "use at most 1442 clients",
    ),
    "iid, more clients than samples": (
        ["digits", "--set", "task.split={use='iid', clients=1443}"],
        "use at most 1442 clients",
    ),
    "more in a cohort than enrolled": (["digits", "--set", "federation.cohort=11"], "only 10 clients are enrolled"),
    "training that diverges": (["digits", "--set", "task.fit.lr=1e30"], "training diverged; lower task.fit.lr"),
    "a way that is barred": (["digits", "--out", "{tmp}/file/run"], "cannot be written (Not a directory); choose"),
    "a file in the way": (["digits", "--out", "{tmp}/file"], "cannot be written"),
    "sums without a relay": (["digits", "--set", "protocol.release=sum"], "use place = 'relay'"),
    "a shuffle in the open": (["digits", "--set", "protocol.release=shuffle"], "use place = 'relay'"),
    "sums of floats": (
        ["digits", "--set", "protocol.release=sum", "--set", "protocol.place=relay"],
        "use encode = 'fixed'",
    ),
    "weights beside a shuffle": (
        ["digits-shuffled", "--set", "protocol.encode={use='floats', weights='open'}"],
        "protocol.encode.weights = 'open' would travel beside what release = 'shuffle' hides; "
        "use weights = 'slot' or 'uniform'",
    ),
    "a slot without its cap": (["digits", "--set", "protocol.encode.weights=slot"], "protocol.encode.cap = None with"),
    "a cap without its slot": (
        ["digits", "--set", "protocol.encode.cap=9"],
        "protocol.encode.cap = 9 with weights = 'open'",
    ),
    "more digits than fit": (["digits-sum", "--set", "protocol.encode.digits=19"], "protocol.encode.digits = 19"),
    "sums that could overflow": (
        ["digits-sum", "--set", "protocol.encode.clients=9"],
        "protocol.encode.clients = 9: sums of 10 invited clients could overflow; set it to 10\n",
    ),
    "one client behind a shuffle": (["digits-shuffled", "--set", "federation.cohort=1"], "needs at least 2"),
    "a model that does not fit": (["digits", "--set", "task.model=resnet18"], "task.model = 'resnet18': needs"),
    "a split that does not fit": (["digits", "--set", "task.split=natural"], 'use task.split = "iid" or "dirichlet"'),
    "a device that is not there": (["digits", "--set", "run.device=cuda:7"], "use run.device = 'cpu'"),
    "a device that is none": (["digits", "--set", "run.device=gpu"], "run.device = 'gpu'"),
    "a view of nobody": (
        ["digits", "--set", "run.views=['nobody']"],
        "run.views = ['nobody']: no such party; there are c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, server\n",
    ),
    "weights that are not there": (["digits", "--set", "task.warm={tmp}/no"], "give a model.safetensors file"),
    "weights that are none": (["digits", "--set", "task.warm={tmp}/file"], "give a model.safetensors file"),
    "TOML that is none": (["{tmp}/broken.toml"], "not valid TOML"),
    "text that is none": (["{tmp}/latin.toml"], "latin.toml: cannot be read as UTF-8 text ("),
    "several to print": (["digits", "digits-sum", "--print-config"], "--print-config prints one description: name one"),
    "nothing to resume": (["--resume", "{tmp}/nothing"], "no run to resume here; start one with croupier run --out"),
    "too much to resume": (["digits", "--resume", "{tmp}/nothing"], "--resume takes everything from the run directory"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_input_is_one_clear_line(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "broken.toml").write_text("[task\n")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    words, remedy = BAD[bad]
    sets = [] if "--resume" in words else [part for setting in SMALL for part in ("--set", setting)]
    code, out, said = _try(
        ["run", *sets, *(word.replace("{tmp}", str(tmp_path)) for word in words)], monkeypatch, capsys
    )
    assert code == 2
    assert out == ""
    assert said.startswith("croupier: error: ")
    assert said.count("\n") == 1, said
    assert remedy in said
    assert not list(tmp_path.rglob("summary.json"))
    assert not list(tmp_path.rglob("model.safetensors"))
    # Nothing gave a result, so that nothing is left behind.
    assert not list(tmp_path.rglob("spec.toml"))
    assert not (tmp_path / "runs").exists()


def test_a_diverged_run_is_not_passed_off_as_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "digits", "--set", "task.fit.lr=1e30", "--seed", "1", "--out", str(tmp_path / "run")]
    assert _try(words, monkeypatch, capsys)[0] == 2
    assert not (tmp_path / "run").exists()
    # There is nothing to go on with, and nothing is made up.
    code, _, said = _try(["run", "--resume", str(tmp_path / "run")], monkeypatch, capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "no run to resume here" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("lr", ["1e9", "1e11", "1e13"])
def test_a_loss_that_is_not_finite_is_a_clear_error(lr: str, tmp_path: Path) -> None:
    sets = [*SMALL, f"task.fit.lr={lr}", "task.fit.batch=400", "federation.quorum=0.1", "federation.rounds=3"]
    with pytest.raises(ProtocolError, match=r"(not finite any more|training diverged); lower task\.fit\.lr"):
        run("digits", sets=sets, out=tmp_path / "run", seed=2)
    assert not (tmp_path / "run" / "summary.json").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_every_description_is_read_before_any_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = _try(["run", "digits", "digit-sum", "--out", str(tmp_path / "runs")], monkeypatch, capsys)
    assert (code, "did you mean 'digits-sum'?" in said) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [["explain", "digit"], ["doctor", "--set", "task.x=1"], ["doctor", "mnist"]])
def test_other_commands_err_alike(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    code, out, said = _try(words, monkeypatch, capsys)
    assert (code, out, said.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("words", [["run", "--sede", "1"], ["run", "--seed", "-1"], ["rum"], ["run", "--seed", "x"]])
def test_a_bad_option_is_no_traceback(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, said = _try(words, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert said.startswith("croupier: error: ")
    assert said.count("\n") == 1
    assert said.endswith(f"; see croupier{' run' * (words[0] == 'run')} --help\n")


def test_the_command_itself_ends_with_that_line_and_status(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("croupier")),
        "run",
        "digits",
        "--set",
        "task.split.alpha=0",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "croupier: error: task.split.alpha = 0: input should be greater than 0\n"
    assert not list(tmp_path.iterdir())


def test_a_split_is_named_by_its_whole_key(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        run("digits", sets=[*SMALL, "task.split=natural"], out=tmp_path / "run")
    assert str(error.value).startswith("task.split = 'natural'"), error.value
