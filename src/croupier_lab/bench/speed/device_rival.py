"""The same federation in pfl-research, where that is installed: one process, its own loop, our network and records.

It is the rival of `device_rounds` (`croupier bench simulate --device cuda`), in package `pfl` (Granqvist et al. 2024).
Only training and the sum are in its round: nobody is evaluated, nothing is encoded, checked or written down.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from croupier.learn.assemble import Assembled
from croupier.learn.loss import loss_of

# What `pfl` imports beside itself.
MODULES = ("pfl", "multiprocess", "prv_accountant", "dp_accounting")


def lacking() -> list[str]:
    """The modules that the rival takes and that are not installed."""
    return [name for name in MODULES if find_spec(name) is None]


def rival(made: Assembled, fit: Any, device: str, repeats: int) -> dict[str, Any]:
    """Clients a second of its quickest round after the first, or the modules that are missing."""
    if absent := lacking():
        return {"clients_per_s": None, "why": f"not installed: {', '.join(absent)}"}
    was = os.environ.get("PFL_PYTORCH_DEVICE")
    os.environ["PFL_PYTORCH_DEVICE"] = device
    try:
        ends = _played(made, fit, device, repeats)
    finally:
        if was is None:
            del os.environ["PFL_PYTORCH_DEVICE"]
        else:
            os.environ["PFL_PYTORCH_DEVICE"] = was
    round_s = min(after - before for before, after in pairwise(ends[1:]))
    return {"clients_per_s": len(made.task.shards) / round_s, "round_s": round_s, "version": _version()}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pfl")
    except PackageNotFoundError:
        return "unpacked without its description"


class _Net(nn.Module):
    """Our network with the two methods that pfl-research asks of a model."""

    def __init__(self, inner: nn.Module, goal: str) -> None:
        super().__init__()
        self.inner, self.goal = inner, goal

    def loss(self, x: Tensor, y: Tensor, **_: Any) -> Tensor:
        """The loss of a batch."""
        self.train()
        return loss_of(self.goal, self.inner(x), y)

    def metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Nothing is measured."""
        return {}


def _played(made: Assembled, fit: Any, device: str, repeats: int) -> list[float]:
    """When it began, and when each of its rounds ended."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    learner: Any = made.task.fit
    users = [tuple(part.to(device) for part in shard.everything()) for shard in learner.shards.values()]
    ends = [time.perf_counter()]

    class Clock(TrainingProcessCallback):  # type: ignore[misc]
        """Takes down when a round ended, once the device is done with it."""

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            """Never asks to stop."""
            if device != "cpu":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            return False, Metrics()

    turns = count()
    data = FederatedDataset(lambda user: Dataset(raw_data=users[user]), lambda: next(turns) % len(users))
    net = _Net(made.export(made.task.first.vector), made.evaluate.goal).to(device)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=2 + repeats, evaluation_frequency=10**6, train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_num_epochs=fit.epochs, local_learning_rate=fit.lr, local_batch_size=fit.batch),
        NNEvalHyperParams(local_batch_size=fit.batch),
        [Clock()],
        send_metrics_to_platform=False,
    )  # fmt: skip
    return ends
