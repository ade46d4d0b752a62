"""What a store keeps of large bodies and for how long, and of a roster that many parties of a process hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.unit.service.test_service_guards import opened

from croupier.errors import RosterError, StoreError
from croupier.service.database import LARGE
from croupier.service.roster import Roster
from croupier.service.store import LeavingLetter, Store, StoredLetter

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


def keys_in(folder: Path) -> list[bytes]:
    """Every key that a store's file has."""
    with closing(sqlite3.connect(folder / "store.db")) as db:
        rows = db.execute("SELECT vault FROM attempts UNION SELECT vault FROM own_keys").fetchall()
    return [row[0] for row in rows if row[0] is not None]


def opens(folder: Path, box: bytes, key: bytes) -> bool:
    """Whether a copy of a body can be read with what the store's file has now."""
    for vault in keys_in(folder):
        try:
            return bool(AESGCM(vault).decrypt(box[:12], box[12:], key))
        except InvalidTag:
            continue
    return False


def bodies_of(store: Store, key: bytes, number: int) -> dict[str, bytes]:
    """An attempt in which something large came, was done and lies ready: copies of the three files."""
    opened(store, key, number)
    found: dict[str, bytes] = {}
    store.keep(key, StoredLetter("c0", "up", b"head", LONG)).result()
    _copy_new(store.folder, found, "came")
    store.add_steps(key, [(0, "update", LONG)]).result()
    _copy_new(store.folder, found, "step")
    store.leave(key, [LeavingLetter("c0", "sum", b"head", LONG, hold=True)]).result()
    _copy_new(store.folder, found, "held")
    return found


def _copy_new(folder: Path, found: dict[str, bytes], name: str) -> None:
    boxes = [path.read_bytes() for path in (folder / "bodies").iterdir()]
    (found[name],) = [box for box in boxes if box not in found.values()]


def test_what_came_and_steps_cannot_be_read_once_their_attempt_has_ended(tmp_path: Path) -> None:
    store = Store(tmp_path)
    copies = bodies_of(store, KEY, 0)
    assert all(opens(tmp_path, box, KEY) for box in copies.values())
    before = keys_in(tmp_path)
    store.end(KEY, "done", {})
    # A disk may keep a deleted file, and so may a backup: the key is what goes.
    assert not any(opens(tmp_path, copies[name], KEY) for name in ("came", "step"))
    erased = set(before) - set(keys_in(tmp_path))
    assert len(erased) == 1
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert not any(one in raw for one in erased)
    # Nor in memory: what the store could open before it cannot any more.
    with pytest.raises(StoreError, match="the secrets of an attempt are gone"):
        store.keep(KEY, StoredLetter("c1", "up", b"head", b"late"))
    store.close()


@pytest.mark.parametrize("how", ["the next attempt ends", "the run is over"])
def test_what_lies_ready_can_be_fetched_until_the_next_end(tmp_path: Path, how: str) -> None:
    store, other = Store(tmp_path), b"o" * 32
    held = bodies_of(store, KEY, 0)["held"]
    store.end(KEY, "done", {})
    ready = store.waiting(KEY, "c0", "sum")
    assert ready is not None
    assert store.opened_body(KEY, ready) == LONG
    opened(store, other, 1)
    assert store.opened_body(KEY, ready) == LONG, "it may be fetched while the next attempt is played"
    store.end(other, "failed", {}) if how == "the next attempt ends" else store.let_go({"over": b"yes"})
    assert store.waiting(KEY, "c0", "sum") is None
    assert not opens(tmp_path, held, KEY)
    assert store.fact("over") == (None if how == "the next attempt ends" else b"yes")
    assert not list((tmp_path / "bodies").iterdir())
    with pytest.raises(StoreError):
        store.opened_body(KEY, ready)
    store.close()


def test_an_attempt_that_holds_nothing_for_others_leaves_no_key(tmp_path: Path) -> None:
    store = Store(tmp_path)
    opened(store, KEY)
    store.keep(KEY, StoredLetter("server", "model", b"head", LONG)).result()
    store.end(KEY, "done", {})
    assert keys_in(tmp_path) == []
    store.close()


def test_a_store_with_one_key_an_attempt_goes_on_and_ends_as_others(tmp_path: Path) -> None:
    """As versions before wrote it: an attempt that lies open, and an ended one whose key was kept."""
    store, ended = Store(tmp_path), b"e" * 32
    for number, key in enumerate((ended, KEY)):
        opened(store, key, number)
    store.close()
    vault, nonce = AESGCM(b"v" * 32), b"n" * 12
    box = nonce + vault.encrypt(nonce, LONG, KEY)
    (tmp_path / "bodies" / "one").write_bytes(box)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db:
        db.execute("DROP TABLE own_keys")
        db.execute("UPDATE attempts SET vault=?", (b"v" * 32,))
        db.execute("UPDATE attempts SET state='done' WHERE key=?", (ended,))
        db.execute("INSERT INTO letters VALUES(?,'c0','up',?,?,?,'one',0)", (KEY, b"digest", b"head", b""))
    store = Store(tmp_path)
    assert [one.body for one in store.letters(KEY)] == [LONG]
    store.end(KEY, "done", {})
    assert keys_in(tmp_path) == []
    assert not opens(tmp_path, box, KEY)
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
