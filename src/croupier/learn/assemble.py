"""From parts to a task: load, split, build and seed, all drawn on the CPU so that a GPU run shares them.

`assemble` is the one way from a description to something that can be trained: runs (`engine.job.job`), trials
(`engine.job.trial`), audits (`audit.setting`) and deployed parties (`service.training`) all call it. It checks what
only the parts together can show (does the network fit the data, is there memory for it, does the loss fit the goal),
and names the part at fault. Every draw comes from the run's coins: the split, the first weights, the server's root
records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Model
from croupier.engine.task import Task
from croupier.errors import DataError, SpecError
from croupier.kernels.threads import cores
from croupier.learn.augment import AS_IS, Augment
from croupier.learn.data import Data, Dataset, Records
from croupier.learn.evaluate import Evaluate, ModelAnswers
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.loss import check_loss
from croupier.learn.metrics import metrics_of
from croupier.learn.models.network import Network
from croupier.learn.root import NONE, Root, Rooted
from croupier.learn.train import Learner

if TYPE_CHECKING:
    from croupier.encode.symmetry import Symmetry


@dataclass(frozen=True)
class Assembled:
    """A task with what it was made of."""

    task: Task
    dataset: Dataset
    module: nn.Module
    workers: int
    evaluate: Evaluate
    # How many records each client trains on, and its own test part, where clients have one.
    sizes: Mapping[str, int]
    tests: Mapping[str, Records]
    root: Records | None = None
    # Ends the actors of Ray that train, where there are some.
    end: Callable[[], None] | None = None

    def close(self) -> None:
        """End the actors of Ray that were started to train; threads of this process end by themselves."""
        if self.end is not None:
            self.end()

    def export(self, vector: Tensor) -> nn.Module:
        """A plain module with these weights."""
        net = FlatNet(self.module)
        net.load(vector)
        net.module.eval()
        for parameter in net.module.parameters():
            parameter.grad = None
            parameter.data = parameter.data.clone()
        return net.module


@dataclass(frozen=True)
class TaskOptions:
    """What a task may have besides data, split, network and fit; the keys of `task` in a description.

    `together` is how many small clients train stacked (1: none); `warm` is a file of weights to start from; `opaque`
    names modules whose insides nobody looks at; `loss` and `metrics` are the usual ones of the data unless named.
    """

    augment: Augment = AS_IS
    root: Root = NONE
    together: int = 1
    warm: str | None = None
    opaque: tuple[str, ...] = ()
    loss: str | None = None
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hardware:
    """Where clients train: the device, how many threads (every core unless said), and who hears how many are done.

    With the engine `ray` it is actors in place of threads. `alone`: no other process of ours computes beside it.
    """

    device: str = "cpu"
    workers: int | None = None
    tick: Callable[[int], None] | None = None
    engine: Literal["local", "ray"] = "local"
    alone: bool = False


PLAIN, HERE = TaskOptions(), Hardware()


def assemble(
    data: Data,
    split: Callable[[Dataset, Coins], Mapping[str, Tensor]],
    network: Network,
    fit: Fit,
    coins: Coins,
    *,
    options: TaskOptions = PLAIN,
    folder: Path | None = None,
    machine: Hardware = HERE,
) -> Assembled:
    """Build the task. What the server keeps as its root is in nobody's data. Raises: DataError, SpecError."""
    device, augment, loss = machine.device, options.augment, options.loss
    _check_device(device)
    if afar := machine.engine == "ray":
        from croupier.learn.on_ray import RayLearner, check_ray

        check_ray(device)
    with _room(f"task.data = {data.use!r}"):
        dataset = augment.prepare(data.load(folder), folder, coins.child("augment"))
    dataset, kept = options.root.draw(dataset, coins.child("root"))
    index = split(dataset, coins.child("split"))
    with coins.child("first model").ambient(), _room(f"task.model = {network.use!r}"):
        module = network.build(dataset)
    if options.warm is not None:
        _warm(module, Path(options.warm))
    if loss is not None:
        check_loss(loss, module, dataset)
    asked = metrics_of(options.metrics, dataset)
    records = {who: dataset.train.take(rows) for who, rows in index.items()}
    # The client's name is part of its digest: two clients with the same records are still two clients.
    digests = {who: f"{who}:{shard.digest()}" for who, shard in records.items()}
    shards = {digests[who]: shard.to(device) for who, shard in records.items()}
    hands = machine.workers or cores()
    together = options.together if network.batchable and not augment.fresh else 1
    threads = 1 if afar else hands
    learner = Learner(
        module, loss or dataset.goal, fit, shards, device, threads, together, machine.tick, augment, machine.alone
    )
    test = dataset.test.to(device)
    evaluate = Evaluate(FlatNet(module, device), dataset.goal, test, dataset.unit, metrics=asked, loss=loss)
    first = Model(layout_of(module).flatten(module.state_dict()))
    if asked:
        # What cannot be measured, or fails in a function of one's own, is found before anything has begun.
        evaluate(first)
    # Found when first asked for: watching a network run takes a moment that few runs need.
    symmetry = cache(lambda: _symmetry(module, dataset, options.opaque))
    drawn = _Drawn(network, dataset, None if options.warm is None else first.vector)
    far = RayLearner(learner, machine.workers) if afar else None
    task = Task(digests, layout_of(module), first, far or learner, evaluate, symmetry=symmetry, fresh=drawn)
    if not dataset.worded:
        answers = ModelAnswers(FlatNet(module, device))
        task = replace(task, answers=answers, inputs=dataset.shape, sample=learner.sample)
    if kept is not None:
        own = Rooted.of(module, loss or dataset.goal, fit, kept.to(device), device, augment)
        task = replace(task, root=own.fit, features=own.features)
    sizes = {who: len(shard) for who, shard in records.items()}
    tests = {who: part.to(device) for who, part in dataset.tests(index).items()}
    return Assembled(task, dataset, module, hands, evaluate, sizes, tests, kept, far.close if far else None)


@dataclass(frozen=True)
class _Drawn:
    """First models that clients draw for themselves; the given one where there is one."""

    network: Network
    dataset: Dataset
    given: Tensor | None

    def __call__(self, coins: Coins) -> Tensor:
        if self.given is not None:
            return self.given
        with coins.ambient():
            module = self.network.build(self.dataset)
        return layout_of(module).flatten(module.state_dict())


def model_bytes(module: nn.Module, about: Mapping[str, str]) -> bytes:
    """A model's weights as a file that any torch program can read."""
    tensors = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    # One key only: the format writes several in an order that differs from run to run.
    return bytes(save(tensors, {"croupier": json.dumps(about, sort_keys=True)}))


def _symmetry(module: nn.Module, dataset: Dataset, opaque: tuple[str, ...]) -> Symmetry:
    """Which permutations of its hidden units leave the network as it is."""
    from croupier.learn.axes import symmetry_of

    return symmetry_of(module, dataset.train.batch(torch.arange(2))[0], opaque)


def _warm(module: nn.Module, path: Path) -> None:
    try:
        module.load_state_dict(load_file(path))
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"task.warm = {str(path)!r}: cannot be read ({error}); give a model.safetensors file") from None
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise SpecError(f"task.warm = {str(path)!r}: its weights do not fit task.model ({first})") from None


@contextmanager
def _room(key: str) -> Iterator[None]:
    """Raises: SpecError that names the part for which there is no memory, or no number large enough."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        # Torch has no error of its own for either.
        if not isinstance(error, MemoryError) and not re.search(r"allocate memory|Overflow|too large", str(error)):
            raise
        raise SpecError(f"{key}: does not fit into this machine's memory; make it smaller") from error


def _check_device(device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SpecError(f"run.device = {device!r}: this torch sees no CUDA device; use run.device = 'cpu'")
