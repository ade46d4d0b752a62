"""What a store does with large steps, such as an update, and with a roster that many parties of a process hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.test_service_guards import opened

from croupier.errors import RosterError
from croupier.service.database import LARGE
from croupier.service.roster import Roster
from croupier.service.store import Store

KEY = b"k" * 32
SECRET = b"an update, bit by bit "
LONG = SECRET * (LARGE // len(SECRET) + 1)


def test_a_large_step_lies_sealed_beside_the_database(tmp_path: Path) -> None:
    store = Store(tmp_path)
    opened(store, KEY)
    store.add_steps(KEY, [(0, "inbox", b"short"), (1, "update", LONG)]).result()
    store.close()
    (body,) = (tmp_path / "bodies").iterdir()
    assert not any(SECRET in path.read_bytes() for path in (body, *tmp_path.glob("store.db*")))
    # A party that starts again sweeps what nobody names, and reads the steps as they were.
    again = Store(tmp_path)
    assert again.steps(KEY) == [("inbox", b"short"), ("update", LONG)]
    again.end(KEY, "done", {})
    assert not list((tmp_path / "bodies").iterdir())
    again.close()


def test_large_steps_of_other_attempts_stay(tmp_path: Path) -> None:
    store, other = Store(tmp_path), b"o" * 32
    for number, key in enumerate((KEY, other)):
        opened(store, key, number)
        store.add_steps(key, [(0, "update", LONG)]).result()
    store.end(KEY, "done", {})
    assert store.steps(other) == [("update", LONG)]
    store.close()


def test_a_roster_is_checked_once_and_named_where_it_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.enrolled import roster

    parsed: list[str] = []
    parse = Roster.parse

    def counted(text: str, where: str = "roster") -> Roster:
        parsed.append(where)
        return parse(text, where)

    text = roster().text()
    monkeypatch.setattr(Roster, "parse", counted)
    for name in ("a", "b"):
        (tmp_path / f"{name}.roster").write_text(text)
    assert Roster.read(tmp_path / "a.roster") is Roster.read(tmp_path / "b.roster")
    assert len(parsed) == 1
    (tmp_path / "b.roster").write_text(text.replace("quorum = ", "quorum = 1"))
    with pytest.raises(RosterError, match=r"b\.roster"):
        Roster.read(tmp_path / "b.roster")
