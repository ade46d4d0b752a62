"""The journal of a run: it only grows, survives a crash at any byte, and is missed when it is gone."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from croupier.core.attempt import AttemptId
from croupier.core.envelope import Envelope, Header
from croupier.engine.journal import Journal
from croupier.engine.restart import Restart, in_force
from croupier.errors import Replayed, StoreError
from croupier.privacy.ledger import Event

SPEC, RUN = bytes(range(32)), bytes(16)
EVENT = Event(0, "gaussian", mu=0.3, model="aa").plain()


def attempt_id(number: int = 0, attempt: int = 0) -> AttemptId:
    return AttemptId(SPEC, RUN, number, attempt)


def letter(source: str, body: bytes, number: int = 0, attempt: int = 0) -> Envelope:
    return Envelope(Header(SPEC, RUN, number, attempt, "up", source, "server", 0, len(body)), body)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.begin(tmp_path)


def test_only_its_owner_may_read_it(journal: Journal, tmp_path: Path) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x")])
    for name in ("sent.jsonl", "releases.jsonl"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_the_same_message_may_leave_again_and_is_written_once(journal: Journal, tmp_path: Path) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x"), letter("c1", b"y")])
    before = (tmp_path / "sent.jsonl").read_bytes()
    again = Journal.read(tmp_path)
    again.leave(attempt_id(), [letter("c0", b"x")])
    assert (tmp_path / "sent.jsonl").read_bytes() == before
    with pytest.raises(Replayed) as error:
        again.leave(attempt_id(), [letter("c2", b"new"), letter("c1", b"z")])
    assert str(error.value) == (
        f"{tmp_path}: round 1 had begun when the run stopped, and c1's 'up' to server would now differ from what left "
        "(attempt 1): one secret would cover two messages. Resume with the code, packages and device it began with; "
        "or add --anew: the round is played again under fresh secrets, and what left before stays counted"
    )
    assert (tmp_path / "sent.jsonl").read_bytes() == before, "nothing of a batch leaves when one message may not"
    again.leave(attempt_id(attempt=1), [letter("c1", b"z", attempt=1)])
    again.leave(attempt_id(number=1), [letter("c1", b"z", number=1)])


def test_no_message_is_in_it_in_the_clear(journal: Journal, tmp_path: Path) -> None:
    journal.leave(attempt_id(), [letter("c0", b"a secret")])
    assert b"a secret" not in (tmp_path / "sent.jsonl").read_bytes()


def test_a_release_is_written_once_and_another_is_another(journal: Journal, tmp_path: Path) -> None:
    for event in (EVENT, EVENT, {**EVENT, "participation": 1}):
        journal.release("c0", event)
    Journal.read(tmp_path).release("c0", EVENT)
    lines = [json.loads(line) for line in (tmp_path / "releases.jsonl").read_text().splitlines()]
    assert [(line["client"], line["participation"]) for line in lines] == [("c0", 0), ("c0", 1)]


def test_what_a_crash_cut_short_never_left(journal: Journal, tmp_path: Path) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x")])
    whole = (tmp_path / "sent.jsonl").read_bytes()
    journal.leave(attempt_id(), [letter("c1", b"y")])
    both = (tmp_path / "sent.jsonl").read_bytes()
    for size in range(len(whole), len(both)):
        (tmp_path / "sent.jsonl").write_bytes(both[:size])
        again = Journal.read(tmp_path)
        again.leave(attempt_id(), [letter("c0", b"x")])
        again.leave(attempt_id(), [letter("c1", b"another")])
        assert len((tmp_path / "sent.jsonl").read_bytes().splitlines()) == 2
        again.close()


@pytest.mark.parametrize("name", ["sent.jsonl", "releases.jsonl"])
@pytest.mark.parametrize("line", [b"junk\n", b"3\n", b"{}\n", b"[1]\n", b'{"anew": 3}\n', b'{"letters": []}\n'])
def test_a_damaged_journal_is_said(journal: Journal, tmp_path: Path, name: str, line: bytes) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x")])
    with (tmp_path / name).open("ab") as file:
        file.write(line)
    with pytest.raises(StoreError, match="is damaged: nobody knows what left before; restore it, or start a new run"):
        Journal.read(tmp_path)


@pytest.mark.parametrize("name", ["sent.jsonl", "releases.jsonl"])
def test_a_missing_journal_is_said(journal: Journal, tmp_path: Path, name: str) -> None:
    (tmp_path / name).unlink()
    with pytest.raises(StoreError, match=r"is missing: nobody knows what left before.*restore it, or start a new run"):
        Journal.read(tmp_path)


def test_a_new_run_takes_no_journal_over(journal: Journal, tmp_path: Path) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x")])
    with pytest.raises(StoreError, match="something left under this run's name before; choose another --out"):
        Journal.begin(tmp_path)


def test_a_full_disk_lets_nothing_leave(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.leave(attempt_id(), [letter("c0", b"x")])
    before = (tmp_path / "sent.jsonl").read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\); free space and resume"):
            journal.leave(attempt_id(), [letter("c1", b"y")])
    assert (tmp_path / "sent.jsonl").read_bytes() == before
    journal.leave(attempt_id(), [letter("c1", b"another")])


def test_a_restart_counts_what_had_left(journal: Journal, tmp_path: Path) -> None:
    for number in (0, 1, 2):
        journal.release("c0", {**EVENT, "round": number, "participation": number})
        journal.leave(attempt_id(number), [letter("c0", b"x", number), letter("server", b"m", number)])
    journal.leave(attempt_id(1, 1), [letter("c0", b"x", 1, 1)])
    made = journal.restart(SPEC, 1, ("c0", "c1"))
    assert made.attempts == {1: 2, 2: 1}
    assert made.participations == {"c0": 2}, "the server is no client, and two attempts carry one update"
    assert [event["round"] for event in made.ledgers["c0"]] == [1, 2]
    assert Journal.read(tmp_path).restarts == (made,)
    # A second one from an earlier round takes the first in.
    journal.leave(attempt_id(1, 2), [letter("c0", b"y", 1, 2)])
    earlier = journal.restart(SPEC, 0, ("c0", "c1"))
    assert earlier.participations == {"c0": 4}
    assert earlier.attempts == {0: 1, 1: 3, 2: 1}
    assert Journal.read(tmp_path).restarts == (earlier,)


def test_restarts_of_later_rounds_stay() -> None:
    one, two, three = Restart(1), Restart(4), Restart(2)
    assert in_force([one, two]) == (one, two)
    assert in_force([one, two, three]) == (one, three)
    assert in_force([two, three, one]) == (one,)


def test_memory_holds_one_round_and_the_file_all(journal: Journal) -> None:
    for number in range(6):
        journal.leave(attempt_id(number), [letter(who, b"x", number) for who in ("c0", "c1", "c2")])
    assert len(journal._known) == 3
    # An earlier round is read again, and held to what left.
    journal.leave(attempt_id(2), [letter("c1", b"x", 2)])
    with pytest.raises(Replayed, match="round 3 had begun"):
        journal.leave(attempt_id(2), [letter("c1", b"y", 2)])
    assert journal.rounds_of(SPEC) == {who: set(range(6)) for who in ("c0", "c1", "c2")}
    assert journal.heard_from(("c2", "c9"))
    assert not journal.heard_from(("c9",))
