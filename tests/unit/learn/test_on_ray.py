"""Training on Ray: the same bits as here, whoever trains; a lost actor's work is done again.

The quick tests stand in for Ray by functions that do its work in this process, in an odd order; the long one starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import CroupierError, EngineError, RangeError, SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Records, TensorRecords, Windows
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.on_ray import PackedShards, RayLearner, check_ray
from croupier.learn.split import Dirichlet
from croupier.spec import load

REPOSITORY = Path(__file__).parents[3]


class FakeRay(ModuleType):
    """Ray as far as it is used here: what is asked for is done when it is fetched, the last first."""

    def __init__(self, lose: int = 0) -> None:
        super().__init__("ray")
        self.lose, self.begun, self.ended, self.most = lose, 0, 0, 0
        self.exceptions = ModuleType("ray.exceptions")
        self.exceptions.RayError = type("RayError", (Exception,), {})  # type: ignore[attr-defined]
        self.exceptions.RayTaskError = type(  # type: ignore[attr-defined]
            "RayTaskError", (self.exceptions.RayError,), {"cause": None}
        )
        self.cloudpickle = ModuleType("ray.cloudpickle")
        self.cloudpickle.register_pickle_by_value = lambda module: None  # type: ignore[attr-defined]

    def is_initialized(self) -> bool:
        return self.begun > self.ended

    def init(self, **options: Any) -> None:
        self.begun += 1

    def shutdown(self) -> None:
        self.ended += 1

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: Any) -> Any:
        return lambda: value

    def get(self, wanted: Any) -> Any:
        return [one() for one in wanted] if isinstance(wanted, list) else wanted()

    def wait(self, refs: list[Any], num_returns: int, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(refs))
        return refs[-num_returns:], refs[:-num_returns]

    def kill(self, actor: Any) -> None:
        pass

    def remote(self, kind: type[Any]) -> Any:
        return FakeActors(self, kind)


class FakeActors:
    """A class of actors, and then one of them."""

    def __init__(self, ray: FakeRay, kind: type[Any], held: Any = None) -> None:
        self.ray, self.kind, self.held = ray, kind, held

    def options(self, **options: Any) -> FakeActors:
        assert options["max_restarts"] == -1
        assert options["max_task_retries"] > 0
        return self

    def remote(self, *given: Any) -> FakeActors:
        return FakeActors(self.ray, self.kind, self.kind(*given))

    def __getattr__(self, name: str) -> Any:
        method, ray = getattr(self.held, name), self.ray

        def asked(laid: Any = None, jobs: Any = None, *starts: Callable[[], Any]) -> Callable[[], Any]:
            def done() -> Any:
                if jobs is not None and ray.lose:
                    ray.lose -= 1
                    raise ray.exceptions.RayError("the actor died unexpectedly\nand so on")
                try:
                    return method() if jobs is None else method(laid, jobs, *(start() for start in starts))
                except CroupierError as error:
                    wrapped = ray.exceptions.RayTaskError(str(error))
                    wrapped.cause = error
                    raise wrapped from None

            return done

        return type("Method", (), {"remote": staticmethod(asked)})


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.exceptions", made.exceptions)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", made.cloudpickle)
    monkeypatch.setattr("croupier.learn.on_ray.find_spec", lambda name: name)
    return made


def made(engine: Any, together: int = 4, lr: float = 0.1) -> Assembled:
    machine = Hardware(workers=2, engine=engine)
    fit, options = Sgd(lr=lr, epochs=1, batch=16), TaskOptions(together=together)
    split = Dirichlet(clients=9, alpha=0.3)
    return assemble(Digits(), split, Mlp(hidden=(8,)), fit, Coins.from_seed(3), options=options, machine=machine)


def jobs_of(task: Assembled, starts: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    shards = sorted(task.task.shards.items())
    return [(starts[i % len(starts)], shard, Coins.from_seed(i)) for i, (_, shard) in enumerate(shards)]


@pytest.mark.parametrize("together", [1, 4])
def test_actors_train_the_same_bits(ray: FakeRay, together: int) -> None:
    here, there = made("local", together), made("ray", together)
    first = here.task.first.vector
    jobs = jobs_of(here, (first, first * 0.5))
    assert isinstance(there.task.fit, RayLearner)
    for one, other in zip(here.task.fit(jobs), there.task.fit(jobs), strict=True):
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert one.vector.equal(other.vector)
        assert one.luggage["weight"].equal(other.luggage["weight"])
    assert ray.most <= 4, "two groups are under way for each of two actors, whatever the clients"
    there.close()
    assert (ray.begun, ray.ended) == (1, 1)


def test_actors_that_cannot_be_replaced_end_the_run_so_that_it_can_be_resumed(ray: FakeRay, tmp_path: Path) -> None:
    ray.lose = 1
    sets = ["run.engine=ray", "run.workers=2", "federation.rounds=2"]
    from croupier.engine.job.run import resume, run

    with pytest.raises(EngineError, match=r"actors were lost.*the actor died unexpectedly\); free memory or lower run"):
        run("rns-servers", sets=sets, out=tmp_path / "there", seed=5)
    assert ray.begun == ray.ended, "nothing is left running"
    assert not (tmp_path / "there" / "lost.json").exists()
    again = resume(tmp_path / "there")
    alone = run("rns-servers", sets=["federation.rounds=2"], out=tmp_path / "here", seed=5)
    assert again.metrics == alone.metrics


def test_what_fails_in_training_fails_as_it_would_here(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    there = made("ray")

    def bad(self: Any, jobs: Any) -> Any:
        raise SpecError("task.loss: no")

    monkeypatch.setattr("croupier.learn.on_ray.ClientTrainer.__call__", bad)
    with pytest.raises(SpecError, match=r"^task\.loss: no$"):
        there.task.fit(jobs_of(there, (there.task.first.vector,)))


def test_diverged_training_is_an_error_of_its_client(ray: FakeRay) -> None:
    there = made("ray", lr=1e38)
    found = there.task.fit(jobs_of(there, (there.task.first.vector,)))
    assert any(isinstance(one, RangeError) and "lower task.fit.lr" in str(one) for one in found)


def test_more_actors_than_ray_has_cpus_are_refused(ray: FakeRay) -> None:
    there = made("ray")
    assert isinstance(there.task.fit, RayLearner)
    there.task.fit.actors = 3
    with pytest.raises(SpecError, match=r"^run\.workers = 3: Ray has 2 CPUs, one for each actor; use fewer$"):
        there.task.fit(jobs_of(there, (there.task.first.vector,)))


def test_what_cannot_be_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("croupier.learn.on_ray.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"^run\.engine = 'ray': Ray is not installed here; pip install"):
        made("ray")
    monkeypatch.setattr("croupier.learn.on_ray.find_spec", lambda name: name)
    with pytest.raises(SpecError, match=r"^run\.device = 'cuda:1': with run\.engine = 'ray', Ray chooses"):
        check_ray("cuda:1")
    with pytest.raises(SpecError, match=r"run\.engine"):
        load("digits", ["run.engine=dask"])


def test_records_of_any_kind_are_packed_and_found_again() -> None:
    x, y = torch.randn(12, 3), torch.arange(12)
    rows = [TensorRecords(x[a:b], y[a:b]) for a, b in ((0, 5), (5, 5), (5, 12))]
    series = torch.arange(40.0)
    cut = Windows(series, torch.arange(20), 6)
    windows = [cut.take(torch.tensor(part)) for part in ([0, 3, 4], [7], [19, 11])]
    both: tuple[Sequence[Records], ...] = (rows, windows)
    for shards in both:
        packed = PackedShards.of(shards)
        for place, one in enumerate(shards):
            index = torch.arange(len(one))
            assert packed.at(place).digest() == one.digest()
            for got, wanted in zip(packed.at(place).batch(index), one.batch(index), strict=True):
                assert got.equal(wanted)
    assert PackedShards.of(rows).nbytes == 12 * 3 * 4 + 12 * 8
    assert isinstance(PackedShards.of(rows).arrays["x"], np.ndarray)


@pytest.mark.long
def test_a_real_ray_trains_the_same_bits_and_survives_a_killed_actor(tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'croupier[ray]'")
    # In a process of its own: what forks later must not find Ray's threads.
    script = Path(__file__).with_name("ray_run.py")
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}", "RAY_ADDRESS": ""}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["same", "survived", "own", "ended"]
