"""Attacks on views: fast forms against plain ones, controls, and a leak that must be found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from croupier.audit import source
from croupier.audit.knowledge import Knowledge
from croupier.audit.prior import label_posterior
from croupier.audit.source import ACCURACY, ATTACKS, LOSS, Judge, pick
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import SpecError
from croupier.learn.models import Mlp
from croupier.systems import naive

CLIENTS = ("a", "b", "c", "d")
FEATURES, CLASSES = 6, 3


def draw(*labels: str | int) -> torch.Generator:
    """A generator for made-up data."""
    return Coins.from_seed(3).child(*labels).fast()


def sample(count: int, name: str) -> tuple[Tensor, Tensor]:
    """Made-up records."""
    return torch.randn(count, FEATURES, generator=draw(name)), torch.randint(CLASSES, (count,), generator=draw(name, 1))


@pytest.fixture
def knowledge() -> Knowledge:
    """Four clients, a small perceptron, forty records."""
    shadows = tuple(sample(9, f"shadow {who}") for who in CLIENTS)
    model = Mlp(hidden=(5,)).plain()
    return Knowledge(CLIENTS, naive().plain(), model, CLASSES, sample(40, "records"), shadows)


def rows(knowledge: Knowledge) -> Tensor:
    """Four updates."""
    return torch.randn(len(CLIENTS), knowledge.net.layout.size, generator=draw("rows")) * 0.5


def plain_algorithm5(
    knowledge: Knowledge, seen: Tensor, shadow: tuple[Tensor, Tensor], judge: Judge
) -> list[list[float]]:
    """Algorithm 5 as printed: one whole forward pass for every parameter and candidate."""
    base = seen.double().mean(0).float()
    span = source.last_layer(knowledge)
    judged = []
    for place in range(span.start, span.stop):
        fits = []
        for candidate in seen[:, place]:
            model = base.clone()
            model[place] = candidate
            fits.append(float(judge.whole(knowledge.outputs(model, shadow[0]), shadow[1])))
        judged.append(fits)
    return judged


@pytest.mark.parametrize("judge", [ACCURACY, LOSS], ids=["accuracy", "loss"])
def test_the_fast_form_judges_as_the_plain_one(knowledge: Knowledge, judge: Judge) -> None:
    seen, shadow = rows(knowledge), knowledge.shadows[0]
    base = seen.double().mean(0).float()
    span = source.last_layer(knowledge)
    slow = plain_algorithm5(knowledge, seen, shadow, judge)
    hidden, outputs = source._before_last(knowledge, base, shadow[0])
    start = float(judge.whole(outputs, shadow[1])) if judge is LOSS else 0.0
    for number, place in enumerate(range(span.start, span.stop)):
        weights = CLASSES * hidden.shape[1]
        own = number // hidden.shape[1] if number < weights else number - weights
        column = hidden[:, number % hidden.shape[1]] if number < weights else torch.ones(len(hidden))
        change = torch.zeros(len(CLIENTS), CLASSES, len(hidden))
        change[:, own] = (seen[:, place] - base[place]).unsqueeze(1) * column
        fast = judge.single(outputs, change, shadow[1])[:, own] + start
        assert fast.tolist() == pytest.approx(slow[number], abs=1e-4)


def test_what_is_chosen_is_a_candidate_and_the_rest_is_the_mean(knowledge: Knowledge) -> None:
    seen = rows(knowledge)
    span = source.last_layer(knowledge)
    base = seen.double().mean(0).float()
    out = source.replaced(knowledge, base, seen[:, span], knowledge.shadows[1], LOSS, True, Coins.from_seed(1))
    assert bool((out == seen[:, span]).any(0).all())


def test_named_updates_give_the_client_with_the_lowest_loss(knowledge: Knowledge) -> None:
    seen = rows(knowledge)
    gathered = Gathered(CLIENTS, seen, ids=("d", "c", "b", "a"))
    scores = ATTACKS["named"](gathered, knowledge, Coins.from_seed(0))
    assert torch.allclose(scores[0].float(), -knowledge.losses(seen[3], knowledge.records))


def test_a_planted_leak_is_found(knowledge: Knowledge) -> None:
    """Each client's model loves one class by one bias, and its shadow set is all of that class."""
    span = source.last_layer(knowledge)
    seen = torch.zeros(3, knowledge.net.layout.size)
    for client in range(3):
        seen[client, span.stop - CLASSES + client] = 9.0
    labels = torch.arange(3).repeat(10)
    known = replace(
        knowledge,
        clients=CLIENTS[:3],
        records=(torch.zeros(30, FEATURES), labels),
        shadows=tuple((torch.zeros(4, FEATURES), torch.full((4,), client)) for client in range(3)),
    )
    shuffled = seen[torch.tensor([2, 0, 1])]
    for name in (
        "algorithm2",
        "algorithm2-loss",
        "algorithm3",
        "algorithm3-loss",
        "algorithm5-loss",
        "algorithm5+prior",
    ):
        guesses = pick(ATTACKS[name](Gathered(CLIENTS[:3], shuffled), known, Coins.from_seed(4)), Coins.from_seed(5))
        assert torch.equal(guesses, labels), name


def test_ties_are_broken_at_random() -> None:
    guesses = pick(torch.zeros(4, 8000), Coins.from_seed(9))
    counts = torch.bincount(guesses, minlength=4)
    assert int(counts.min()) > 1800
    assert pick(torch.tensor([[0.0], [1.0], [0.5]]), Coins.from_seed(9)).tolist() == [1]


def test_identical_models_tell_nothing(knowledge: Knowledge) -> None:
    seen = rows(knowledge)[:1].repeat(4, 1)
    scores = ATTACKS["named"](Gathered(CLIENTS, seen, ids=CLIENTS), knowledge, Coins.from_seed(0))
    assert torch.equal(scores, scores[:1].expand_as(scores))


def test_the_prior_is_the_share_of_the_label(knowledge: Knowledge) -> None:
    posterior = label_posterior(knowledge).exp()
    assert torch.allclose(posterior.sum(0), torch.ones(40, dtype=torch.float64))
    label = int(knowledge.records[1][0])
    shares = torch.tensor([float((y == label).sum()) + 0.5 for _, y in knowledge.shadows]) / (9 + 0.5 * CLASSES)
    assert torch.allclose(posterior[:, 0].float(), shares / shares.sum())


def test_an_attack_refuses_a_view_that_it_cannot_read(knowledge: Knowledge) -> None:
    with pytest.raises(SpecError, match="senders' names"):
        ATTACKS["named"](Gathered(CLIENTS, rows(knowledge)), knowledge, Coins.from_seed(0))
    with pytest.raises(SpecError, match="a sum leaves none"):
        ATTACKS["algorithm5"](Gathered(CLIENTS, sums=torch.zeros(3)), knowledge, Coins.from_seed(0))
