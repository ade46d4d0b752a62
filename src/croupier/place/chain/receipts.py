"""Who takes part in a mix, agreed on by all servers before anything moves, and signed for every client.

Each server tells the others (and the dealer, or in `proven` the server) whose shares reached it; those who reached all
of them take part. Each then signs for every invited client who takes part and the digest of what that client sent it. A
client that does not find itself in what every server signed ends the round: a server that keeps a client out is seen by
it, and nobody can be shown a smaller crowd than the servers act on. All forms of the chain use it. In `boxes` and
`trusted` only one server hears clients, so that there is nothing to agree on, and it alone signs; in `pairs` the first
two do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.flow import Body, Exchange, Given, Inbox, Letter, SubFlow, Wait, roster_digest
from croupier.core.wire import Field, Schema, attendance, bitmap, chosen
from croupier.errors import IntegrityError, TooFew
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.signatures import signed, verified
from croupier.place.labels import too_few
from croupier.place.placement import Keys, Mechanism

_SIGNATURE = 64
_NOTHING: Body = {}


def schemas(given: Given) -> dict[str, Schema]:
    """Who reached a server, and what it signs for a client."""
    present = attendance(given.roster)
    return {"here": Schema((present,)), "receipt": Schema((present, Field("signature", "|u1", (_SIGNATURE,))))}


def agreed(given: Given, inbox: Inbox, servers: Sequence[str], told: Sequence[str], *, hears: bool = True) -> SubFlow:
    """Who reached all servers, once they told each other; those in `told` hear it too, and answer nothing.

    A server to which no client sends anything (not `hears`) has nobody to leave out.
    """
    others = tuple(name for name in servers if name != given.me)
    here = bitmap(given.roster, tuple(letter.source for letter in inbox) if hears else given.roster)
    letters = tuple(Letter(name, "here", {"present": here}) for name in (*others, *told))
    seen = yield Exchange(letters, Wait("here", others))
    return met(given, (here, *(letter.body["present"] for letter in seen)))


def met(given: Given, heard: Sequence[Tensor]) -> tuple[str, ...]:
    """Who is in every server's list."""
    here = torch.ones(len(given.roster), dtype=torch.uint8)
    for one in heard:
        here = here & one
    return chosen(given.roster, here)


def enough(mechanism: Mechanism, given: Given, present: tuple[str, ...], least: int) -> None:
    """Raises: TooFew when fewer take part than may be mixed."""
    if len(present) >= least:
        return
    missing = tuple(name for name in given.roster if name not in present)
    few = TooFew(
        f"{given.me}: {len(present)} of the {least} needed reached all mix servers; missing {', '.join(missing[:8])}",
        missing,
    )
    raise too_few(mechanism, given, few)


def refuse_copies(inbox: Inbox) -> None:
    """Raises: IntegrityError when two clients sent the same: a copy would mark its row in what comes out."""
    found: dict[bytes, str] = {}
    for letter in inbox:
        if (other := found.setdefault(_digest(letter.body), letter.source)) != letter.source:
            raise IntegrityError(f"{other} and {letter.source} sent the same share: one of them is a copy")


def issued(given: Given, keys: Keys, inbox: Inbox, present: tuple[str, ...]) -> Iterator[Letter]:
    """The letters with a signature for every invited client."""
    bodies = {letter.source: letter.body for letter in inbox}
    here = bitmap(given.roster, present)
    for who in given.roster:
        signature = signed(keys["identity"], _claim(given, given.me, who, here, bodies.get(who, _NOTHING)))
        yield Letter(who, "receipt", {"present": here, "signature": byte_tensor(signature)})


def checked(given: Given, keys: Keys, sent: Mapping[str, Body], least: int) -> SubFlow:
    """A client's wait for what every server signed. Raises: IntegrityError when it is not in it as it should be."""
    inbox = yield Exchange(wait=Wait("receipt", tuple(sent)))
    here = inbox[0].body["present"]
    for letter in inbox:
        claim = _claim(given, letter.source, given.me, letter.body["present"], sent[letter.source])
        if not verified(keys["public"][letter.source], claim, bytes_of(letter.body["signature"])):
            raise IntegrityError(f"{letter.source} did not sign for what this client sent it")
        if not torch.equal(letter.body["present"], here):
            raise IntegrityError(f"{inbox[0].source} and {letter.source} signed for different clients")
    present = chosen(given.roster, here)
    if given.me not in present:
        raise IntegrityError("a client that sent its shares is missing from what the mix servers signed")
    if len(present) < least:
        raise IntegrityError(
            f"the mix servers signed for {len(present)} clients, fewer than the {least} that are mixed"
        )


def _digest(body: Body) -> bytes:
    return canon.digest(dict(body))


def _claim(given: Given, server: str, client: str, present: Tensor, body: Body) -> bytes:
    """What a server signs for a client."""
    head = ("mix receipt", given.run, given.round, given.attempt, roster_digest(given.roster))
    return canon.digest((*head, server, client, present, _digest(body)))
