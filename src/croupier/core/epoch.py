"""Epochs and frames: in whose coordinates a model or an update lies, as public values without any secret.

An epoch is what one agreement gave a roster: a number, the first round it holds for, and the digest of its secret. A
frame is one round's: which secret order the hidden units lie in. Vectors in different orders must never be added, and
their frames say whether they may. `agree` makes epochs and moves vectors from one to the next, `encode.hidden` sends a
frame beside every update and takes only rows of one frame together, and models keep theirs (`core.update`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.core.flow import roster_digest
from croupier.core.wire import Field
from croupier.errors import ProtocolError, RangeError, WireError

DIGEST = 32
_FRAME = struct.Struct(f"<II{DIGEST}s")


@dataclass(frozen=True)
class Frame:
    """The coordinates of one vector: the epoch's number, the round whose order it lies in, and the secret's digest."""

    number: int
    round: int
    digest: bytes

    def __post_init__(self) -> None:
        if not (0 <= self.number < 1 << 32 and 0 <= self.round < 1 << 32):
            raise RangeError(f"epoch {self.number}, round {self.round}: a frame holds 0 to {2**32 - 1} of each")
        if len(self.digest) != DIGEST:
            raise RangeError(f"a digest of {len(self.digest)} bytes: a frame holds one of {DIGEST}")

    def pack(self) -> bytes:
        """Forty bytes, one form for each frame."""
        return _FRAME.pack(self.number, self.round, self.digest)

    @classmethod
    def unpack(cls, data: bytes) -> Frame:
        """Raises: WireError when these bytes are no frame."""
        if len(data) != _FRAME.size:
            raise WireError(f"a frame has {_FRAME.size} bytes, not {len(data)}")
        return cls(*_FRAME.unpack(data))

    def __str__(self) -> str:
        return f"epoch {self.number}, round {self.round}, digest {self.digest.hex()[:8]}"


def frame_field() -> Field:
    """A frame on the wire; all zeros where coordinates are plain."""
    return Field("frame", "|u1", (_FRAME.size,))


def frame_tensor(frame: bytes) -> Tensor:
    """A frame as it travels."""
    return torch.frombuffer(bytearray(frame or bytes(_FRAME.size)), dtype=torch.uint8)


def frame_of(values: Tensor) -> Frame | None:
    """A frame as it came; None where coordinates are plain."""
    data = bytes(values.tolist())
    return Frame.unpack(data) if any(data) else None


@dataclass(frozen=True)
class Epoch:
    """What one agreement settled: its number, the first and last round it holds for, who agreed, the secret's digest.

    Without a last round it holds until the next.
    """

    number: int
    start: int
    roster: tuple[str, ...]
    digest: bytes
    last: int | None = None

    def __post_init__(self) -> None:
        Frame(self.number, self.start, self.digest)
        if tuple(sorted(set(self.roster))) != self.roster:
            raise RangeError("the roster of an epoch names everybody once, in order")

    def frame(self, number: int, *, kept: bool = False) -> Frame:
        """The frame of a round; with `kept`, the one frame of the whole epoch.

        One order for all rounds is weaker, but lets a server's state (a momentum, say) last from round to round.

        Raises: ProtocolError when the round lies before the epoch, or after it.
        """
        if self.last is not None and number > self.last:
            raise ProtocolError(f"round {number} lies after epoch {self.number}, which ends with round {self.last}")
        if number < self.start:
            raise ProtocolError(f"round {number} lies before epoch {self.number}, which starts with round {self.start}")
        return Frame(self.number, self.start if kept else number, self.digest)

    def same(self, other: Epoch) -> bool:
        """Whether both are the same epoch, whatever roster they name."""
        return (self.number, self.digest) == (other.number, other.digest)

    def covers(self, frame: Frame) -> bool:
        """Whether a frame is one of this epoch's."""
        within = self.start <= frame.round and (self.last is None or frame.round <= self.last)
        return within and (self.number, self.digest) == (frame.number, frame.digest)

    def plain(self) -> dict[str, object]:
        """As plain values, for a memory."""
        return {
            "number": self.number, "start": self.start, "roster": self.roster, "digest": self.digest, "last": self.last,
        }  # fmt: skip

    def follows(self, roster: tuple[str, ...], faulty: int) -> None:
        """Check that this roster may follow this epoch's with so many faulty clients.

        Raises: ProtocolError when it is so different that two new rosters could both claim to be the next.

        Two rosters that each keep more than (n + f) / 2 of the old one share an honest client, which signs once.
        """
        stay, need = len(set(self.roster) & set(roster)), (len(self.roster) + faulty) // 2 + 1
        if stay < need:
            raise ProtocolError(
                f"only {stay} of the {len(self.roster)} clients of epoch {self.number} stay, and {need} must; "
                "change the roster in smaller steps, or start a new run"
            )

    @property
    def bound(self) -> bytes:
        """The digest of the roster."""
        return roster_digest(self.roster)


def disjoint_cohort_chance(enrolled: int, cohort: int) -> float:
    """How often a cohort, drawn anew each round, holds nobody of the one before.

    Then nobody in it knows the order that the model lies in; `encode.hidden_words` says so in the statement.

    Raises: RangeError.
    """
    if not 0 < cohort <= enrolled:
        raise RangeError(f"a cohort of {cohort} out of {enrolled} enrolled clients; invite 1 to {enrolled}")
    return math.comb(enrolled - cohort, cohort) / math.comb(enrolled, cohort)
