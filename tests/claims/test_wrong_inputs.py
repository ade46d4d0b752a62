"""Wrong inputs, one row each: one line that names the key, the value and the remedy; a status; nothing left behind.

To add one, add a row: `words` for a command line, `toml` for a description, `data` and `net` for one's own functions.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shell import Shell

HUGE = 10**30


@dataclass(frozen=True)
class Wrong:
    """What is typed, the files that lie there, and words that the one line must have."""

    command: str
    says: tuple[str, ...]
    description: str = ""
    code: str = ""

    def __str__(self) -> str:
        return " ".join(f"{self.command} {self.description} {self.code}".split())[:90]


def words(command: str, *says: str) -> Wrong:
    """A command line."""
    return Wrong(command, says)


def toml(description: str, *says: str, command: str = "run it.toml") -> Wrong:
    """A description, in it.toml."""
    return Wrong(command, says, description)


def data(body: str, *says: str, command: str = "run it.toml", more: str = "") -> Wrong:
    """A function of one's own that gives the records: what it returns, or a whole module."""
    code = body if "\n" in body or body.startswith(("import", "def", "x =")) else f"def data(folder): return {body}"
    task = '[task]\ndata = {use = "own", make = "mine:data"}\n'
    return Wrong(
        command, says, f"{task}{more}[federation]\nrounds = 1\n", f"import numpy as np\nimport torch\n{code}\n"
    )


def net(body: str, *says: str) -> Wrong:
    """A function of one's own that gives the model."""
    code = body if "\n" in body or body.startswith("def") else f"def net(shape, classes): return {body}"
    task = '[task]\nmodel = {use = "own", make = "mine:net"}\n[federation]\nrounds = 1\n'
    return Wrong("run it.toml", says, task, f"import torch\nfrom torch import nn\n{code}\n")


def table(text: str, *says: str, more: str = "") -> Wrong:
    """A CSV file to make a project of."""
    return Wrong(f"init new --csv mine.py --target y --owner who {more}", says, code=text)


FINE = "[[1.0, 2.0]] * 30, [0, 1, 2] * 10, [[1.0, 2.0]], [2]"

WRONG = [
    # Descriptions as text.
    toml("[task", "it.toml: not valid TOML", "Expected ']'"),
    toml("[federation]\nrounds = 1\nrounds = 2", "it.toml: not valid TOML", "Cannot overwrite a value"),
    toml("rounds = 3", "rounds: unknown key", "did you mean 'federation.rounds'?"),
    toml("clients = 3", "clients: unknown key", "did you mean 'task.split.clients'?"),
    toml("[taks]\ndata = 'digits'", "taks: unknown key", "did you mean 'task'?"),
    toml("task = 3", "task = 3: expected a table or a name"),
    toml("[task]\ndata = 'digit'", "task.data = 'digit'", "did you mean 'digits'?"),
    toml("[task]\ndata = {use = 3}", "task.data = 3", "no data has that name"),
    toml("[task.data]\nuse = 'digits'\ntets = 0.2", "task.data.tets: unknown key", "did you mean 'test'?"),
    toml("name = '../../etc'", "name = '../../etc'", "letters, digits"),
    toml("name = ''", "name = ''", "letters, digits"),
    toml("[task]\nwarm = '/nowhere/model'", "task.warm = '/nowhere/model'", "give a model.safetensors file"),
    toml("[task]\nwarm = '.'", "task.warm = '.'", "give a model.safetensors file"),
    toml("[task]\nwarm = 'a\\u0000b'", "task.warm = ", "give a model.safetensors file"),
    toml("[task]\nwarm = '/dev/zero'", "task.warm = '/dev/zero'", "give a model.safetensors file"),
    toml("[run]\ndevice = 'tpu'", "run.device = 'tpu'", "cpu, cuda"),
    toml("[run]\nviews = ['../x']", "run.views = ['../x']", "no such party"),
    toml("[federation]\nrounds = 'many'", "federation.rounds = 'many'", "integer"),
    toml("[federation]\nrounds = nan", "federation.rounds = nan", "finite"),
    # Numbers that cannot be.
    words("run digits -s federation.rounds=0", "federation.rounds = 0", "greater than or equal to 1"),
    words("run digits -s federation.quorum=2", "federation.quorum = 2", "less than or equal to 1"),
    words("run digits -s federation.joins={c99=2}", "federation.joins.c99", "did you mean 'c9'?"),
    words("run digits -s task.split.clients=0", "task.split.clients = 0", "greater than 0"),
    words("run digits -s task.split.clients=2.5", "task.split.clients = 2.5", "integer"),
    words(f"run digits -s task.split.clients={HUGE}", f"task.split.clients = {HUGE}", "use at most 1442 clients"),
    words("run digits -s task.split.least=1000", "task.split.least = 1000", "use at most 144"),
    words("run digits -s task.fit.lr=nan", "task.fit.lr = nan", "finite"),
    words("run digits -s task.fit.epochs=0", "task.fit.epochs = 0", "greater than or equal to 1"),
    words("run digits -s task.data.test=1", "task.data.test = 1", "less than or equal to 0.99"),
    words("run digits -s task.model.hidden=[0]", "task.model.hidden.0 = 0", "greater than 0"),
    words("run digits -s task.model.hidden=[1000000000000]", "task.model = 'mlp'", "memory", "make it smaller"),
    words(f"run digits -s task.model.hidden=[{HUGE}]", "task.model = 'mlp'", "make it smaller"),
    toml("[task]\ndata = {use = 'synthetic', records = 1000000000000000}", "task.data = 'synthetic'", "memory"),
    words("run digits -s task.root.records=100000", "task.root.records = 100000", "use fewer"),
    words("run digits -s run.workers=0", "run.workers = 0", "greater than or equal to 1"),
    words("explain intra-london-sum -s protocol.privacy.clip=1e300", "protocol.privacy.clip = 1e+300", "less than"),
    words("explain intra-london-sum -s protocol.privacy.clip=1e-300", "protocol.privacy.clip = 1e-300", "greater than"),
    words("plan dp --sigma 1e-300 --rounds 5", "sigma = 1e-300", "use a larger sigma"),
    words("plan dp --epsilon 1e300 --rounds 5", "epsilon = 1e+300", "use a smaller epsilon"),
    words("plan dp --epsilon nan --rounds 3", "epsilon = nan", "above 0 and finite"),
    words("plan dp --epsilon 1 --sigma 2 --rounds 3", "give two of --epsilon, --sigma and --rounds"),
    # Parts that do not fit.
    words("run digits -s protocol.release=shufle", "protocol.release = 'shufle'", "did you mean 'shuffle'?"),
    words("run digits -s task.split=natural", "task.split = 'natural'", 'use task.split = "iid"'),
    words("run digits -s task.model=mnist-cnn", "task.model = 'mnist-cnn'", "needs"),
    words("run digits -s task.augment=crop", "task.augment.side: this key is required", "task.augment.side=VALUE"),
    words("run digits -s task.opaque=layer", "task.opaque = 'layer'", "a list is wanted, in brackets"),
    words("run digits -s protocol.aggregate=krum", "aggregate = 'krum'", "use encode.weights = 'uniform'"),
    words("run digits -s protocol.place=masks", "place = 'masks'", "use place = 'relay'"),
    words("audit digits-uneven -q integrity", "--question = 'integrity'", "known: "),
    words("audit digits-uneven -a relay", "--adversary = 'relay'", "this protocol has no party 'relay'"),
    words("audit digits-uneven --against nobody", "--against = 'nobody'", "no protocol has that name"),
    words("report compare one.json two.json", "one.json", "cannot be read", "give the JSON beside an audit's page"),
    words("audit digits-uneven --noise rotate --fast --seeds 2", "noise = 'rotate'", "needs pictures", "use 'clean'"),
    words("audit digits-sum -s task.split.clients=1 --seeds 2", "federation.cohort = 1", "enrol more clients"),
    # Command lines.
    words("init new --target y", "--target, --owner and --drop", "name its file with --csv"),
    table("who;x;y\na;1;2\n", "separated by ';'", "save the table with commas"),
    table("who,x,x,y\na,1,2,3\n", "the column 'x' is named 2 times", "rename all but one"),
    table("who,x,y\na,1,2\na,1\n", "line 3 has 2 cells", "mend the line"),
    table("who,x,y\na,1,2\n", "--drop = 'z'", "has the columns who, x, y", more="--drop z"),
    words("rum", "No such command 'rum'", "Did you mean 'run'?"),
    words("run digits --sede 3", "No such option '--sede'", "--seed"),
    words("run digits --seed -1", "'--seed': -1", "x>=0"),
    words("run digits -s federation.rounds", "--set 'federation.rounds'", "write key=value"),
    words("run dgits", "'dgits' is neither a file nor a preset", "did you mean 'digits'?"),
    words("run .", "'.' is neither a file nor a preset"),
    words("run digits --out it.toml", "it.toml: cannot be written", "choose another --out"),
    words("run --resume nowhere", "nowhere: no run to resume here", "croupier run --out nowhere"),
    words("explain digits digits", "unexpected extra argument (digits)", "croupier explain --help"),
    words("explain digits --out /proc/no/x", "--out = /proc/no/x", "choose another"),
    words("audit digits-uneven --seeds 1", "'--seeds': 1", "2<=x<=1000"),
    words("audit digits-uneven --shadow nan", "--shadow = nan", "below 0.5"),
    words("audit digits-uneven --report x.json", "--report = x.json", "name it x.html"),
    words("doctor digits --print-confg", "No such option '--print-confg'", "--print-config"),
    words("bench nothing", "No such command 'nothing'", "croupier bench --help"),
    words("reproduce rns/figure9999", "'rns/figure9999' is no figure or table that is known"),
    # Functions of one's own: their names.
    toml("[task]\ndata = 'own'", "task.data.make: this key is required"),
    toml("[task]\ndata = 'mine:data'", "task.data = 'mine:data'", "no data has that name"),
    toml("[task]\ndata = {use = 'own', make = 3}", "task.data.make = 3", "write module:function"),
    toml("[task]\ndata = {use = 'own', make = 'mine.py'}", "task.data.make = 'mine.py'", "write module:function"),
    toml("[task]\ndata = {use = 'own', make = '../mine:data'}", "make = '../mine:data'", "write module:function"),
    toml("[task]\ndata = {use = 'own', make = 'mine:data()'}", "make = 'mine:data()'", "write module:function"),
    toml("[task]\ndata = {use = 'own', make = 'nowhere:data'}", "'nowhere:data'", "there is no nowhere.py", "put it"),
    toml("[task]\ndata = {use = 'own', make = 'os:system'}", "'os:system'", "a module of Python itself"),
    toml("[task]\nmodel = {use = 'own', make = 'torch:load'}", "'torch:load'", "there is no torch.py"),
    toml("[task]\ndata = {use = 'own', make = 'nowhere:data'}", "there is no nowhere.py", command="doctor it.toml"),
    data("def dat(folder): return 1", "mine.py has no function 'data'", "did you mean 'dat'?"),
    data("def dat(folder): return 1", "mine.py has no function 'data'", "mean 'dat'?", command="doctor it.toml"),
    data("def data(folder:", "mine.py cannot be read as Python", "line 3", command="doctor it.toml"),
    data("x = 1\nfrom shutil import rmtree as data", "data is not defined in mine.py", "write a function of your own"),
    data("x = 1\ndata = 3", "mine.py has no function 'data'"),
    # What they are and give.
    data("def data(): return 1", "it cannot be called", "write def data(folder)"),
    data("import nothing_there", "mine.py line 3, in <module>: ModuleNotFoundError", "nothing_there"),
    data("def data(folder): return folder / 'x.csv'", "mine.py line 3, in data: TypeError"),
    data("None", "it gave NoneType, not four parts", "return x_train, y_train, x_test, y_test"),
    data("x = 1\nasync def data(folder): return 1", "it gave coroutine, not four parts"),
    data("[['a', 'b']] * 9, [0] * 9, [['a', 'b']], [0]", "x_train", "give a tensor or an array"),
    data("[[1.0], [1.0, 2.0]], [0, 1], [[1.0]], [0]", "x_train is list", "give a tensor or an array"),
    data("[[1.0, 2.0]] * 9, ['a'] * 9, [[1.0, 2.0]], ['b']", "y_train", "give a tensor or an array"),
    data("[[1.0, 2.0]] * 3, [0, 1, None], [[1.0, 2.0]], [0]", "y_train", "give a tensor or an array"),
    data("[[1.0, 2.0]] * 3, [0, 1], [[1.0, 2.0]], [0]", "x_train has the shape (3, 2) and y_train (2,)", "one label"),
    data("[[1.0, np.nan]] * 3, [0, 1, 2], [[1.0, 2.0]], [0]", "x_train holds what is no finite", "clean it first"),
    data("[[1.0, 2.0]] * 3, [0, 1, -1], [[1.0, 2.0]], [0]", "y_train has a label -1", "count classes from 0"),
    data("[[1.0, 2.0]] * 3, [0, 1, 2**62], [[1.0, 2.0]], [0]", "a label 4611686018427387904", "count classes from 0"),
    data("[[[]]] * 30, [0, 1] * 15, [[[]]], [0]", "x_train has the shape (30, 1, 0)", "at least one number"),
    data(FINE, "task.split.clients = 31", "use at most 30", more="split = {use = 'iid', clients = 31}\n"),
    data(FINE, "task.model = 'mnist-cnn'", more="model = 'mnist-cnn'\n"),
    data("[[1.0, 2.0]] * 3, [0, 1, 2], [[1.0, 2.0]], [0], [0, 1]", "owner_train has 2 owners for 3 records"),
    data("[[1.0, 2.0]] * 3, [0, 1, 2], [[1.0, 2.0]], [0], ['a', 'b', '../x']", "an owner '../x'", "letters, digits"),
    data("{}", "it gave a table without clients", "give each client's name"),
    toml("[task]\nloss = 'hubr'", "task.loss = 'hubr'", "did you mean 'huber'?"),
    toml("[task]\nloss = 'mse'", "task.loss = 'mse'", "use 'cross-entropy'"),
    toml("[task]\nloss = 'os:system'", "task.loss = 'os:system'", "a module of Python itself"),
    toml("[task]\nmetrics = ['acuracy']", "task.metrics.0 = 'acuracy'", "did you mean 'accuracy'?"),
    toml("[task]\nmetrics = ['rmse']", "task.metrics = 'rmse'", "use accuracy"),
    toml("[task]\nmetrics = ['nowhere:score']", "task.metrics = 'nowhere:score'", "there is no nowhere.py"),
    toml("protocol = 'rns-server'", "protocol = 'rns-server'", "did you mean 'rns-servers'?"),
    words("plan nowhere.toml", "'nowhere.toml' is neither a file nor a preset"),
    net("None", "it gave NoneType", "return a torch.nn.Module"),
    net("nn.Linear", "it gave type", "return a torch.nn.Module"),
    net("nn.Linear(shape, classes)", "mine.py line 3, in net: TypeError"),
    net("nn.Linear(shape[0], classes + 1)", "for 2 inputs it gave (2, 11)", "return a tensor of shape (inputs, 10)"),
    net("nn.Linear(10**7, 10**8)", "mine.py line 3, in net: RuntimeError", "memory"),
    net("def net(shape): return nn.Linear(shape[0], 10)", "it cannot be called", "write def net(shape, classes)"),
    net("nn.Flatten()", "the model has no weights", "give it at least one layer"),
    net(
        "class Net(nn.Module):\n    def __init__(self, *_): super().__init__(); self.a = nn.Linear(64, 10)\n"
        "    def forward(self, x): return self.b(x)\nnet = lambda shape, classes: Net()",
        "mine.py line 5, in forward: AttributeError",
    ),
]  # fmt: skip


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, fresh_modules: None
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    return Shell(monkeypatch, capsys)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_input_is_one_line_and_leaves_nothing(wrong: Wrong, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "it.toml").write_text(wrong.description)
    if wrong.code:
        (tmp_path / "mine.py").write_text(wrong.code)
    before = set(tmp_path.rglob("*"))
    said = shell.refused(*shlex.split(wrong.command))
    missing = [each for each in wrong.says if each not in said]
    assert not missing, said
    left = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert left == before, said


def test_no_row_stands_twice() -> None:
    rows = [(wrong.command, wrong.description, wrong.code) for wrong in WRONG]
    assert len(set(rows)) == len(rows)
