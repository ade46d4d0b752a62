"""Whole rounds on a device beside the same rounds on this machine's CPU: speed, models, and bytes after training.

`croupier bench simulate --device cuda` runs it, through `simulation`. There are two federations: the bench's own small
perceptrons, and the CIFAR-10 network on fifty clients of fifty pictures each. The second is one cohort of
pfl-research's benchmark (Granqvist et al. 2024: one local epoch of batches of ten, learning rate 0.1), and so plays
there too where it is installed (`device_rival`). Pictures are drawn where no data folder is named: they take as long.
`device_times` has what follows training step by step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import CroupierError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Data, folder_of
from croupier.learn.datasets.own import OwnData
from croupier.spec import Spec, load
from croupier_lab.bench.size import Watch
from croupier_lab.bench.speed.device_rival import rival
from croupier_lab.bench.speed.device_times import compare

# After training: a relay that shuffles single parameters, three sum servers, and buckets of like privacy budgets.
PROTOCOLS = ("mnist", "rns-servers", "intra")
PICTURES, RECORDS, TEST = 50, 50, 1000


def drawn_pictures(folder: Any = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pictures of CIFAR-10's shape that show nothing, some to train and some to test on."""
    generator = Coins.from_seed(0).child("pictures").fast()
    x = torch.rand(PICTURES * RECORDS + TEST, 3, 32, 32, generator=generator)
    y = torch.arange(len(x)) % 10
    return x[:-TEST], y[:-TEST], x[-TEST:], y[-TEST:]


def pictures() -> tuple[Spec, Data]:
    """The federation of pictures, on CIFAR-10 where a data folder is named."""
    fit = {"use": "sgd", "lr": 0.1, "momentum": 0.0, "epochs": 1, "batch": 10}
    spec = load(
        {
            "task": {
                "data": {"use": "cifar10", "train": PICTURES * RECORDS, "test": TEST},
                "split": {"use": "iid", "clients": PICTURES},
                "model": {"use": "cifar-cnn", "standardise": True, "stacked": True},
                "fit": fit, "together": PICTURES,
            }
        }
    )  # fmt: skip
    real = type(spec.task.data).present(folder_of(None))
    return spec, spec.task.data if real else OwnData(make=drawn_pictures)


def beside(small: Spec, device: str, seed: int, repeats: int, watch: Watch) -> dict[str, Any]:
    """Both federations on a device and on the CPU."""
    torch.set_num_threads(1)
    spec, data = pictures()
    found: dict[str, Any] = {
        "device": device, "cores": os.cpu_count(), "torch": torch.__version__,
        # Torch's own convolutions on a GPU keep ten bits of a number's fraction where this is so; stacked ones do not.
        "convolutions_in_tf32": device != "cpu" and torch.backends.cudnn.allow_tf32,
        "pictures": data.use if data is spec.task.data else "drawn",
    }  # fmt: skip
    for name, one, records in (("digits", small, small.task.data), ("cifar-cnn", spec, data)):
        arms = Arms(one, records, device, Coins.from_seed(seed), repeats)
        found[name] = arms.measured(watch)
    watch("pfl-research")
    found["cifar-cnn"]["pfl_research"] = rival(arms.made(device, 1, 1), spec.task.fit, device, repeats)
    # Named last: a device that is not there is refused by whoever trains.
    return found | {"machine": torch.cuda.get_device_name(device) if device != "cpu" else "CPU"}


class Arms:
    """The four ways to train one federation: stacked or one by one, on the device or on the CPU."""

    def __init__(self, spec: Spec, data: Data, device: str, coins: Coins, repeats: int) -> None:
        self.spec, self.data, self.device, self.coins, self.repeats = spec, data, device, coins, repeats
        self.clients = spec.task.split.plain()["clients"]

    def made(self, device: str, together: int, workers: int) -> Assembled:
        """The task."""
        task = self.spec.task
        return assemble(
            self.data, task.split, task.model, task.fit, self.coins, options=TaskOptions(together=together),
            folder=folder_of(None), machine=Hardware(device, workers),
        )  # fmt: skip

    def measured(self, watch: Watch) -> dict[str, Any]:
        """Clients a second in whole rounds, how far models are apart, what is the same, and what a round spends."""
        cores, many = os.cpu_count() or 1, self.clients
        arms = {
            "device_stacked": (self.device, many, 1),
            "device_one_by_one": (self.device, 1, 1),
            # A group for every core.
            "cpu_stacked": ("cpu", -(-many // cores), cores),
            "cpu_one_by_one": ("cpu", 1, cores),
        }
        rates, parts, kept = {}, {}, {}
        for name, arm in arms.items():
            watch(name)
            made = self.made(*arm)
            kept[name] = self.fitted(made)
            rates[name] = many / self.round_s(made)
            parts[name] = self.round_s(replace(made, task=replace(made.task, fit=_given(kept[name]))))
        device, cpu = rates["device_stacked"], max(rates["cpu_stacked"], rates["cpu_one_by_one"])
        watch("bytes and steps after training")
        rows = torch.stack([update.vector for update in kept["device_stacked"]])
        return {
            "clients": many, "parameters": rows.shape[1], "clients_per_s": rates, "device_to_cpu": device / cpu,
            "round_s": {name: many / rate for name, rate in rates.items()},
            # The same round with updates that were trained before: all that is not training.
            "round_without_training_s": parts,
            "largest_difference": _apart(kept, "device_stacked"), "same_after_fit": self.same_after(kept),
            "after_fit": compare(rows.to(self.device), self.coins.child("steps"), self.repeats),
            "peak_device_bytes": torch.cuda.max_memory_allocated() if self.device != "cpu" else 0,
        }  # fmt: skip

    def fitted(self, made: Assembled) -> list[Update]:
        """Every client's update of the first model."""
        start = made.task.first.vector
        jobs = [(start, shard, self.coins.child("compare", shard)) for shard in made.task.shards.values()]
        return [_whole(update) for update in made.task.fit(jobs)]

    def round_s(self, made: Assembled) -> float:
        """The fewest seconds of a round, after one that does not count."""
        ends = [time.perf_counter()]
        plan = Federation(rounds=1 + self.repeats)
        for _ in rounds(self.spec.protocol, made.task, plan, self.coins, Local()):
            ends.append(time.perf_counter())
        return min(after - before for before, after in pairwise(ends[1:]))

    def same_after(self, kept: Mapping[str, Sequence[Update]]) -> dict[str, bool]:
        """Whether a round on the device is a round on the CPU in every bit, where clients bring the same updates."""
        here, there = self.made("cpu", 1, 1), self.made(self.device, self.clients, 1)
        held = list(kept["device_stacked"])
        return {name: self._seals(here, held, name) == self._seals(there, held, name) for name in PROTOCOLS}

    def _seals(self, made: Assembled, held: list[Update], protocol: str) -> tuple[list[str], bytes]:
        """Digests of everything that each party saw in a round, and the bytes of the model after it."""
        # A sum must have room for all of them, however many the preset has.
        split = {"use": "iid", "clients": self.clients}
        pipeline = load({"task": {"split": split}, "protocol": protocol}).protocol
        task = replace(made.task, fit=_given(held))
        (done,) = rounds(pipeline, task, Federation(rounds=1), self.coins, Local(), keep={"*": "digest"})
        seals = [f"{name} {view.digest().hex()}" for name, view in sorted(done.views.items())]
        return seals, bytes(done.state.model.vector.numpy().data)


def _given(held: Sequence[Update]) -> Callable[[Sequence[tuple[Any, ...]]], Sequence[Update]]:
    """In place of training: the updates of a training that was done before."""
    return lambda jobs: held[: len(jobs)]


def _whole(update: Update | CroupierError) -> Update:
    if isinstance(update, CroupierError):
        raise update
    return update


def _apart(kept: Mapping[str, Sequence[Update]], arm: str) -> dict[str, float]:
    """The largest difference of a parameter after one round's training, between an arm and every other."""
    return {
        other: max(float((a.vector - b.vector).abs().max()) for a, b in zip(kept[arm], updates, strict=True))
        for other, updates in kept.items() if other != arm
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['machine']} beside {found['cores']} cores, torch {found['torch']}; pictures: {found['pictures']}")
    for name in ("digits", "cifar-cnn"):
        one = found[name]
        print(f"\n{name}: {one['clients']} clients a round, {one['parameters']} parameters")
        for arm, rate in one["clients_per_s"].items():
            apart = one["largest_difference"].get(arm)
            far = "" if apart is None else f"   largest difference of a parameter {apart:.1e}"
            idle = 1e3 * one["round_without_training_s"][arm]
            print(
                f"{arm:<20}{rate:10.1f} clients/s{1e3 * one['round_s'][arm]:10.1f} ms a round, {idle:.1f} without{far}"
            )
        if "pfl_research" in one:
            rate = one["pfl_research"]["clients_per_s"]
            print("pfl-research        " + (one["pfl_research"]["why"] if rate is None else f"{rate:10.1f} clients/s"))
        print(f"on the device {one['device_to_cpu']:.1f} times the CPU's best")
        same = ", ".join(f"{name} {'yes' if said else 'NO'}" for name, said in one["same_after_fit"].items())
        print(f"the same bits after training: {same}")
        after = one["after_fit"]
        home, plainly = 1e3 * after["home_s"], 1e3 * after["home_plainly_s"]
        there = 1e3 * after["there_s"]
        print(f"updates to the CPU: {home:.1f} ms ({plainly:.1f} ms to usual memory); to the device: {there:.1f} ms")
        for step in after["steps"]:
            agree = "the same bytes" if step["same_bytes"] else "OTHER BYTES"
            cpu, device = 1e3 * step["cpu_s"], 1e3 * step["device_s"]
            print(f"{step['step']:<10}{cpu:10.1f} ms CPU{device:10.1f} ms device   {agree}")
