"""How fast RNS's Algorithm 5 runs: candidates judged from cached activations, against whole forward passes.

Algorithm 5 of the source-inference paper (RNS) undoes a shuffle of single parameters. For each parameter of the last
layer it takes the value, among those of all clients, with which the joint model does best on records like one client's
(that client's shadow set). So it asks millions of times how a model does with one parameter changed, and only the
layers behind that parameter need to be computed again.

`croupier bench attack` runs it, on `audit.unshuffle`. It also counts on how many of some parameters both forms choose
alike; a test holds, for a small network, that they do.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from croupier.audit.attacks import source
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.unshuffle import LOSS, replaced
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.models import MnistCnn
from croupier_lab.bench.size import BenchSize, Watch, ignore


class UnshufflingSize(BenchSize):
    """How much is measured: candidates a parameter, records of a shadow set, parameters the plain form is timed on."""

    clients: int = Field(10, ge=2, description="Clients, and so candidates a parameter.")
    shadow: int = Field(300, ge=1, description="Records of each shadow set.")
    parameters: int = Field(5, ge=1, description="Parameters that the plain form is timed on.")


def measure(size: UnshufflingSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """The MNIST network with drawn weights and pictures: the work does not depend on what they show."""
    clients, shadow, parameters = size.clients, size.shadow, size.parameters
    # For the rest of the process: a bench is its only task.
    torch.set_num_threads(1)
    coins = Coins.from_seed(seed)
    knowledge = _knowledge(clients, shadow, coins)
    rows = _rows(knowledge, clients, coins)
    full, judged = _full(_scene(knowledge, rows), rows, parameters)
    start = time.perf_counter()
    source.ATTACKS["algorithm5-loss"](_scene(knowledge, rows), coins.child("attack"))
    everything = time.perf_counter() - start
    cached, fast = _cached(_scene(knowledge, rows), rows)
    return {
        "clients": clients,
        "shadow_records": shadow,
        "parameters": len(fast),
        "full_s_per_parameter": full,
        "cached_s_per_parameter": cached,
        "ratio": full / cached,
        "all_targets_s": everything,
        "sampled_parameters": parameters,
        # A feature that is 0 for the whole shadow set ties its candidates: any of the best is the same choice.
        "same_choices": sum(float(fits.max() - fits[fast[place]]) < 1e-4 for place, fits in judged.items()),
    }


def _scene(knowledge: Knowledge, rows: Tensor) -> AttackContext:
    """A fresh scene, whose caches are empty, so that no measurement profits from the one before."""
    return AttackContext(knowledge, Gathered(knowledge.clients, rows), FlatNet(knowledge.module), Coins.from_seed(0))


def _knowledge(clients: int, shadow: int, coins: Coins) -> Knowledge:
    def sample(count: int, *labels: str | int) -> Sample:
        draw = coins.child("sample", *labels).fast()
        return torch.rand(count, 1, 28, 28, generator=draw), torch.randint(10, (count,), generator=draw)

    names = tuple(f"c{number}" for number in range(clients))
    shadows = tuple(sample(shadow, "shadow", number) for number in range(clients))
    records, suspects = sample(10 * clients, "records"), sample(1, "suspects")
    return Knowledge(names, MnistCnn().plain(), Sgd().plain(), 10, records, shadows, suspects)


def _rows(knowledge: Knowledge, clients: int, coins: Coins) -> Tensor:
    """Models a little apart, as after a round."""
    with coins.child("weights").ambient():
        module = knowledge.build()
    first = layout_of(module).flatten(module.state_dict())
    return first + 0.05 * torch.randn(clients, len(first), generator=coins.child("rows").fast())


def _full(scene: AttackContext, rows: Tensor, parameters: int) -> tuple[float, dict[int, Tensor]]:
    """Algorithm 5 as printed, on evenly spaced parameters of the final layer: seconds each, and how it judged."""
    last, shadow = scene.places.tolist(), scene.knowledge.shadows[0]
    places = torch.linspace(0, len(last) - 1, parameters).long().tolist()
    judged: dict[int, Tensor] = {}
    start = time.perf_counter()
    for place in places:
        fits = []
        for candidate in rows[:, last[place]]:
            model = scene.joint.clone()
            model[last[place]] = candidate
            fits.append(LOSS.whole(scene.outputs(model, shadow[0]), shadow[1]))
        judged[place] = torch.stack(fits)
    return (time.perf_counter() - start) / len(places), judged


def _cached(scene: AttackContext, rows: Tensor) -> tuple[float, list[int]]:
    """The fast form for one target: seconds a parameter, and what it chose for each."""
    last, shadow = rows[:, scene.places], scene.knowledge.shadows[0]
    start = time.perf_counter()
    out = replaced(scene, last, shadow, LOSS, False, Coins.from_seed(0))
    spent = time.perf_counter() - start
    return spent / len(out), (last == out).double().argmax(0).tolist()


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    count = f"{found['parameters']} parameters, {found['clients']} candidates each"
    print(f"Algorithm 5 on the final layer of the MNIST network: {count}")
    print(f"whole forward passes  {1e3 * found['full_s_per_parameter']:10.3f} ms a parameter")
    print(f"cached activations    {1e3 * found['cached_s_per_parameter']:10.3f} ms a parameter")
    print(f"ratio                 {found['ratio']:10.0f}")
    print(f"all {found['clients']} targets: {found['all_targets_s']:.2f} s")
    print(f"same choice on {found['same_choices']} of {found['sampled_parameters']} sampled parameters")
