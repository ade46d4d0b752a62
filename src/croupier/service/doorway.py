"""What the transport asks of a host: whom it lets shake hands, who calls, and what it answers.

`Door` is an interface, so that `service.transport`, which carries calls, need not know `service.door`, which answers
them. Tests and `bench/services/load` of the laboratory put other doors in its place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import grpc

from croupier.service.member import Member


@dataclass(frozen=True)
class Tls:
    """What a host shows and whom it lets shake hands: its own key and certificate, and all certificates it knows."""

    key: bytes = field(repr=False)
    certificate: bytes
    trusted: bytes

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """As gRPC takes it."""
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.trusted)


Call = Literal["put", "take", "open", "end", "known"]


class Door(Protocol):
    """What a host answers; `caller` is the name that the roster has for the certificate, or None for a stranger.

    `member` is who it is now: a later version of the roster may be put in force while connections are open.
    """

    member: Member

    def tls(self) -> Tls:
        """What it shows now."""

    def caller(self, certificate: bytes, call: Call) -> str | None:
        """Whose certificate it is, for this kind of call."""

    def asked_to_wait(self, caller: str | None) -> bytes:
        """Ask somebody to come again who has too many calls waiting."""

    def failed(self, caller: str | None, error: Exception) -> bytes:
        """Hear that an answer failed here, which the caller is told nothing of."""

    async def put(self, caller: str | None, pieces: AsyncIterator[bytes]) -> bytes:
        """Take a letter in."""

    def take(self, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
        """Hand a letter out."""

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """Take a notice, or hand out the newest."""

    async def ended(self, caller: str | None, request: bytes) -> bytes:
        """Hear that somebody's attempt is over."""

    async def known(self, caller: str | None) -> bytes:
        """Say which letters of the caller's came last."""
