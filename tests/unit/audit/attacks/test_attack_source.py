"""Source inference: controls, the prior, and leaks that must be found."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.scenes import CLASSES, CLIENTS, FEATURES, knowledge, labelled, rows, scene, sure
from torch import Tensor

from croupier.audit import prior
from croupier.audit.attacks import source
from croupier.audit.attacks.source import ATTACKS
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Knowledge, log_odds
from croupier.audit.unshuffle import Rebuilt, named, pick
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import SpecError

COINS = Coins.from_seed(4)
# Lists of labels, and how many records of each class they are.
HELD = [[0, 0, 0, 0, 1, 1], [1, 1, 1, 1, 1, 2], [2, 2, 0, 2, 2, 2], [0, 0, 0, 1, 2, 2]]


def guesses(name: str, known: Knowledge, seen: Gathered | None) -> Tensor:
    """What an attack picks."""
    return pick(ATTACKS[name](scene(known, seen), COINS), Coins.from_seed(5).fast())


def test_named_updates_give_the_client_with_the_lowest_loss() -> None:
    known = knowledge()
    seen = rows(known)
    where = scene(known, Gathered(CLIENTS, seen, ids=("d", "c", "b", "a")))
    scores = ATTACKS["named"](where, COINS)
    said = where.outputs(seen[3], known.records[0])
    losses = torch.nn.functional.cross_entropy(said, known.records[1], reduction="none")
    assert torch.allclose(scores[0].float(), -losses, atol=1e-5)


EASY = (
    "algorithm2", "algorithm2-loss", "algorithm2-matched", "algorithm2+prior", "algorithm3", "algorithm3-loss",
    "algorithm3-matched", "algorithm3+prior", "algorithm5-loss", "algorithm5-cumulative", "algorithm5+prior",
)  # fmt: skip


@pytest.mark.parametrize("name", EASY)
def test_a_planted_leak_is_found(name: str) -> None:
    """Each client's model loves one class by one bias, and its shadow set is all of that class."""
    known = replace(
        knowledge(), clients=CLIENTS[:3], records=(torch.zeros(30, FEATURES), torch.arange(3).repeat(10)),
        shadows=labelled([0] * 4, [1] * 4, [2] * 4),
    )  # fmt: skip
    shuffled = sure(known, [2, 0, 1])
    assert torch.equal(guesses(name, known, Gathered(CLIENTS[:3], shuffled)), known.records[1])


def test_ties_are_broken_at_random() -> None:
    got = pick(torch.zeros(4, 8000), Coins.from_seed(9).fast())
    assert int(torch.bincount(got, minlength=4).min()) > 1800
    assert pick(torch.tensor([[0.0], [1.0], [0.5]]), Coins.from_seed(9).fast()).tolist() == [1]
    assert pick(torch.tensor([[0.0, 1.0, 0.5]]), Coins.from_seed(9).fast(), 1).tolist() == [1]


def test_identical_models_tell_nothing() -> None:
    known = knowledge()
    seen = rows(known)[:1].repeat(4, 1)
    scores = ATTACKS["named"](scene(known, Gathered(CLIENTS, seen, ids=CLIENTS)), COINS)
    assert torch.equal(scores, scores[:1].expand_as(scores))


@pytest.mark.parametrize("name", ["named+prior", "algorithm2+prior", "algorithm3+prior", "algorithm5+prior"])
def test_a_posterior_over_identical_models_is_the_prior(name: str) -> None:
    """Nothing in the view tells clients apart."""
    known = replace(knowledge(), shadows=labelled(*HELD))
    seen = Gathered(CLIENTS, rows(known)[:1].repeat(4, 1), ids=CLIENTS if name == "named+prior" else None)
    assert torch.equal(guesses(name, known, seen), guesses("prior", known, None))


def test_a_posterior_whose_models_foretell_nothing_leaves_the_prior() -> None:
    """Biases that lean against every client's own labels get no slope, and the scores are the prior's alone."""
    known = replace(knowledge(), shadows=labelled([0] * 6, [1] * 6, [2] * 6, [0, 1, 2] * 2))
    models = sure(known, [1, 2, 0, 1])
    where = scene(known, Gathered(CLIENTS, models, ids=CLIENTS))
    found = ATTACKS["named+prior"](where, COINS)
    signs = source._signs(named(where, COINS), where)
    slopes, _ = source._calibrated(source._left_out(signs, where))
    assert slopes == (0.0, 0.0)
    # What remains besides is the record's own log-odds: a whole model may remember it.
    own = source._own(
        log_odds(named(where, COINS).outputs(where, known.records[0]), known.records[1]), known.records[1]
    )
    assert torch.allclose(found, prior.label_posterior(known) + own, atol=1e-9)


@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_leak_is_found_although_shadow_sets_are_tiny(seed: int) -> None:
    """Ten clients, ten classes: the biases betray each client's class, two records of a shadow set hardly do."""
    names, draw = tuple("abcdefghij"), Coins.from_seed(seed).fast()

    def labels(client: int, count: int) -> list[int]:
        """Of the client's own class half the time, and of any class otherwise."""
        own = torch.rand(count, generator=draw) < 0.5
        drawn: list[int] = torch.where(own, client, torch.randint(10, (count,), generator=draw)).tolist()
        return drawn

    asked = torch.tensor([labels(client, 40) for client in range(10)]).flatten()
    shadows = labelled(*(labels(client, 2) for client in range(10)))
    records = torch.zeros(400, FEATURES), asked
    known = replace(knowledge(), clients=names, classes=10, records=records, shadows=shadows)
    owners = torch.arange(10).repeat_interleave(40)
    seen = Gathered(names, sure(known, list(range(10)), 1.0), ids=names)
    rate = float((guesses("named+prior", known, seen) == owners).double().mean())
    base = float((guesses("prior", known, None) == owners).double().mean())
    # Whoever knew each client's own class would be right for about 55 % of the records.
    assert rate > 0.45
    assert rate > base + 0.1


def test_the_prior_is_the_share_of_the_label() -> None:
    known = replace(knowledge(), shadows=labelled(*HELD))
    posterior = prior.label_posterior(known).exp()
    assert torch.allclose(posterior.sum(0), torch.ones(40, dtype=torch.float64))
    doubt = best_doubt(HELD)
    for number, label in enumerate(known.records[1].tolist()):
        shares = held_shares(doubt, known.records[1])[:, label]
        assert torch.allclose(posterior[:, number], shares / shares.sum(), atol=1e-6)


def held_shares(doubt: float, labels: Tensor) -> Tensor:
    """By plain loops: shares from counts, the asked labels dealt out to fit both totals, counted in, and again."""
    each = len(labels) / len(HELD)
    asked = [int((labels == label).sum()) for label in range(CLASSES)]
    extra = [[0.0] * CLASSES for _ in HELD]
    for _ in range(31):
        held = [
            [(one.count(c) + more[c] + doubt / CLASSES) / (len(one) + sum(more) + doubt) for c in range(CLASSES)]
            for one, more in zip(HELD, extra, strict=True)
        ]
        table = [list(row) for row in held]
        for _ in range(30):
            columns = [sum(row[c] for row in table) for c in range(CLASSES)]
            table = [[value * asked[c] / columns[c] for c, value in enumerate(row)] for row in table]
            table = [[value * each / sum(row) for value in row] for row in table]
        extra = table
    return torch.tensor(held, dtype=torch.float64)


def test_the_prior_uses_that_all_own_equally_many_of_the_asked() -> None:
    """Two clients are known to have class 0; nearly all records asked about are of it: the third must own some too."""
    known = replace(
        knowledge(), clients=("a", "b", "c"), shadows=labelled([0, 0], [0, 0], [1, 2]),
        records=(torch.zeros(30, FEATURES), torch.tensor([0] * 28 + [1, 2])),
    )  # fmt: skip
    found = prior.settled(
        prior.counts(tuple(y for _, y in known.shadows), CLASSES), torch.full((3, CLASSES), 1 / CLASSES).double(), 1.0,
        known.records[1],
    )  # fmt: skip
    assert float(found[2, 0]) > 0.5
    assert float(found[2, 1]) > float(found[0, 1])


def left_out_likelihood(held: list[list[int]], doubt: float) -> float:
    """One record taken out at a time, and foretold from its client's others."""
    total = 0.0
    for labels in held:
        for at, label in enumerate(labels):
            others = labels[:at] + labels[at + 1 :]
            total += math.log((others.count(label) + doubt / CLASSES) / (len(others) + doubt))
    return total


def best_doubt(held: list[list[int]]) -> float:
    return max(prior.DOUBTS, key=lambda doubt: left_out_likelihood(held, doubt))


EVEN = [[0, 1, 2] * 3, [2, 1, 0] * 3, [1, 0, 2] * 3]
PURE = [[0] * 9, [1] * 9, [2] * 9]


@pytest.mark.parametrize("held", [HELD, EVEN, PURE, [[0, 1], [1, 1], [2, 0, 0]]], ids=["mixed", "even", "pure", "tiny"])
def test_the_priors_doubt_is_left_out_one_by_one(held: list[list[int]]) -> None:
    labels = [torch.tensor(one) for one in held]
    known, even, doubt = prior._counted(labels, CLASSES)
    assert torch.equal(known, prior.counts(labels, CLASSES))
    assert torch.equal(even, torch.full_like(known, 1 / CLASSES))
    assert left_out_likelihood(held, doubt) == pytest.approx(left_out_likelihood(held, best_doubt(held)), abs=1e-9)


def test_clients_that_are_alike_get_much_doubt_and_clients_that_differ_little() -> None:
    assert best_doubt(EVEN) == max(prior.DOUBTS)
    assert best_doubt(PURE) == min(prior.DOUBTS)


def test_what_is_left_out_of_a_posterior_is_one_record_at_a_time() -> None:
    """All records of a class count alike: together the trials are every record, foretold from its client's others."""
    where = scene(replace(knowledge(), shadows=labelled(*HELD)), None)
    signs = (torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64))
    trials = list(source._left_out(signs, where))
    assert len(trials) == CLASSES
    for slopes, doubt in (((0.0, 0.0), 2.0), ((1.0, 0.5), 1.0), ((0.0, 3.0), 20.0)):
        lean = torch.softmax(slopes[0] * signs[0] + slopes[1] * signs[1], 1)
        brute = 0.0
        for client, labels in enumerate(HELD):
            for at, label in enumerate(labels):
                others = labels[:at] + labels[at + 1 :]
                share = (others.count(label) + doubt * float(lean[client, label])) / (len(others) + doubt)
                brute += math.log(share)
        fast = sum(
            float((asked * torch.log(prior.shares(held, source._lean(got, slopes), doubt))).sum())
            for got, held, asked in trials
        )
        assert fast == pytest.approx(brute, abs=1e-9)


def test_folds_foretell_each_record_once_from_models_that_never_saw_it() -> None:
    known = replace(knowledge(), shadows=labelled(*HELD))
    where = scene(known, Gathered(CLIENTS, rows(known)))
    told: list[tuple[int, ...]] = []

    def rebuild(at: AttackContext, coins: Coins) -> Rebuilt:
        told.append(tuple(len(y) for _, y in at.knowledge.shadows))
        return Rebuilt(rows(known))

    trials = list(source._folds(rebuild, where, COINS))
    whole = prior.counts(tuple(y for _, y in known.shadows), CLASSES)
    assert torch.equal(torch.stack([asked for _, _, asked in trials]).sum(0), whole)
    for counted, (_, held, asked) in zip(told, trials, strict=True):
        assert torch.equal(held + asked, whole)
        assert list(counted) == held.sum(1).tolist()


def test_signs_are_the_same_whichever_unit_weights_are_in() -> None:
    """A network ten times as sure has the same signs; and biases that all models share are no sign."""
    known = knowledge()
    for strength, shared in ((1.0, 0.0), (10.0, 0.0), (1.0, 5.0)):
        models = sure(known, [0, 1, 2, 0], strength)
        models[:, -CLASSES] += shared
        where = scene(known, Gathered(CLIENTS, models, ids=CLIENTS))
        signs = source._signs(named(where, COINS), where)
        assert signs[1].argmax(1).tolist() == [0, 1, 2, 0]
        assert float(signs[1].std()) == pytest.approx(1.0)


def test_log_odds_by_hand() -> None:
    said = torch.tensor([[[0.0, math.log(3), 0.0]], [[1000.0, 0.0, 0.0]]])
    got = log_odds(said, torch.tensor([1]))
    assert got.shape == (2, 1)
    assert got[0, 0] == pytest.approx(math.log(3 / 2), abs=1e-6)
    assert got[1, 0] == pytest.approx(-1000.0, abs=1e-3)


def test_an_attack_refuses_a_view_that_it_cannot_read() -> None:
    known = knowledge()
    with pytest.raises(SpecError, match="senders' names"):
        ATTACKS["named"](scene(known, Gathered(CLIENTS, rows(known))), COINS)
    with pytest.raises(SpecError, match="a sum leaves none"):
        ATTACKS["algorithm5"](scene(known, Gathered(CLIENTS, sums=torch.zeros(3))), COINS)
    with pytest.raises(SpecError, match="needs a view"):
        ATTACKS["tuned"](scene(known, None), COINS)


def test_a_record_that_one_model_remembers_stands_out() -> None:
    """Hard for all models but its own client's; the others are alike."""
    odds = torch.zeros(3, 6, dtype=torch.float64)
    odds[:, 4] = torch.tensor([-5.0, 1.0, -5.0])
    own = source._own(odds, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert own[:, 4].argmax() == 1
    assert torch.equal(own[:, :4], torch.zeros(3, 4, dtype=torch.float64))
    assert float(own[1, 4]) == pytest.approx(3**0.5)
