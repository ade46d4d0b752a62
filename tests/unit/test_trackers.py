"""Trackers get each round's numbers and nothing else; one that fails ends tracking and never the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import croupier
from croupier import trackers
from croupier.errors import CroupierWarning, SpecError
from croupier.trackers import MLflow, TensorBoard, Tracker, tracker

LINE = {"round": 1, "accuracy": 0.5, "model": "00ff", "spent": {"quiet": {"epsilon": 0.5}}}


class Fragile(Tracker):
    """Fails at the second round, with an address in its words."""

    package = "json"
    taken = 0

    def take(self, step: int, found: Mapping[str, float]) -> None:
        self.taken += 1
        if step > 1:
            raise OSError("https://user:password@host")

    def close(self) -> None:
        pass


def test_tensorboard_has_each_number_of_each_round(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoard(tmp_path) as told:
        told("opened", {"path": "/somewhere/else"})
        told("round", LINE)
        told("round", {**LINE, "round": 2, "accuracy": 0.75})
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert found.Tags()["scalars"] == ["accuracy", "spent/quiet/epsilon"]
    assert [(one.step, one.value) for one in found.Scalars("accuracy")] == [(1, 0.5), (2, 0.75)]
    assert not any(b"/somewhere/else" in file.read_bytes() for file in tmp_path.iterdir())


class Client:
    """What stands for MLflow's client: it keeps what it is told."""

    told: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, tracking_uri: str) -> None:
        if "bad" in tracking_uri:
            raise OSError(tracking_uri)

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, at: str, run_name: str) -> Any:
        return type("Run", (), {"info": type("Info", (), {"run_id": f"{at}/{run_name}"})})

    def log_metric(self, run: str, name: str, value: float, step: int) -> None:
        self.told.append((run, name, value, step))

    def set_terminated(self, run: str) -> None:
        self.told.append((run, "over"))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    """MLflow takes seconds to import and a database to run: `test_mlflow_itself` has both."""
    module = type("tracking", (), {"MlflowClient": Client})
    monkeypatch.setitem(__import__("sys").modules, "mlflow.tracking", module)
    monkeypatch.setattr(Client, "told", [])
    return Client


def test_mlflow_is_told_each_number_of_each_round(client: type[Client]) -> None:
    with MLflow("sqlite:///somewhere", "mine") as told:
        told("round", LINE)
    assert client.told == [
        ("7/mine", "accuracy", 0.5, 1), ("7/mine", "spent.quiet.epsilon", 0.5, 1), ("7/mine", "over"),
    ]  # fmt: skip


def test_a_tracker_that_cannot_be_ended_ends_no_run(
    client: type[Client], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def gone(self: Client, run: str) -> None:
        raise OSError("https://user:password@host")

    monkeypatch.setattr(Client, "set_terminated", gone)
    sets = {"federation.rounds": 1, "task.split.clients": 3, "task.fit.epochs": 1}
    ended = pytest.warns(CroupierWarning, match="could not be ended in order: mlflow raised OSError$")
    with ended, MLflow("sqlite:///somewhere") as told:
        assert croupier.run("digits-small", seed=1, sets=sets, out=tmp_path / "run", watch=told).metrics
    assert ("7/run", "accuracy") in [one[:2] for one in client.told]


def test_an_address_that_does_not_answer_is_not_repeated(client: type[Client]) -> None:
    with pytest.raises(SpecError, match=r"no run can be made at the address that was given \(OSError\)") as raised:
        MLflow("https://user:password@bad")
    assert "password" not in str(raised.value)


@pytest.mark.long
def test_mlflow_itself(tmp_path: Path) -> None:
    """In the form that needs no server."""
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "mlruns").as_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        with MLflow(uri, "mine") as told:
            told("round", LINE)
        kept = MlflowClient(tracking_uri=uri)
        (experiment,) = kept.search_experiments(filter_string="name = 'croupier'")
        (run,) = kept.search_runs([experiment.experiment_id])
    assert run.data.metrics == {"accuracy": 0.5, "spent.quiet.epsilon": 0.5}
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")


def test_a_tracker_that_fails_ends_tracking_and_not_the_run(tmp_path: Path) -> None:
    told = Fragile()
    sets = {"federation.rounds": 3, "task.split.clients": 3, "task.fit.epochs": 1}
    with pytest.warns(CroupierWarning, match="tracking stopped at round 2: json raised OSError") as warned:
        result = croupier.run("digits-small", seed=1, sets=sets, out=tmp_path / "run", watch=told)
    assert len(result.metrics) == 3
    assert told.taken == 2
    assert not any("password" in str(one.message) for one in warned)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    for make in (lambda: TensorBoard(tmp_path), lambda: MLflow("sqlite:///here")):
        with pytest.raises(SpecError, match=r"is not installed: pip install 'croupier\[trackers\]'"):
            make()


@pytest.mark.parametrize(
    ("asked", "said"),
    [("wandb=x", "no tracker is called 'wandb'"), ("mlflow", "say where"), ("tensorboard=", "say where")],
)
def test_what_is_asked_for_wrongly_is_named(asked: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tracker(asked, "mine", lambda event, facts: None)
