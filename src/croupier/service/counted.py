"""Answers of a party that give nothing: refused, asked to come again, failed. All are counted.

The operator is told of refusals and failures; callers are never told why, because a stranger could learn from it. The
party's door (`service.door`) derives from `CountedAnswers`.
"""

from __future__ import annotations

from collections import Counter

from croupier.service.options import Options
from croupier.service.transport import LATER, REFUSED


class CountedAnswers:
    """The answers that a door gives whatever it is asked, with their counts."""

    counts: Counter[str]
    options: Options

    def asked_to_wait(self, caller: str | None) -> bytes:
        """Ask somebody to come again."""
        self.counts["asked to wait"] += 1
        return LATER

    def failed(self, caller: str | None, error: Exception) -> bytes:
        """An answer failed here: its operator hears why, the caller only that it may come again."""
        self.counts["calls failed"] += 1
        self.options.tell("call failed", source=caller or "a stranger", why=f"{type(error).__name__}: {error}")
        return LATER

    def _refuse(self, caller: str | None, why: str) -> bytes:
        self.counts["refused"] += 1
        self.options.tell("refused", source=caller or "a stranger", why=why)
        return REFUSED
