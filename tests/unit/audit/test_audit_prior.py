"""The prior is the best view-free attack: labels, or whatever the records of the shadow sets tell besides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from tests.scenes import CLASSES, CLIENTS, FEATURES, draw, knowledge, labelled, rows, scene
from torch import Tensor

from croupier.audit import prior, records
from croupier.audit.attacks import source
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.unshuffle import pick
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import RangeError

COINS = Coins.from_seed(4)
EACH = 40
OWNERS = torch.arange(len(CLIENTS)).repeat_interleave(EACH)


def handwriting(count: int, client: int, name: str, strength: float = 1.0) -> Sample:
    """Records whose labels say nothing, and whose first numbers lie where the client's do."""
    inputs = torch.randn(count, FEATURES, generator=draw(name, client))
    inputs[:, :2] += strength * 3 * torch.tensor([client % 2, client // 2])
    return inputs, torch.arange(count) % CLASSES


def known(strength: float = 1.0, shadow: int = 9) -> Knowledge:
    """Clients that differ by more than labels."""
    asked = [handwriting(EACH, client, "asked", strength) for client in range(len(CLIENTS))]
    shadows = tuple(handwriting(shadow, client, "shadow", strength) for client in range(len(CLIENTS)))
    return replace(
        knowledge(), shadows=shadows, records=(torch.cat([x for x, _ in asked]), torch.cat([y for _, y in asked]))
    )


def success(scores: Tensor) -> float:
    """How often the highest score is the owner's."""
    return float((pick(scores, Coins.from_seed(5).fast()) == OWNERS).double().mean())


def forest(of: Knowledge) -> float:
    """What a random forest on the shadow records names, by scikit-learn alone."""
    inputs, _ = of.pool
    owners = torch.repeat_interleave(torch.arange(len(of.shadows)), torch.tensor([len(y) for _, y in of.shadows]))
    model = RandomForestClassifier(100, random_state=0).fit(inputs.numpy(), owners.numpy())
    return float((model.predict(of.records[0].numpy()) == OWNERS.numpy()).mean())


def test_where_clients_write_differently_the_prior_is_no_lower_than_a_random_forest() -> None:
    of = known()
    found = prior.learn_prior(of, COINS)
    assert success(prior.label_posterior(of)) < 0.4
    assert forest(of) > 0.7
    assert success(found.scores) >= forest(of) - 0.02
    assert "records" in found.carried


def test_where_only_labels_tell_the_prior_is_labels_alone() -> None:
    """The very scores: learners that add nothing add no noise either."""
    of = replace(knowledge(), shadows=labelled([0] * 6, [1] * 6, [2] * 6, [0, 1, 2] * 2))
    found = prior.learn_prior(of, COINS)
    assert found.carried == prior.BY_LABELS
    assert torch.equal(found.scores, prior.label_posterior(of))


@pytest.mark.parametrize("seed", range(8))
def test_where_nothing_tells_no_learner_is_believed(seed: int) -> None:
    """Clients alike in everything: what features good on a few shadow records by luck is not taken for knowledge."""
    of = known(strength=0)
    found = prior.learn_prior(of, Coins.from_seed(seed))
    assert float(torch.softmax(found.scores, 0).amax(0).mean()) < 0.5
    assert success(found.scores) < 0.4


def test_the_choice_looks_at_shadow_sets_alone() -> None:
    of = known()
    inputs, labels = of.records
    other = replace(of, records=(torch.randn(inputs.shape, generator=draw("other")), labels.flip(0)))
    assert prior.learn_prior(of, COINS).carried == prior.learn_prior(other, COINS).carried


def test_probabilities_are_calibrated_enough_to_be_joined() -> None:
    """What it is sure of comes about so often: a prior that is too sure would drown any view."""
    found = prior.learn_prior(known(strength=0.5, shadow=30), COINS)
    sure = torch.softmax(found.scores, 0).amax(0)
    assert float(sure.mean()) == pytest.approx(success(found.scores), abs=0.1)


@pytest.mark.parametrize("name", ["named+prior", "algorithm2+prior", "algorithm3+prior"])
def test_a_joined_attack_joins_this_prior(name: str) -> None:
    """Identical models tell nothing, so the best view-free attack is what remains."""
    of = known()
    seen = Gathered(CLIENTS, rows(of)[:1].repeat(4, 1), ids=CLIENTS if name == "named+prior" else None)
    joined = source.ATTACKS[name](scene(of, seen), COINS)
    alone = source.ATTACKS["prior"](scene(of, None), COINS)
    assert success(alone) > 0.7
    assert torch.equal(joined.argmax(0), alone.argmax(0))


@pytest.mark.parametrize("name", ["named+prior", "algorithm2+prior"])
def test_models_that_tell_nothing_do_not_drown_a_good_prior(name: str) -> None:
    """Their surprise at a record is noise; taken at face value it makes a joined attack lose to its own prior."""
    of = known()
    seen = Gathered(CLIENTS, rows(of), ids=CLIENTS if name == "named+prior" else None)
    joined = success(source.ATTACKS[name](scene(of, seen), COINS))
    assert joined > success(source.ATTACKS["prior"](scene(of, None), COINS)) - 0.05


def test_what_models_remember_counts_as_far_as_it_agrees_with_the_prior() -> None:
    agrees = torch.nn.functional.one_hot(OWNERS).T.double()
    surprise = 1.5 * agrees + torch.randn(agrees.shape, generator=draw("surprise"), dtype=torch.float64)
    assert source._weight(2 * agrees, surprise) > 0.2
    assert source._weight(2 * agrees, torch.randn(agrees.shape, generator=draw("noise")).double()) <= 0.1


def test_the_same_coins_give_the_same_prior() -> None:
    of = known()
    assert torch.equal(prior.learn_prior(of, COINS).scores, prior.learn_prior(of, COINS).scores)


def test_channels_are_summed_up_wherever_things_happen() -> None:
    """A wave at a random place: its numbers lie anywhere, its height does not."""
    wave = torch.zeros(2, 1, 50)
    wave[0, 0, 3:6], wave[1, 0, 40:43] = 1.0, 1.0
    features = records.features(wave)
    assert set(features) == {"records", "summaries of records"}
    first, second = features["summaries of records"](wave)
    assert torch.allclose(first, second)
    assert set(records.features(torch.zeros(2, 7))) == {"records"}


def test_codes_of_words_are_counted() -> None:
    words = torch.tensor([[5, 5, 9], [9, 5, 5]])
    counted = records.features(words)["the words of records"](words)
    assert torch.equal(counted[0], counted[1])
    assert [counted[0, 5].item(), counted[0, 9].item(), counted[0].sum().item()] == [2, 1, 3]


def test_of_many_records_as_many_of_each_client_are_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_RECORDS", 20)
    of = known(shadow=30)
    assert [len(some) for some in records.choose(of.shadows, COINS)] == [5] * 4
    assert next(iter(records.learn(of, COINS))).left_out.shape == (4, 20)
    assert math.isfinite(float(prior.learn_prior(of, COINS).scores.sum()))


def test_very_large_records_are_averaged_down() -> None:
    assert records.values(torch.ones(3, 3, 40, 40)).shape == (3, records.MOST_VALUES)


def test_without_a_prior_there_is_no_verdict() -> None:
    of = known()
    of.shadows[1][0][0, 0] = math.nan
    with pytest.raises(RangeError, match="no prior can be learnt, so no verdict"):
        prior.learn_prior(of, COINS)


def test_a_client_with_one_shadow_record_is_learnt_from_too() -> None:
    of = known()
    shadows = (of.shadows[0], (of.shadows[1][0][:1], of.shadows[1][1][:1]), *of.shadows[2:])
    assert prior.learn_prior(replace(of, shadows=shadows), COINS).scores.isfinite().all()
