"""The listener between a SuperLink and its nodes: it hands on what it hears, and keeps it."""

from __future__ import annotations

import socket
from pathlib import Path

from croupier_lab.bench.flower.tap import Tap


def test_what_passes_is_kept_in_both_directions(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tap = Tap(int(server.getsockname()[1]), tmp_path)
        try:
            with socket.create_connection(("127.0.0.1", tap.port)) as caller:
                caller.sendall(b"an update")
                caller.shutdown(socket.SHUT_WR)
                answering, _ = server.accept()
                with answering:
                    assert b"".join(iter(lambda: answering.recv(4), b"")) == b"an update"
                    answering.sendall(b"a model")
                assert b"".join(iter(lambda: caller.recv(4), b"")) == b"a model"
            assert b"an update" in tap.relayed()
            assert b"a model" in tap.relayed()
        finally:
            tap.close()


def test_what_a_file_held_is_kept_when_it_is_gone(tmp_path: Path) -> None:
    tap = Tap(1, tmp_path)
    try:
        (tmp_path / "state").write_bytes(b"first")
        assert b"first" in tap.stored()
        (tmp_path / "state").write_bytes(b"then")
        assert tap.stored() == b"first\nthen"
    finally:
        tap.close()
