"""Made-up scenes for attacks: a few clients, a small perceptron, and views that say what a test wants said."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Self

import pytest
import torch
from torch import Tensor

from croupier.audit import harness, membership, records
from croupier.audit.blind import TOPICS, Blind, Panel, learnt_of
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge, Sample
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import Mlp

CLIENTS = ("a", "b", "c", "d")
FEATURES, CLASSES, HIDDEN = 6, 3, 5


def draw(*labels: str | int) -> torch.Generator:
    """A generator for made-up data."""
    return Coins.from_seed(3).child(*labels).fast()


def sample(count: int, name: str) -> Sample:
    """Made-up records."""
    return torch.randn(count, FEATURES, generator=draw(name)), torch.randint(CLASSES, (count,), generator=draw(name, 1))


def knowledge(shadow: int = 9) -> Knowledge:
    """Four clients, a small perceptron, forty records."""
    shadows = tuple(sample(shadow, f"shadow {who}") for who in CLIENTS)
    model, fit = Mlp(hidden=(HIDDEN,)).plain(), Sgd(lr=0.1, epochs=2, batch=4).plain()
    return Knowledge(CLIENTS, model, fit, CLASSES, sample(40, "records"), shadows, sample(12, "suspects"))


def labelled(*held: list[int]) -> tuple[Sample, ...]:
    """Shadow sets with these labels; their inputs say nothing."""
    return tuple((torch.zeros(len(labels), FEATURES), torch.tensor(labels)) for labels in held)


def scene(known: Knowledge, seen: Gathered | None) -> AttackContext:
    """Where an attack stands."""
    return AttackContext(known, seen, FlatNet(known.module), Coins.from_seed(11))


def rows(known: Knowledge, count: int = len(CLIENTS)) -> Tensor:
    """Updates that differ everywhere."""
    size = FlatNet(known.module).layout.size
    return 0.5 * torch.randn(count, size, generator=draw("rows"))


def sure(known: Knowledge, classes: list[int], strength: float = 9.0) -> Tensor:
    """Models that say nothing but their last biases: each leans to one class."""
    out = torch.zeros(len(classes), FlatNet(known.module).layout.size)
    places = scene(known, None).places
    for row, label in enumerate(classes):
        out[row, places[label - known.classes]] = strength
    return out


class Here(Panel):
    """A panel without processes: questions and answers still pass through canonical bytes. It keeps what was asked."""

    def __init__(self, count: int = 1, device: str = "cpu") -> None:
        super().__init__(count, device)
        self.asked: list[tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def ask(self, topic: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """The answer, at once."""
        future: Future[dict[str, Any]] = Future()
        future.set_result(here(topic, known, asked))
        self.asked.append((topic, known, asked, future.result()))
        return future


def answer(topic: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What attacks answer in this process, where nothing has to be hidden."""
    room = import_module(f"{TOPICS}.{topic}")
    found: dict[str, Any] = room.mount(room.study(known, "cpu"), asked)
    return found


def ask(process: Blind, topic: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What attacks answer in a process of their own, without a panel."""
    return process.answer(topic, learnt_of(topic, known), asked)


def here(topic: str, known: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What attacks answer in this process, from the very bytes that a fresh one is sent."""
    found = answer(topic, canon.load(canon.dump(dict(known))), canon.load(canon.dump(dict(asked))))
    back: dict[str, Any] = canon.load(canon.dump(found))
    return back


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Attacks run in this process, and the adversary has few models of its own and one learner of few trees.

    For tests of what an audit does with its answers; how good the answers are is tested beside the attacks.
    """
    patch.setattr(harness, "Panel", Here)
    patch.setattr(membership, "MODELS", 3)
    patch.setattr(membership, "STEPS", 5)
    patch.setattr(records, "TREES", 8)
    patch.setattr(records, "LEARNERS", {name: records.LEARNERS[name] for name in ("extremely random trees",)})
