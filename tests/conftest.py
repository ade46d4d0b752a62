"""Which tests run: those that need real data only where the data folder is named, long ones only when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_left_out: dict[str, int] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot or should not run here, and remember how many, to say so at the end."""
    reasons = {
        "data": "" if os.environ.get("CROUPIER_DATA") else "tests need real data: set CROUPIER_DATA to run them",
        "long": "" if "long" in config.getoption("-m") else "long tests: make test-long runs them",
    }
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        why = next((reason for mark, reason in reasons.items() if reason and item.get_closest_marker(mark)), "")
        (dropped if why else kept).append(item)
        if why:
            _left_out[why] = _left_out.get(why, 0) + 1
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in words what was not run."""
    for why, count in _left_out.items():
        terminalreporter.write_line(f"not run: {count} {why}")


@pytest.fixture
def fresh_modules() -> Iterator[None]:
    """Modules that a test writes are forgotten after it, so that the next may write others of the same names."""
    from croupier.learn import beside

    before = beside.entered()
    yield
    for root in set(beside.entered()) - set(before):
        beside.leave(root)
