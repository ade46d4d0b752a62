"""The bench of a device beside the CPU: both federations, every arm, and a round after training that agrees."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.spec import load
from croupier_lab.bench.speed import device_rival, device_rounds
from croupier_lab.bench.speed.device_rival import rival
from croupier_lab.bench.speed.device_rounds import Arms, beside, drawn_pictures, show
from croupier_lab.bench.speed.simulation import SimulationSize, describe, measure

ARMS = ["device_stacked", "device_one_by_one", "cpu_stacked", "cpu_one_by_one"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pictures, which are drawn, whatever data lie here."""
    monkeypatch.delenv("CROUPIER_DATA", raising=False)
    for name, value in {"PICTURES": 4, "RECORDS": 2, "TEST": 5}.items():
        monkeypatch.setattr(device_rounds, name, value)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_what_is_measured(device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # More clients than a preset's sum has room for.
    small = load(describe(SimulationSize(clients=12)), ("task.fit.epochs=1",))
    if device == "cpu":
        # Pictures take seconds here.
        monkeypatch.setattr(device_rounds, "pictures", lambda: (small, small.task.data))
    said: list[str] = []
    found = beside(small, device, 1, 1, said.append)
    assert found["device"] == device
    for name in ("digits", "cifar-cnn"):
        one: dict[str, Any] = found[name]
        assert one["clients"] == (4 if name == "cifar-cnn" and device == "cuda" else 12)
        assert one["parameters"] == (940_362 if name == "cifar-cnn" and device == "cuda" else 4810)
        assert [*one["clients_per_s"]] == [*one["round_without_training_s"]] == ARMS
        assert all(rate > 0 for rate in one["clients_per_s"].values())
        assert one["same_after_fit"] == {"mnist": True, "rns-servers": True, "intra": True}
        assert all(step["same_bytes"] for step in one["after_fit"]["steps"])
        assert one["largest_difference"].keys() == {*ARMS[1:]}
        assert max(one["largest_difference"][arm] for arm in ("cpu_stacked", "cpu_one_by_one")) < 1e-5
    show(found)
    shown = capsys.readouterr().out
    assert f"cifar-cnn: {found['cifar-cnn']['clients']} clients a round" in shown
    assert "OTHER BYTES" not in shown


def test_a_round_that_differs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates that change between the two rounds are seen by every party, and change the model."""
    spec, data = device_rounds.pictures()
    arms = Arms(spec, data, "cpu", Coins.from_seed(1), 1)
    kept = {"device_stacked": arms.fitted(arms.made("cpu", 4, 1))}
    assert (arms.clients, data.use) == (4, "own")
    honest, calls = Arms._seals, list[str]()

    def other(self: Arms, made: Any, held: list[Any], protocol: str) -> Any:
        calls.append(protocol)
        if calls.count(protocol) == 2:
            held[0].vector[0] += 1.0
        return honest(self, made, held, protocol)

    monkeypatch.setattr(Arms, "_seals", other)
    monkeypatch.setattr(device_rounds, "PROTOCOLS", ("mnist",))
    assert arms.same_after(kept) == {"mnist": False}


def test_drawn_pictures_have_the_shape_of_cifar10() -> None:
    x, y, x_test, y_test = drawn_pictures()
    assert x.shape == (8, 3, 32, 32)
    assert x_test.shape == (5, 3, 32, 32)
    assert len(y) == 8
    assert len(y_test) == 5


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(SpecError, match=r"run\.device = 'tpu': a device is cpu, cuda"):
        measure(SimulationSize(device="tpu"), 0)
    if not torch.cuda.is_available():
        with pytest.raises(SpecError, match=r"run\.device = 'cuda': this torch sees no CUDA device"):
            measure(SimulationSize(device="cuda"), 0)


def test_the_rival_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, data = device_rounds.pictures()
    made = Arms(spec, data, "cpu", Coins.from_seed(1), 1).made("cpu", 1, 1)
    monkeypatch.setattr(device_rival, "MODULES", ("os", "no_such_module"))
    assert rival(made, spec.task.fit, "cpu", 1) == {"clients_per_s": None, "why": "not installed: no_such_module"}


def test_the_rival_trains_our_network_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    if absent := device_rival.lacking():
        pytest.skip(f"pfl-research is not installed: {', '.join(absent)}")
    spec, data = device_rounds.pictures()
    made = Arms(spec, data, "cpu", Coins.from_seed(1), 1).made("cpu", 1, 1)
    trained: list[torch.Tensor] = []
    honest = device_rival._Net.loss

    def loss(self: Any, *batch: torch.Tensor, **rest: Any) -> torch.Tensor:
        trained.append(next(self.parameters()).detach().clone())
        return honest(self, *batch, **rest)

    monkeypatch.setattr(device_rival._Net, "loss", loss)
    assert rival(made, spec.task.fit, "cpu", 1)["clients_per_s"] > 0
    # Every client once a round, from a model that each round moves.
    assert len(trained) == 3 * 4
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[4])
