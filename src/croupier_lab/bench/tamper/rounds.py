"""Rounds of a chain in which somebody cheats: what the network can do to packets, and how a round ended.

`chain` and `proven_rounds` share it, so that an escape means the same in all forms of a chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from croupier.core.attempt import AttemptResult
from croupier.core.coins import Choices, Coins
from croupier.core.update import Update
from croupier.encode.encoder import Released
from croupier.engine.failure import alarmed
from croupier.engine.post import Packet
from croupier.errors import CroupierError
from croupier.pipeline import Pipeline
from croupier_lab.bench.tamper.verdicts import Verdict

Carry = Callable[[list[Packet], int, Choices], list[Packet]]


def pick(chance: Choices, limit: int) -> int:
    """A number below the limit."""
    return int(chance.below(limit)[0])


def _flip(mail: list[Packet], at: int, chance: Choices) -> list[Packet]:
    data = bytearray(mail[at].data)
    data[pick(chance, len(data))] ^= 1 << pick(chance, 8)
    return [*mail[:at], replace(mail[at], data=bytes(data)), *mail[at + 1 :]]


def _swap(mail: list[Packet], at: int, chance: Choices) -> list[Packet]:
    other, out = pick(chance, len(mail)), list(mail)
    out[at], out[other] = replace(mail[at], data=mail[other].data), replace(mail[other], data=mail[at].data)
    return out


# What the network does to the packet at a place in the mail, by kind of tampering.
NETWORK: Mapping[str, Carry] = {
    "network flips": _flip,
    "network drops": lambda mail, at, chance: [*mail[:at], *mail[at + 1 :]],
    "network repeats": lambda mail, at, chance: [*mail, mail[at]],
    "network swaps": _swap,
}


class PacketNetwork:
    """A network that alters one packet, whose number is counted over the round."""

    def __init__(self, carry: Carry, at: int, chance: Choices) -> None:
        self.carry, self.at, self.chance, self.seen = carry, at, chance, 0

    def __call__(self, mail: list[Packet]) -> list[Packet]:
        """Carry, with one change."""
        place, self.seen = self.at - self.seen, self.seen + len(mail)
        return self.carry(mail, place, self.chance) if 0 <= place < len(mail) else mail


def verdict(pipeline: Pipeline, updates: Mapping[str, Update], result: AttemptResult) -> Verdict:
    """How a round ended: with an alarm, with the right sum, or with a wrong one."""
    try:
        alarmed(0, tuple(updates), result)
    except CroupierError:
        return "aborted"
    memory = result.outcomes["server"].memory
    if memory is None:
        return "aborted"
    got = memory["gathered"]
    return "harmless" if torch.equal(got.sums, _honest(pipeline, updates, got.present)) else "escapes"


def _honest(pipeline: Pipeline, updates: Mapping[str, Update], present: tuple[str, ...]) -> Tensor:
    """The sum of the clients that are named."""
    encode, layout = pipeline.encode, next(iter(updates.values())).layout
    rows = [encode.encode(updates[name], {}, Coins.from_seed(0)).vector for name in present]
    sums = encode.decode(Released(present, torch.stack(rows), layout=layout), {}).sums
    if sums is None:
        raise AssertionError("bits add up to a sum")
    return sums
