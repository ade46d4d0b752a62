"""What a permutation leaves to others: pictures laid out by public ones, and clients that break the rule."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from croupier.aggregate.clusters import Clusters
from croupier.audit.attacked_training import SeededTask
from croupier.audit.permuted_run import PermutedRun
from croupier.audit.setting import setting_of
from croupier.core.coins import Coins
from croupier.core.epoch import frame_of
from croupier.core.flow import Letter
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.learn.likeness import pictured
from croupier.spec import load
from croupier_lab.attacks.broken_rule import ALL, LIES, Lie, broken_rounds, lying, received
from croupier_lab.bench.leakage import permuted_pictures
from croupier_lab.bench.leakage.permuted_pictures import PermutationSize, input_group, measure, noticed, show

SMALL = ["task.split.clients=10", "federation.cohort=6", "task.fit.epochs=2", "run.workers=1"]
SPEC = load("tazza", SMALL)
SETTING = setting_of(SPEC)


@cache
def found() -> dict[str, Any]:
    """Both, where fewer clients train for a shorter time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permuted_pictures, "load", lambda name: load(name, SMALL))
        return measure(PermutationSize(rounds=2, pictures=100, seeds=2), 0)


@pytest.fixture(scope="module")
def run() -> PermutedRun:
    return PermutedRun(SeededTask(SETTING, 0), SPEC.protocol, Local())


def test_public_pictures_find_neighbours_above_chance(capsys: pytest.CaptureFixture[str]) -> None:
    laid = found()["layout"]
    assert laid["neighbours"]["rate"] > 2 * laid["chance_neighbours"]
    assert laid["pictures"] == 100
    show(found())
    said = capsys.readouterr().out
    assert "100 records of single steps in one unknown order" in said
    assert "first model: the server knows the rule, told by a client: 100.0" in said


def test_a_tampered_upload_is_left_out_put_apart_or_averaged_in() -> None:
    by_lie = {(one["rule"], one["lie"]): one for one in found()["broken"]}
    assert len(by_lie) == 2 * len(LIES)
    for rule in ("clusters", ALL):
        assert noticed(by_lie[rule, "frame"]) == "left out in 2 of 2"
        assert by_lie[rule, "hidden units"]["left_out"] == by_lie[rule, "few units"]["left_out"] == 0
    assert noticed(by_lie[ALL, "everything"]) == "no"
    assert by_lie["clusters", "hidden units"]["alone"] == 2


def test_a_mean_is_tampered_with_once(run: PermutedRun) -> None:
    few = ["task.split.clients=6", "federation.cohort=3", "task.fit.epochs=1", "task.model.hidden=[16]"]
    spec = load("tazza", [*few, "protocol.aggregate=mean"])
    alike = replace(run, ground=SeededTask(setting_of(spec), 3), pipeline=spec.protocol)
    lines = list(broken_rounds(alike, alike.played(1)[-1].state, Coins.from_seed(1)))
    assert [(line["rule"], line["lie"]) for line in lines] == [(ALL, lie) for lie in LIES]
    assert {line["alone"] for line in lines} == {None}


def test_a_lie_about_hidden_units_answers_alike_and_one_about_everything_does_not(run: PermutedRun) -> None:
    task, symmetry = run.ground.made.task, run.symmetry
    assert task.answers is not None
    x = torch.rand(5, 64)
    vector = task.first.vector
    sent = {}
    lies: tuple[Lie, ...] = ("few units", "hidden units", "everything")
    for lie in lies:
        (letter,) = lying(lie, symmetry, Coins.from_seed(0))((Letter("server", "up", {"vector": vector}),), None)  # type: ignore[arg-type]
        sent[lie] = letter.body["vector"]  # type: ignore[call-overload]
    before = task.answers(vector, x)
    for lie in lies[:2]:
        assert torch.allclose(task.answers(sent[lie], x), before, atol=1e-5)
    near = {lie: float(torch.cosine_similarity(one, vector, dim=0)) for lie, one in sent.items()}
    assert 1 > near["few units"] > Clusters().kin > near["hidden units"]
    assert not torch.allclose(task.answers(sent["everything"], x), before, atol=1e-2)


def test_a_lie_about_the_frame_names_another(run: PermutedRun) -> None:
    (done,) = run.played(1)
    (seen,) = run.seen([done])
    name, told = seen.uploads[0].client, seen.frame
    body = {"vector": torch.zeros(1), "frame": torch.frombuffer(bytearray(told), dtype=torch.uint8)}
    (letter,) = lying("frame", run.symmetry, Coins.from_seed(0))((Letter("server", "up", body),), None)  # type: ignore[arg-type]
    other = frame_of(letter.body["frame"])  # type: ignore[call-overload]
    assert other is not None
    assert other.pack() != told
    assert 0 <= received(run, done, name) <= 1


def test_records_and_inputs_that_are_no_pictures_or_no_one_group() -> None:
    made = SeededTask(SETTING, 0).made
    assert pictured(made.dataset) == (1, 8, 8)
    assert pictured(replace(made.dataset, name="else")) is None
    assert made.task.symmetry is not None
    assert input_group(made.task.symmetry()) == "input.0"


def test_what_permutes_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="nothing is permuted"):
        measure(PermutationSize(description="digits-small"), 0)
