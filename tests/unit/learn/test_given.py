"""What a function of the user's own may give: owners, a table of clients, quantities, whole inputs; and what not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.errors import DataError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.given import OwnRecords
from croupier.learn.split import Iid, Natural

X, Y = np.arange(18.0).reshape(6, 3) / 18, np.array([0, 1, 0, 1, 0, 1])
X2, Y2 = X[:2], Y[:2]
WHO = np.array(["b", "a", "b", "a", "b", "c"])
COINS = Coins.from_seed(0)


def made(*parts: Any, goal: Any = None) -> Dataset:
    return OwnRecords("mine:data", "yours", goal).dataset(parts[0] if len(parts) == 1 else parts)


def test_a_fifth_array_names_the_owners_and_they_become_the_clients() -> None:
    data = made(X, Y, X2, Y2, WHO)
    assert (data.owners, data.test_owner) == (("a", "b", "c"), None)
    index = Natural()(data, COINS)
    assert {who: rows.tolist() for who, rows in index.items()} == {"a": [1, 3], "b": [0, 2, 4], "c": [5]}
    assert data.tests(index) == {}


def test_a_sixth_array_gives_each_client_a_test_part() -> None:
    data = made(X, Y, X2, Y2, WHO, ["c", "a"])
    tests = data.tests(Natural()(data, COINS))
    assert {who: len(part) for who, part in tests.items()} == {"a": 1, "b": 0, "c": 1}
    assert torch.equal(tests["c"].batch(torch.tensor([0]))[0], torch.tensor(X2[:1]).float())
    assert data.tests(Iid(clients=3)(data, COINS)) == {}, "clients that are no owners have no part of their own"


def test_owners_by_number_are_named_in_their_order() -> None:
    data = made(X, Y, X2, Y2, [10, 2, 10, 2, 10, 7], torch.tensor([2, 7]))
    assert data.owners == ("c02", "c07", "c10")
    assert data.owner is not None
    assert data.owner.tolist() == [2, 0, 2, 0, 2, 1]
    # The same name as a client that drew its records does not make a client the owner.
    named = made(X, Y, X2, Y2, [0, 1, 2, 0, 1, 2], [0, 1])
    assert named.tests(Iid(clients=3)(named, Coins.from_seed(4))) == {}


def test_one_dataset_a_client_is_the_same_as_owners() -> None:
    table = made({"b": (X[:2], Y[:2], X[2:3], Y[2:3]), "a": (X[3:], Y[3:], X[:0], Y[:0])})
    arrays = made(X[[0, 1, 3, 4, 5]], Y[[0, 1, 3, 4, 5]], X[2:3], Y[2:3], list("bbaaa"), ["b"])
    index = Natural()(table, COINS)
    assert {who: table.train.take(rows).digest() for who, rows in index.items()} == {
        who: arrays.train.take(rows).digest() for who, rows in Natural()(arrays, COINS).items()
    }
    assert {who: len(part) for who, part in table.tests(index).items()} == {"a": 0, "b": 1}


def test_floats_are_quantities_and_whole_inputs_stay_whole() -> None:
    data = made(np.arange(12).reshape(6, 2), np.linspace(0, 1, 6), [[3, 99]], [0.5])
    assert (data.goal, data.classes, data.outputs, data.labels) == ("forecast", 0, 1, None)
    assert (data.worded, data.tokens) == (True, 100)
    assert isinstance(data.train, TensorRecords)
    assert (data.train.x.dtype, data.train.y.shape) == (torch.int64, (6, 1))
    assert made(X, np.random.default_rng(0).normal(size=(6, 2)), X2, np.zeros((2, 2))).outputs == 2
    assert made(X, Y, X2, Y2, goal="regress").goal == "forecast"
    assert made(X, Y.astype(float), X2, Y2.astype(float), goal="classify").classes == 2


FLOATS = Y.astype(float)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X, Y, X2, Y2, WHO[:5]), "owner_train has 5 owners for 6 records; give one owner for each record"),
        ((X, Y, X2, Y2, WHO, ["a"]), "owner_test has 1 owners for 2 records"),
        ((X, Y, X2, Y2, WHO, ["a", "d"]), "'d' owns test records and no training record"),
        ((X, Y, X2, Y2, WHO[:, None]), r"owner_train has the shape \(6, 1\)"),
        ((X, Y, X2, Y2, FLOATS), "owner_train names an owner 0.0; give whole numbers from 0, or names of letters"),
        ((X, Y, X2, Y2, -Y), "owner_train names an owner"),
        ((X, Y, X2, Y2, ["St. Mary"] * 6), "names an owner 'St. Mary'; give whole numbers"),
        ((X, Y, X2, Y2, ["../x"] * 6), "names an owner '../x'"),
        ((X, Y, X2, Y2, ["x" * 33] * 6), "32 bytes at most"),
        ((X, Y, X2, Y2, WHO, ["a", "b"], 7), "it gave tuple of 7, not four parts"),
        ({}, "it gave a table without clients"),
        ({"a": (X, Y, X2)}, "of 'a' it gave tuple, not four parts"),
        ({"a": (X[:0], Y[:0], X2, Y2)}, "'a' has no training record; give it some, or leave it out"),
        ({"a": (X, Y, X2, Y2), "b": (X[:, :2], Y, X2, Y2)}, r"x_train of 'b' holds float64 \(2,\) and of 'a'"),
        ({"a": (X, Y, X2, Y2), "b": (X, FLOATS, X2, Y2)}, "y_train of 'b' holds float64"),
        ({"a": (X, Y[:5], X2, Y2)}, "'a' has 6 inputs and 5 targets to train"),
        ((X, FLOATS, X2, Y2), "y_train holds float64, but only 2 whole numbers up to 1; give integers where they are"),
        ((X, FLOATS + 0.5, X2, [0.5, np.nan]), r"y_test holds what is no finite real number \(first at \[1\]\)"),
        (
            (np.where(np.isclose(X, X[4, 1]), np.nan, X), Y, X2, Y2),
            r"x_train holds .* \(first at \[4, 1\]\); clean it first",
        ),
        ((X, FLOATS + 0.5, X2, np.zeros((2, 2))), "1 targets for each record to train and 2 to test"),
        (((X * 18).astype(int), Y, X2, Y2), "x_train holds int64 and x_test float64; give both as floats"),
    ],
)
def test_what_is_wrong_is_named(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=rf"^task\.data\.make = 'mine:data': .*{said}"):
        made(given)


def test_an_own_goal_takes_no_labels_that_are_none() -> None:
    with pytest.raises(DataError, match="y_train holds float64; give whole labels"):
        made(X, FLOATS + 0.5, X2, Y2, goal="classify")
