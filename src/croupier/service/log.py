"""A party's log: one event a line on standard error, as JSON for machines or in plain words on a terminal.

Events are for the party's own operator. They name rounds, parties and reasons; values that could be secret (bytes,
tensors, tables) are not written, whatever tells them. `cli.serve`, `flower.mod` and `flower.station` make a `Log`;
parties know it only as the function `tell` of their `Options`.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from typing import Any, TextIO

_PLAIN = (str, int, float, bool)


class Log:
    """Where events go; called from any thread."""

    def __init__(self, party: str, stream: TextIO | None = None, plain: bool | None = None) -> None:
        self.party, self.stream = party, stream or sys.stderr
        self.plain = self.stream.isatty() if plain is None else plain
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        """Write one event."""
        now = dt.datetime.now(dt.UTC)
        shown = {
            name: value if isinstance(value, _PLAIN) else f"({type(value).__name__})" for name, value in facts.items()
        }
        with self._lock:
            self.stream.write((self._words if self.plain else self._json)(now, event, shown) + "\n")
            self.stream.flush()

    def _json(self, now: dt.datetime, event: str, facts: dict[str, Any]) -> str:
        return json.dumps(
            {"time": now.isoformat(timespec="milliseconds"), "party": self.party, "event": event, **facts}
        )

    def _words(self, now: dt.datetime, event: str, facts: dict[str, Any]) -> str:
        # What others wrote must stay on its line.
        said = " ".join(f"{name}={json.dumps(value)}" for name, value in facts.items())
        return f"{now:%H:%M:%S} {self.party}: {event} {said}".rstrip()
