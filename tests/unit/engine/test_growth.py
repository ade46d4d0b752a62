"""A round grows by its clients: names are looked up, and never searched for among all of them by each of them."""

from __future__ import annotations

from typing import ClassVar

import pytest
from tests.laws.toy import task

from croupier.core.coins import Coins
from croupier.core.flow import roster_digest
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.pipeline import Direct, Floats, Pipeline, Relay, Rows, Shuffle


class Name(str):
    """A name that counts how often it is hashed or compared."""

    asked: ClassVar[int] = 0

    def __hash__(self) -> int:
        Name.asked += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Name.asked += 1
        return super().__eq__(other)


def asked(pipeline: Pipeline, count: int) -> int:
    """How often names are asked for in two rounds."""
    clients = tuple(Name(f"c{number:04}") for number in range(count))
    Name.asked = 0
    assert len(list(rounds(pipeline, task(clients), Federation(rounds=2), Coins.from_seed(3), Local()))) == 2
    return Name.asked


@pytest.mark.parametrize(
    "pipeline",
    [
        Pipeline(encode=Floats(weights="open"), release=Rows(), place=Direct()),
        Pipeline(release=Shuffle(grain="model"), place=Relay()),
    ],
    ids=["direct", "relay"],
)
def test_twice_the_clients_are_asked_for_twice_as_often(pipeline: Pipeline) -> None:
    few, many = asked(pipeline, 40), asked(pipeline, 160)
    assert many < 4.5 * few, "four times the clients: sixteen times where each is searched for among all"


def test_a_search_is_seen() -> None:
    """The planted fault: one look through the roster for each client."""
    clients = tuple(Name(f"c{number:04}") for number in range(160))
    Name.asked = 0
    assert all(clients.index(Name(name)) >= 0 for name in clients)
    assert Name.asked > 160 * 40


def test_a_rosters_digest_is_known_by_identity() -> None:
    clients = tuple(Name(f"c{number:04}") for number in range(50))
    first = roster_digest(clients)
    Name.asked = 0
    assert roster_digest(clients) == first
    assert Name.asked == 0
    assert roster_digest(tuple(map(str, clients))) == first
    assert roster_digest(clients[:-1]) != first
