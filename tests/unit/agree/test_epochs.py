"""Training in coordinates that the server does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.epoch import Frame, frame_of, frame_tensor
from croupier.core.flow import Letter
from croupier.core.update import Model
from croupier.core.view import View, facts
from croupier.encode.encoder import Released
from croupier.encode.hidden import HiddenUnits
from croupier.engine.job.run import resume, run
from croupier.engine.local import Local
from croupier.engine.loop import plain_model, rounds
from croupier.engine.state import Round, Threat, run_id
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.mpc.joint import rule_seed
from croupier.spec import Spec, load

SETS = ("federation.rounds=3", "task.fit.epochs=1", "run.workers=1")
FRAME = Frame(0, 2, bytes(range(32)))


def made(spec: Spec, coins: Coins) -> Assembled:
    task = spec.task
    return assemble(task.data, task.split, task.model, task.fit, coins, machine=Hardware(workers=1))


def played(*sets: str, threat: Threat | None = None, **more: Any) -> tuple[list[Round], Assembled, Spec, Coins]:
    spec, coins = load("tazza", (*SETS, *sets)), Coins.from_seed(4)
    task = made(spec, coins)
    done = rounds(spec.protocol, task.task, spec.federation, coins, Local(), threat=threat or Threat(), **more)
    return list(done), task, spec, coins


def seen_by_server(done: list[Round]) -> bytes:
    """Everything that reached the server, in rounds and in agreements before them."""
    views = [view for one in done for view in (*one.before, *([one.views["server"]] if one.views else []))]
    return b"".join(canon.dump(facts(view)) for view in views)


def test_differences_are_added_to_a_model_in_their_own_coordinates_alone() -> None:
    kept = ("protocol.aggregate=mean", "protocol.encode.kept=true", "protocol.encode.form=delta")
    with pytest.raises(SpecError, match=r"in plain coordinates, .* use first = 'clients'"):
        load("tazza", (*SETS, *kept, "protocol.encode.first=open"))
    whole, *_ = played(*kept[:2])
    apart, *_ = played(*kept)
    assert apart[-1].metrics["accuracy"] == pytest.approx(whole[-1].metrics["accuracy"], abs=0.01)


def test_a_run_says_what_it_permutes_and_what_is_left_alone(tmp_path: Path) -> None:
    told: list[str] = []

    def watch(event: str, facts: Mapping[str, Any]) -> None:
        told.extend([facts["text"]] if event == "note" else [])

    few = ("federation.rounds=1", "task.fit.epochs=1")
    result = run("tazza", sets=few, out=tmp_path / "a", seed=1, watch=watch)
    assert told == ["permuted: 96 hidden units in 2 groups; inputs: 64 of input.0; axes that stay as they are: 2"]
    assert any("outputs keep their order" in line for line in result.summary["permuted"])
    assert result.final["clusters"] >= 1
    assert result.final["largest"] <= 20
    told.clear()
    still = run("tazza", sets=(*few, "task.opaque=['layers.0', 'layers.2']"), out=tmp_path / "b", seed=1, watch=watch)
    assert told[0].startswith("no hidden unit of this network can be permuted")
    assert "permuted" not in run("digits", sets=("federation.rounds=1",), out=tmp_path / "c", seed=1).summary
    assert still.summary["permuted"][0] == told[0]


def test_training_is_the_same_as_in_plain_coordinates() -> None:
    hidden, task, _, coins = played("protocol.aggregate=mean", "protocol.encode.first=open")
    plain, *_ = played("protocol.aggregate=mean", "protocol.encode=floats")
    assert [one.metrics for one in hidden] == [one.metrics for one in plain]
    state = hidden[-1].state
    assert state.model.frame
    assert not torch.equal(state.model.vector, plain[-1].state.model.vector)
    shown = plain_model(task.task, coins, state)
    assert torch.equal(shown.vector, plain[-1].state.model.vector)
    # The agreement was sent too, before the first round.
    assert hidden[0].traffic.messages > hidden[1].traffic.messages == plain[1].traffic.messages


def test_every_round_has_a_frame_of_its_own_unless_one_is_kept() -> None:
    anew, *_ = played()
    kept, *_ = played("protocol.encode.kept=true")
    frames = [Frame.unpack(one.state.model.frame) for one in anew]
    assert [frame.round for frame in frames] == [0, 1, 2]
    assert {Frame.unpack(one.state.model.frame).round for one in kept} == {0}


def test_the_server_never_sees_the_secret_or_the_first_model() -> None:
    done, task, _, coins = played(keep={"server": "keep"})
    standing = Standing.of(done[0].state.memories[done[0].present[0]])
    assert standing.secret
    assert done[0].before
    seen = seen_by_server(done)
    seeds = [rule_seed(run_id(coins), standing.secret, number) for number in range(3)]
    assert all(secret not in seen and secret.hex().encode() not in seen for secret in (standing.secret, *seeds))
    assert task.task.fresh is not None
    first = task.task.fresh(Coins(standing.secret).child("first model"))
    body = bytes(canon.tensor_bytes(first))
    assert all(body[at : at + 256] not in seen for at in range(0, len(body) - 256, 4096))


def test_an_update_in_another_frame_is_left_out() -> None:
    encode = HiddenUnits()
    frames = torch.stack([frame_tensor(FRAME.pack())] * 2 + [frame_tensor(replace(FRAME, round=1).pack())])
    released = Released(("a", "b", "c"), torch.eye(3), luggage={"frame": frames}, ids=("a", "b", "c"))
    got = encode.decode(released, {})
    assert (got.present, got.ids, got.frame) == (("a", "b"), ("a", "b"), FRAME.pack())
    assert got.rows is not None
    assert torch.equal(got.rows, torch.eye(3)[:2])
    with pytest.raises(ProtocolError, match="may not be mixed"):
        encode.decode(replace(released, present=("a", "c"), rows=torch.eye(3)[1:], luggage={"frame": frames[1:]}), {})


def test_a_liar_about_its_frame_is_not_averaged_in() -> None:
    def other(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        changed = []
        for one in letters:
            assert not isinstance(one.body, bytes)
            changed.append(Letter(one.target, one.kind, {**one.body, "frame": frame_tensor(FRAME.pack())}))
        return tuple(changed)

    done, *_ = played("protocol.aggregate=mean", "federation.rounds=1", "federation.cohort=20",
                      threat=Threat(corrupted={"c03": other}))  # fmt: skip
    assert "c03" not in done[0].present
    assert len(done[0].present) == 19


def test_a_model_under_a_secret_that_nobody_holds_is_not_opened() -> None:
    def other(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        changed = []
        for one in letters:
            assert not isinstance(one.body, bytes)
            changed.append(Letter(one.target, one.kind, {**one.body, "frame": frame_tensor(FRAME.pack())}))
        return tuple(changed)

    with pytest.raises(CroupierError, match="whose secret this client does not hold"):
        played("federation.rounds=1", threat=Threat(corrupted={"server": other}))


def test_frames_travel_and_plain_coordinates_have_none() -> None:
    assert frame_of(frame_tensor(FRAME.pack())) == FRAME
    assert frame_of(frame_tensor(b"")) is None


def test_a_run_goes_on_in_its_coordinates(tmp_path: Path) -> None:
    whole = run("tazza", sets=SETS, out=tmp_path / "whole", seed=9)
    part = run("tazza", sets=(*SETS, "federation.rounds=2"), out=tmp_path / "part", seed=9)
    assert part.metrics == whole.metrics[:2]
    again = run("tazza", sets=SETS, out=tmp_path / "again", seed=9)
    for file in sorted((again.path / "checkpoints").iterdir())[-1:]:
        file.unlink()
    (again.path / "summary.json").unlink()
    assert resume(again.path).metrics == whole.metrics
    # The exported model is plain: it scores what the run says.
    data = whole.model
    assert all(torch.equal(a, b) for a, b in zip(data.parameters(), resume(again.path).model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (("protocol.aggregate={use='mean',step='adam'}",), "kept = true"),
        (("protocol.aggregate=krum",), "kept = true"),
        (("protocol.aggregate=fltrust", "protocol.encode.kept=true"), "plain coordinates"),
        (("protocol.encode.form=delta",), "kept = true"),
        (("protocol.aggregate=mean", "protocol.release=shuffle", "protocol.place=relay"), "release = 'rows'"),
    ],
)
def test_what_cannot_be_done_there_is_refused_when_built(sets: tuple[str, ...], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        load("tazza", sets)


def test_adaptive_steps_and_differences_work_in_one_frame() -> None:
    rule = "protocol.aggregate={use='mean',step='adam'}"
    hidden, *_ = played(rule, "protocol.encode.kept=true", "protocol.encode.form=delta")
    assert all(isinstance(one.state.model, Model) for one in hidden)
    assert hidden[-1].metrics["accuracy"] > 0
