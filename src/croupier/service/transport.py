"""gRPC with our own canonical bytes, and certificates that are pinned in the roster.

Hosts listen; clients only dial out. Five calls, all of plain bytes:

Put      a letter to a host: a header with the attempt's key, then its body in chunks; answered when it is durable
Take     a letter that this host holds for the caller: the header, then the body in chunks; held open until there is
         one, and empty where none comes in time
Open     a signed notice, pushed to a host; or fetched by a client, which names the last one that it heard of. It also
         says how its last round ended, of which group secret it has a copy (a digest) and, where clients agree on
         something, what it signed and holds: public facts, no secret, no reason of an abort
End      that the caller, a host, has ended an attempt, and whether well; to the server also which clients were missing
Known    which letters of the caller's this host saw last, so that one that has forgotten them finds out

A short letter comes in one piece with its header. So a host reads `SHORT_IN` bytes at most before it asks its quotas.

Who calls is read off the certificate on every call, because a connection outlives a revocation. Certificates of later
versions of the roster are served and trusted at the next handshake, without a restart.

`service.start`, `flower.lead` and `flower.rehearse` serve a party's door with `listen`; every party dials with `Calls`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio

from croupier.core.envelope import CHUNK, HEADER_BYTES
from croupier.errors import SpecError
from croupier.service.card import DOMAIN
from croupier.service.doorway import Call, Door
from croupier.service.handshakes import Handshakes
from croupier.service.member import Member, OneVersion, Versions
from croupier.service.quota import HeldCalls

SERVICE = "croupier.Post"
# What a host answers to a letter: it is durable; come again; too late; it is none that could ever be taken.
OK, LATER, CLOSED, REFUSED = b"ok", b"later", b"closed", b"refused"
# What a host answers to somebody who fetches: the attempt ended without such a letter.
ENDED = b"ended"
KEY_BYTES = 32
# Bodies of so many bytes come together with their header: into a host, and out of it.
SHORT_IN, SHORT_OUT = 1 << 14, 1 << 16
_OPTIONS = [
    ("grpc.max_receive_message_length", CHUNK + 4096),
    ("grpc.max_send_message_length", CHUNK + 4096),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # By its name a pause; in fact so long a connection may take to be made, on a slow line or by a busy host.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.enable_retries", 0),
]

# Whether gRPC has run in this process: forks of it would crash or hang.
_RAN = threading.Event()


def has_run() -> bool:
    """Whether this process has listened or dialled."""
    return _RAN.is_set()


def _bytes(context: Any) -> bytes:
    """The caller's certificate, as the bytes that the roster pins."""
    pem = context.auth_context().get("x509_pem_cert", [b""])[0]
    return _der(pem) if pem else b""


@lru_cache(maxsize=1 << 12)
def _der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


async def _told(door: Door, caller: str | None, answer: Awaitable[bytes]) -> bytes:
    """An answer, or that there is none now: gRPC would send an error's text to the caller."""
    try:
        return await answer
    except Exception as error:
        return door.failed(caller, error)


async def _handed(door: Door, caller: str | None, request: bytes) -> AsyncIterator[bytes]:
    """The pieces of a letter; where one fails, what came so far is not whole, and the receiver sees that."""
    try:
        async for piece in door.take(caller, request):
            yield piece
    except Exception as error:
        door.failed(caller, error)


async def listen(
    door: Door, address: str, hands: Handshakes | None = None
) -> tuple[grpc.aio.Server, int]:  # fmt: skip
    """Serve a door at an address; the server, and the port that it got. Raises: SpecError when it is taken.

    hands: hears of handshakes, and of each connection's first call.
    """
    _RAN.set()
    held, shaken = HeldCalls(), hands or Handshakes(lambda count: None)
    shaken.listen()

    def who(context: Any, call: Call) -> str | None:
        shaken.called(context.peer())
        return door.caller(_bytes(context), call)

    async def put(pieces: AsyncIterator[bytes], context: Any) -> bytes:
        caller = who(context, "put")
        with held.one_more(caller) as free:
            return await _told(door, caller, door.put(caller, pieces)) if free else door.asked_to_wait(caller)

    async def take(request: bytes, context: Any) -> AsyncIterator[bytes]:
        caller = who(context, "take")
        with held.one_more(caller) as free:
            if not free:
                door.asked_to_wait(caller)
                yield b""
                return
            async for piece in _handed(door, caller, request):
                yield piece

    def answered(call: Call, answer: Callable[[str | None, bytes], Awaitable[bytes]]) -> Any:
        """How a small request is answered."""

        async def handle(request: bytes, context: Any) -> bytes:
            caller = who(context, call)
            with held.one_more(caller) as free:
                return await _told(door, caller, answer(caller, request)) if free else door.asked_to_wait(caller)

        return grpc.unary_unary_rpc_method_handler(handle)

    handlers = {
        "Put": grpc.stream_unary_rpc_method_handler(put),
        "Take": grpc.unary_stream_rpc_method_handler(take),
        "Open": answered("open", door.opened),
        "End": answered("end", door.ended),
        "Known": answered("known", lambda caller, request: door.known(caller)),
    }
    # Without its own port a host would share another's, and get some of the calls.
    made = grpc.aio.server(options=[*_OPTIONS, ("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=8192)
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        port = made.add_secure_port(address, _credentials(door, shaken))
    except RuntimeError:
        raise SpecError(
            f"{address}: cannot listen there; is another process doing so? name another by --listen"
        ) from None
    await made.start()
    return made, port


def _credentials(door: Door, hands: Handshakes) -> grpc.ServerCredentials:
    """What is asked for at every handshake, so that a new version of the roster holds from the next one on."""
    shown = door.tls()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        hands.begin()
        if (now := door.tls()) == shown:
            return None
        shown = now
        return now.configuration()

    return grpc.dynamic_ssl_server_credentials(shown.configuration(), fetch, require_client_authentication=True)


@dataclass(frozen=True)
class _Line:
    """What a connection rests on; where that changes, it is made anew."""

    address: str
    trusted: bytes
    key: bytes = field(repr=False)
    certificate: bytes

    def dial(self, host: str) -> grpc.aio.Channel:
        _RAN.set()
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", host + DOMAIN)]
        credentials = grpc.ssl_channel_credentials(self.trusted, self.key, self.certificate)
        return grpc.aio.secure_channel(self.address, credentials, options)


class Calls:
    """Calls to hosts: a connection trusts the one certificate that the roster has for its host, but for notices.

    A notice is how a party hears that another version of the roster holds, so that both may be in different versions.
    It is signed and holds no secret: any certificate that an accepted version has for the host will do for it.
    """

    def __init__(self, member: Member, versions: Versions | None = None) -> None:
        self.member, self.versions = member, versions or OneVersion(member)
        self._channels: dict[tuple[str, bool], tuple[_Line, grpc.aio.Channel]] = {}
        self._hanging_up: set[asyncio.Task[None]] = set()

    def _channel(self, host: str, for_notices: bool = False) -> grpc.aio.Channel:
        line = self._line(host, for_notices)
        known = self._channels.get((host, for_notices))
        if known is not None and known[0] == line:
            return known[1]
        if known is not None:
            self._hang_up(known[1])
        self._channels[host, for_notices] = line, line.dial(host)
        return self._channels[host, for_notices][1]

    def _line(self, host: str, for_notices: bool) -> _Line:
        keys, roster = self.member.keyring, self.member.roster
        rosters = self.versions.rosters() if for_notices else (roster,)
        trusted = "".join(dict.fromkeys(one.card(host).certificate for one in rosters if host in one.hosts))
        return _Line(roster.address(host), trusted.encode(), keys.tls_key_pem, keys.tls_cert_pem)

    def _hang_up(self, channel: grpc.aio.Channel) -> None:
        # What is on its way may still arrive.
        task = asyncio.ensure_future(channel.close(grace=5.0))
        self._hanging_up.add(task)
        task.add_done_callback(self._hanging_up.discard)

    async def put(self, host: str, head: bytes, body: bytes, timeout: float) -> bytes:
        """Send a letter, once."""
        if len(body) <= SHORT_IN:
            return await self._try(self._channel(host).unary_unary(f"/{SERVICE}/Put")(head + body, timeout=timeout))

        async def pieces() -> AsyncIterator[bytes]:
            yield head
            view = memoryview(body)
            for at in range(0, len(body), CHUNK):
                yield bytes(view[at : at + CHUNK])

        return await self._try(self._channel(host).stream_unary(f"/{SERVICE}/Put")(pieces(), timeout=timeout))

    async def take(self, host: str, request: bytes, timeout: float, most: int = CHUNK) -> list[bytes]:
        """Fetch a letter of at most so many bytes, once: its header, then its body; nothing when there is none yet."""
        channel, path = self._channel(host), f"/{SERVICE}/Take"
        if most <= HEADER_BYTES + SHORT_OUT:
            said = await self._try(channel.unary_unary(path)(request, timeout=timeout))
            return _parted(said) if said != LATER and len(said) <= most else []
        call = channel.unary_stream(path)(request, timeout=timeout)
        pieces, size = list[bytes](), 0
        try:
            async for piece in call:
                pieces += [piece] if pieces else _parted(piece)
                size += len(piece)
                if size > most:
                    call.cancel()
                    return []
        except grpc.aio.AioRpcError:
            return []
        return pieces

    async def open(self, host: str, request: bytes, timeout: float) -> bytes:
        """Push a notice to a host, or fetch the server's newest."""
        channel = self._channel(host, for_notices=True)
        return await self._try(channel.unary_unary(f"/{SERVICE}/Open")(request, timeout=timeout))

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

    async def close(self) -> None:
        """Hang up."""
        for _, channel in self._channels.values():
            await channel.close()
        await asyncio.gather(*self._hanging_up)


def _parted(piece: bytes) -> list[bytes]:
    """The first piece of an answer: a header, with what came along of the body; a word; or nothing."""
    parts = [piece[:HEADER_BYTES], piece[HEADER_BYTES:]]
    return [part for part in parts if part]
