"""Jobs and ranges in threads: all of them done once, errors told, nobody left at work."""

from __future__ import annotations

import threading

import pytest

from croupier.kernels import threads


@pytest.fixture(autouse=True, params=[1, 3], ids=["one core", "three cores"])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many, whatever this machine has."""
    monkeypatch.setattr(threads, "cores", lambda: request.param)
    return int(request.param)


def test_every_job_is_done_once() -> None:
    done: list[int] = []
    threads.each([lambda at=at: done.append(at) for at in range(50)])  # type: ignore[misc]
    assert sorted(done) == list(range(50))


def test_a_range_is_covered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FEW", 10)
    parts: list[tuple[int, int]] = []
    threads.over(1000, 7, lambda a, b: parts.append((a, b)))
    assert [a for a, _ in sorted(parts)] == [0, *(b for _, b in sorted(parts))][:-1]
    assert sorted(parts)[-1][1] == 1000
    assert all(a % 7 == 0 for a, _ in parts)


def test_parts_are_worth_a_thread(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many cores there are; an item may stand for many numbers."""
    parts: list[tuple[int, int]] = []

    def cut(count: int, heavy: int = 1) -> list[int]:
        parts.clear()
        threads.over(count, 1, lambda a, b: parts.append((a, b)), heavy)
        return sorted(stop - start for start, stop in parts)

    monkeypatch.setattr(threads, "cores", lambda: 64 if cores > 1 else 1)
    few, least = threads.FEW, threads.FEW // 2
    assert cut(few) == [few]
    assert cut(few + 1) == ([least, least + 1] if cores > 1 else [few + 1])
    assert cut(10 * least) == ([least] * 10 if cores > 1 else [10 * least])
    # A thousand rows of few coordinates.
    assert len(cut(4800, 1000)) == (73 if cores > 1 else 1)
    assert cut(100, 1000) == [100]


def test_work_inside_a_job_stays_in_its_thread(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FEW", 10)
    seen: list[bool] = []

    def inner() -> None:
        me = threading.get_ident()
        threads.over(1000, 1, lambda a, b: seen.append(threading.get_ident() == me))
        threads.each([lambda: seen.append(threading.get_ident() == me)] * 5)

    threads.each([inner, inner])
    assert all(seen)
    # One range each: it was not even cut.
    assert cores == 1 or len(seen) == 12
    # Afterwards work is cut again.
    parts: list[int] = []
    threads.over(1000, 1, lambda a, b: parts.append(a))
    assert cores == 1 or len(parts) > 1


def test_an_error_is_told_and_nobody_is_left_at_work() -> None:
    working = threading.Semaphore(0)
    ended: list[int] = []

    def fails() -> None:
        working.release()
        raise ValueError("no")

    def slow() -> None:
        working.acquire(timeout=5)
        ended.append(1)

    with pytest.raises(ValueError, match="no"):
        threads.each([fails, slow])
    at_the_end = len(ended)
    threads.each([lambda: None] * 4)
    assert len(ended) == at_the_end
