"""gRPC with our own canonical bytes, and certificates that are pinned in the roster.

Hosts listen; clients only dial out. Five calls, all of plain bytes:

Put      a letter to a host: a header with the attempt's key, then its body in chunks; answered when it is durable
Take     a letter that this host holds for the caller: the header, then the body; held open until there is one
Open     a signed notice, pushed to a host; or fetched by a client, which names the last one that it heard of and, where
         clients agree on something, says what it signed and holds: public facts, no secret, no reason of an abort
End      that the caller has ended an attempt, and whether it ended well
Known    which letters of the caller's this host saw last, so that one that has forgotten them finds out

Who calls is read off the certificate on every call, because a connection outlives a revocation.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from croupier.core.envelope import CHUNK
from croupier.service.member import Member

SERVICE = "croupier.Post"
# What a host answers to a letter: it is durable; come again; it came too late; it is none that could ever be taken.
OK, LATER, CLOSED, REFUSED = b"ok", b"later", b"closed", b"refused"
# What a host answers to somebody who fetches: the attempt ended without such a letter.
ENDED = b"ended"
DOMAIN = ".croupier.internal"
_OPTIONS = [
    ("grpc.max_receive_message_length", CHUNK + 4096),
    ("grpc.max_send_message_length", CHUNK + 4096),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
]


class Door(Protocol):
    """What a host answers; `caller` is the name that the roster has for the certificate, or None for a stranger.

    `member` is who it is now: a later version of the roster may be put in force while connections are open.
    """

    member: Member

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


def _bytes(context: Any) -> bytes:
    """The caller's certificate, as the bytes that the roster pins."""
    pem = context.auth_context().get("x509_pem_cert", [b""])[0]
    return ssl.PEM_cert_to_DER_cert(pem.decode()) if pem else b""


def _credentials(door: Door) -> grpc.ServerCredentials:
    """Certificates as the roster in force has them when a connection is made."""
    shown = door.member

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        if door.member is shown:
            return None
        shown = door.member
        return shown.server_certificates()

    return grpc.dynamic_ssl_server_credentials(shown.server_certificates(), changed, True)


async def listen(door: Door, address: str) -> tuple[grpc.aio.Server, int]:
    """Serve a door at an address; the server, and the port that it got."""

    def who(context: Any) -> str | None:
        return door.member.roster.party_of(_bytes(context))

    async def put(pieces: AsyncIterator[bytes], context: Any) -> bytes:
        return await door.put(who(context), pieces)

    async def take(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for piece in door.take(who(context), request):
            yield piece

    async def opened(request: bytes, context: Any) -> bytes:
        return await door.opened(who(context), request)

    async def ended(request: bytes, context: Any) -> bytes:
        return await door.ended(who(context), request)

    async def known(request: bytes, context: Any) -> bytes:
        return await door.known(who(context))

    handlers = {
        "Put": grpc.stream_unary_rpc_method_handler(put),
        "Take": grpc.unary_stream_rpc_method_handler(take),
        "Open": grpc.unary_unary_rpc_method_handler(opened),
        "End": grpc.unary_unary_rpc_method_handler(ended),
        "Known": grpc.unary_unary_rpc_method_handler(known),
    }
    made = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=8192)
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = made.add_secure_port(address, _credentials(door))
    await made.start()
    return made, port


class Calls:
    """Calls to hosts: each connection trusts the one certificate that the roster has for its host."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._channels: dict[str, grpc.aio.Channel] = {}

    def _channel(self, host: str) -> grpc.aio.Channel:
        if host not in self._channels:
            options = [*_OPTIONS, ("grpc.ssl_target_name_override", host + DOMAIN)]
            credentials = self.member.channel_credentials(host)
            self._channels[host] = grpc.aio.secure_channel(self.member.roster.address(host), credentials, options)
        return self._channels[host]

    async def put(self, host: str, head: bytes, body: bytes, timeout: float) -> bytes:
        """Send a letter, once."""

        async def pieces() -> AsyncIterator[bytes]:
            yield head
            view = memoryview(body)
            for at in range(0, len(body), CHUNK):
                yield bytes(view[at : at + CHUNK])

        return await self._try(self._channel(host).stream_unary(f"/{SERVICE}/Put")(pieces(), timeout=timeout))

    async def take(self, host: str, request: bytes, timeout: float) -> list[bytes]:
        """Fetch a letter, once: nothing when there is none yet."""
        call = self._channel(host).unary_stream(f"/{SERVICE}/Take")(request, timeout=timeout)
        try:
            return [piece async for piece in call]
        except grpc.aio.AioRpcError:
            return []

    async def open(self, host: str, request: bytes, timeout: float) -> bytes:
        """Push a notice to a host, or fetch the server's newest."""
        return await self._try(self._channel(host).unary_unary(f"/{SERVICE}/Open")(request, timeout=timeout))

    async def end(self, host: str, request: bytes, timeout: float) -> bytes:
        """Say that an attempt is over."""
        return await self._try(self._channel(host).unary_unary(f"/{SERVICE}/End")(request, timeout=timeout))

    async def known(self, host: str, timeout: float) -> bytes:
        """Ask which letters of one's own a host saw last."""
        return await self._try(self._channel(host).unary_unary(f"/{SERVICE}/Known")(b"", timeout=timeout))

    async def _try(self, call: Awaitable[bytes]) -> bytes:
        """An answer, or `LATER` where the host cannot be reached."""
        try:
            return await call
        except grpc.aio.AioRpcError:
            return LATER

    async def switch(self, member: Member) -> None:
        """Call under a later version of the roster: hosts with another certificate or address are dialled anew."""
        old, self.member = self.member.roster, member
        kept = {name for name in self._channels if name in member.roster.hosts}
        same = {name for name in kept if old.card(name) == member.roster.card(name)}
        for name in set(self._channels) - same:
            await self._channels.pop(name).close()

    async def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            await channel.close()


Report = Callable[[str, str], None]
