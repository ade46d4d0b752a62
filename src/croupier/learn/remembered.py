"""Training that is not done twice, for audits and papers that compare protocols on the same clients.

`audit.stage`, `audit.attacked_training` and `audit.traits.auxiliary` wrap a task's `fit` in it, and in the laboratory
`attacks.broken_rule`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from croupier.core import canon
from croupier.core.update import Update
from croupier.engine.task import Fits
from croupier.errors import CroupierError


@dataclass
class Remembered:
    """Training that is not done twice: the same start, records and coins give the same update.

    Defences that differ only in what the server sees train alike, and one training then serves them all. `room` is how
    many bytes of updates may still be kept; what does not fit is trained again when it is asked for again.
    """

    fit: Fits
    room: int = 6 << 30
    known: dict[tuple[bytes, str, bytes], Update | CroupierError] = field(default_factory=dict)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        keys = [(hashlib.blake2b(canon.tensor_bytes(job[0])).digest(), job[1], job[2].export()) for job in jobs]
        # All or nothing: which clients train stacked must not depend on what is remembered.
        if all(key in self.known for key in keys):
            return [self.known[key] for key in keys]
        done = self.fit(jobs)
        size = sum(update.vector.nbytes for update in done if isinstance(update, Update))
        if size <= self.room:
            self.room -= size
            self.known.update(zip(keys, done, strict=True))
        return done
