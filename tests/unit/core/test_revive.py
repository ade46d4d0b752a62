"""Frozen values through JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from croupier.core.revive import got, plain, put, revived
from croupier.errors import StoreError


@dataclass(frozen=True)
class Leaf:
    number: float
    name: str | None
    pair: tuple[int, float]


@dataclass(frozen=True)
class Tree:
    leaves: tuple[Leaf, ...]
    by: Mapping[int, Mapping[str, float]]
    some: list[Leaf]
    one: Leaf | None = None


TREE = Tree(
    (Leaf(0.1 + 0.2, None, (1, 1.0)), Leaf(-math.inf, "ä", (-2, 1e-300))), {3: {"b": 1.0, "a": 2.0}, 1: {}},
    [Leaf(1 / 3, "", (0, 0.0))], Leaf(math.pi, "x", (7, 5e-324)),
)  # fmt: skip


def test_what_went_through_json_is_the_same() -> None:
    back = revived(Tree, json.loads(json.dumps(plain(TREE))))
    assert back == TREE
    # Tables follow the order that things have.
    assert list(back.by) == [3, 1]
    assert list(back.by[3]) == ["b", "a"]
    assert revived(list[Tree], json.loads(json.dumps(plain([TREE])))) == [TREE]


def test_what_is_of_another_form_is_refused() -> None:
    shelf: dict[str, object] = {}
    put(shelf, "tree", TREE)
    assert got(shelf, "tree", Tree) == TREE
    for kind in (tuple[Leaf, ...], Leaf):
        with pytest.raises(StoreError, match="of another form; remove the folder"):
            got(shelf, "tree", kind)
