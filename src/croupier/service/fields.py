"""Files of the key ceremony: TOML whose every field is checked, read whole and never written over.

Cards, rosters and countersignatures come from other people's machines, so an error names the file, the field, the
value (unless it is secret) and a remedy, and an unknown field is refused. Used by `service.card`, `service.identity`,
`service.roster`, `service.acceptance`, `service.group` and `service.home`; the commands `cli.ceremony` and `cli.enrol`
write new files by it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from croupier.errors import RosterError, StoreError, nearest
from croupier.toml_text import to_toml

# A roster of ten thousand parties has about 12 MB; what is longer is no file of ours.
LONGEST = 64 << 20
_SHOWN = 60


class Fields:
    """The fields of one table, each asked for by its kind; `end` refuses what nobody asked for."""

    def __init__(self, where: str, table: Mapping[str, Any], remedy: str, secret: bool = False) -> None:
        self._where, self._table, self._remedy, self._secret = where, table, remedy, secret
        self._asked: set[str] = set()

    def text(self, key: str) -> str:
        """A text."""
        value = self._take(key)
        if not isinstance(value, str):
            raise self._bad(key, value, "is no text")
        return value

    def whole(self, key: str) -> int:
        """A whole number."""
        value = self._take(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._bad(key, value, "is no whole number")
        return value

    def number(self, key: str) -> float:
        """A number."""
        value = self._take(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                return float(value)
        raise self._bad(key, value, "is no number of ours")

    def raw(self, key: str) -> bytes:
        """Bytes, which are written as small hexadecimal digits."""
        value = self.text(key)
        with suppress(ValueError):
            if (found := bytes.fromhex(value)).hex() == value:
                return found
        raise self._bad(key, value, "is not written as hexadecimal digits")

    def items(self, key: str) -> list[Any]:
        """A list of texts or whole numbers."""
        value = self._take(key)
        if not isinstance(value, list) or not all(isinstance(one, str | int) for one in value):
            raise self._bad(key, value, "is no list of texts or whole numbers")
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        """A table within this one."""
        value = self._take(key)
        if not isinstance(value, Mapping):
            raise self._bad(key, value, "is no table")
        return value

    def fields(self, key: str) -> Fields:
        """A table within this one, field by field."""
        return Fields(f"{self._where}: {key}", self.table(key), self._remedy, self._secret)

    def end(self) -> None:
        """Raises: RosterError when there are fields that nobody asked for."""
        for key in sorted(self._table.keys() - self._asked):
            raise RosterError(f"{self._where}: {key!r:.{_SHOWN}}: unknown field; {nearest(key, self._asked)}")

    def _take(self, key: str) -> Any:
        self._asked.add(key)
        if key not in self._table:
            raise RosterError(f"{self._where}: {key} is missing; {self._remedy}")
        return self._table[key]

    def _bad(self, key: str, value: Any, why: str) -> RosterError:
        shown = "" if self._secret else f" = {value!r:.{_SHOWN}}"
        return RosterError(f"{self._where}: {key}{shown} {why}; {self._remedy}")


def read_table(text: str, where: str, remedy: str) -> Mapping[str, Any]:
    """A file's text as a table. Raises: RosterError."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        # What the parser says could quote a secret. Of numbers with thousands of digits it says ValueError only.
        raise RosterError(f"{where}: is not valid TOML; {remedy}") from None


def write_table(head: str, table: Mapping[str, Any]) -> str:
    """A table as text, below a comment that says what it is."""
    return "".join(f"# {line}\n" for line in head.splitlines()) + "\n" + to_toml(table)


def read_file(path: Path, remedy: str) -> str:
    """A file's text. Raises: StoreError."""
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise StoreError(f"{path}: is longer than {LONGEST >> 20} MiB; {remedy}")
        return data.decode()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{path}: is no UTF-8 text; {remedy}") from None


def write_new(path: Path, text: str, remedy: str, mode: int = 0o644) -> Path:
    """Write a file that is not there yet. Raises: StoreError when it is there, or cannot be written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise StoreError(f"{path}: is there already and is not written over; {remedy}") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
    return path
