"""Own networks as they come: torch's dropout taken over, frozen parts left at home, whole inputs for embeddings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.job.run import run
from croupier.errors import SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.models import Dropout, OwnNetwork
from croupier.learn.models.layers import ChannelDropout, draw_from, take_over
from croupier.learn.train import Learner

HEAD = "import torch\nfrom torch import nn\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def built(name: str, body: str, data: Dataset | None = None) -> nn.Module:
    Path(f"{name}.py").write_text(f"{HEAD}\n{body}\n")
    torch.manual_seed(0)
    return OwnNetwork(make=f"{name}:make").build(data or small())


def small(count: int = 12) -> Dataset:
    rows = TensorRecords(torch.rand(count, 3, generator=torch.Generator().manual_seed(1)), torch.arange(count) % 2)
    return Dataset("small", "classify", 2, rows, rows, "none", "made up", labels=rows.y)


def update(module: nn.Module, fit: Sgd, seed: int, workers: int = 1, data: Dataset | None = None) -> torch.Tensor:
    data = data or small()
    learner = Learner(module, data.goal, fit, {"a": data.train, "b": data.train}, workers=workers)
    start = layout_of(module).flatten(module.state_dict())
    coins = Coins.from_seed(seed)
    got = learner([(start, name, coins.child(name)) for name in "ab"])
    assert all(isinstance(one, Update) for one in got), got
    return torch.stack([one.vector for one in got if isinstance(one, Update)])


DROPPED = """
def make(shape, classes):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes))
"""


def test_torchs_dropout_is_taken_over_and_follows_the_seed() -> None:
    module = built("dropped", DROPPED)
    assert [type(part) for part in module.modules() if "rop" in type(part).__name__] == [Dropout]
    assert list(module.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    before = torch.get_rng_state()
    one, two, other = (update(module, Sgd(epochs=2), *how) for how in ((1, 1), (1, 2), (2, 1)))
    assert torch.equal(one, two), "the number of workers changes nothing"
    assert not torch.equal(one, other), "another seed draws other masks"
    assert torch.equal(before, torch.get_rng_state()), "the shared generator is left alone"
    still = nn.Sequential(*[part for part in module.children() if not isinstance(part, Dropout)])
    assert not torch.equal(one, update(still, Sgd(epochs=2), 1)), "masks are in use"


@pytest.mark.parametrize("engine", ["vmap", "opacus"])
def test_dropout_draws_for_every_record_of_dp_sgd(engine: str) -> None:
    module = built(f"private_{engine}", DROPPED)
    fit = DpSgd(engine=engine, noise=0.0, batch=12)
    assert torch.equal(update(module, fit, 1), update(module, fit, 1))
    assert not torch.equal(update(module, fit, 1)[0], update(module, fit, 2)[0])


def test_every_place_of_a_shared_dropout_is_taken_over_and_channels_fall_whole() -> None:
    shared = nn.Dropout(0.25)
    inner = nn.Sequential(shared, nn.Dropout2d(0.5), nn.Dropout1d(1.0))
    module = nn.Sequential(nn.Linear(2, 2), shared, inner)
    take_over(module)
    assert isinstance(module[1], Dropout)
    assert module[1] is inner[0]
    assert [getattr(part, "p", None) for part in (module[1], inner[1])] == [0.25, 0.5]
    draw_from(module, torch.Generator().manual_seed(0))
    out = ChannelDropout(0.5)
    out.generator = torch.Generator().manual_seed(0)
    dropped = out(torch.ones(50, 4, 3, 3)).flatten(2)
    assert set(dropped.mean(2).flatten().tolist()) == {0.0, 2.0}, "a channel stays or goes as a whole"
    assert torch.equal(inner[2](torch.ones(2, 3, 4)), torch.zeros(2, 3, 4))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "class Net(nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n        self.cell = nn.LSTM(3, 4, 2, dropout=0.5)\n"
            "        self.last = nn.Linear(4, 2)\n"
            "    def forward(self, x):\n        return self.last(self.cell(x.unsqueeze(0))[0][0])\n"
            "def make(shape, classes): return Net()",
            r"cell \(LSTM\) drops out inside itself; set its dropout to 0, and put nn\.Dropout behind it",
        ),
        (
            "class Net(nn.Linear):\n    def forward(self, x):\n"
            "        return super().forward(nn.functional.dropout(x, 0.5, self.training))\n"
            "def make(shape, classes): return Net(3, 2)",
            r"draws from torch's global generator.*use the module nn\.Dropout",
        ),
    ],
    ids=["lstm", "functional"],
)
def test_randomness_that_cannot_be_taken_over_is_refused(body: str, said: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(SpecError, match=said):
        built(f"random_{request.node.callspec.id}", body)


FROZEN = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU()).requires_grad_(False)
        self.register_buffer("scale", torch.full((6,), 0.5))
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(self.norm(self.trunk(x) * self.scale))

def make(shape, classes):
    return Net(classes)
"""
SENT = ["norm.weight", "norm.bias", "head.weight", "head.bias", "norm.running_mean", "norm.running_var"]


def test_frozen_parts_are_neither_trained_nor_sent() -> None:
    module = built("frozen", FROZEN)
    assert [part.name for part in layout_of(module).carried] == SENT
    frozen = {name: value.clone() for name, value in module.state_dict().items() if name not in SENT}
    assert {"trunk.0.weight", "trunk.1.running_mean", "scale"} <= set(frozen)
    learner = Learner(module, "classify", Sgd(lr=0.5, weight_decay=0.1), {"a": small().train})
    start = layout_of(module).flatten(module.state_dict())
    (got,) = learner([(start, "a", Coins.from_seed(0))])
    assert isinstance(got, Update)
    assert len(got.vector) == layout_of(module).size == 6 * 2 + 14 + 12
    assert not torch.equal(got.vector, start)
    trainer = learner._idle.get()
    after = trainer.net.module.state_dict()
    assert all(torch.equal(after[name], value) for name, value in frozen.items() if "num_batches" not in name)


def test_what_a_network_writes_into_its_frozen_parts_is_gone_for_the_next_client() -> None:
    net = FlatNet(built("written", FROZEN))
    vector = net.vector()
    with torch.no_grad():
        net.module.get_parameter("scale").fill_(9.0)
    net.load(vector)
    assert net.module.get_parameter("scale").tolist() == [0.5] * 6


@pytest.mark.parametrize("engine", ["vmap", "opacus"])
def test_frozen_parts_have_no_gradient_in_dp_sgd(engine: str) -> None:
    text = "def make(shape, classes):\n    a = nn.Linear(3, 4).requires_grad_(False)\n"
    module = built(f"halved_{engine}", f"{text}    return nn.Sequential(a, nn.ReLU(), nn.Linear(4, classes))")
    fit = DpSgd(engine=engine, noise=0.0, batch=12, lr=0.5)
    got = update(module, fit, 1)
    assert got.shape == (2, 10)
    assert not torch.equal(got[0], layout_of(module).flatten(module.state_dict()))


def test_a_network_that_is_frozen_whole_has_nothing_to_train() -> None:
    with pytest.raises(SpecError, match="all weights of the model are frozen"):
        built("solid", "def make(shape, classes): return nn.Linear(3, 2).requires_grad_(False)")


RUN = """
import numpy as np

def data(folder):
    x = np.random.default_rng(0).integers(0, 40, (60, 5))
    return x[:40], x[:40, 0] % 2, x[40:], x[40:, 0] % 2, np.arange(40) % 4

class Net(nn.Module):
    def __init__(self, words, classes):
        super().__init__()
        self.words, self.drop, self.last = nn.Embedding(words, 6), nn.Dropout(0.2), nn.Linear(6, classes)
        self.words.weight.requires_grad_(False)

    def forward(self, x):
        return self.last(self.drop(self.words(x).mean(1)))

def net(shape, classes):
    return Net(40, classes)

def tight(shape, classes):
    return Net(20, classes)
"""


def test_whole_inputs_reach_an_embedding_whose_frozen_words_stay_and_are_exported() -> None:
    Path("reads.py").write_text(HEAD + RUN)
    own = {"data": {"use": "own", "make": "reads:data"}, "model": {"use": "own", "make": "reads:net"}}
    told = {"task": {**own, "split": "natural"}, "federation": {"rounds": 2}}
    one, two = (run(told, sets=[f"run.workers={w}"], out=f"reads{w}", seed=1) for w in (1, 2))
    assert one.final["model"] == two.final["model"]
    with Coins.from_seed(1).child("first model").ambient():
        words = nn.Embedding(40, 6).weight
    assert torch.equal(one.model.state_dict()["words.weight"], words), "as the first model drew them"
    own["model"] = {"use": "own", "make": "reads:tight"}
    with pytest.raises(SpecError, match=r"'reads:tight': on inputs of shape .*IndexError.*whole numbers below 40"):
        run({"task": {**own, "split": "natural"}}, seed=1, out="tight")


def test_whole_inputs_where_quantities_are_wanted_say_what_to_do() -> None:
    rows = TensorRecords(torch.arange(12).reshape(4, 3), torch.arange(4) % 2)
    whole = Dataset("whole", "classify", 2, rows, rows, "", "", labels=rows.y, tokens=12)
    with pytest.raises(SpecError, match=r"inputs are whole numbers below 12 \(int64\).*give floats"):
        built("wants_floats", "def make(shape, classes): return nn.Linear(3, 2)", whole)


def test_statistics_of_records_that_are_all_zeros_are_no_constants() -> None:
    rows = TensorRecords(torch.zeros(4, 3), torch.arange(4) % 2)
    zeros = Dataset("zeros", "classify", 2, rows, rows, "", "", labels=rows.y)
    body = "def make(shape, classes): return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, classes))"
    carried = [part.name for part in layout_of(built("zeros", body, zeros)).carried]
    assert carried[-2:] == ["0.running_mean", "0.running_var"]
    kept = """
class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        if self.training:
            self.seen.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.last(x - self.seen)

def make(shape, classes):
    return Mean()
"""
    assert [part.name for part in layout_of(built("means", kept, zeros)).carried][-1] == "seen"
