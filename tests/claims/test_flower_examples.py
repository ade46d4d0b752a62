"""The Flower examples as they stand, in one process: what they learn, beside the same app without the two lines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from croupier.errors import CroupierWarning, SpecError
from croupier.flower import station
from croupier_lab.bench.flower.grid import HereGrid
from croupier_lab.bench.flower.superlink import plain_copy

EXAMPLES = Path(__file__).parents[2] / "examples"


class InMemoryGrid(HereGrid):
    """Called as Flower's own in a simulation is: there, the server makes keys up for everybody."""


@contextmanager
def apps_of(folder: Path) -> Iterator[tuple[Any, Any]]:
    """An example's two apps, imported from its folder."""
    sys.path.insert(0, str(folder))
    try:
        from importlib import import_module

        yield import_module("digitsapp.server_app"), import_module("digitsapp.client_app")
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("digitsapp")]:
            del sys.modules[name]


Play = Callable[..., tuple[str, InMemoryGrid]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Run an example as `flwr run` would; what it printed, and the grid."""
    monkeypatch.setattr(station, "in_simulation", lambda: True)
    monkeypatch.delenv("CROUPIER_KEY", raising=False)

    def run(folder: Path, nodes: int, **config: Any) -> tuple[str, InMemoryGrid]:
        settings = {"num-server-rounds": 2, "fraction-evaluate": 1.0, "local-epochs": 1, "lr": 0.1, **config}
        with apps_of(folder) as (server, client), warnings.catch_warnings():
            warnings.simplefilter("ignore", CroupierWarning)
            parts = {number + 1: {"partition-id": number, "num-partitions": nodes} for number in range(nodes)}
            grid = InMemoryGrid(client.app, parts, settings)
            server.app(grid, Context(1, 0, {}, RecordDict(), settings))
        return capsys.readouterr().out, grid

    return run


def accuracy(said: str) -> float:
    """What the app said at its end."""
    return float(said.partition("accuracy ")[2].split()[0])


def test_two_lines_change_what_is_seen_and_not_what_is_learned(play: Play, tmp_path: Path) -> None:
    protected, grid = play(EXAMPLES / "flower-rns", 3)
    plain, open_grid = play(plain_copy(EXAMPLES / "flower-rns", tmp_path), 3)
    # The encoding is off by a unit of 10^-4 / examples at most; one of 397 test pictures may fall to the other side.
    assert abs(accuracy(protected) - accuracy(plain)) <= 1.5 / 397
    assert accuracy(protected) > 0.8
    replied = [reply.content.array_records for reply in grid.replies]
    assert not any(replied)
    assert sum(bool(reply.content.array_records) for reply in open_grid.replies) == 6


def test_the_example_under_rain_learns(play: Play) -> None:
    said, grid = play(EXAMPLES / "flower-rain", 8, **{"num-server-rounds": 4, "fraction-evaluate": 0.0})
    assert accuracy(said) > 0.3
    assert not any(reply.content.array_records for reply in grid.replies)


def test_the_example_in_tiers_ends_well(play: Play) -> None:
    said, grid = play(EXAMPLES / "flower-intra", 6, **{"fraction-evaluate": 0.0})
    assert 0.0 <= accuracy(said) <= 1.0
    assert not any(reply.has_error() or reply.content.array_records for reply in grid.replies)


def test_the_example_under_tazza_is_refused_with_the_reason(play: Play) -> None:
    with pytest.raises(SpecError, match="one message at a time; run it as services"):
        play(EXAMPLES / "flower-tazza", 4)


def test_the_diff_that_the_example_shows_is_the_diff(tmp_path: Path) -> None:
    plain, shown = plain_copy(EXAMPLES / "flower-rns", tmp_path), (EXAMPLES / "flower-rns" / "README.md").read_text()
    for name in ("client_app.py", "server_app.py"):
        before = (plain / "digitsapp" / name).read_text().splitlines()
        after = (EXAMPLES / "flower-rns" / "digitsapp" / name).read_text().splitlines()
        added = [line for line in after if line not in before]
        assert added
        assert all(f"+{line}" in shown for line in added)
