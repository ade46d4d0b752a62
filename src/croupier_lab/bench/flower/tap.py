"""What a SuperLink stores and relays, as bytes: a listener between it and its nodes, and copies of its database.

Nodes dial the tap, which keeps every byte of both directions and hands it on. The database's files are read again and
again while the run lasts, because a message is deleted once it was fetched. `superlink` opens one where it is asked to,
and tests look in these bytes for updates (`traces`).
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

# Bytes that are read at a time, and seconds between two looks at the files.
_PIECE = 1 << 16
_LOOK = 0.2
# Files are kept in blocks, equal ones once; they overlap by the longest window of `traces`, so that none is cut in two.
_BLOCK, _OVERLAP = 1 << 12, 16


class Tap:
    """Everything that passed on its way to a port of this machine, and what a folder's files held at each look."""

    def __init__(self, target: int, folder: Path) -> None:
        self.target, self.folder = target, folder
        self._over = threading.Event()
        self._lock, self._lines, self._copies = threading.Lock(), list[bytearray](), dict[bytes, bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        for work in (self._accept, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def relayed(self) -> bytes:
        """Each connection's bytes of either direction, in one piece."""
        with self._lock:
            return b"\n".join(bytes(line) for line in self._lines)

    def stored(self) -> bytes:
        """Every block in every state in which the files were seen."""
        self._look()
        with self._lock:
            return b"\n".join(self._copies.values())

    def close(self) -> None:
        """Close all connections and stop looking at files."""
        self._over.set()
        for end in (self._listener, *self._ends):
            # A thread that waits for it is woken.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        line = bytearray()
        with self._lock:
            self._lines.append(line)
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                with self._lock:
                    line += piece
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _watch(self) -> None:
        while not self._over.is_set():
            self._look()
            time.sleep(_LOOK)

    def _look(self) -> None:
        for path in sorted(self.folder.rglob("*")):
            with suppress(OSError):
                if path.is_file():
                    held = path.read_bytes()
                    blocks = [held[at : at + _BLOCK + _OVERLAP] for at in range(0, len(held), _BLOCK)]
                    with self._lock:
                        self._copies |= {hashlib.sha256(block).digest(): block for block in blocks}
