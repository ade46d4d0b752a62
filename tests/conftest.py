"""Which tests run: the tier that was asked for, and tests on real data or a GPU only where there is one."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator

import pytest

from tests.tiers import TIERS, Case, run_as, selected

LATER = "cases that a longer tier runs: make test, make test-long"
NO_DATA = "tests need real data: set CROUPIER_DATA to run them"
NO_GPU = "tests need a GPU, and torch sees none here"
# Lines count as covered when tests of the counted rooms run them (the Makefile names these), and not when only a law or
# a whole command passes by. To watch those too would make the Python in them half again as slow.
WATCHED = tuple(
    f"tests/unit/{room}/"
    for room in (
        "core", "encode", "release", "aggregate", "privacy", "mpc", "agree", "place", "engine", "audit",
    )
)  # fmt: skip
# Seconds of a processor.
WATCHED_SECONDS = 0.2
_left_out: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier`, which the Makefile gives."""
    parser.addoption("--tier", choices=TIERS, default=None, help="fast, test or long; all but long ones when not given")


def pytest_configure(config: pytest.Config) -> None:
    """The tier says how many cases are drawn, too."""
    run_as(config.getoption("--tier"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot or should not run here, and remember how many, to say so at the end."""
    in_tier = selected([_case(item) for item in items], config.getoption("--tier"))
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item, wanted in zip(items, in_tier, strict=True):
        needs_data = item.get_closest_marker("data") and not os.environ.get("CROUPIER_DATA")
        why = LATER if not wanted else NO_DATA if needs_data else NO_GPU if _lacks_gpu(item) else ""
        (dropped if why else kept).append(item)
        if why:
            _left_out[why] += 1
    items[:] = kept
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def _lacks_gpu(item: pytest.Item) -> bool:
    if item.get_closest_marker("cuda") is None:
        return False
    import torch

    return not torch.cuda.is_available()


def _case(item: pytest.Item) -> Case:
    file, _, function = item.nodeid.partition("[")[0].partition("::")
    given = getattr(item, "callspec", None)
    marks = frozenset(mark.name for mark in item.iter_markers())
    return Case(file, function, given.params if given else {}, marks)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in words what was not run."""
    for why, count in _left_out.items():
        terminalreporter.write_line(f"not run: {count} {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where lines are counted (`make test`), they are while tests of the counted rooms run, for their first moments."""
    counting = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if counting is None:
        return (yield)
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            counting.stop()

    if item.nodeid.startswith(WATCHED):
        # Who draws a hundred cases passes the same lines a hundred times, and watched at less than half the pace.
        signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, WATCHED_SECONDS)
    else:
        stop()
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if stopped:
            counting.start()


@pytest.fixture
def fresh_modules() -> Iterator[None]:
    """Modules that a test writes are forgotten after it, so that the next may write others of the same names."""
    from croupier.learn import beside

    before = tuple(beside._ENTERED)
    yield
    for root in set(beside._ENTERED) - set(before):
        beside.leave(root)
