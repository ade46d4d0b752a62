"""Votes: signatures of several participants under one statement, which together prove what a quorum said.

A vote is bound to its attempt, view and phase, so that it cannot be used elsewhere. Votes are handed on as proof: to
those who missed a turn, and in a change of view. `pbft.replica` counts them, `pbft.views` checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from croupier.agree.board import SIGNATURE, Notes
from croupier.mpc.joint import Terms
from croupier.mpc.signatures import verified


def quorum(clients: int, faulty: int) -> int:
    """How many make a quorum: more than (n + f) / 2, so that any two quorums share an honest client."""
    return (clients + faulty) // 2 + 1


@dataclass(frozen=True)
class Votes:
    """Who signed that it prepared, or committed to, a digest in a view."""

    purpose: str
    view: int
    digest: bytes
    signatures: Mapping[str, bytes]

    def message(self, terms: Terms, who: str) -> bytes:
        """What one of them signs."""
        return terms.label(self.purpose, who, self.view, self.digest)

    def sound(self, terms: Terms, public: Mapping[str, bytes], least: int) -> bool:
        """Whether enough of the signatures are valid."""
        good = (verified(public[who], self.message(terms, who), sign) for who, sign in self.signatures.items())
        return sum(good) >= least

    def pack(self, roster: tuple[str, ...]) -> dict[str, bytes]:
        """As fields of a note."""
        none = bytes(SIGNATURE)
        return {
            "held": bytes(who in self.signatures for who in roster),
            "signatures": b"".join(self.signatures.get(who, none) for who in roster),
        }

    def unpack(self, roster: tuple[str, ...], note: Mapping[str, bytes]) -> Votes:
        """The votes for the same statement that a note holds; they may be false."""
        every = note["signatures"]
        cut = {who: every[at * SIGNATURE : (at + 1) * SIGNATURE] for at, who in enumerate(roster)}
        return replace(self, signatures={who: cut[who] for who, bit in zip(roster, note["held"], strict=True) if bit})


def votes_size(clients: int) -> dict[str, int]:
    """The fields of packed votes."""
    return {"held": clients, "signatures": clients * SIGNATURE}


def tallied(
    purpose: str, view: int, notes: Notes, terms: Terms, public: Mapping[str, bytes], least: int
) -> Votes | None:
    """The digest that enough participants signed, with their true signatures; None when there is none."""
    groups: dict[bytes, dict[str, bytes]] = {}
    for who, note in notes.items():
        vote = Votes(purpose, view, note["digest"], {})
        if verified(public[who], vote.message(terms, who), note["signature"]):
            groups.setdefault(note["digest"], {})[who] = note["signature"]
    most = max(groups, key=lambda digest: len(groups[digest]), default=b"")
    return Votes(purpose, view, most, groups[most]) if len(groups.get(most, ())) >= least else None
