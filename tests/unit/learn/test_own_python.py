"""Functions that a Python program gives, and where errors of one's own code are told to be."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.shell import Shell
from torch import nn

from croupier.core import canon
from croupier.engine.job.run import resume, run
from croupier.errors import OwnError, SpecError
from croupier.learn.datasets import OwnData
from croupier.learn.models import Network, OwnNetwork
from croupier.learn.own import load_own
from croupier.learn.own_names import FunctionName, carried, revived
from croupier.spec import load
from croupier.toml_text import to_toml

DATA = """
import numpy as np
def data(folder):
    x = np.arange(60.0).reshape(20, 3) / 60
    return x[:15], np.arange(15) % 4, x[15:], np.arange(5) % 4
"""
TOML = (
    '[task]\ndata = {use = "own", make = "mine:data"}\nsplit = {use = "iid", clients = 3}\n[federation]\nrounds = 2\n'
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_modules: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def data(folder: Path | None) -> tuple[Any, ...]:
    """Four classes in three columns."""
    x = np.arange(60.0).reshape(20, 3) / 60
    return x[:15], np.arange(15) % 4, x[15:], np.arange(5) % 4


def net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The least there is."""
    return nn.Linear(shape[0], classes)


def described(make: Any = data, model: Any = net) -> dict[str, Any]:
    task = {"data": {"use": "own", "make": make}, "model": {"use": "own", "make": model}}
    return {"task": {**task, "split": {"use": "iid", "clients": 3}}, "federation": {"rounds": 2}}


def test_a_function_that_python_gives_is_called_as_it_is(tmp_path: Path) -> None:
    scale = 2.0

    def inner(folder: Path | None) -> tuple[Any, ...]:
        x, y, x_test, y_test = data(folder)
        return x * scale, y, x_test * scale, y_test

    done = run(described(inner, lambda shape, classes: net(shape, classes)), seed=1, out=tmp_path / "run")
    assert done.final["present"] == 3
    assert done.model.weight.shape == (4, 3)


def test_what_is_written_names_it_and_says_that_python_gave_it(tmp_path: Path, shell: Shell) -> None:
    run(described(), seed=1, out=tmp_path / "run")
    text = (tmp_path / "run" / "spec.toml").read_text()
    (line,) = [line for line in text.splitlines() if "test_own_python:data" in line]
    assert line.startswith('make = "')
    assert "# a function that Python gave: resume with croupier.resume" in line
    kept = json.loads((tmp_path / "run" / "manifest.json").read_text())["own"]
    assert kept["task.data.make"] == {"name": f"{__name__}:data", "file": "given in Python"}
    said = shell.refused("run", "--resume", "run")
    assert "a Python program gave it: go on there, croupier.resume('run', own=[function])" in said


def test_it_is_resumed_with_the_functions_themselves(tmp_path: Path) -> None:
    def inner(folder: Path | None) -> tuple[Any, ...]:
        return data(folder)

    with pytest.raises(KeyboardInterrupt):
        run(described(inner), seed=1, out=tmp_path / "run", watch=_stop_after_one)
    whole = run(described(inner), seed=1, out=tmp_path / "whole")
    with pytest.raises(SpecError, match=r"<locals>.*cannot be named; .* from Python, give the function itself"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", own=[inner, net]).final["model"] == whole.final["model"]


def _stop_after_one(event: str, facts: Any) -> None:
    if event == "round":
        raise KeyboardInterrupt


def test_a_described_run_says_where_its_functions_were(tmp_path: Path, shell: Shell, monkeypatch: Any) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text(DATA)
    (tmp_path / "sub" / "it.toml").write_text(TOML)
    with pytest.raises(KeyboardInterrupt):
        run("sub/it.toml", seed=1, out="run", watch=_stop_after_one)
    said = shell.refused("run", "--resume", "run")
    assert "there is no mine.py beside the description or in the current directory" in said
    assert f"(when the run began it was in {tmp_path / 'sub' / 'mine.py'})" in said
    monkeypatch.chdir(tmp_path / "sub")
    assert shell.json("run", "--resume", "../run")["runs"][0]["final"]["round"] == 2


def test_a_spec_keeps_its_functions_when_it_is_changed_and_copied() -> None:
    spec = load(described())
    for other in (load(spec, ["federation.rounds=5"]), load(spec.plain()), copy.deepcopy(spec), spec.model_copy()):
        made = other.task.data
        assert isinstance(made, OwnData)
        assert load_own("key", made.make) is data
    assert load(described(lambda _: 1)) != load(described(lambda _: 2))
    assert f'make = "{__name__}:data"' in to_toml(spec)


def sent(part: Any) -> Any:
    return ForkingPickler.loads(ForkingPickler.dumps(part))


def test_it_travels_to_the_processes_of_an_audit_or_says_why_not() -> None:
    assert load_own("key", sent(OwnData(make=data)).make) is data
    assert load_own("key", sent(OwnData(make=functools.partial(data))).make).func is data  # type: ignore[attr-defined]
    assert sent(load(described(), ["federation.rounds=3"])).task.model.make.function is net
    for hidden in (lambda folder: 1, functools.partial(lambda folder: 1)):
        with pytest.raises(SpecError, match="define it at the top of a module"):
            sent(OwnData(make=hidden))
    named = FunctionName("mine:data", Path("/somewhere"))
    assert (sent(named), sent(named).folder) == (named, Path("/somewhere"))


@pytest.mark.parametrize(("bad", "said"), [(nn.Linear(2, 2), "give a function that makes one"), (3, "a function, too")])
def test_what_is_no_function_is_refused(bad: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        OwnNetwork(make=bad)


def test_modules_beside_a_description_go_before_those_of_the_current_directory(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2), (".", 3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "mine.py").write_text("from helper import value\ndef data(folder): return value")
        (tmp_path / folder / "helper.py").write_text(f"value = {value}")
        (tmp_path / folder / "it.toml").write_text(TOML)
    found = []
    for source in ("a/it.toml", "b/it.toml", "it.toml", "a/it.toml"):
        part = load(source).task.data
        assert isinstance(part, OwnData)
        found.append(load_own("key", part.make)(None))
    assert found == [1, 2, 3, 1]


def test_packages_with_and_without_their_init_are_found(tmp_path: Path) -> None:
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "sets.py").write_text("def two(): return 2")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .sets import three")
    (tmp_path / "pack" / "sets.py").write_text("import functools\n@functools.cache\ndef three(): return 3")
    assert [load_own("k", name)() for name in ("loose.sets:two", "pack:three", "pack.sets:three")] == [2, 3, 3]


FAILS: dict[str, tuple[str, str]] = {
    "in the function": (
        "def data(folder):\n    rows = {}\n    return rows['age']",
        "mine.py line 3, in data: KeyError: 'age'",
    ),
    "below it": (
        "import json\ndef inner(text):\n    return json.loads(text)\ndef data(folder):\n    return inner('{')",
        "mine.py line 3, in inner: JSONDecodeError: Expecting property name",
    ),
    "in another file": (
        "from helper import broken\ndef data(folder):\n    return broken()",
        "helper.py line 2, in broken: RuntimeError: of many lines, told in one",
    ),
    "while it is imported": (
        "import nothing_of_that_name",
        "mine.py line 1, in <module>: ModuleNotFoundError: No module named 'nothing_of_that_name'",
    ),
    "before it is read": ("def data(folder:\n    return 1", "mine.py line 1: SyntaxError: "),
    "by leaving": ("import sys\ndef data(folder):\n    sys.exit(3)", "mine.py line 3, in data: SystemExit: 3"),
    "without words": ("def data(folder):\n    assert folder", "mine.py line 2, in data: AssertionError (--debug"),
}


@pytest.mark.parametrize("case", FAILS)
def test_an_error_of_ones_own_is_told_by_file_and_line(case: str, tmp_path: Path, shell: Shell) -> None:
    text, said = FAILS[case]
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "helper.py").write_text("def broken():\n    raise RuntimeError('of many lines,\\n   told in one')")
    (tmp_path / "it.toml").write_text(TOML)
    found = shell.refused("run", "it.toml")
    assert found.startswith("task.data.make = 'mine:data': ")
    assert said in found
    assert "(--debug shows all of it)" in found
    assert not (tmp_path / "runs").exists()
    code, _, full = shell("run", "it.toml", "--debug")
    assert code == 2
    assert "Traceback (most recent call last)" in full
    assert "--debug" not in full.splitlines()[-1]


LATE = """
from torch import nn
class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.line, self.passes = nn.Linear(shape[0], classes), 0
    def forward(self, x):
        self.passes += 1
        if self.passes > 2:
            raise ValueError("tired")
        return self.line(x)
"""


def test_an_error_in_a_round_is_told_alike(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "mine.py").write_text(DATA + LATE)
    (tmp_path / "it.toml").write_text(TOML.replace("[task]", '[task]\nmodel = {use = "own", make = "mine:Net"}'))
    found = shell.refused("run", "it.toml", "--out", "here")
    assert found == "mine.py line 15, in forward: ValueError: tired (--debug shows all of it)"


def test_what_it_prints_leaves_one_json_object(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DATA.replace("    x =", "    print('reading')\n    x ="))
    (tmp_path / "it.toml").write_text(TOML)
    command = [str(Path(sys.executable).with_name("croupier")), "run", "it.toml", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["final"]["round"] == 2
    assert "reading" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def data(): return 1", "it cannot be called (too many positional arguments); write def data(folder)"),
        ("def data(folder, year): return 1", "(missing a required argument: 'year'); write def data(folder)"),
    ],
)
def test_a_function_that_takes_something_else_is_told_what_to_take(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(SpecError) as caught:
        OwnData(make="mine:data").load(None)
    assert said in str(caught.value)
    assert not isinstance(caught.value, OwnError)


def test_a_function_of_the_running_program_is_not_imported_once_more(tmp_path: Path) -> None:
    program = "import croupier\n" + DATA.replace("import", "print('once')\nimport", 1)
    program += f"print(croupier.run({described('script:data', 'script:net')!r}, seed=1).final['present'])\n"
    program = program.replace(
        "print(croupier", "from torch import nn\nnet = lambda a, b: nn.Linear(3, b)\nprint(croupier"
    )
    (tmp_path / "script.py").write_text(program)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("once\n3\n", 0), done.stderr


def test_attacks_in_a_process_of_their_own_find_it_by_folder_and_name(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text("def net(shape, classes): return 7")
    (tmp_path / "sub" / "it.toml").write_text("[task]\nmodel = {use = 'own', make = 'mine:net'}")
    for model, name in ((load("sub/it.toml").task.model, "net"), (OwnNetwork(make=net), "net")):
        wired = canon.load(canon.dump(carried(model.plain())))
        found = Network.parse(revived(wired))
        assert isinstance(found, OwnNetwork)
        assert load_own("key", found.make).__name__ == name
    for hidden in (lambda shape, classes: 1, functools.partial(net)):
        with pytest.raises(SpecError, match="define it at the top of a module of your own"):
            carried(OwnNetwork(make=hidden).plain())
