"""Clusters of uploads by their answers to probes, and labels over rounds."""

from __future__ import annotations

import pytest
import torch

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.clusters import Clusters, Labels, grouped, likeness, radius
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.errors import ProtocolError, SpecError

LAYOUT = Layout((Slice("fc.weight", (3, 4)),))


def linear(vector: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """A linear network without bias."""
    return inputs @ vector.reshape(3, 4).T


def desk(*models: Model, seed: int = 0) -> Desk:
    """A server with a linear network."""
    first = models or (Model(torch.zeros(12)),)
    return Desk(first, LAYOUT, Coins.from_seed(seed), answers=linear, inputs=(4,))


def uploads(names: str, rows: list[torch.Tensor]) -> Gathered:
    """One row for each letter."""
    ids = tuple(names)
    return Gathered(ids, torch.stack(rows), weights=torch.ones(len(rows), dtype=torch.float64), ids=ids)


TRUE = torch.arange(12).float()
FLIPPED = TRUE.reshape(3, 4).flip(0).reshape(-1)


def near(centre: torch.Tensor, number: int) -> torch.Tensor:
    """A row that is nearly the centre."""
    return centre + 0.05 * torch.randn(12, generator=torch.Generator().manual_seed(number))


def test_centring_takes_out_what_all_answers_share() -> None:
    answers = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(1)).double()
    shifted = answers.clone()
    shifted[0] += torch.tensor([5.0, -3.0, 1.0])
    shifted[1] += torch.tensor([-9.0, 0.0, 2.0])
    assert torch.allclose(likeness(answers), likeness(shifted))
    assert abs(float(likeness(answers, centred=False)[0, 1] - likeness(shifted, centred=False)[0, 1])) > 0.3


def test_the_radius_follows_the_distances_and_is_bounded() -> None:
    apart = torch.tensor([[0.0, 0.1, 0.9], [0.1, 0.0, 0.9], [0.9, 0.9, 0.0]])
    assert abs(radius(apart, 1.5, 0.1, 0.85) - 0.15) < 1e-6
    assert radius(apart * 0 + 0.8, 1.5, 0.1, 0.85) == 0.85
    assert radius(apart * 0 + 0.01, 1.5, 0.1, 0.85) == 0.1


def test_noise_points_are_clusters_of_their_own_and_copies_one_cluster() -> None:
    apart = torch.tensor([[0.0, 0.0, 0.9], [0.0, 0.0, 0.9], [0.9, 0.9, 0.0]])
    assert grouped(apart, 0.0, 2) == [[0, 1], [2]]
    assert grouped(torch.zeros(1, 1), 0.1, 2) == [[0]]
    assert grouped(torch.ones(3, 3), 0.5, 2) == [[0], [1], [2]]


def test_labels_follow_the_algorithm() -> None:
    first = Labels({}).after([["a", "b"], ["x"]], "dominant")
    assert first == Labels({"a": 0, "b": 0, "x": 1}, 2)
    assert first.after([["a", "c"]], "dominant").of == {"a": 0, "b": 0, "x": 1, "c": 0}
    grown = first.after([["a", "b", "x", "d"]], "dominant")
    assert grown.of == {"a": 0, "b": 0, "x": 0, "d": 0}
    merged = first.after([["a", "x", "d"]], "new")
    # Only who was there moves: the absent b keeps its label.
    assert merged == Labels({"a": 2, "b": 0, "x": 2, "d": 2}, 3)
    assert Labels({"a": 4, "b": 1}, 5).after([["a", "b"]], "dominant").of == {"a": 1, "b": 1}


def test_flipped_uploads_train_apart_and_everybody_gets_their_own_model() -> None:
    rule = Clusters()
    rows = [near(TRUE, 1), near(TRUE, 2), near(FLIPPED, 3), near(TRUE, 4), near(FLIPPED, 5)]
    models, memory = rule(uploads("abxcy", rows), desk(), {})
    assert [model.recipients for model in models] == [("a", "b", "c"), ("x", "y")]
    assert torch.allclose(models[0].vector, torch.stack([rows[0], rows[1], rows[3]]).mean(0), atol=1e-6)
    later, memory = rule(uploads("bd", [near(TRUE, 6), near(TRUE, 7)]), desk(*models, seed=1), memory)
    assert [model.recipients for model in later] == [("a", "b", "c", "d"), ("x", "y")]
    # Nobody of the other cluster came: its model is the one it had.
    assert torch.equal(later[1].vector, models[1].vector)
    assert memory["labels"] == {"a": 0, "b": 0, "c": 0, "d": 0, "x": 1, "y": 1}


def test_median_and_trimmed_mean_within_a_cluster() -> None:
    rows = [near(TRUE, number) for number in range(5)]
    for within, wanted in (
        ("median", torch.stack(rows).median(0).values),
        ("trimmed", torch.stack(rows).sort(0).values[1:-1].mean(0)),
    ):
        (model,), _ = Clusters(within=within, radius=1.9)(uploads("abcde", rows), desk(), {})
        assert torch.allclose(model.vector, wanted, atol=1e-6)


def test_without_names_nothing_is_clustered() -> None:
    nameless = Gathered(("a", "b"), torch.stack([TRUE, TRUE]), weights=torch.ones(2, dtype=torch.float64))
    with pytest.raises(ProtocolError, match="names"):
        Clusters()(nameless, desk(), {})


def test_groups_that_had_one_label_join_or_part() -> None:
    first = Labels(dict.fromkeys("abcde", 0), 1)
    groups = [["e"], ["a", "b"], ["c", "d", "n"]]
    assert first.after(groups, "dominant", "join").of == dict.fromkeys("abcden", 0)
    # Two had it in either of the larger groups: the one with more members keeps it.
    parted = first.after(groups, "dominant", "part")
    assert parted.of == {"a": 2, "b": 2, "c": 0, "d": 0, "e": 1, "n": 0}
    # And who parted comes back with those whom it is found alike again.
    assert parted.after([["a", "c", "d"]], "dominant", "part").of["a"] == 0


def test_a_merged_cluster_starts_from_all_uploads_or_from_those_of_its_own() -> None:
    labels = {"labels": {"a": 0, "b": 0, "x": 1}, "unused": 2}
    models = (Model(TRUE, recipients=("a", "b")), Model(FLIPPED, recipients=("x",)))
    rows = [near(TRUE, number) for number in range(4)]
    for starts, counted in (("uploads", [0, 1, 2, 3]), ("dominant", [0, 1, 3])):
        (model,), _ = Clusters(starts=starts)(uploads("abxn", rows), desk(*models), labels)
        assert torch.allclose(model.vector, torch.stack([rows[at] for at in counted]).mean(0), atol=1e-6)
        assert model.recipients == ("a", "b", "n", "x")
    # A cluster that nobody had before is made of everybody.
    (model,), _ = Clusters(starts="dominant", merge="new")(uploads("abxn", rows), desk(*models), labels)
    assert torch.allclose(model.vector, torch.stack(rows).mean(0), atol=1e-6)


def test_more_copies_than_others_narrow_the_radius_and_leave_the_others_alone() -> None:
    copies = [FLIPPED] * 4
    models, _ = Clusters(least=1e-6)(uploads("wxyzab", [*copies, near(TRUE, 1), near(TRUE, 2)]), desk(), {})
    assert [model.recipients for model in models] == [("w", "x", "y", "z"), ("a",), ("b",)]
    models, _ = Clusters(radius=0.3)(uploads("wxyzab", [*copies, near(TRUE, 1), near(TRUE, 2)]), desk(), {})
    assert [model.recipients for model in models] == [("w", "x", "y", "z"), ("a", "b")]


def test_one_client_is_a_cluster_and_a_cluster_whose_members_all_left_is_gone() -> None:
    (model,), memory = Clusters()(uploads("a", [TRUE]), desk(), {})
    assert model.recipients == ("a",)
    models = (Model(TRUE, recipients=("a",)), Model(FLIPPED, recipients=("x",)))
    rows = [near(TRUE, 1), near(TRUE, 2)]
    (model,), memory = Clusters()(uploads("ax", rows), desk(*models), {"labels": {"a": 0, "x": 1}, "unused": 2})
    assert model.recipients == ("a", "x")
    assert memory["labels"] == {"a": 0, "x": 0}


def test_an_upload_with_hidden_units_in_another_order_answers_alike_and_is_left_alone() -> None:
    draw = torch.Generator().manual_seed(5)
    first, second = torch.randn(8, 4, generator=draw), torch.randn(3, 8, generator=draw)
    order = torch.tensor([3, 0, 1, 2, 7, 4, 5, 6])

    def hidden(vector: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return torch.relu(inputs @ vector[:32].reshape(8, 4).T) @ vector[32:].reshape(3, 8).T

    def flat(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return torch.cat([one.reshape(-1), two.reshape(-1)])

    plain, moved = flat(first, second), flat(first[order], second[:, order])
    layout = Layout((Slice("one", (8, 4)), Slice("two", (3, 8))))
    server = Desk((Model(torch.zeros(56)),), layout, Coins.from_seed(0), answers=hidden, inputs=(4,))
    got = uploads("abc", [plain, plain + 0.01, moved])
    assert torch.allclose(hidden(plain, torch.ones(1, 4)), hidden(moved, torch.ones(1, 4)), atol=1e-5)
    _, memory = Clusters()(got, server, {})
    assert memory["groups"] == (("a", "b"), ("c",))
    _, memory = Clusters(kin=-1)(got, server, {})
    assert memory["groups"] == (("a", "b", "c"),)


def test_a_radius_between_bounds_that_cross_is_refused() -> None:
    with pytest.raises(SpecError, match=r"least = 0\.9, most = 0\.85: .* lower the one or raise the other"):
        Clusters.parse({"use": "clusters", "least": 0.9})
