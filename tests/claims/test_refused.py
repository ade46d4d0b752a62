"""An update that no protocol can carry is refused at every door, counted and named; the run goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from croupier.core.flow import Letter
from croupier.core.update import Update
from croupier.core.view import View
from croupier.engine.state import Threat
from croupier.engine.task import Task
from croupier.errors import CroupierError, ProtocolError, RangeError
from croupier.learn.data import TensorRecords
from croupier.learn.train import Learner
from tests.claims.tools import Bench, bench, bend, lines

PRESETS = ("digits", "digits-shuffled", "digits-sum")
BAD = "c3"


def _set(value: float) -> Callable[[Tensor], Tensor]:
    def change(vector: Tensor) -> Tensor:
        vector = vector.float()
        vector[17] = value
        return vector

    return change


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN": _set(float("nan")),
    "Inf": _set(float("inf")),
    "minus Inf": _set(float("-inf")),
    "one too short": lambda vector: vector[:-1],
    "one too long": lambda vector: torch.cat([vector, vector[:1]]),
    "empty": lambda vector: vector[:0],
    "float64": lambda vector: vector.double(),
    "float16": lambda vector: vector.half(),
    "bfloat16": lambda vector: vector.bfloat16(),
    "int64": lambda vector: vector.long(),
    "another shape of the right size": lambda vector: vector.reshape(2, -1),
}


@cache
def _bench(preset: str) -> Bench:
    return bench(preset)


@cache
def _without(preset: str) -> list[dict[str, Any]]:
    return lines(_bench(preset).play(Threat(absent=lambda _: frozenset({BAD}))))


def _same_model(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> bool:
    keys = ("round", "present", "accuracy", "loss", "model")
    return [[line[key] for key in keys] for line in found] == [[line[key] for key in keys] for line in expected]


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_bad_message_is_refused_by_its_receiver(preset: str, fault: str, sealed: bool) -> None:
    threat = Threat(corrupted={BAD: bend(FAULTS[fault])})
    played = _bench(preset).play(threat, sealed=sealed)
    found = lines(played)
    assert [line["refused"] for line in found] == [[BAD], [BAD]]
    assert [line["present"] for line in found] == [9, 9]
    assert [line["invited"] for line in found] == [10, 10]
    door = "server" if preset == "digits" else "relay"
    assert {(refusal.source, refusal.at) for done in played for refusal in done.refusals} == {(BAD, door)}
    assert _same_model(found, _without(preset))


def test_absence_alone_is_no_refusal() -> None:
    assert [line["refused"] for line in _without("digits")] == [[], []]


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_bad_message_ends_the_run_below_the_quorum(preset: str, sealed: bool) -> None:
    threat = Threat(corrupted={BAD: bend(FAULTS["NaN"])})
    door = "server" if preset == "digits" else "relay"
    wild = "vector has 1 of 4810 values that are NaN or infinite"
    why = "vector has dtype torch.float32, not torch.int32" if preset == "digits-sum" else wild
    with pytest.raises(ProtocolError) as error:
        _bench(preset).play(threat, sealed=sealed, quorum=1.0)
    said = f"round 1 cannot go on: {door}: 9 of the 10 needed sent 'up'; missing c3"
    assert str(error.value) == f"{said}. c3 was refused at {door}: {why}"


@pytest.mark.parametrize("preset", PRESETS)
def test_the_absent_end_the_run_below_the_quorum_with_another_remedy(preset: str) -> None:
    door = "server" if preset == "digits" else "relay"
    with pytest.raises(ProtocolError) as error:
        _bench(preset).play(Threat(absent=lambda _: frozenset({BAD})), quorum=1.0)
    said = f"round 1 cannot go on: {door}: 9 of the 10 needed sent 'up'; missing c3"
    assert str(error.value) == f"{said}. Remedy: bring the missing back, or lower federation.quorum"


@pytest.mark.parametrize("preset", PRESETS)
def test_the_quorum_is_counted_exactly(preset: str) -> None:
    """Four of ten refused: six are left, enough for a quorum of 0.6 and too few for 0.61."""
    threat = Threat(corrupted=dict.fromkeys(("c0", "c2", "c5", "c9"), bend(FAULTS["Inf"])))
    (first, *_) = lines(_bench(preset).play(threat, quorum=0.6, rounds=1))
    assert (first["present"], first["refused"]) == (6, ["c0", "c2", "c5", "c9"])
    door = "server" if preset == "digits" else "relay"
    said = rf"6 of the 7 needed sent 'up'; missing c0, c2, c5, c9\. c0 was refused at {door}: .* \(4 were refused\)$"
    with pytest.raises(ProtocolError, match=said):
        _bench(preset).play(threat, quorum=0.61, rounds=1)


@pytest.mark.parametrize("body", [b"", b"abc", b"\xff" * (3 << 20)], ids=["nothing", "scraps", "three chunks"])
@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
def test_bare_bytes_that_are_no_message_are_refused(body: bytes, sealed: bool) -> None:
    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(replace(letter, body=body) for letter in letters)

    found = lines(_bench("digits-shuffled").play(Threat(corrupted={BAD: change}), sealed=sealed))
    assert [line["refused"] for line in found] == [[BAD], [BAD]]
    assert _same_model(found, _without("digits-shuffled"))


def test_residues_outside_their_range_are_refused() -> None:
    """An integer message holds values from 0 to modulus - 1 and nothing else."""
    first = torch.tensor([0])
    for change in (
        lambda vector: vector.index_fill(0, first, -1),
        lambda vector: vector.index_fill(0, first, 1 << 30),
    ):
        for sealed in (False, True):
            threat = Threat(corrupted={BAD: bend(change)})
            assert lines(_bench("digits-sum").play(threat, sealed=sealed))[0]["refused"] == [BAD]


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize("preset", ["digits", "digits-shuffled"])
def test_whole_numbers_of_the_right_size_are_no_floats(preset: str, sealed: bool) -> None:
    """Four bytes a value, like the floats that should be there: read as bytes alone they would pass."""
    threat = Threat(corrupted={BAD: bend(lambda vector: vector.int())})
    played = _bench(preset).play(threat, sealed=sealed)
    assert [line["refused"] for line in lines(played)] == [[BAD], [BAD]]
    assert played[0].refusals[0].why == "vector has dtype torch.int32, not torch.float32"
    assert _same_model(lines(played), _without(preset))


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize(
    ("change", "at", "why"),
    [
        ({"kind": "bogus"}, "{door}", "a message of unknown kind 'bogus'"),
        ({"kind": ""}, "{door}", "a message of unknown kind ''"),
        ({"target": "n" * 50}, "n" * 50, "a name on the wire has 1 to 32 bytes and no zero byte"),
        ({"target": ""}, "", "a name on the wire has 1 to 32 bytes and no zero byte"),
        ({"target": "a\0b"}, "a\0b", "a name on the wire has 1 to 32 bytes and no zero byte"),
    ],
    ids=["kind", "no kind", "long name", "no name", "zero byte"],
)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_letter_that_no_schema_knows_costs_its_sender_only(
    preset: str, change: dict[str, str], at: str, why: str, sealed: bool
) -> None:
    def bent(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(
            replace(letter, kind=change.get("kind", letter.kind), target=change.get("target", letter.target))
            for letter in letters
        )

    played = _bench(preset).play(Threat(corrupted={BAD: bent}), sealed=sealed)
    (refusal,) = played[0].refusals
    door = "server" if preset == "digits" else "relay"
    assert (refusal.source, refusal.at) == (BAD, at.format(door=door))
    assert refusal.why.endswith(why)
    assert [(line["refused"], line["present"]) for line in lines(played)] == [([BAD], 9), ([BAD], 9)]
    assert [line["bytes"][BAD][0] for line in lines(played)] == [0, 0], "what is no message is not sent"
    assert _same_model(lines(played), _without(preset))


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_model_sent_back_as_an_update_is_refused(preset: str, sealed: bool) -> None:
    """What passed the door as one kind of message is not let through as another."""

    def echo(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(replace(letter, body=dict(view.inputs[0][0].body)) for letter in letters)

    found = lines(_bench(preset).play(Threat(corrupted={BAD: echo}), sealed=sealed))
    assert [(line["refused"], line["present"]) for line in found] == [([BAD], 9), ([BAD], 9)]
    assert _same_model(found, _without(preset))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_sender_of_one_good_letter_and_one_bad_one_is_heard_and_named(preset: str) -> None:
    def more(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return (replace(letters[0], kind="bogus"), *letters)

    found, expected = lines(_bench(preset).play(Threat(corrupted={BAD: more}))), lines(_bench(preset).play())
    assert [line["refused"] for line in found] == [[BAD], [BAD]]
    assert _same_model(found, expected)


def _poisoned(preset: str, value: float) -> tuple[Bench, Task]:
    """A bench of its own in which one client's records hold a value that training cannot digest."""
    table = bench(preset)
    learner = table.made.task.fit
    assert isinstance(learner, Learner)
    records = learner.shards[table.made.task.shards[BAD]]
    assert isinstance(records, TensorRecords)
    records.x[0, 5] = value
    return table, table.made.task


@pytest.mark.parametrize("sealed", [False, True], ids=["by reference", "through bytes"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_client_refuses_its_own_diverged_update(preset: str, value: float, sealed: bool) -> None:
    table, task = _poisoned(preset, value)
    played = table.play(sealed=sealed, task=task)
    found = lines(played)
    assert [line["refused"] for line in found] == [[BAD], [BAD]]
    assert {(refusal.source, refusal.at) for done in played for refusal in done.refusals} == {(BAD, BAD)}
    assert all("training diverged; lower task.fit.lr" in refusal.why for done in played for refusal in done.refusals)
    assert [line["bytes"][BAD][0] for line in found] == [0, 0], "a client that refuses its own update sends nothing"
    # The stacked clients next to it must not have caught anything from it.
    assert _same_model(found, _without(preset))
    with pytest.raises(ProtocolError, match=r"c3 was refused at c3: .*NaN or infinite: .*lower task\.fit\.lr$"):
        table.play(sealed=sealed, task=task, quorum=1.0)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda vector: vector[:-1], r"shape \(4809,\), not \(4810,\)"),
        (lambda vector: vector.double(), "dtype float64, not float32"),
        (lambda vector: vector.int(), "dtype int32, not float32"),
        (lambda vector: vector.bfloat16(), "dtype bfloat16, not float32"),
        (lambda vector: vector.reshape(2, -1), r"shape \(2, 2405\)"),
    ],
    ids=["length", "float64", "int32", "bfloat16", "shape"],
)
def test_a_client_refuses_an_update_that_is_no_update(spoil: Callable[[Tensor], Tensor], why: str) -> None:
    table = _bench("digits-shuffled")

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        done: list[Update | CroupierError] = list(table.made.task.fit(jobs))
        for number, job in enumerate(jobs):
            good = done[number]
            if job[1] == table.made.task.shards[BAD] and isinstance(good, Update):
                try:
                    done[number] = replace(good, vector=spoil(good.vector))
                except RangeError as error:
                    done[number] = error
        return done

    played = table.play(task=replace(table.made.task, fit=fit))
    (refusal,) = played[0].refusals
    assert (refusal.source, refusal.at) == (BAD, BAD)
    assert _same_model(lines(played), _without("digits-shuffled"))
    with pytest.raises(ProtocolError, match=why):
        table.play(task=replace(table.made.task, fit=fit), quorum=1.0)


def test_a_client_that_is_refused_once_is_back_in_the_next_round() -> None:
    def once(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return bend(FAULTS["NaN"])(letters, view) if view.given.round == 0 else letters

    found = lines(_bench("digits").play(Threat(corrupted={BAD: once})))
    assert [line["refused"] for line in found] == [[BAD], []]
    assert [line["present"] for line in found] == [9, 10]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_name_that_is_no_text_costs_its_sender_only(sealed: bool) -> None:
    def bent(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(replace(letter, target="\udc80") for letter in letters)

    line = lines(bench("digits").play(Threat(corrupted={"c3": bent}), sealed=sealed))[0]
    assert (line["refused"], line["present"]) == (["c3"], 9)
