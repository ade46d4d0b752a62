"""Bytes that were changed on the way are caught, and whoever they came from is missing from the round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from croupier.engine.job.result import metrics_of
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.post import Packet
from croupier.engine.state import Threat
from croupier.errors import ProtocolError
from tests.claims.tools import Bench, bench, lines

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the body": lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:],
    "a bit of the header": lambda data: bytes([data[0] ^ 4]) + data[1:],
    "a bit of the round": lambda data: data[:51] + bytes([data[51] ^ 1]) + data[52:],
    "the tag": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "cut short": lambda data: data[:-7],
    "left over": lambda data: data + b"\0",
    "nearly nothing": lambda data: data[:5],
    "nothing": lambda data: b"",
}

ALTERED = "a message was altered on the way"
WHY = {
    **dict.fromkeys(DAMAGE, ALTERED),
    "a bit of the header": "version 6 of the wire format; this program speaks 2",
    "nearly nothing": "a sealed chunk of 5 bytes is too short",
    "nothing": "a sealed chunk of 0 bytes is too short",
}


@cache
def _bench() -> Bench:
    return bench("digits-shuffled", ["federation.rounds=1"])


def _play(harm: Callable[[Packet], list[Packet]], quorum: float = 0.5) -> dict[str, object]:
    table = _bench()
    drive = Local(
        table.coins.child("links"), network=lambda packets: [packet for each in packets for packet in harm(each)]
    )
    plan = table.spec.federation.model_copy(update={"quorum": quorum})
    (done,) = rounds(table.spec.protocol, table.made.task, plan, table.coins, drive)
    return metrics_of(done)


def _from(source: str, target: str, change: Callable[[bytes], bytes]) -> Callable[[Packet], list[Packet]]:
    def harm(packet: Packet) -> list[Packet]:
        meant = (packet.source, packet.target) == (source, target)
        return [replace(packet, data=change(bytes(packet.data)))] if meant else [packet]

    return harm


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_update_is_refused_and_its_client_missing(damage: str) -> None:
    found = _play(_from("c3", "relay", DAMAGE[damage]))
    (expected,) = lines(_bench().play(Threat(absent=lambda _: frozenset({"c3"}))))
    assert (found["refused"], found["present"]) == (["c3"], 9)
    assert found["model"] == expected["model"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_update_ends_the_run_below_the_quorum(damage: str) -> None:
    with pytest.raises(ProtocolError) as error:
        _play(_from("c3", "relay", DAMAGE[damage]), quorum=1.0)
    said = "round 1 cannot go on: relay: 9 of the 10 needed sent 'up'; missing c3"
    assert str(error.value) == f"{said}. c3 was refused at relay: {WHY[damage]}"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_release_ends_the_run(damage: str) -> None:
    with pytest.raises(ProtocolError) as error:
        _play(_from("relay", "server", DAMAGE[damage]))
    said = "round 1 cannot go on: server: 0 of the 1 needed sent 'released'; missing relay"
    assert str(error.value) == f"{said}. relay was refused at server: {WHY[damage]}"


def test_a_damaged_model_leaves_its_client_out() -> None:
    found = _play(_from("server", "c3", DAMAGE["the tag"]))
    (expected,) = lines(_bench().play(Threat(absent=lambda _: frozenset({"c3"}))))
    assert found["present"] == 9
    assert found["model"] == expected["model"]


def test_a_repeated_packet_is_refused_and_changes_nothing() -> None:
    def twice(packet: Packet) -> list[Packet]:
        return [packet, packet] if packet.source == "c3" else [packet]

    found = _play(twice)
    (expected,) = lines(_bench().play())
    assert found["refused"] == ["c3"]
    assert (found["present"], found["model"]) == (10, expected["model"])


def test_packets_swapped_between_clients_are_refused() -> None:
    kept: list[bytes] = []

    def swap(packet: Packet) -> list[Packet]:
        if packet.source == "c2":
            kept.append(bytes(packet.data))
        return [replace(packet, data=kept[0])] if packet.source == "c3" else [packet]

    found = _play(swap)
    assert (found["refused"], found["present"]) == (["c3"], 9)
