"""IntraShuffler's Table 6: how many ways there are to put a bucket's values together, and how few one has to try.

The paper counts the ways as if each had to be tried. The greedy attack of `attacks.tiers.recombine` instead takes, in
every coordinate, the value nearest to its prediction, in time linear in the number of parameters. The prediction is
strong knowledge: an update from other records of the same household. The table has the number of ways, what the attack
looks at, and how often it is right. `croupier reproduce intra/table6` runs it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import CroupierError
from croupier.learn.data import Dataset
from croupier.learn.models import Lstm
from croupier_lab.attacks.tiers.recombine import greedy
from croupier_lab.papers.intra.protocols import NoiseArm, epsilons, privacy
from croupier_lab.papers.intra.tasks import LSTM, london
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import Deal, PublicTask, TrainingTask, cell, in_processes, public, shown

Watch = Callable[[str], None]
PAPER = "IntraShuffler (2026)"
# The paper's exponents of the search space, for ten thousand parameters.
PRINTED = {4: 6021, 8: 9030, 16: 12041}
# An LSTM of this width has 9,841 weights: the nearest to the paper's ten thousand.
HIDDEN = 48
# No noise; noise so loud that a noised update and the clean one have, on average, the cosine 0.12 of the paper's
# Table 1; and the noise of the budgets as the paper states them (`papers.intra.protocols`).
NOISES: Mapping[str, NoiseArm] = {
    "none": NoiseArm("none"), "cosine 0.12": NoiseArm("cosine"), "stated": NoiseArm("stated"),
}  # fmt: skip


def table6(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    """A row for each size of a bucket and each noise."""
    work = replace(london(LSTM, scale, means), model=Lstm(hidden=HIDDEN))
    watch(f"updates of {max(PRINTED)} households from each half of their records")
    found = in_processes(_attacked, [(work, seed) for seed in seeds], means.processes)
    rows = []
    for members, exponent in PRINTED.items():
        for noise in NOISES:
            at = [one[members, noise] for one in found]
            size = int(at[0]["size"])
            right = cell([one["right"] for one in at])
            rows.append(
                {
                    "bucket": members, "parameters": size, "one_update": f"10^{size * math.log10(members):.0f}",
                    "all_updates": f"10^{size * math.log10(math.factorial(members)):.0f}",
                    "paper": f"10^{exponent} (Table 6, d = 10^4)",
                    "looked_at": members * size, "greedy_s": round(sum(one["seconds"] for one in at) / len(at), 5),
                    "noise": noise, "true_epsilon": at[0]["epsilons"], "values_right": shown(right, 1, 100.0),
                    "chance": f"{100 / members:.1f}", "_right": right, "_chance": 1 / members,
                }
            )  # fmt: skip
    return rows


def says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what the number of ways is worth."""
    slowest = max(row["greedy_s"] for row in rows)
    bare = [row for row in rows if row["noise"] == "none"]
    noised = [row for row in rows if row["noise"] != "none"]
    return [
        "Nobody tries n^d ways: the greedy attack decides value by value, n d of them for one update, in "
        f"{slowest:.3g} s at most.",
        f"Without noise it is right more often than 1/n in {sum(map(_above, bare))} of {len(bare)} bucket sizes, with "
        f"noise in {sum(map(_above, noised))} of {len(noised)} rows (95 %){_stopped_by(bare, noised)}.",
    ]


def _above(row: Mapping[str, Any]) -> bool:
    """Whether the attack is right more often than chance: the whole interval lies above 1/n."""
    return bool(row["_right"]["low"] > row["_chance"])


def _stopped_by(bare: Sequence[Mapping[str, Any]], noised: Sequence[Mapping[str, Any]]) -> str:
    """What stops the attack: the noise only where it works without noise, since a size has its ways with or without."""
    failed = [row["bucket"] for row in bare if not _above(row)]
    if failed:
        return f"; with buckets of {', '.join(map(str, failed))} it fails even without noise"
    if all(map(_above, noised)):
        return "; neither the noise nor the number of ways stops it"
    return ": where it fails it is the noise that stops it, not the number of ways"


@dataclass(frozen=True)
class Half:
    """A split that leaves each client every second of its records, from the first or from the second on."""

    split: Deal
    half: int

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Deal halves of records to the clients."""
        return {who: index[self.half :: 2] for who, index in self.split(dataset, coins).items()}


def _attacked(job: tuple[TrainingTask, int]) -> dict[tuple[int, str], dict[str, Any]]:
    work, seed = job
    known, coins = public(work, seed), Coins.from_seed(seed)
    sent, like = (_updates(work, coins, half) for half in (0, 1))
    # What an adversary that holds records like each client's expects of it.
    expected = torch.stack([update.vector for update in like.values()])
    found = {}
    for members in PRINTED:
        for noise, arm in NOISES.items():
            own = coins.child("table 6", members, noise)
            rows = _noised(dict(list(sent.items())[:members]), arm, known, own)
            found[members, noise] = {
                **_greedy(rows, expected[:members], own), "size": known.size,
                "epsilons": _epsilons_in_words(arm, known),
            }  # fmt: skip
    return found


def _epsilons_in_words(arm: NoiseArm, known: PublicTask) -> str:
    every = epsilons(arm, known)
    return f"{every[0]:.3g} to {every[-1]:.3g}" if every else "-"


def _updates(work: TrainingTask, coins: Coins, half: int) -> dict[str, Update]:
    """What the first clients make of the first model, each with one half of its records."""
    task = replace(work, split=Half(work.split, half)).built(coins).task
    names, start = task.enrolled[: max(PRINTED)], task.first.vector
    jobs = [(start, task.shards[who], coins.child("half", half, who)) for who in names]
    done = dict(zip(names, task.fit(jobs), strict=True))
    for update in done.values():
        if isinstance(update, CroupierError):
            raise update
    return {
        who: Update(update.vector - start, update.layout, form="delta")
        for who, update in done.items()
        if isinstance(update, Update)
    }


def _noised(sent: Mapping[str, Update], arm: NoiseArm, known: PublicTask, coins: Coins) -> Tensor:
    """The bucket's updates as they leave their clients."""
    mechanism = privacy(arm, known)
    return torch.stack([mechanism.of(who)(update, coins.child("noise", who))[0].vector for who, update in sent.items()])


def _greedy(rows: Tensor, predictions: Tensor, coins: Coins) -> dict[str, float]:
    """Shuffle every coordinate, attack what is seen, and only then look whose values they were."""
    drawn = torch.rand(rows.shape, generator=coins.child("shuffle").fast(), dtype=torch.float64)
    order = drawn.argsort(0)
    seen = rows.gather(0, order)
    start = time.perf_counter()
    places = greedy(seen, predictions, coins.child("attack"))
    seconds = (time.perf_counter() - start) / len(rows)
    right = order.gather(0, places) == torch.arange(len(rows)).unsqueeze(1)
    return {"right": float(right.double().mean()), "seconds": seconds}


FIGURES = (
    Figure(
        "intra/table6", f"{PAPER}, Table 6", "ways to put a bucket's values together, and the attack that tries few",
        "'One update' and 'all updates' count the ways to choose a value for every parameter, n^d, and to give all of "
        "them away, (n!)^d. 'Looked at' are the values that the greedy attack compares for one update, and 'greedy s' "
        "how long that takes; 'values right' is the share of values that it gives to the client they came from, in per "
        "cent with 95 % intervals over seeds, beside the chance 1/n. Its expectation of a client is an update from "
        "other records of the same household: strong knowledge, which the paper's threat model does not grant.",
        table6, {"smoke": 2, "small": 3, "paper": 5},
        (
            f"an LSTM of {HIDDEN} units and 9,841 weights for the paper's 10^4 parameters; London households at the "
            "first model, half of each one's records to train and half to expect from",
        ),
        says,
    ),
)  # fmt: skip
