"""A client's part in hidden coordinates: a model that it is handed is put into plain order, its update is permuted.

`encode.hidden` and `agree.move_model` use it; `seed_of` also serves simulations (`agree.epochs`) and the audit's truth
(`audit.permuted_run`). The permuting itself is work (`permute`): it needs the network's symmetries, which whoever
trains has.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from croupier.agree.standing import Standing
from croupier.core.epoch import Frame, frame_of
from croupier.core.flow import Given, SubFlow, Work
from croupier.core.update import Update
from croupier.errors import ProtocolError
from croupier.mpc.joint import rule_seed


def plainly(given: Given, standing: Standing, vector: Tensor, told: Tensor, first: str) -> SubFlow:
    """A model that the server handed out, in plain coordinates.

    Raises: ProtocolError on a frame of another secret, and on none where the clients drew the first model: an upload
    that was trained from a model of the server's own would give the rule away.
    """
    frame = frame_of(told)
    if frame is None:
        if first == "clients":
            raise ProtocolError(
                "a model came in plain coordinates, and the clients drew the first one in theirs "
                "(protocol.encode.first = 'clients'); it is not trained on"
            )
        return vector
    seed = seed_of(standing, given.run, frame)
    plain: Tensor = yield Work("permute", (vector, seed, frame.round, True))
    return plain


def permuted(given: Given, standing: Standing, update: Update, kept: bool) -> SubFlow:
    """An update under the round's rule, with its frame; and the standing after its use."""
    seed, frame, after = standing.rule(given.run, given.round, kept=kept)
    vector: Tensor = yield Work("permute", (update.vector, seed, frame.round, False))
    return replace(update, vector=vector, frame=frame.pack()), after


def shown(given: Given, standing: Standing, record: Tensor, kept: bool) -> SubFlow:
    """A training record as the network under the round's rule takes it. Reveals: its values, in another order."""
    seed, frame, _ = standing.rule(given.run, given.round, kept=kept)
    moved: Tensor = yield Work("permute input", (record, seed, frame.round))
    return moved


def seed_of(standing: Standing, run: bytes, frame: Frame) -> bytes:
    """The seed of the rule behind a frame. Raises: ProtocolError when this client does not hold its secret."""
    held = standing.behind(frame)
    if held is None:
        raise ProtocolError(f"a model came in {frame}, whose secret this client does not hold; it is not opened")
    return rule_seed(run, held[1], frame.round)
