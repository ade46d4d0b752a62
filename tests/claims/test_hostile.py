"""What a hostile reader tried: each attempt is refused, counted or said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.core.flow import Letter
from croupier.core.view import View
from croupier.encode.fixed import FixedPoint
from croupier.engine.job.run import resume, run
from croupier.engine.state import Threat
from croupier.errors import ProtocolError, SpecError, StoreError
from croupier.pipeline import Floats, Pipeline, Relay, Shuffle
from croupier.statement import explain
from croupier.systems import naive, plain, total
from tests.claims.tools import SMALL
from tests.laws.toy import play, task


def bent(kind: str, **fields: Any) -> Threat:
    """A party that changes some fields of one kind of message."""

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(
            replace(letter, body={**letter.body, **fields})
            if letter.kind == kind and not isinstance(letter.body, bytes)
            else letter
            for letter in letters
        )

    return Threat(corrupted={"server" if kind == "model" else "c0": change})


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**60, 2.0**20, 1e-300])
def test_a_scale_that_would_make_values_vanish_is_refused_by_the_clients(scale: float) -> None:
    with pytest.raises(ProtocolError, match="the model handed out gives"):
        play(total(8), count=1, threat=bent("model", scale=torch.tensor([scale], dtype=torch.float64)))


@pytest.mark.parametrize("weight", [-70.0, 0.0])
def test_a_weight_that_is_not_above_zero_is_refused(weight: float) -> None:
    (done,) = play(plain(), count=1, threat=bent("up", weight=torch.tensor([weight], dtype=torch.float64)))
    assert [refusal.source for refusal in done.refusals] == ["c0"]


@pytest.mark.parametrize("place", ["sum", "rows"])
def test_a_residue_that_no_client_sends_costs_its_sender_only(place: str) -> None:
    pipeline = total(8) if place == "sum" else Pipeline(encode=FixedPoint(clients=8))
    size = task().layout.size
    bad = torch.full((size,), 20_000, dtype=torch.int32)
    (done,) = play(pipeline, count=1, threat=bent("up", vector=bad))
    assert [refusal.source for refusal in done.refusals] == ["c0"]
    assert done.present == ("c1", "c2", "c3")


@pytest.mark.parametrize("grain", ["layer", "model"])
def test_weights_do_not_mark_whose_pieces_belong_together(grain: str) -> None:
    with pytest.raises(SpecError, match="would mark whose pieces belong together"):
        Pipeline.parse(
            {"encode": {"use": "floats", "weights": "slot", "cap": 9}, "place": "relay",
             "release": {"use": "shuffle", "grain": grain}}
        )  # fmt: skip


@pytest.mark.parametrize("factor", [-100.0, 1e6])
def test_a_weight_slot_that_is_no_share_is_refused(factor: float) -> None:
    pipeline = Pipeline(encode=Floats(weights="slot", cap=50), release=Shuffle(), place=Relay())
    bad = torch.full((task().layout.size + 1,), 0.1)
    bad[-1] = factor
    (done,) = play(pipeline, count=1, threat=bent("up", vector=bad))
    assert [refusal.source for refusal in done.refusals] == ["c0"]


@pytest.mark.parametrize("name", ["server", "relay"])
def test_a_client_may_not_take_a_partys_name(name: str) -> None:
    with pytest.raises(SpecError, match=f"may not be called {name}"):
        play(naive(), count=1, of=task(("c0", "c1", name)))


def test_the_statement_names_the_active_server() -> None:
    assert "different models or scales" in explain(total(8)).privacy_threshold
    rows = explain(Pipeline(place=Relay()))
    assert rows.privacy_threshold.startswith("none")


def test_a_weight_that_rounds_to_nothing_is_counted(tmp_path: Path) -> None:
    sets = [*SMALL, "protocol.encode.weights=slot", "protocol.encode.cap=2000000"]
    result = run("digits-sum", sets=sets, out=tmp_path / "run", seed=7)
    assert any(note.get("lost_weights", 0) > 0 for note in result.noted[-1]["clients"].values())


def test_other_coins_are_not_resumed_with(tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["coins"] = "00" * 32
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="its coins are not those of its run"):
        resume(tmp_path / "run")


def test_starting_over_is_said(tmp_path: Path) -> None:
    run("digits", sets=SMALL, out=tmp_path / "run", seed=1)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    said: list[str] = []
    resume(tmp_path / "run", watch=lambda event, facts: said.append(facts["text"]) if event == "note" else None)
    assert said == ["no checkpoint is whole: starting again from the first round"]
