"""Data and models that a description names by where they can be imported from."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import torch

from croupier.engine.job.run import run
from croupier.errors import DataError, OwnError, SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import OwnData
from croupier.learn.models import OwnNetwork
from croupier.learn.own import call

NUMBERS = count()
HEAD = "import numpy as np\nimport torch\nfrom torch import nn\n"
GOOD = """
def make(folder):
    x = np.arange(60.0).reshape(20, 3) / 60
    y = np.arange(20) % 4
    return x[:15], y[:15], torch.tensor(x[15:]), torch.tensor(y[15:])
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_modules: None) -> None:
    monkeypatch.chdir(tmp_path)


def module(text: str) -> str:
    """A module of the current directory with this text; its name is new, because modules are imported once."""
    name = f"mine{next(NUMBERS)}"
    Path(f"{name}.py").write_text(HEAD + text)
    return name


def gives(parts: str) -> OwnData:
    return OwnData(make=f"{module(f'def make(folder): return {parts}')}:make")


def test_own_arrays_and_tensors_become_a_dataset() -> None:
    path = f"{module(GOOD)}:make"
    data = OwnData(make=path).load(None)
    assert (data.name, data.goal, data.classes, data.shape, data.source) == ("own", "classify", 4, (3,), path)
    assert isinstance(data.train, TensorRecords)
    assert (len(data.train), len(data.test)) == (15, 5)
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(data.train.x, (torch.arange(45.0, dtype=torch.float64).reshape(15, 3) / 60).float())
    assert data.labels is data.train.y


def test_the_function_is_told_the_data_folder(tmp_path: Path) -> None:
    told = "def make(folder): return np.full((2, 1), float(len(str(folder)))), [0, 1], np.zeros((1, 1)), [1]"
    data = OwnData(make=f"{module(told)}:make")
    for folder in (None, tmp_path):
        x, _ = data.load(folder).train.batch(torch.tensor([0]))
        assert x.item() == len(str(folder))


def test_a_module_in_a_package_is_found() -> None:
    (Path("pack") / "inner").mkdir(parents=True)
    for name in ("pack/__init__.py", "pack/inner/__init__.py"):
        Path(name).touch()
    Path("pack/inner/sets.py").write_text("def two(a, b): return a + b")
    assert call("key", "pack.inner.sets:two", 1, 2) == 3


GONE = "np.zeros((2, 3)), [0, 1], np.zeros((2, 3)), "


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("3", "it gave int, not four parts; return x_train, y_train, x_test, y_test"),
        ("1, 2, 3", "it gave tuple of 3, not four parts"),
        ("'ab', [0], np.zeros((1, 3)), [0]", r"x_train is str .*; give a tensor or an array"),
        (GONE + "[0]", r"x_test has the shape \(2, 3\) and y_test \(1,\); give at least one input"),
        (GONE + "[[0], [1]]", r"y_test \(2, 1\)"),
        ("np.zeros(2), [0, 1], np.zeros(2), [0, 1]", r"x_train has the shape \(2,\)"),
        ("np.zeros((0, 3)), np.zeros(0, int), np.zeros((2, 3)), [0, 1]", r"x_train has the shape \(0, 3\)"),
        ("np.zeros((2, 4)), [0, 1], np.zeros((2, 3)), [0, 1]", r"shape \(4,\) to train and \(3,\) to test; give both"),
        ("np.full((2, 3), np.nan), [0, 1], np.zeros((2, 3)), [0, 1]", "x_train holds what is no finite real number"),
        ("np.full((2, 3), 1e300), [0, 1], np.zeros((2, 3)), [0, 1]", "x_train holds what is no finite real number"),
        ("np.zeros((2, 3), complex), [0, 1], np.zeros((2, 3)), [0, 1]", "x_train holds what is no finite"),
        (GONE + "[0, -1]", "y_test has a label -1; count classes from 0"),
        (GONE + "[0.0, 1.0]", "y_test holds float64; give whole labels"),
        (GONE + "[0, 1000]", "a label 1000 for 4 records; count classes from 0"),
    ],
)
def test_what_is_no_dataset_is_named(parts: str, said: str) -> None:
    with pytest.raises(DataError, match=rf"^task\.data\.make = 'mine\d+:make': .*{said}"):
        gives(parts).load(None)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("__main__:make", "what __main__, a lambda or another function holds cannot be named; put a function into"),
        ("mine:<lambda>", "what __main__, a lambda or another function holds"),
        ("mine", "write module:function, for example mine:make"),
        ("mine.make:", "write module:function"),
        ("folder/mine.py:make", "write module:function"),
        ("..mine:make", "write module:function"),
        ("mine:make.more", "write module:function"),
    ],
)
def test_a_path_that_cannot_be_one_is_refused_when_it_is_read(path: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        OwnData(make=path)
    assert f"OwnData(make={path!r}): {said}" in str(caught.value)
    with pytest.raises(SpecError, match=r"OwnNetwork\(make="):
        OwnNetwork(make=path)


def test_what_cannot_be_imported_or_called_is_named() -> None:
    with pytest.raises(
        SpecError, match=r"make = 'nowhere:make': there is no nowhere\.py in the current directory, .*; put it"
    ):
        OwnData(make="nowhere:make").load(None)
    broken = module("1 / 0")
    with pytest.raises(OwnError, match=rf"^task.data.make = '{broken}:make': {broken}.py line 4, in <module>: ZeroDiv"):
        OwnData(make=f"{broken}:make").load(None)
    name = module("def make(folder): pass\nvalue = 3")
    with pytest.raises(SpecError, match=rf"{name}.py has no function 'mak'; did you mean 'make'\?"):
        OwnData(make=f"{name}:mak").load(None)
    with pytest.raises(SpecError, match=f"{name}.py has no function 'value'"):
        OwnData(make=f"{name}:value").load(None)
    failing = module("def make(folder): raise ValueError('no such year')")
    with pytest.raises(OwnError, match=rf"'{failing}:make': {failing}.py line 4, in make: ValueError: no such year$"):
        OwnData(make=f"{failing}:make").load(None)


def small() -> Dataset:
    rows = TensorRecords(torch.rand(6, 3), torch.arange(6) % 4)
    return Dataset("small", "classify", 4, rows, rows, "none", "made up", labels=rows.y)


def makes(body: str) -> OwnNetwork:
    return OwnNetwork(make=f"{module(f'def make(shape, classes): {body}')}:make")


def test_an_own_network_is_told_shape_and_classes() -> None:
    built = makes("return nn.Sequential(nn.Linear(shape[0], 7), nn.ReLU(), nn.Linear(7, classes))").build(small())
    assert [tuple(part.shape) for part in built.parameters()] == [(7, 3), (7,), (4, 7), (4,)]


def test_the_check_leaves_statistics_fresh_and_lets_our_dropout_pass() -> None:
    text = "from croupier.learn.models import Dropout; "
    built = makes(f"{text}return nn.Sequential(nn.BatchNorm1d(3), Dropout(0.5), nn.Linear(3, classes))").build(small())
    state = built.state_dict()
    assert int(state["0.num_batches_tracked"]) == 0
    assert state["0.running_mean"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "it gave int; return a torch.nn.Module"),
        ("return nn.Flatten()", "the model has no weights"),
        ("return nn.Linear(3, classes).double()", r"weight is not float32; call \.float\(\)"),
        ("a = nn.Linear(3, 3); return nn.Sequential(a, a, nn.Linear(3, classes))", "one weight has two names"),
        ("return nn.Linear(5, classes)", r"on inputs of shape \(3,\) it failed with RuntimeError"),
        ("return nn.Linear(3, 9)", r"for 2 inputs it gave \(2, 9\); return a tensor of shape \(inputs, 4\)"),
        ("return nn.LSTM(3, 4)", "for 2 inputs it gave tuple"),
        (
            "return nn.Sequential(nn.AlphaDropout(0.5), nn.Linear(3, 4))",
            r"global .*use the module nn\.Dropout, which is taken over",
        ),
        (
            "a = nn.Linear(3, 4); a.register_buffer('b', torch.ones(1), persistent=False); return a",
            "the buffer b is not persistent",
        ),
    ],
)
def test_what_cannot_be_trained_is_named(body: str, said: str) -> None:
    with pytest.raises(SpecError, match=rf"^task\.model\.make = 'mine\d+:make': .*{said}"):
        makes(body).build(small())


def test_a_run_with_own_data_and_an_own_model(tmp_path: Path) -> None:
    data, model = module(GOOD), module("def net(shape, classes): return nn.Linear(shape[0], classes)")
    sets = [
        "task.data=own", f"task.data.make={data}:make", "task.model=own", f"task.model.make={model}:net",
        "task.split=iid", "task.split.clients=3", "federation.rounds=2", "run.workers=2",
    ]  # fmt: skip
    one, two = (run("digits", sets=sets, out=tmp_path / name, seed=1) for name in ("one", "two"))
    assert one.final["model"] == two.final["model"]
    assert sum(part.numel() for part in one.model.parameters()) == 16
    assert one.final["present"] == 3
