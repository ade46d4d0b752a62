"""The errors by which Croupier says what is wrong with what it was given, or with what it met.

CroupierError            what was wrong, where, and what to do about it
├── SpecError            a description of a run, or a combination of parts, that cannot work
│   ├── OwnError         a function of the user's own that failed: its file, line and error
│   └── Unsuited         an attack that needs another network or other records; the other attacks run
├── DataError            a dataset that is missing, unreadable or not what it should be
├── RosterError          a card, a key file or a roster that cannot be trusted or used
├── StoreError           a run directory that cannot be written, resumed or trusted
│   └── Replayed         a message that differs from one that left under the same secrets
├── EngineError          processes or machines that train were lost; the run can be resumed
├── WireError            bytes that are not the message they should be
├── RangeError           a value outside what the protocol can carry: NaN, Inf, wrong length, wrong type
├── IntegrityError       proof that somebody changed something
├── PrivacyError         a step that would break a stated privacy condition
│   └── Overspent        a release that would exceed its client's total budget
└── ProtocolError        a party that did not do its part
    ├── TooFew           fewer parties than the quorum; carries who is missing
    └── TooLate          a message that came after its receiver had gone on without it

Each message is one line: what was wrong, where, and what to do about it. `cli` prints that line and ends with status 2
(`accept`, `serve` and `join` have others, too). Whatever else is raised is a fault in Croupier, or a wrong call of it
in Python.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class CroupierError(Exception):
    """The root of everything Croupier raises on purpose."""


class SpecError(CroupierError):
    """A description of a run, or a combination of parts, that cannot work."""


class OwnError(SpecError):
    """A function of the user's own that failed: its file, line and error."""


class Unsuited(SpecError):  # noqa: N818 - reads as what happened
    """An attack that needs another network or other records than these; the other attacks run all the same."""


class DataError(CroupierError):
    """A dataset that is missing, unreadable or not what it should be."""


class RosterError(CroupierError):
    """A card, a key file, a roster or what belongs to it that cannot be trusted or used."""


class StoreError(CroupierError):
    """A run directory that cannot be written, resumed or trusted."""


class Replayed(StoreError):  # noqa: N818 - reads as what happened
    """A message that differs from one that left before under the same secrets: it is not sent."""


class EngineError(CroupierError):
    """Processes or machines that train were lost, and nothing has gone wrong besides: the run can be resumed."""


class WireError(CroupierError):
    """Bytes that are not the message they should be."""


class RangeError(CroupierError):
    """A value outside what the protocol can carry."""


class IntegrityError(CroupierError):
    """Proof that somebody changed something."""


class PrivacyError(CroupierError):
    """A step that would break a stated privacy condition."""


class Overspent(PrivacyError):  # noqa: N818 - reads as what happened
    """A release that would exceed its client's total budget."""


class ProtocolError(CroupierError):
    """A party that did not do its part."""


class CroupierWarning(UserWarning):
    """What a run says that goes on all the same: probably not what was meant, and what to do about it."""


class TooFew(ProtocolError):  # noqa: N818 - reads as what happened
    """Fewer parties than the quorum, who is missing, and what helps."""

    def __init__(
        self,
        message: str,
        missing: Iterable[str],
        remedy: str = "bring the missing back, or lower federation.quorum",
    ) -> None:
        super().__init__(message)
        self.missing = frozenset(missing)
        self.remedy = remedy


class TooLate(ProtocolError):  # noqa: N818 - reads as what happened
    """A message that came after its receiver had gone on without it: nobody's foul play."""


# So many known names are listed.
MANY = 40

# Whether whoever reads an error typed a command or wrote a program: the same option is --out to one, out to the other.
_typed = False


@contextmanager
def at_a_shell() -> Iterator[None]:
    """While this lasts, errors name options as a command line writes them."""
    global _typed
    before, _typed = _typed, True
    try:
        yield
    finally:
        _typed = before


def either(typed: str, python: str) -> str:
    """The one of two ways to say a thing that the reader of an error uses."""
    return typed if _typed else python


def option(name: str, python: str = "") -> str:
    """An option as its reader writes it: `--name` at a shell, `name` in Python, or what Python has instead."""
    return either(f"--{name}", python or name)


def setting(key: str, value: str) -> str:
    """One changed key of a description as its reader writes it."""
    return either(f"--set {key}={value}", f"sets={{{key!r}: {value!r}}}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known name the writer probably meant, as the tail of an error message."""
    names = sorted(known)
    same = [name for name in names if _unpadded(name) == _unpadded(word)]
    if close := same or difflib.get_close_matches(word, names, 1):
        return f"did you mean {close[0]!r}?"
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return f"known: {', '.join(names[:MANY])}{more}" if names else "there are none"


def _unpadded(name: str) -> str:
    """Without the zeros before its numbers: c7 is c07."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name)
