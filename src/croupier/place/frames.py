"""A client's part in hidden coordinates: what it is handed becomes plain, and what it sends does not stay so.

The permuting itself is work (`permute`): it needs the network's symmetries, which whoever trains has.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from croupier.core.epoch import Frame
from croupier.core.flow import Given, SubFlow, Work
from croupier.core.update import Update
from croupier.encode.hidden import frame_of
from croupier.errors import ProtocolError
from croupier.mpc.joint import rule_seed
from croupier.place.placement import Keys
from croupier.place.standing import Standing


def plainly(given: Given, keys: Keys, vector: Tensor, told: Tensor) -> SubFlow:
    """A model that the server handed out, in plain coordinates. Raises: ProtocolError on a frame of another secret."""
    frame = frame_of(told)
    if frame is None:
        return vector
    seed = seed_of(Standing.of(keys), given.run, frame)
    plain: Tensor = yield Work("permute", (vector, seed, frame.round, True))
    return plain


def permuted(given: Given, keys: Keys, update: Update, kept: bool) -> SubFlow:
    """An update under the round's rule, with its frame."""
    seed, frame, _ = Standing.of(keys).rule(given.run, given.round, kept=kept)
    vector: Tensor = yield Work("permute", (update.vector, seed, frame.round, False))
    return replace(update, vector=vector, frame=frame.pack())


def seed_of(standing: Standing, run: bytes, frame: Frame) -> bytes:
    """The seed of the rule behind a frame. Raises: ProtocolError when this client does not hold its secret."""
    epoch = standing.epoch
    if epoch is None or (epoch.number, epoch.digest) != (frame.number, frame.digest) or frame.round < epoch.start:
        raise ProtocolError(f"a model came in {frame}, whose secret this client does not hold; it is not opened")
    return rule_seed(run, standing.secret, frame.round)
