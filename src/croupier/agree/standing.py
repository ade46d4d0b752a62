"""What a client keeps of agreements, and the two promises that make rules unique: it is honest if it keeps them.

It signs one outcome for a number, whatever the attempt; and once it signed one for a number, it uses none of a lower
one. An agreement also names the first round it holds for, and nobody signs one that would reach back to a round it took
part in. An epoch's outcome needs everybody's signature, and a single round has one number: so no two honest clients of
a roster use different rules in a round.

A client's memory holds its `Standing`: every form of agreement checks and changes it, and `coordinates` takes each
round's rule from it. A conductor and a deployed server see only the `PublicStanding` (`conduct`, `service.attendance`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.core.epoch import Epoch, Frame
from croupier.core.flow import Memory
from croupier.errors import CroupierError, ProtocolError, WireError
from croupier.mpc.joint import rule_digest, rule_seed


@dataclass(frozen=True)
class Standing:
    """The highest number it signed for, the last round it used a rule in, and the epoch it holds with its secret.

    `older` are epochs with their secrets that models may still lie in: they open models, and no update is put under
    their rules.
    """

    signed: int = -1
    used: int = -1
    epoch: Epoch | None = None
    secret: bytes = field(default=b"", repr=False)
    older: tuple[tuple[Epoch, bytes], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, memory: Memory) -> Standing:
        """The standing that a memory holds, or that of somebody new."""
        plain: Mapping[str, Any] = memory.get("standing", {})
        epoch = plain.get("epoch")
        older = tuple((Epoch(**one), secret) for one, secret in plain.get("older", ()))
        return cls(**{**plain, "epoch": Epoch(**epoch) if epoch else None, "older": older})

    def plain(self) -> dict[str, Any]:
        """As plain values, for a memory. It holds the secret: a file of it must be kept like a key."""
        told = self.epoch.plain() if self.epoch else None
        older = tuple((epoch.plain(), secret) for epoch, secret in self.older)
        return {"signed": self.signed, "used": self.used, "epoch": told, "secret": self.secret, "older": older}

    def check(self, number: int, start: int) -> None:
        """Raises: ProtocolError when taking part would break a promise."""
        if number <= self.signed:
            raise ProtocolError(
                f"an outcome for number {self.signed} is signed already, so none is signed for {number}; "
                f"agree under number {self.signed + 1}"
            )
        if start <= self.used:
            raise ProtocolError(
                f"an epoch from round {start} on would reach back to round {self.used}, whose rule was used; start it "
                f"with round {self.used + 1}"
            )

    def signs(self, number: int) -> Standing:
        """The standing that is kept before a signature for this number leaves."""
        return replace(self, signed=number)

    def holds(self, epoch: Epoch, secret: bytes) -> Standing:
        """The standing after an agreement; what was held before still opens models."""
        was = self.epoch
        older = self.older if was is None or was.same(epoch) else (*self.older, (was, self.secret))
        return replace(self, signed=max(self.signed, epoch.number), epoch=epoch, secret=secret, older=older)

    def with_older(self, epoch: Epoch, secret: bytes) -> Standing:
        """The standing after somebody handed on the secret of an epoch that is over."""
        return replace(self, older=(*self.older, (epoch, secret)))

    def forgets(self, live: Collection[Frame]) -> Standing:
        """The standing without the secrets that no model lies under any more: what is not held cannot be told."""
        older = tuple((epoch, secret) for epoch, secret in self.older if any(epoch.covers(frame) for frame in live))
        return replace(self, older=older)

    def behind(self, frame: Frame) -> tuple[Epoch, bytes] | None:
        """The epoch of a frame with its secret, where it is held."""
        held = ((self.epoch, self.secret), *self.older) if self.epoch else self.older
        return next(((epoch, secret) for epoch, secret in held if epoch.covers(frame)), None)

    def rule(self, run: bytes, number: int, *, kept: bool = False) -> tuple[bytes, Frame, Standing]:
        """The seed of a round's rule, its frame, and the standing after its use; with `kept`, one rule for the epoch.

        Raises: ProtocolError when no epoch serves the round: none is held, a later one was signed and not received, a
        later round was used, or the secret is not the epoch's.
        """
        if self.epoch is None:
            raise ProtocolError(f"round {number}: no epoch is held; take part in an agreement, or be welcomed into one")
        if self.epoch.number < self.signed:
            raise ProtocolError(
                f"round {number}: epoch {self.epoch.number} may be over, because an outcome for number {self.signed} "
                "was signed and not received; agree again"
            )
        if number < self.used:
            raise ProtocolError(f"round {number} comes after round {self.used}, whose rule was used")
        frame = self.epoch.frame(number, kept=kept)
        if rule_digest(run, self.epoch.number, self.secret) != self.epoch.digest:
            raise ProtocolError(f"round {number}: the secret held is not that of epoch {self.epoch.number} of this run")
        return rule_seed(run, self.secret, frame.round), frame, replace(self, used=number)

    @property
    def public(self) -> PublicStanding:
        """What others may know of it."""
        return PublicStanding(self.signed, self.epoch, tuple(epoch for epoch, _ in self.older))


@dataclass(frozen=True)
class PublicStanding:
    """What a client tells whoever conducts agreements: what it signed, which epochs it holds. No secret is in it."""

    signed: int = -1
    epoch: Epoch | None = None
    older: tuple[Epoch, ...] = ()

    def behind(self, frame: Frame) -> Epoch | None:
        """The epoch of a frame, where its secret is held."""
        held = (self.epoch, *self.older) if self.epoch else self.older
        return next((epoch for epoch in held if epoch.covers(frame)), None)

    def holds(self, number: int) -> bool:
        """Whether it holds the outcome of a number, and signed none of a higher one."""
        return self.epoch is not None and self.epoch.number == number == self.signed

    def plain(self) -> dict[str, Any]:
        """As plain values, for the server."""
        told = self.epoch.plain() if self.epoch else None
        return {"signed": self.signed, "epoch": told, "older": tuple(epoch.plain() for epoch in self.older)}

    @classmethod
    def read(cls, plain: Any) -> PublicStanding:
        """From plain values that somebody sent. Raises: WireError when they are none."""
        try:
            signed, epoch, older = plain["signed"], plain["epoch"], plain["older"]
            held = None if epoch is None else read_epoch(epoch)
            found = cls(signed, held, tuple(read_epoch(one) for one in older))
        except (KeyError, TypeError):
            raise WireError("values that are no client's standing") from None
        if not isinstance(signed, int) or isinstance(signed, bool) or set(plain) != {"signed", "epoch", "older"}:
            raise WireError("values that are no client's standing")
        return found


def read_epoch(plain: Any) -> Epoch:
    """An epoch from plain values that somebody sent. Raises: WireError when they are none."""
    try:
        found = Epoch(**plain)
        sound = isinstance(found.roster, tuple) and all(isinstance(name, str) for name in found.roster)
        ends = found.last is None or isinstance(found.last, int)
        if sound and ends and isinstance(found.digest, bytes):
            return found
    except (TypeError, CroupierError):
        pass
    raise WireError("values that are no epoch")
