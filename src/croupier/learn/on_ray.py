"""Training on Ray: the round loop's work named `fit`, done by actors in other processes, or on other machines.

With `run.engine = "ray"` in a description `learn.assemble` puts a `RayLearner` in the place of the `Learner` of
`learn.train`. Which clients train together is decided as it is without Ray (`Learner.parts`), and an actor trains each
group as a thread of this process would: the same bits, on machines of one kind. Records lie in Ray's shared memory once
for all actors of a machine. Few groups are under way at a time, so that memory does not grow with the number of clients
beyond their updates. An actor that is lost is started anew, and does its group again.

Ray moves values between its processes by pickle: it is for machines that trust each other, as in a simulation they do.
Deployed parties (`service`) do not use it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import CroupierError, EngineError, SpecError
from croupier.kernels.threads import cores
from croupier.learn.augment import Augment
from croupier.learn.data import Records
from croupier.learn.fit import Fit
from croupier.learn.own import is_users
from croupier.learn.train import ClientTrainer, Learner

# Groups under way for each actor: one that it trains, one that waits.
AHEAD = 2
# How often a group is done again when its actor is lost.
AGAIN = 3
# Seconds that actors may take to start: each of them imports torch.
PATIENCE = 300
# Clients that train alone are handed over so many at a time, at most.
SINGLES = 32
# Bytes of shared memory beside the records: starts and updates on their way.
ROOM = 256 << 20


def check_ray(device: str) -> None:
    """Raises: SpecError where Ray is not installed, or a device is named that Ray chooses."""
    if find_spec("ray") is None:
        raise SpecError(
            "run.engine = 'ray': Ray is not installed here; pip install 'croupier[ray]', or use run.engine = 'local'"
        )
    if ":" in device:
        raise SpecError(f"run.device = {device!r}: with run.engine = 'ray', Ray chooses among devices; use 'cuda'")


@dataclass(frozen=True)
class PackedShards:
    """All clients' records as a few long arrays, which processes of a machine can share without a copy."""

    kind: type[Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    ends: Mapping[str, npt.NDArray[np.int64]]
    same: Mapping[str, Any]

    @classmethod
    def of(cls, shards: Sequence[Any]) -> PackedShards:
        """Records of one kind, each a dataclass of tensors and of values that all of them share."""
        first = shards[0]
        named = [one.name for one in fields(first)]
        held = [name for name in named if isinstance(getattr(first, name), Tensor)]
        arrays = {name: torch.cat([getattr(one, name).cpu() for one in shards]).numpy() for name in held}
        ends = {name: np.cumsum([len(getattr(one, name)) for one in shards]) for name in held}
        return cls(type(first), arrays, ends, {name: getattr(first, name) for name in named if name not in held})

    @property
    def nbytes(self) -> int:
        """How many bytes the records take."""
        return sum(array.nbytes for array in self.arrays.values())

    def at(self, place: int) -> Records:
        """The records of one client."""
        parts = {}
        with warnings.catch_warnings():
            # Shared memory may not be written to, and nobody does.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            for name, array in self.arrays.items():
                start = int(self.ends[name][place - 1]) if place else 0
                parts[name] = torch.from_numpy(array[start : int(self.ends[name][place])])
        found: Records = self.kind(**parts, **self.same)
        return found


@dataclass(frozen=True)
class Recipe:
    """All that an actor needs to train like a worker of this process."""

    module: nn.Module
    goal: str
    fit: Fit
    device: str
    stacked: bool
    augment: Augment


class RayHands:
    """What an actor holds: one worker, and the place in shared memory of all records.

    Both are read when first asked for, and again by an actor that is started anew.
    """

    def __init__(self) -> None:
        self._held: tuple[ClientTrainer, PackedShards] | None = None

    def here(self) -> int:
        """The process that this is, once it can work."""
        return os.getpid()

    def train(
        self, laid: Sequence[Any], jobs: Sequence[tuple[int, int, bytes]], *starts: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """One row for each job: which start, whose records, and the seed of the client's coins."""
        if self._held is None:
            import ray

            how, shards = ray.get(list(laid))
            self._held = (
                ClientTrainer(how.module, how.goal, how.fit, how.device, how.stacked, how.augment), shards,
            )  # fmt: skip
        trainer, shards = self._held
        first = [torch.from_numpy(start.copy()) for start in starts]
        work = [(first[start], shards.at(place).to(trainer.device), Coins(seed)) for start, place, seed in jobs]
        rows: npt.NDArray[Any] = torch.stack(trainer(work)).numpy()
        return rows


class RayLearner:
    """Trains as a `Learner` does, by so many actors; started when first asked, and ended by `close`."""

    def __init__(self, learner: Learner, actors: int | None) -> None:
        self.learner, self.actors = learner, actors
        self._places = {digest: place for place, digest in enumerate(learner.shards)}
        self._began = False
        self._laid: list[Any] = []

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        """An update, or the error that says why there is none, for each job. Raises: EngineError."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._trained(jobs)
        except RayTaskError as error:
            # What failed in training failed as it would here.
            raise error.cause if isinstance(error.cause, CroupierError) else error from None
        except RayError as error:
            said = str(error).splitlines()[0]
            raise EngineError(
                f"run.engine = 'ray': actors were lost and could not be replaced ({type(error).__name__}: {said}); "
                "free memory or lower run.workers, and resume"
            ) from error

    def _trained(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        """Hand groups to actors, few at a time, and take what they trained as it comes."""
        import ray

        hands = self._hands
        starts = {id(job[0]): job[0] for job in jobs}
        laid = {key: ray.put(start.numpy()) for key, start in starts.items()}
        waiting = deque(self._groups(jobs, len(hands)))
        under_way: dict[Any, tuple[Any, list[int]]] = {}
        done: dict[int, Update | CroupierError] = {}
        free = deque([*hands] * AHEAD)
        while waiting or under_way:
            while waiting and free:
                hand, group = free.popleft(), waiting.popleft()
                under_way[self._asked(hand, [jobs[i] for i in group], laid)] = hand, group
            (ended,), _ = ray.wait(list(under_way), num_returns=1)
            hand, group = under_way.pop(ended)
            # A copy of our own: what lies in shared memory is then free for others.
            rows = torch.from_numpy(np.array(ray.get(ended)))
            done |= {i: self.learner.update(jobs[i], row) for i, row in zip(group, rows, strict=True)}
            free.append(hand)
            if self.learner.tick:
                self.learner.tick(len(group))
        return [done[i] for i in range(len(jobs))]

    def _groups(self, jobs: Sequence[tuple[Any, ...]], hands: int) -> list[list[int]]:
        """What is handed over at a time: a group that trains stacked, or several clients that train alone."""
        parts = self.learner.parts(jobs)
        if self.learner.stacked:
            return parts
        step = max(1, min(SINGLES, len(parts) // (AHEAD * hands)))
        return [[i for part in parts[at : at + step] for i in part] for at in range(0, len(parts), step)]

    def _asked(self, hand: Any, jobs: Sequence[tuple[Any, ...]], laid: Mapping[int, Any]) -> Any:
        """Ask an actor to train a group. Coins do not travel by themselves: their seeds are handed over on purpose."""
        order = {key: number for number, key in enumerate(dict.fromkeys(id(job[0]) for job in jobs))}
        told = [(order[id(start)], self._places[shard], coins.export()) for start, shard, coins in jobs]
        return hand.train.remote(self._laid, told, *(laid[key] for key in order))

    @cached_property
    def _hands(self) -> list[Any]:
        """The actors, on a cluster that is there (`RAY_ADDRESS`), or on this machine."""
        import ray

        learner, packed = self.learner, PackedShards.of(list(self.learner.shards.values()))
        self._begin(packed.nbytes)
        there = ray.cluster_resources()
        cpus = there.get("CPU", 0)
        count = self.actors or max(1, int(cpus))
        if count > cpus:
            raise SpecError(f"run.workers = {count}: Ray has {cpus:g} CPUs, one for each actor; use fewer")
        gpus = 0.0
        if learner.device != "cpu":
            gpus = min(1.0, there.get("GPU", 0) / count)
            if not gpus:
                raise SpecError(f"run.device = {learner.device!r}: Ray sees no GPU; use run.device = 'cpu'")
        _by_value(learner.module)
        recipe = Recipe(learner.module, learner.goal, learner.fit, learner.device, learner.stacked, learner.augment)
        # Held as long as the actors: one that starts anew reads them again.
        self._laid = [ray.put(recipe), ray.put(packed)]
        kind = ray.remote(RayHands).options(
            num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=AGAIN
        )  # fmt: skip
        made = [kind.remote() for _ in range(count)]
        ready, late = ray.wait([hand.here.remote() for hand in made], num_returns=count, timeout=PATIENCE)
        if late:
            raise EngineError(
                f"run.workers = {count}: Ray started {len(ready)} actors in {PATIENCE} s: others hold its CPUs; "
                "use fewer"
            )
        ray.get(ready)
        return made

    def _begin(self, room: int) -> None:
        """A Ray of our own on this machine, unless there is one, or RAY_ADDRESS names one."""
        import ray

        if ray.is_initialized():
            return
        # Nothing is told to anybody without being asked.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        own: dict[str, Any] = {}
        if not os.environ.get("RAY_ADDRESS"):
            count = self.actors or cores()
            own = {"num_cpus": count, "include_dashboard": False, "object_store_memory": room + ROOM}
        ray.init(log_to_driver=False, configure_logging=False, **own)
        self._began = True

    def close(self) -> None:
        """End the actors, and Ray itself where it was started here."""
        made = self.__dict__.pop("_hands", None)
        if made is None and not self._began:
            return
        import ray

        for hand in made or ():
            ray.kill(hand)
        self._laid = []
        if self._began:
            ray.shutdown()
            self._began = False


def _by_value(module: nn.Module) -> None:
    """Classes of a user's own file travel whole: an actor need not find the file."""
    from ray import cloudpickle

    for part in module.modules():
        home = sys.modules.get(type(part).__module__)
        if home is not None and is_users(getattr(home, "__file__", None) or ""):
            cloudpickle.register_pickle_by_value(home)
