"""How records are dealt to clients: each once, from the coins alone, and as skewed as was asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import DataError, SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.split import Dirichlet, Iid, Natural, QSkew, Split, apportion, even_out

COINS = Coins.from_seed(7)


def toy(labels: list[int], classes: int = 4) -> Dataset:
    y = torch.tensor(labels)
    rows = TensorRecords(torch.zeros(len(labels), 1), y)
    return Dataset("toy", "classify", classes, rows, rows, "none", "made up", labels=y)


def owned(owner: list[int], owners: tuple[str, ...]) -> Dataset:
    rows = TensorRecords(torch.zeros(len(owner), 1), torch.zeros(len(owner), 1))
    return Dataset("owned", "forecast", 0, rows, rows, "none", "made up", owner=torch.tensor(owner), owners=owners)


def check_partition(parts: Mapping[str, Tensor], size: int) -> None:
    assert torch.cat(list(parts.values())).sort().values.tolist() == list(range(size))
    assert list(parts) == sorted(parts)
    for part in parts.values():
        assert part.dtype == torch.int64
        assert bool((part.diff() > 0).all())


labels = st.lists(st.integers(0, 3), min_size=12, max_size=80)


@given(labels, st.integers(1, 12))
def test_iid_deals_every_record_once_and_evenly(marks: list[int], clients: int) -> None:
    parts = Iid(clients=clients)(toy(marks), COINS)
    check_partition(parts, len(marks))
    sizes = [len(part) for part in parts.values()]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


@examples()
@given(labels, st.integers(1, 6), st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e6]), st.integers(1, 2))
def test_dirichlet_deals_every_record_once_and_leaves_nobody_short(
    marks: list[int], clients: int, alpha: float, least: int
) -> None:
    parts = Dirichlet(clients=clients, alpha=alpha, least=least)(toy(marks), COINS)
    check_partition(parts, len(marks))
    assert len(parts) == clients
    assert min(len(part) for part in parts.values()) >= least


def test_splits_follow_the_coins_alone() -> None:
    data = toy([number % 4 for number in range(200)])
    for split in (Iid(), Dirichlet(), QSkew(clients=8)):
        one, same, other = (split(data, Coins.from_seed(seed)) for seed in (1, 1, 2))
        assert all(torch.equal(one[key], same[key]) for key in one)
        assert any(not torch.equal(one[key], other[key]) for key in one)


@examples()
@given(labels, st.integers(4, 6), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 2))
def test_q_skew_deals_every_record_once_and_leaves_nobody_short(
    marks: list[int], clients: int, q: float, least: int
) -> None:
    parts = QSkew(clients=clients, q=q, least=least)(toy(marks), COINS)
    check_partition(parts, len(marks))
    assert len(parts) == clients
    assert min(len(part) for part in parts.values()) >= least


@pytest.mark.parametrize(("q", "clients"), [(0.25, 8), (0.5, 8), (0.9, 8), (1.0, 8), (0.0, 8), (0.5, 10)])
def test_q_is_the_share_of_a_class_that_its_own_group_gets(q: float, clients: int) -> None:
    """And within a group, and among the other groups, nobody is preferred: five deviations of a binomial each."""
    each = 4000
    data = toy([number % 4 for number in range(4 * each)])
    assert data.labels is not None
    counts = np.stack(
        [data.labels[part].bincount(minlength=4).numpy() for part in QSkew(clients=clients, q=q)(data, COINS).values()]
    )
    groups = [client * 4 // clients for client in range(clients)]
    for client, group in enumerate(groups):
        for label in range(4):
            share = (q if label == group else (1 - q) / 3) / groups.count(group)
            assert abs(counts[client, label] - share * each) <= 5 * (each * share * (1 - share)) ** 0.5


def test_q_skew_refuses_what_has_no_groups() -> None:
    with pytest.raises(SpecError, match=r"task\.split\.clients = 3: .* of the 4 classes of 'toy'; use at least 4"):
        QSkew(clients=3)(toy([0, 1, 2, 3] * 5), COINS)
    with pytest.raises(SpecError, match=r"task\.split = 'q-skew': 'owned' has quantities to learn"):
        QSkew(clients=3)(owned([0, 0, 0], ("ann",)), COINS)
    with pytest.raises(SpecError, match=r"too few to give 4 clients 9 each; use at most 5"):
        QSkew(clients=4, least=9)(toy([0, 1, 2, 3] * 5), COINS)


def test_a_large_alpha_is_even_and_a_small_one_is_not() -> None:
    data = toy([number % 4 for number in range(4000)])
    assert data.labels is not None
    even = Dirichlet(alpha=1e6)(data, COINS)
    for part in even.values():
        assert all(abs(count - 100) <= 2 for count in data.labels[part].bincount(minlength=4).tolist())
    odd = Dirichlet(alpha=0.05)(data, COINS)
    assert sum(int(data.labels[part].bincount().max()) / len(part) for part in odd.values()) / 10 > 0.7


@given(st.integers(0, 500), st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_apportion_adds_up_and_is_off_by_less_than_one(size: int, weights: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    counts = apportion(size, shares)
    assert counts.sum() == size
    assert np.abs(counts - shares * size).max() < 1 + 1e-9


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 5))
def test_even_out_keeps_the_sizes_of_the_classes(table: list[list[int]], least: int) -> None:
    counts = np.array(table)
    least = min(least, int(counts.sum()) // 3)
    moved = even_out(counts, least)
    assert (moved.sum(1) == counts.sum(1)).all()
    assert moved.min() >= 0
    assert moved.sum(0).min() >= least


def test_names_sort_as_numbers_do() -> None:
    assert next(iter(Iid(clients=10)(toy([0] * 100), COINS))) == "c0"
    names = list(Iid(clients=100)(toy([0] * 100), COINS))
    assert (names[0], names[9], names[99]) == ("c00", "c09", "c99")


def test_natural_gives_each_owner_its_own() -> None:
    data = owned([1, 0, 1, 2, 0], ("ann", "bob", "cy"))
    parts = Natural()(data, COINS)
    assert {name: part.tolist() for name, part in parts.items()} == {"ann": [1, 4], "bob": [0, 2], "cy": [3]}
    assert list(Natural(clients=2)(data, COINS)) == ["ann", "bob"]


def test_natural_says_what_it_lacks() -> None:
    with pytest.raises(SpecError, match=r"'toy' does not say who owns a record; use task\.split"):
        Natural()(toy([0, 1]), COINS)
    with pytest.raises(SpecError, match=r"split\.clients = 3: 'owned' has 2 owners; use at most that"):
        Natural(clients=3)(owned([0, 1], ("ann", "bob")), COINS)
    with pytest.raises(DataError, match="owner 'cy' of 'owned' has no training record"):
        Natural()(owned([0, 1], ("ann", "bob", "cy")), COINS)


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(SpecError, match=r"split\.clients = 3: 'toy' has 2 .* client 1; use at most 2 clients"):
        Iid(clients=3)(toy([0, 1]), COINS)
    with pytest.raises(SpecError, match=r"split\.least = 4: .* 3 clients 4 each; use at most 3, or fewer"):
        Dirichlet(clients=3, least=4)(toy([0] * 11), COINS)


def test_dirichlet_needs_labels() -> None:
    with pytest.raises(
        SpecError, match=r'has quantities to learn, and no labels .* use task.split = "natural" or "iid"'
    ):
        Dirichlet()(owned([0, 1], ("ann", "bob")), COINS)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"use": "dirichlet", "alpha": 0}, r"split\.alpha = 0: input should be greater than 0"),
        ({"use": "dirichlet", "alpha": -1.5}, r"split\.alpha = -1\.5: input should be greater than 0"),
        ({"use": "dirichlet", "alpha": 1e308}, r"split\.alpha = 1e\+308: input should be less than or equal to"),
        ({"use": "dirichlet", "least": 0}, r"split\.least = 0: input should be greater than 0"),
        ({"use": "iid", "clients": 0}, r"split\.clients = 0: input should be greater than 0"),
        ({"use": "natural", "clients": -1}, r"split\.clients = -1: input should be greater than 0"),
    ],
)
def test_values_out_of_bounds_are_named(spec: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Split.parse(spec, "split")
