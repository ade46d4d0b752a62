"""The letters of one view of PBFT, and what a head must show for its proposal after a change of view.

A head that fails is replaced by the next one, which must carry on whatever may have been decided already. `justified`
is that rule, and the one place where agreement would be lost if it were wrong; tests walk through its cases.

`pbft.replica` speaks by it, and `pbft.agreement` relays by it. `agree.alike` takes `heads` from here, to ask clients
for a model in an order that no client chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.agree.board import SIGNATURE, Note, Turn
from croupier.agree.pbft.votes import Votes, votes_size
from croupier.core import canon
from croupier.mpc.joint import SECRET, Terms, box_size
from croupier.mpc.signatures import verified

BOX = box_size(SECRET)
NONE = bytes(32)
_VIEW = 4
_ORDER = ("change", "propose", "prepare", "commit", "close", "proof")


def heads(roster: tuple[str, ...], number: int, previous: bytes) -> tuple[str, ...]:
    """Who leads the views of an agreement: everybody once, in an order that follows from the last digest.

    No client chooses it; a server that names a false digest can cause delay, and decides nothing. A head drawn anew for
    each view could be the same faulty one again and again.
    """
    return tuple(sorted(roster, key=lambda name: canon.digest(("croupier/1", "head", number, previous, name))))


@dataclass(frozen=True)
class ViewTurns:
    """The turns of a view."""

    number: int
    clients: int

    @property
    def change(self) -> Turn:
        """Everybody tells the new head what it has prepared."""
        return self._turn("change", {"view": _VIEW, "digest": 32, "signature": SIGNATURE, **votes_size(self.clients)})

    @property
    def propose(self) -> Turn:
        """The head's digest, its seed in boxes, and from the second view on the claims it goes by."""
        n = self.clients
        claims = {"claimed": n, "views": n * _VIEW, "digests": n * 32, "claims": n * SIGNATURE, **votes_size(n)}
        return self._turn("propose", {"digest": 32, "signature": SIGNATURE, **(claims if self.number else {})}, BOX)

    @property
    def prepare(self) -> Turn:
        """Everybody's word that the proposal is sound."""
        return self._turn("prepare", {"digest": 32, "signature": SIGNATURE})

    @property
    def commit(self) -> Turn:
        """Everybody's word that a quorum prepared it."""
        return self._turn("commit", {"digest": 32, "signature": SIGNATURE})

    @property
    def close(self) -> Turn:
        """How far everybody got."""
        return self._turn("close", {"state": 1})

    @property
    def proof(self) -> Turn:
        """For those who did not get there: the votes of those who did, and the seed in boxes."""
        return self._turn("proof", {"digest": 32, **votes_size(self.clients)}, BOX)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All of them, in order."""
        first = (self.change,) if self.number else ()
        return (*first, self.propose, self.prepare, self.commit, self.close, self.proof)

    def _turn(self, name: str, fields: Mapping[str, int], box: int = 0) -> Turn:
        step = 1 + len(_ORDER) * self.number + _ORDER.index(name)
        return Turn(f"{name}.{self.number}", fields, {"box": box} if box else {}, step)


@dataclass(frozen=True)
class PreparedClaim:
    """A participant's word for a new view: the last one it prepared a digest in, from 1, or 0; and the digest."""

    view: int
    digest: bytes
    signature: bytes = b""

    @classmethod
    def of(cls, prepared: Votes | None) -> PreparedClaim:
        """What one who prepared this, or nothing, claims."""
        return cls(prepared.view + 1, prepared.digest) if prepared else cls(0, NONE)

    def message(self, terms: Terms, who: str, view: int) -> bytes:
        """What it signs."""
        return terms.label("claim", who, view, self.view, self.digest)

    def true(self, terms: Terms, who: str, view: int, public: Mapping[str, bytes]) -> bool:
        """Whether this is the participant's word for this view, about a view before it."""
        return self.view <= view and verified(public[who], self.message(terms, who, view), self.signature)

    @property
    def votes(self) -> Votes:
        """The statement under which votes must stand for it."""
        return Votes("prepare", self.view - 1, self.digest, {})

    def pack(self) -> dict[str, bytes]:
        """As fields of a note."""
        return {"view": self.view.to_bytes(_VIEW, "little"), "digest": self.digest, "signature": self.signature}

    @classmethod
    def unpack(cls, note: Note) -> PreparedClaim:
        """The claim in a note."""
        return cls(int.from_bytes(note["view"], "little"), note["digest"], note["signature"])


def pack_claims(roster: tuple[str, ...], claims: Mapping[str, PreparedClaim]) -> dict[str, bytes]:
    """Claims as fields of a head's note."""
    rows = [claims[who].pack() if who in claims else None for who in roster]
    sizes = {"view": _VIEW, "digest": 32, "signature": SIGNATURE}
    view, digest, signature = (
        b"".join(row[name] if row else bytes(size) for row in rows) for name, size in sizes.items()
    )
    return {"claimed": bytes(who in claims for who in roster), "views": view, "digests": digest, "claims": signature}


def unpack_claims(roster: tuple[str, ...], note: Note) -> dict[str, PreparedClaim]:
    """The claims in a head's note."""
    found = {}
    for at, who in enumerate(roster):
        if note["claimed"][at]:
            parts = {
                "view": note["views"][at * _VIEW : (at + 1) * _VIEW],
                "digest": note["digests"][at * 32 : (at + 1) * 32],
                "signature": note["claims"][at * SIGNATURE : (at + 1) * SIGNATURE],
            }
            found[who] = PreparedClaim.unpack(parts)
    return found


def justified(
    digest: bytes, view: int, note: Note, terms: Terms, public: Mapping[str, bytes], roster: tuple[str, ...], least: int
) -> int | None:
    """The view (from 1; 0 for none) whose prepared digest a proposal carries on; None when it may not be made.

    Enough participants must have spoken, and the latest digest that any of them prepared must be the proposed one.
    """
    claims = unpack_claims(roster, note)
    if sum(claim.true(terms, who, view, public) for who, claim in claims.items()) < max(least, len(claims)):
        return None
    top = max(claim.view for claim in claims.values())
    if not top:
        return 0
    votes = PreparedClaim(top, digest).votes.unpack(roster, note)
    return top if votes.sound(terms, public, least) else None
