"""Rounds in the clear: gradients in closed form, rounds that are what they say, attacks that see what they may."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from croupier.audit.poison import LabelFlip, Poison, PoisonInputs, Scaling
from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.datasets import Digits, Synthetic
from croupier.learn.flat import layout_of
from croupier.learn.models.mlp import Perceptron
from croupier.learn.split import Iid
from croupier_lab.attacks.poisoning import Copy, SignFlip
from croupier_lab.attacks.rule_poisoning import TrimAttack
from croupier_lab.papers.rain import clear_rounds, rules
from croupier_lab.papers.rain.baseline_rules import FLOD, FLTRUST, KRUM, MEDIAN, THIRTEEN, TRIMMED
from croupier_lab.papers.rain.clear_rounds import ClearTask, TrainingTerms, play, signs_of
from croupier_lab.papers.rain.rules import EQUAL, FEDAVG, HIDDEN, PLUS, PRINTED, ROOT_ONLY, UNGATED, ServerKnowledge
from croupier_lab.papers.rain.stacked_gradients import StackedClients, features, first, outputs, size_of, spans

WIDTHS = (5, 4, 3)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return Digits().load(None)


@pytest.fixture(scope="module")
def ground(digits: Dataset) -> ClearTask:
    return ClearTask.of(digits, Iid(clients=10), (16,), 3, root=50)


def draw(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("widths", [WIDTHS, (5, 4, 6, 3), (5, 3)])
def test_gradients_are_those_of_autograd(widths: tuple[int, ...]) -> None:
    module = Perceptron(widths)
    vector = layout_of(module).flatten(module.state_dict())
    assert len(vector) == size_of(widths)
    x, y = torch.randn(3, 7, 5, generator=draw()), torch.randint(3, (3, 7), generator=draw())
    got = StackedClients(3, widths).gradients(vector, x, y)
    for client in range(3):
        module.zero_grad()
        torch.nn.functional.cross_entropy(module(x[client]), y[client]).backward()  # type: ignore[no-untyped-call]
        wanted = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
        assert torch.allclose(got[client], wanted, atol=1e-6)
    assert torch.allclose(outputs(vector, widths, x), module(x.flatten(0, 1)).unflatten(0, (3, 7)), atol=1e-6)


def test_the_first_model_is_xaviers() -> None:
    vector = first((200, 100, 10), 2.0, draw())
    weights, biases = vector[:20_000], vector[20_000:20_100]
    bound = 2 * math.sqrt(6 / 300)
    assert float(weights.abs().max()) == pytest.approx(bound, rel=1e-3)
    assert float(weights.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not biases.any()


def test_everybody_has_records_of_their_own(ground: ClearTask, digits: Dataset) -> None:
    every = torch.cat([*ground.shards, ground.root])
    assert every.sort().values.tolist() == list(range(len(digits.train)))
    assert (len(ground.root), len(ground.shards)) == (50, 10)
    assert ground.order.sort().values.tolist() == list(range(10))


def test_a_round_without_attack_is_fedavg(ground: ClearTask) -> None:
    """One round by hand: the mean of the clients' gradients on the batches that the seed gives."""
    attacked = clear_rounds._Bout(ground, FEDAVG, TrainingTerms(batch=8), None, 0)
    step, _, _ = attacked.round(ground.first, None, None)
    drawn = torch.rand(10, 8, generator=ground.drawing("batches"))
    module = Perceptron(ground.widths)
    module.load_state_dict(layout_of(module).split(ground.first))
    total = torch.zeros_like(ground.first)
    for shard, share in zip(ground.shards, drawn, strict=True):
        index = shard[(share * len(shard)).long()]
        module.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(ground.train.x[index]), ground.train.y[index])
        loss.backward()  # type: ignore[no-untyped-call]
        total -= torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None]) / 10
    assert step is not None
    assert torch.allclose(step, total, atol=1e-6)


def test_a_bout_is_reproduced_from_its_seed(digits: Dataset, ground: ClearTask) -> None:
    terms = TrainingTerms(rounds=4, every=2, batch=8, clip=1.0, sigma=0.05)
    once = play(ground, EQUAL, terms, TrimAttack(), 0.3)
    again = play(ClearTask.of(digits, Iid(clients=10), (16,), 3, root=50), EQUAL, terms, TrimAttack(), 0.3)
    other = play(ClearTask.of(digits, Iid(clients=10), (16,), 4, root=50), EQUAL, terms, TrimAttack(), 0.3)
    assert once == again
    assert once != other
    assert [number for number, _ in once.curve] == [0, 2, 4]


class Spy(Poison, use="spy, for a test"):
    """Notes what it is shown."""

    everything: bool = False
    sees_reference = True

    @property
    def knowledge(self) -> Any:
        return "all" if self.everything else "own"

    def craft(self, scene: PoisonInputs, generator: Generator) -> Tensor:
        SEEN.append(scene)
        return scene.own


SEEN: list[PoisonInputs] = []


def spied(
    ground: ClearTask, rule: rules.ClearRule, terms: TrainingTerms | None = None, **fields: Any
) -> tuple[list[PoisonInputs], list[Tensor]]:
    """What the attack saw, and the references of the rounds."""
    SEEN.clear()
    references: list[Tensor] = []

    def noting(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
        references.append(sight.reference)
        return rows.mean(0), memory

    play(ground, replace(rule, step=noting), terms or TrainingTerms(rounds=3, batch=8), Spy(**fields), 0.3)
    return list(SEEN), references


def test_a_hidden_reference_is_never_handed_to_an_attack(ground: ClearTask) -> None:
    """The planted fault is the public rule: there the same check finds every reference."""
    seen, references = spied(ground, HIDDEN)
    shown = [one.reference for one in seen]

    def same(others: list[Tensor]) -> list[bool]:
        return [one is not None and torch.equal(one, other) for one, other in zip(shown, others, strict=True)]

    assert shown[0] is None
    assert same(references) == [False, False, False]
    assert same([references[0], *references[:2]]) == [False, True, True]
    seen, references = spied(ground, EQUAL)
    assert all(s.reference is not None and torch.equal(s.reference, r) for s, r in zip(seen, references, strict=True))
    assert all(s.reference is None for s in spied(ground, FLTRUST)[0])


def test_malicious_clients_skip_the_mechanism_and_see_what_they_claim(ground: ClearTask) -> None:
    terms = TrainingTerms(rounds=1, batch=8, clip=0.5, sigma=0.1)
    (one,), _ = spied(ground, FEDAVG, terms, everything=True)
    (bare,), _ = spied(ground, FEDAVG, TrainingTerms(rounds=1, batch=8), everything=True)
    assert torch.equal(one.own, bare.own)
    assert (one.clients, one.clip, one.sigma, len(one.own)) == (10, 0.5, 0.1, 3)
    assert one.benign is not None
    assert bare.benign is not None
    assert float((one.benign - bare.benign * (0.5 / bare.benign.norm(dim=1, keepdim=True)).clamp_max(1)).std()) == (
        pytest.approx(0.1, rel=0.05)
    )
    (blind,), _ = spied(ground, FEDAVG, terms)
    assert blind.benign is None


def test_only_the_malicious_train_on_changed_records(ground: ClearTask) -> None:
    attacked = clear_rounds._Bout(ground, FEDAVG, TrainingTerms(), LabelFlip(), 3)
    for client, shard in enumerate(ground.shards):
        same = torch.equal(attacked.records.y[shard], ground.train.y[shard])
        assert same != (client in attacked.bad.tolist())
    assert attacked.records.x is ground.train.x
    assert torch.equal(attacked.records.y[ground.root], ground.train.y[ground.root])
    marked = clear_rounds._Bout(ground, FEDAVG, TrainingTerms(), Scaling(side=8), 3).records
    assert not torch.equal(marked.x, ground.train.x)
    assert bool((ground.train.x[:, ::8] != 1).any())


def test_a_backdoor_is_measured(ground: ClearTask) -> None:
    terms = TrainingTerms(rounds=40, every=40, batch=32)
    got = play(ground, replace(FEDAVG, rate=0.5), terms, Scaling(side=4, factor=3), 0.3)
    clean = play(ground, replace(FEDAVG, rate=0.5), terms)
    assert got.success is not None
    assert clean.success is None
    assert got.success > 0.5
    assert clean.accuracy > 0.6


def test_signs_and_their_zeros() -> None:
    rows = torch.tensor([[1.5, -0.1, 0.0, -0.0]])
    assert signs_of(rows.clone()).tolist() == [[1, -1, 1, 1]]
    many = signs_of(torch.zeros(40, 1000), draw())
    assert set(many.flatten().tolist()) == {-1.0, 1.0}
    assert abs(float(many.mean())) < 0.05
    assert float((many @ many.T / 1000).fill_diagonal_(0).abs().max()) < 0.2
    assert signs_of(rows.clone(), draw())[0, :2].tolist() == [1, -1]


def test_rain_by_hand() -> None:
    """Rows 0, 1, 2, 3 and 50 coordinates off a reference of 1s, of 100: median 2, MAD 1, 2 + 1.4826 2.2 = 5.26.

    As printed the weights are 5.26, 4.26, 3.26, 2.26 and 0, kept in sixteenths: 84, 68, 52, 36.
    """
    rows = torch.ones(5, 100)
    for row, off in zip(rows, (0, 1, 2, 3, 50), strict=True):
        row[:off] = -1
    assert rules.distances(rows, torch.ones(100)).tolist() == [0, 1, 2, 3, 50]
    printed, memory = PRINTED.step(rows, sight(torch.ones(100)), None)
    assert memory is None
    assert torch.allclose(printed, torch.tensor([84.0, 68, 52, 36, 0]) @ rows / 240)  # type: ignore[arg-type]
    ours, _ = EQUAL.step(rows, sight(torch.ones(100)), None)
    assert torch.allclose(ours, rows[:4].mean(0))  # type: ignore[arg-type]


def test_the_variants_of_rain_are_what_they_say() -> None:
    """At 100 coordinates the gate is at 35."""
    rows = torch.ones(6, 100)
    for row, off in zip(rows, (32, 33, 34, 36, 37, 38), strict=True):
        row[:off] = -1
    here = sight(torch.ones(100))
    assert torch.allclose(EQUAL.step(rows, here, None)[0], rows[:3].mean(0))  # type: ignore[arg-type]
    assert torch.allclose(UNGATED.step(rows, here, None)[0], rows.mean(0))  # type: ignore[arg-type]
    assert HIDDEN.step == EQUAL.step == PLUS.step
    assert (PRINTED.fresh, PRINTED.fair, PRINTED.shows) == (False, False, "now")
    assert (EQUAL.fair, EQUAL.shows, PLUS.fair, HIDDEN.shows) == (True, "now", False, "stale")


def test_no_step_where_nobody_counts_is_counted(ground: ClearTask) -> None:
    never = replace(EQUAL, step=lambda rows, sight, memory: (None, memory))
    done = play(ground, never, TrainingTerms(rounds=5, every=5))
    assert done.idle == 5
    assert done.curve[0][1] == done.curve[-1][1]
    assert EQUAL.step(torch.ones(3, 100), sight(-torch.ones(100)), None) == (None, None)


def sight(reference: Tensor, bad: int = 1) -> ServerKnowledge:
    return ServerKnowledge(reference, (1,), reference, reference, reference, bad, draw())


def test_a_broken_model_ends_the_bout(ground: ClearTask) -> None:
    broken = replace(FEDAVG, step=lambda rows, sight, memory: (rows[0] * math.inf, memory))
    done = play(ground, broken, TrainingTerms(rounds=9, every=1))
    assert not done.finite
    assert done.curve[-1][0] == 1


def test_baselines_by_hand() -> None:
    rows = torch.tensor([[1.0], [2.0], [3.0], [4.0], [90.0]])
    here = sight(torch.ones(1))
    assert float(MEDIAN.step(rows, here, None)[0]) == 3  # type: ignore[arg-type]
    assert float(TRIMMED.step(rows, here, None)[0]) == 3  # type: ignore[arg-type]
    assert float(KRUM.step(rows, here, None)[0]) in {2.0, 3.0}  # type: ignore[arg-type]
    # All count alike at the root's length.
    assert float(FLTRUST.step(rows, here, None)[0]) == 1  # type: ignore[arg-type]
    assert FLTRUST.step(-rows, here, None)[0] is None
    assert FLOD.step(-torch.ones(3, 4), sight(torch.ones(4)), None)[0] is None
    # Told of more than they allow, they assume what they can.
    assert KRUM.step(rows, sight(torch.ones(1), bad=5), None)[0] is not None
    assert float(TRIMMED.step(rows, sight(torch.ones(1), bad=5), None)[0]) == 3  # type: ignore[arg-type]


def test_slots_change_owners_behind_a_shuffle(ground: ClearTask) -> None:
    seen: list[Tensor] = []

    def noting(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
        seen.append(rows.clone())
        return torch.zeros_like(rows[0]), memory

    for shuffled in (False, True):
        play(ground, replace(FEDAVG, step=noting), TrainingTerms(rounds=1, batch=8, shuffled=shuffled))
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0].sort(0).values, seen[1].sort(0).values)


def test_attacks_bite_and_the_root_stands_alone(ground: ClearTask) -> None:
    terms = TrainingTerms(rounds=60, every=60, batch=16)
    honest = play(ground, replace(FEDAVG, rate=0.5), terms).accuracy
    assert honest > 0.8
    assert play(ground, replace(FEDAVG, rate=0.5), terms, SignFlip(factor=3), 0.4).accuracy < honest - 0.3
    alone = [play(ground, replace(ROOT_ONLY, rate=0.5), terms, attack, 0.4) for attack in (None, SignFlip())]
    assert alone[0] == alone[1]
    assert play(ground, PRINTED, terms, Copy(), 0.8).accuracy < play(ground, PRINTED, terms).accuracy


def test_forecasts_are_refused() -> None:
    data = replace(Synthetic(records=200).load(None), goal="forecast")
    with pytest.raises(SpecError, match="attacks on labels need records with classes"):
        ClearTask.of(data, Iid(clients=2), (4,), 0)


def test_features_are_each_models_own() -> None:
    vectors, x = torch.randn(3, size_of(WIDTHS), generator=draw()), torch.randn(6, 5, generator=draw(1))
    found = features(vectors, WIDTHS, x)
    for vector, one in zip(vectors, found, strict=True):
        module = Perceptron(WIDTHS)
        module.load_state_dict(layout_of(module).split(vector))
        assert torch.allclose(module.layers[:2](x), one, atol=1e-6)
    assert spans(WIDTHS) == [(0, 20), (20, 24), (24, 36), (36, 39)]


@pytest.mark.parametrize("rule", THIRTEEN, ids=[rule.name for rule in THIRTEEN])
def test_every_baseline_learns_when_nobody_attacks(ground: ClearTask, rule: rules.ClearRule) -> None:
    terms = TrainingTerms(rounds=30, every=30, batch=16)
    done = play(ground, rule if rule.signs else replace(rule, rate=0.5), terms)
    assert done.finite
    assert done.accuracy > 0.3
    assert play(ground, rule, replace(terms, rounds=3, shuffled=True), LabelFlip(), 0.2).finite
