"""A model that several clients compute alike: whom to ask, and what the server takes of what they send.

The server must not see the model in plain coordinates, and may not trust any single client to compute it. Of 2f + 1
clients that are asked, f may be faulty. So the server takes what f + 1 of them send alike: one of these is honest.
Honest ones do send the same bytes, because what they compute is exact. Used for the first model (`first_model`) and for
a model that moves to a new epoch (`move_model`).
"""

from __future__ import annotations

from collections import Counter

from croupier.agree.pbft.views import heads
from croupier.core import canon
from croupier.core.epoch import frame_field, frame_of
from croupier.core.flow import Exchange, Letter, SubFlow, Wait
from croupier.core.update import Model
from croupier.core.wire import Field, Schema
from croupier.errors import ProtocolError


def asked_of(holders: tuple[str, ...], number: int, digest: bytes) -> tuple[str, ...]:
    """Whom to ask: 2f + 1 of those who can, in an order that no client chooses."""
    faulty = (len(holders) - 1) // 3
    return tuple(sorted(heads(tuple(sorted(holders)), number, digest)[: 2 * faulty + 1]))


def model_schema(size: int) -> Schema:
    """A model with its frame."""
    return Schema((Field("model", "<f4", (size,)), frame_field()))


def taken_alike(kind: str, asked: tuple[str, ...], did: str, send: tuple[Letter, ...] = ()) -> SubFlow:
    """The server's part: the model that enough of those who were asked send alike.

    Raises: TooFew when too few send anything; ProtocolError when too few send the same.
    """
    least = len(asked) // 2 + 1
    inbox = yield Exchange(send, Wait(kind, asked, least))
    sent = {canon.digest(dict(letter.body)): letter.body for letter in inbox}
    ((same, count),) = Counter(canon.digest(dict(letter.body)) for letter in inbox).most_common(1)
    frame = frame_of(sent[same]["frame"])
    if count < least or frame is None:
        raise ProtocolError(
            f"of {len(asked)} clients that {did} {count} sent the same, and {least} must; find out which misbehave"
        )
    return Model(sent[same]["model"], frame.pack())
