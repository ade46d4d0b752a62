"""What experiment trackers are told of a run: `croupier.run(..., watch=tracker)`, or `croupier run --track`.

TensorBoard and MLflow come with the extra `trackers` and are imported when one is made. They get the numbers of each
round that metrics.jsonl holds, and the run's name: no path, no description, no party's own bytes. A tracker that fails
at a round, or when it is closed, ends tracking, with a warning, and not the run.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from croupier.errors import CroupierWarning, SpecError, nearest
from croupier.lines import numbers

Watch = Callable[[str, Mapping[str, Any]], None]


def _aloud(event: str, facts: Mapping[str, Any]) -> None:
    """Warnings as Python's own, as a run without a watch has them."""
    if event == "warning":
        warnings.warn(facts["text"], CroupierWarning, stacklevel=2)


class Tracker(ABC):
    """Somebody who is told the numbers of each round. `then` is called with every event, after it."""

    package = ""

    def __init__(self, then: Watch = _aloud) -> None:
        if find_spec(self.package) is None:
            raise SpecError(f"{self.package} is not installed: pip install 'croupier[trackers]'")
        self._then, self._broken = then, False

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        """What a run calls as it goes on."""
        if event == "round" and not self._broken:
            try:
                self.take(facts["round"], numbers(facts))
            except Exception as error:
                self._broken = True
                self._warn(f"stopped at round {facts['round']}", error)
        self._then(event, facts)

    def _warn(self, what: str, error: Exception) -> None:
        # Its own words may hold an address with a password in it.
        self._then("warning", {"text": f"tracking {what}: {self.package} raised {type(error).__name__}"})

    @abstractmethod
    def take(self, step: int, found: Mapping[str, float]) -> None:
        """The numbers of one round."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failed:
            self._warn("could not be ended in order", failed)


class TensorBoard(Tracker):
    """Event files that `tensorboard --logdir FOLDER` shows."""

    package = "tensorboard"

    def __init__(self, folder: str | Path, then: Watch = _aloud) -> None:
        super().__init__(then)
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def take(self, step: int, found: Mapping[str, float]) -> None:
        """A scalar for each number."""
        for name, value in found.items():
            self._writer.add_scalar(name.replace(".", "/"), value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class MLflow(Tracker):
    """A run of an MLflow experiment, at a server's address or in a folder (`file:...`, `sqlite:///...`)."""

    package = "mlflow"

    def __init__(self, uri: str, name: str = "run", experiment: str = "croupier", then: Watch = _aloud) -> None:
        super().__init__(then)
        from mlflow.tracking import MlflowClient

        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            known = self._client.get_experiment_by_name(experiment)
            at = known.experiment_id if known else self._client.create_experiment(experiment)
            self._run = self._client.create_run(at, run_name=name).info.run_id
        except Exception as error:
            # The address may hold a password, and so may what it raises.
            raise SpecError(
                f"MLflow: no run can be made at the address that was given ({type(error).__name__}); see that it "
                "answers, or give a file, as sqlite:///runs.db"
            ) from None

    def take(self, step: int, found: Mapping[str, float]) -> None:
        """A metric for each number."""
        for name, value in found.items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        """Say that the run is over."""
        self._client.set_terminated(self._run)


def tracker(asked: str, name: str, then: Watch) -> Tracker:
    """What `--track` names: tensorboard=FOLDER or mlflow=ADDRESS. Raises: SpecError."""
    kind, _, where = asked.partition("=")
    if kind not in ("tensorboard", "mlflow"):
        raise SpecError(f"--track: no tracker is called {kind!r}; {nearest(kind, ('tensorboard', 'mlflow'))}")
    if not where:
        raise SpecError(f"--track {kind}: say where, as tensorboard=logs or mlflow=sqlite:///runs.db")
    return TensorBoard(Path(where) / name, then) if kind == "tensorboard" else MLflow(where, name, then=then)
