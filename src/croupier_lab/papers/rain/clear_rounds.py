"""Rounds in the clear: many clients and one server, all rows of a round in one matrix, on a CPU or a GPU.

It measures rules against attacks in thousands of trainings, for which real protocols are too slow. It is no protocol:
nothing is hidden, so noise comes from torch's generators. What clients send are differences, here minus one minibatch's
gradient. `repeated_runs` calls `play` for RAIN's Figures 3 to 6 and for `server_rate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from croupier.audit.poison import Poison, PoisonInputs, Scaling, backdoor_success
from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.split import Split
from croupier_lab.papers.rain.rules import ClearRule, ServerKnowledge
from croupier_lab.papers.rain.stacked_gradients import StackedClients, first, outputs

# Xavier's gain in RAIN's artifact.
GAIN = 2.24

# A model with a weight beyond this, or not finite, is lost: squares of such differences overflow.
FAR = 1e12


@dataclass(frozen=True)
class TrainingTerms:
    """How a rule is trained: rounds, batches, and the mechanism of honest clients.

    `every` is after how many rounds accuracy is measured. Honest clients clip to `clip` and add noise of deviation
    `sigma`. With `shuffled` rows change places in every round, so that a rule remembers places and not clients.
    """

    rounds: int = 500
    batch: int = 64
    every: int = 50
    clip: float = math.inf
    sigma: float = 0.0
    shuffled: bool = False


@dataclass(frozen=True, eq=False)
class ClearTask:
    """One seed's data, clients and first model, the same for every rule and attack.

    `order` says in which order clients turn malicious.
    """

    train: TensorRecords
    test: TensorRecords
    classes: int
    shards: tuple[Tensor, ...]
    root: Tensor
    first: Tensor
    widths: tuple[int, ...]
    order: Tensor
    coins: Coins

    @classmethod
    def of(
        cls, dataset: Dataset, split: Split, hidden: tuple[int, ...], seed: int, root: int = 100, device: str = "cpu"
    ) -> ClearTask:
        """Draw everything on the CPU, so that a GPU trains on the same. Raises: SpecError for data without classes."""
        train, test = dataset.train, dataset.test
        if not isinstance(train, TensorRecords) or not isinstance(test, TensorRecords) or dataset.goal != "classify":
            raise SpecError(f"task.data = {dataset.name!r}: attacks on labels need records with classes; use pictures")
        coins = Coins.from_seed(seed).child("arena")
        drawn = torch.from_numpy(coins.child("root").sampler().permutation(len(train)))
        kept, rest = drawn[:root], drawn[root:].sort().values
        left = replace(dataset, train=train.take(rest), labels=train.y[rest])
        shards = tuple(rest[index].to(device) for index in split(left, coins.child("split")).values())
        widths = (math.prod(train.x.shape[1:]), *hidden, dataset.classes)
        order = torch.from_numpy(coins.child("members").sampler().permutation(len(shards)))
        vector = first(widths, GAIN, coins.child("first model").fast()).to(device)
        return cls(
            train.to(device), test.to(device), dataset.classes, shards, kept.to(device), vector, widths, order, coins
        )  # fmt: skip

    @property
    def device(self) -> torch.device:
        """The device on which the task lies."""
        return self.first.device

    @cached_property
    def stack(self) -> StackedClients:
        """Room for the clients' rows."""
        return StackedClients(len(self.shards), self.widths, self.device)

    @cached_property
    def alone(self) -> StackedClients:
        """Room for the server's own row."""
        return StackedClients(1, self.widths, self.device)

    def drawing(self, *labels: str | int, device: str | torch.device = "cpu") -> Generator:
        """A generator of this seed."""
        return self.coins.child(*labels).fast(device)

    def accuracy(self, vector: Tensor) -> float:
        """The share of test records whose class is told right."""
        return float((self._predicted(vector, self.test.x) == self.test.y).double().mean())

    def success(self, vector: Tensor, attack: Scaling) -> float:
        """How often a backdoor's trigger works."""
        return backdoor_success(self._predicted(vector, attack.trigger(self.test.x)), self.test.y, attack.target)

    def _predicted(self, vector: Tensor, x: Tensor) -> Tensor:
        parts = [outputs(vector, self.widths, x[at : at + 4096].flatten(1)).argmax(1) for at in range(0, len(x), 4096)]
        return torch.cat(parts)


@dataclass(frozen=True)
class ClearRun:
    """How a training went: accuracy by round, how often a trigger worked, and rounds without a step (`idle`).

    `finite` is False where the model was lost and the training ended early.
    """

    curve: tuple[tuple[int, float], ...]
    success: float | None
    idle: int
    finite: bool

    @property
    def accuracy(self) -> float:
        """The last model's accuracy."""
        return self.curve[-1][1]


def play(
    ground: ClearTask, rule: ClearRule, terms: TrainingTerms, attack: Poison | None = None, share: float = 0.0
) -> ClearRun:
    """Train under a rule, with a share of malicious clients where there is an attack, and measure."""
    attacked = _Bout(ground, rule, terms, attack, round(share * len(ground.shards)) if attack else 0)
    vector, memory, seen, idle = ground.first.clone(), None, None, 0
    rate = rule.loud if rule.loud is not None and terms.sigma else rule.rate
    curve = [(0, ground.accuracy(vector))]
    for number in range(1, terms.rounds + 1):
        step, memory, seen = attacked.round(vector, memory, seen)
        idle += step is None
        if step is not None:
            vector.add_(step, alpha=rate)
        if not float(vector.abs().max()) < FAR:
            # Nothing can be learnt any more, and some attacks and rules would fail on such numbers.
            return ClearRun((*curve, (number, ground.accuracy(vector))), None, idle, False)
        if number % terms.every == 0 or number == terms.rounds:
            curve.append((number, ground.accuracy(vector)))
    success = ground.success(vector, attack) if isinstance(attack, Scaling) else None
    return ClearRun(tuple(curve), success, idle, True)


class _Bout:
    """One training of one rule against one attack, round by round."""

    def __init__(
        self, ground: ClearTask, rule: ClearRule, terms: TrainingTerms, attack: Poison | None, bad: int
    ) -> None:
        self.ground, self.rule, self.terms, self.attack, device = ground, rule, terms, attack, ground.device
        self.bad = ground.order[:bad].sort().values.to(device)
        self.good = ground.order[bad:].sort().values.to(device)
        self.records = self._changed()
        self.held = torch.cat(ground.shards)
        self.sizes = torch.tensor([len(shard) for shard in ground.shards]).unsqueeze(1)
        self.starts = self.sizes.cumsum(0) - self.sizes
        # Every rule and attack of a seed meets the same batches; everything else has draws of its own.
        self.batches, self.roots = ground.drawing("batches"), ground.drawing("root batches")
        drawn = [ground.drawing(name, device=device) for name in ("noise", "evil", "rule", "ties")]
        self.noise, self.evil, self.extra, self.ties = drawn

    def _changed(self) -> TensorRecords:
        """The training records, of which those of malicious clients are changed; each record has one owner."""
        ground = self.ground
        if self.attack is None or type(self.attack).change is Poison.change or not len(self.bad):
            return ground.train
        x, y, draws = ground.train.x, ground.train.y.clone(), ground.drawing("change")
        for client in self.bad.tolist():
            index = ground.shards[client]
            changed = self.attack.change(ground.train.take(index), ground.classes, draws)
            y[index] = changed.y
            if not torch.equal(changed.x, ground.train.x[index]):
                x = x.clone() if x is ground.train.x else x
                x[index] = changed.x
        return TensorRecords(x, y)

    def round(self, vector: Tensor, memory: Any, seen: Tensor | None) -> tuple[Tensor | None, Any, Tensor]:
        """A step, what the rule remembers, and this round's reference."""
        root, records = self._root(vector)
        reference = self._signs(root.clone().unsqueeze(0))[0]
        shown = {"now": reference, "stale": seen, "never": None}[self.rule.shows]
        rows = root.unsqueeze(0) if self.rule.alone else self._sent(vector, shown)
        sight = ServerKnowledge(
            vector, self.ground.widths, root, reference, records, len(self.bad), self.extra
        )  # fmt: skip
        step, memory = self.rule.step(rows, sight, memory)
        return step, memory, reference

    def _sent(self, vector: Tensor, shown: Tensor | None) -> Tensor:
        """The rows that reach the server."""
        rows = self._rows(vector)
        rows = self._noised(rows) if self.attack is None or not len(self.bad) else self._poisoned(rows, shown)
        rows = self._signs(rows) if self.rule.signs else rows
        if self.terms.shuffled:
            rows = rows[torch.randperm(len(rows), generator=self.extra, device=rows.device)]
        return rows

    def _signs(self, rows: Tensor) -> Tensor:
        return signs_of(rows, self.ties if self.rule.fair else None)

    def _rows(self, vector: Tensor) -> Tensor:
        drawn = torch.rand(len(self.sizes), self.terms.batch, generator=self.batches)
        index = self.held[(self.starts + (drawn * self.sizes).long()).to(self.held.device)]
        x, y = self.records.x[index].flatten(2), self.records.y[index]
        return self.ground.stack.gradients(vector, x, y).neg_()

    def _root(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """The server's own difference, and the records that it comes from."""
        root = self.ground.root
        # Drawn even when all of it is used, so that rules of both kinds meet the same draws later.
        order = torch.randperm(len(root), generator=self.roots).to(root.device)
        index = root[order[: self.terms.batch]] if self.rule.fresh else root
        x, y = self.ground.train.x[index].flatten(1), self.ground.train.y[index]
        return self.ground.alone.gradients(vector, x.unsqueeze(0), y.unsqueeze(0))[0].neg_(), x

    def _noised(self, rows: Tensor) -> Tensor:
        """The local mechanism, in place: clip, then noise."""
        clip, sigma = self.terms.clip, self.terms.sigma
        if math.isfinite(clip):
            rows *= (clip / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_max(1)
        if sigma:
            rows.add_(torch.randn(rows.shape, generator=self.noise, device=rows.device), alpha=sigma)
        return rows

    def _poisoned(self, rows: Tensor, shown: Tensor | None) -> Tensor:
        """Honest rows through the mechanism, malicious ones crafted.

        Attacks that know everything see what honest clients send, noise and all.
        """
        if self.attack is None:
            return rows
        own = rows[self.bad]
        rows = self._noised(rows)
        benign = rows[self.good] if self.attack.knowledge == "all" else None
        inputs = PoisonInputs(own, benign, len(rows), self.terms.clip, self.terms.sigma, shown)
        rows[self.bad] = self.attack(inputs, self.evil)
        return rows


def signs_of(rows: Tensor, ties: Generator | None = None) -> Tensor:
    """Turn rows into -1 and 1 in place; a zero gets a random sign where `ties` are given, else 1."""
    if ties is not None:
        # All rows read one list of random signs, each from 61 further on, so that few are drawn: at a coordinate no two
        # rows read the same one.
        count, size, apart = *rows.shape, 61
        drawn = torch.randint(0, 2, (size + apart * (count - 1),), generator=ties, device=rows.device, dtype=torch.int8)
        rows.add_(drawn.mul_(2).sub_(1).as_strided((count, size), (apart, 1)), alpha=1e-30)
    return rows.ge_(0).mul_(2).sub_(1)
