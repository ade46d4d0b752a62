"""A letter's body on its way in: what came with its header, and the pieces that follow.

`read` stops as soon as there are more bytes than the header announced, so that nobody can fill a host's memory.
`service.door` makes an `IncomingBody` for every letter that comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class IncomingBody:
    """A body as far as it has come (`begun`), and the pieces that are still to come."""

    begun: bytes = field(repr=False)
    pieces: AsyncIterator[bytes] = field(repr=False)

    async def read(self, length: int) -> bytes | None:
        """A body of exactly so many bytes, or None."""
        if len(self.begun) > length:
            return None
        if len(self.begun) == length:
            # All of it: nothing may follow.
            return self.begun if await anext(self.pieces, None) is None else None
        body = bytearray(self.begun)
        async for piece in self.pieces:
            if len(body) + len(piece) > length:
                return None
            body += piece
        return bytes(body) if len(body) == length else None

    async def digest(self, head: bytes) -> bytes:
        """The digest of a letter, header and body, that is read again without being held."""
        state = hashlib.sha256(head + self.begun)
        async for piece in self.pieces:
            state.update(piece)
        return state.digest()
