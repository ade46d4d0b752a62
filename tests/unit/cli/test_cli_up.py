"""What `croupier up` prints where there is no terminal: every round once, and measures where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.shell import Shell

from croupier.service import up as service
from croupier.service.up import UpResult

FACTS = {"bytes_in": 1, "bytes_out": 2, "seconds": 0.5, "peak_bytes": 10**6}
Watch = Callable[[str, Mapping[str, Any]], None]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def rehearsal(*measured: Mapping[str, float], secret: bool) -> Callable[..., UpResult]:
    """One that tells of a round with each of these measures, or keeps them from the server until the end."""
    lines = [
        {"round": number, **({} if secret else one), "present": 3, "invited": 4}
        for number, one in enumerate(measured, 1)
    ]

    def up(spec: Any, *, watch: Watch, **_: Any) -> UpResult:
        for line in lines:
            watch("round", {"party": "server", **line})
        watch("restarted", {"party": "c0"})
        last = {**lines[-1], **measured[-1]}
        return UpResult((*lines[:-1], last), {"server": FACTS}, 1.5, only_clients_read=secret)

    return up


def test_every_round_is_printed_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "up", rehearsal({"accuracy": 0.5}, {"accuracy": 0.75}, secret=False))
    code, out, said = shell("up", "rns-servers")
    assert code == 0
    assert [line for line in (out + said).splitlines() if line.startswith("round")] == [
        "round 1: accuracy 0.5, 3 of 4 clients",
        "round 2: accuracy 0.75, 3 of 4 clients",
    ]
    assert said == "c0: restarted\n"
    assert "measured as a client would" not in out


def test_a_model_that_the_server_cannot_read_is_measured_at_the_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "up", rehearsal({"accuracy": 0.5}, {"accuracy": 0.75}, secret=True))
    _, out, _ = shell("up", "tazza")
    assert "round 1: 3 of 4 clients\nround 2: 3 of 4 clients\n" in out
    assert "The last model, measured as a client would: accuracy 0.75." in out
