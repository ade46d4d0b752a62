"""Un-shuffling: fast forms against plain ones, planted permutations, and views that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.scenes import CLASSES, CLIENTS, FEATURES, HIDDEN, knowledge, rows, sample, scene, sure
from torch import Tensor

from croupier.audit import unshuffle
from croupier.audit.context import AttackContext
from croupier.audit.knowledge import Sample
from croupier.audit.unshuffle import ACCURACY, LOSS, Judge, Rebuilt, replaced
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.errors import SpecError

JUDGES = pytest.mark.parametrize("judge", [ACCURACY, LOSS], ids=["accuracy", "loss"])
COINS = Coins.from_seed(1)


def before() -> AttackContext:
    """Four updates in some order."""
    known = knowledge()
    return scene(known, Gathered(CLIENTS, rows(known)))


def plain_algorithm5(where: AttackContext, seen: Tensor, shadow: Sample, judge: Judge) -> list[Tensor]:
    """Algorithm 5 as printed: one whole forward pass for every parameter and candidate."""
    judged = []
    for place in where.places.tolist():
        fits = []
        for candidate in seen[:, place]:
            model = where.joint.clone()
            model[place] = candidate
            fits.append(judge.whole(where.outputs(model, shadow[0]), shadow[1]))
        judged.append(torch.stack(fits))
    return judged


@JUDGES
def test_the_fast_form_judges_as_the_plain_one(judge: Judge) -> None:
    where, seen = before(), rows(knowledge())
    shadow, base = where.knowledge.shadows[0], where.joint
    slow = plain_algorithm5(where, seen, shadow, judge)
    hidden, outputs = where.hidden(base, shadow[0]), where.outputs(base, shadow[0])
    start = float(judge.whole(outputs, shadow[1])) if judge is LOSS else 0.0
    assert len(slow) == CLASSES * (HIDDEN + 1)
    for number, place in enumerate(where.places.tolist()):
        weights = CLASSES * HIDDEN
        own = number // HIDDEN if number < weights else number - weights
        column = hidden[:, number % HIDDEN] if number < weights else torch.ones(len(hidden))
        change = torch.zeros(len(CLIENTS), CLASSES, len(hidden))
        change[:, own] = (seen[:, place] - base[place]).unsqueeze(1) * column
        fast = judge.single(outputs, change, shadow[1])[:, own] + start
        assert fast.tolist() == pytest.approx(slow[number].tolist(), abs=1e-4)


@JUDGES
def test_what_is_chosen_is_the_plain_forms_best_candidate(judge: Judge) -> None:
    """For every parameter and every client; any of several best ones will do."""
    where, seen = before(), rows(knowledge())
    heads = unshuffle.parameters(judge, where, COINS).parts
    for client, shadow in enumerate(where.knowledge.shadows):
        judged = plain_algorithm5(where, seen, shadow, judge)
        for number, place in enumerate(where.places.tolist()):
            (at,) = torch.nonzero(seen[:, place] == heads[client, number])
            assert float(judged[number].max() - judged[number][at]) < 1e-4


@JUDGES
def test_chunks_choose_as_one_feature_at_a_time(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """By loss nothing ties, so random tie-breaks cannot matter; by accuracy the chosen must be equally good."""
    where, seen = before(), rows(knowledge())
    last, shadow = seen[:, where.places], where.knowledge.shadows[1]
    at_once = replaced(where, last, shadow, judge, False, COINS)
    monkeypatch.setattr(unshuffle, "_AT_ONCE", 1)
    singly = replaced(where, last, shadow, judge, False, COINS)
    monkeypatch.setattr(unshuffle, "_AT_ONCE", 2 * len(CLIENTS) * CLASSES * len(shadow[1]))
    in_pairs = replaced(where, last, shadow, judge, False, COINS)
    if judge is LOSS:
        # Where a feature is 0 for the whole shadow set, all candidates tie.
        moves = torch.cat([(where.hidden(where.joint, shadow[0]) != 0).any(0).repeat(CLASSES), torch.ones(CLASSES) > 0])
        assert int(moves.sum()) > CLASSES
        assert torch.equal(at_once[moves], singly[moves])
        assert torch.equal(at_once[moves], in_pairs[moves])
    slow = plain_algorithm5(where, seen, shadow, judge)
    for number, fits in enumerate(slow):
        chosen = [int(torch.nonzero(last[:, number] == out[number])) for out in (at_once, singly, in_pairs)]
        assert all(float(fits.max() - fits[at]) < 1e-4 for at in chosen)


def test_what_is_chosen_is_a_candidate() -> None:
    where, seen = before(), rows(knowledge())
    for cumulative in (False, True):
        out = replaced(where, seen[:, where.places], where.knowledge.shadows[1], LOSS, cumulative, COINS)
        assert bool((out == seen[:, where.places]).any(0).all())


def plain_cumulative(where: AttackContext, seen: Tensor, shadow: Sample) -> Tensor:
    """Replacements kept, feature by feature: the classes of one feature are judged side by side."""
    model, first = where.joint.clone(), int(where.places[0])
    order = [[first + c * HIDDEN + f for c in range(CLASSES)] for f in range(HIDDEN)]
    order.append([first + CLASSES * HIDDEN + c for c in range(CLASSES)])
    for feature in order:
        base = model.clone()
        for place in feature:
            fits = []
            for candidate in seen[:, place]:
                tried = base.clone()
                tried[place] = candidate
                fits.append(LOSS.whole(where.outputs(tried, shadow[0]), shadow[1]))
            model[place] = seen[int(torch.stack(fits).argmax()), place]
    return model[where.places]


def test_cumulative_builds_on_earlier_replacements() -> None:
    where, seen = before(), rows(knowledge())
    shadow = where.knowledge.shadows[2]
    kept = replaced(where, seen[:, where.places], shadow, LOSS, True, COINS)
    alone = replaced(where, seen[:, where.places], shadow, LOSS, False, COINS)
    moves = torch.cat([(where.hidden(where.joint, shadow[0]) != 0).any(0).repeat(CLASSES), torch.ones(CLASSES) > 0])
    assert torch.equal(kept[moves], plain_cumulative(where, seen, shadow)[moves])
    assert not torch.equal(kept[moves], alone[moves])


def test_one_to_one_recovers_a_permutation_that_the_greedy_form_gets_wrong() -> None:
    """One row does best for two clients, though only one of them can have sent it."""
    known = knowledge()
    labels = [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [2, 2, 2, 2, 2]]
    shadows = tuple((torch.zeros(len(held), FEATURES), torch.tensor(held)) for held in labels)
    known = replace(known, clients=CLIENTS[:3], shadows=shadows)
    models = sure(known, [0, 0, 2])
    biases = scene(known, None).places[-CLASSES:]
    # Client 0's own row leans to classes 0 and 1; client 1's to class 0 alone, but so mildly that 0's serves it better.
    models[0, biases] = torch.tensor([3.0, 2.6, 0.0])
    models[1, biases] = torch.tensor([0.8, 0.0, 0.0])
    shuffled = models[torch.tensor([2, 0, 1])]
    where = scene(known, Gathered(known.clients, shuffled))
    suits = unshuffle._suits(where, Rebuilt(shuffled), LOSS)
    matched = unshuffle.models(LOSS, where, COINS, one_to_one=True).parts
    greedy = unshuffle.models(LOSS, where, COINS).parts
    assert torch.equal(matched, models), suits
    assert not torch.equal(greedy, models), suits


def test_layers_assigned_one_to_one_are_all_used_once() -> None:
    where = before()
    heads = unshuffle.layers(LOSS, where, COINS, one_to_one=True).parts
    seen = rows(knowledge())[:, where.places]
    assert sorted(map(tuple, heads.tolist())) == sorted(map(tuple, seen.tolist()))


@JUDGES
def test_models_and_layers_are_chosen_as_by_whole_forward_passes(judge: Judge) -> None:
    where, seen = before(), rows(knowledge())
    joined = where.joint.expand(len(seen), -1).clone()
    joined[:, where.places] = seen[:, where.places]
    for rebuild, whole in ((unshuffle.models, seen), (unshuffle.layers, joined)):
        got = rebuild(judge, where, COINS)
        for client, (inputs, labels) in enumerate(where.knowledge.shadows):
            fits = torch.stack([judge.whole(where.outputs(model, inputs), labels) for model in whole])
            chosen = judge.whole(got.outputs(where, inputs)[client], labels)
            assert float(chosen) == pytest.approx(float(fits.max()), abs=1e-4)


def test_heads_on_a_trunk_say_what_whole_models_say() -> None:
    where, seen = before(), rows(knowledge())
    inputs, _ = sample(7, "inputs")
    joined = where.joint.expand(len(seen), -1).clone()
    joined[:, where.places] = seen[:, where.places]
    heads, whole = Rebuilt(seen[:, where.places], where.joint), Rebuilt(joined)
    assert heads.outputs(where, inputs).shape == (len(seen), 7, CLASSES)
    assert torch.allclose(heads.outputs(where, inputs), whole.outputs(where, inputs), atol=1e-5)
    for biases in (heads.biases(where), whole.biases(where)):
        assert biases is not None
        assert torch.equal(biases, seen[:, -CLASSES:])


def test_named_orders_by_ids() -> None:
    known = knowledge()
    seen = rows(known)
    where = scene(known, Gathered(CLIENTS, seen, ids=("d", "c", "a", "b")))
    assert torch.equal(unshuffle.named(where, COINS).parts, seen[[2, 3, 1, 0]])


@pytest.mark.parametrize("ids", [None, CLIENTS])
def test_named_refuses_what_has_no_names_or_no_rows(ids: tuple[str, ...] | None) -> None:
    known = knowledge()
    seen = Gathered(CLIENTS, rows(known)) if ids is None else Gathered(CLIENTS, sums=rows(known).sum(0), ids=ids)
    for view in (seen, None):
        with pytest.raises(SpecError, match="senders' names"):
            unshuffle.named(scene(known, view), COINS)


@pytest.mark.parametrize("rebuild", [unshuffle.models, unshuffle.layers, unshuffle.parameters])
def test_unshuffling_refuses_sums(rebuild: Callable[..., Rebuilt]) -> None:
    known = knowledge()
    weights = torch.tensor([4.0], dtype=torch.float64)
    for view in (Gathered(CLIENTS, sums=rows(known).sum(0), weights=weights), None):
        with pytest.raises(SpecError, match="a sum leaves none"):
            rebuild(LOSS, scene(known, view), COINS)


def test_the_joint_model_is_the_mean_of_rows_and_of_a_sum() -> None:
    known = knowledge()
    seen = rows(known)
    weights = torch.tensor([4.0], dtype=torch.float64)
    of_rows = scene(known, Gathered(CLIENTS, seen)).joint
    of_sum = scene(known, Gathered(CLIENTS, sums=seen.double().sum(0), weights=weights)).joint
    assert torch.allclose(of_rows, seen.mean(0), atol=1e-6)
    assert torch.allclose(of_sum, of_rows, atol=1e-6)
    with pytest.raises(SpecError, match="needs a view"):
        _ = scene(known, None).joint


def test_tuned_gives_each_client_the_model_trained_on_its_shadow_set() -> None:
    """Each model has moved towards its own labels, and one that diverged leaves the others in their places."""
    known = knowledge()
    shadows = tuple((torch.ones(6, FEATURES), torch.full((6,), label)) for label in (2, 0, 1, 2))
    known = replace(known, shadows=shadows)
    where = scene(known, Gathered(CLIENTS, 0.1 * rows(known)))
    said = unshuffle.tuned(where, COINS).outputs(where, torch.ones(1, FEATURES))[:, 0]
    gain = torch.log_softmax(said, -1) - torch.log_softmax(where.outputs(where.joint, torch.ones(1, FEATURES)), -1)
    assert gain.argmax(1).tolist() == [2, 0, 1, 2]
    broken = ((torch.full((6, FEATURES), 1e30), torch.zeros(6).long()), *shadows[1:])
    left = unshuffle.tuned(where.with_shadows(broken), COINS)
    assert len(left.parts) == len(CLIENTS)
    assert torch.equal(left.parts[0], where.joint)
    assert torch.equal(left.parts[1:], unshuffle.tuned(where, COINS).parts[1:])
