"""What a server makes of its own views under hidden coordinates, on the preset's own network and agreement."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from croupier.aggregate.clusters import Clusters
from croupier.audit import onlooker
from croupier.audit.course import Course, Once
from croupier.audit.exposure import FAILED, PLAIN, at, exposed, sentences
from croupier.audit.integrity import Ground, Setting
from croupier.audit.lies import LIES, Lie, lying, received
from croupier.audit.match import shares
from croupier.audit.onlooker import Reader, followed, sight, unmoved
from croupier.audit.report.secrecy import noticed, sections
from croupier.audit.secrecy import Depth, input_group, like, orders, pictured, scored, study
from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits, frame_of
from croupier.encode.symmetry import Rule
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.runtime.local import Local
from croupier.soundness import setting_of
from croupier.spec import load

SPEC = load("tazza", ["task.split.clients=10", "federation.cohort=6", "task.fit.epochs=2"])
SETTING = setting_of(SPEC)
CLEAR = SPEC.protocol.model_copy(update={"encode": Floats(weights="uniform")})
DEPTH = Depth(rounds=3, uploads=2, pictures=200)


def pipeline(**given: Any) -> Pipeline:
    return SPEC.protocol.model_copy(update={"encode": HiddenUnits(**given)})


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return exposed(study(SETTING, SPEC.protocol, [0, 1], Local(), lambda _: None, DEPTH))


@pytest.fixture(scope="module")
def course() -> Course:
    return Course(Ground(SETTING, 0), pipeline(), Once(Local()))


def by(found: dict[str, Any], first: str, kept: bool) -> dict[str, Any]:
    (order,) = [one for one in found["orders"] if (one["first"], one["kept"]) == (first, kept)]
    return dict(order)


@pytest.mark.parametrize("kept", [False, True])
def test_matching_recovers_every_group_where_the_first_model_is_known(found: dict[str, Any], kept: bool) -> None:
    order = by(found, "open", kept)
    assert [group["size"] for group in order["groups"]] == [64, 64, 32]
    assert all(group["absolute"]["low"] >= 0.99 for group in order["groups"])
    assert all(group["least"] >= 0.99 for group in order["groups"])
    assert order["matched"] > 0


def test_matching_is_relative_where_the_clients_draw_it(found: dict[str, Any]) -> None:
    order = by(found, "clients", False)
    assert order["own"]
    assert all(group["relative"]["rate"] >= 0.99 for group in order["groups"])
    # Two runs of at most 64 places: a random order has at most a few right.
    assert all(group["absolute"]["rate"] <= 5 / group["size"] for group in order["groups"])
    assert all(group["chance"] == 1 / group["size"] for group in order["groups"])
    assert by(found, "clients", True)["matched"] == 0


def test_inversion_tells_what_the_rule_was_worth(found: dict[str, Any]) -> None:
    known, drawn = by(found, "open", False), by(found, "clients", False)
    for moment in ("first model", "trained model"):
        prior = at(known, "prior", moment=moment)["psnr"]["rate"]
        assert at(known, "nothing", moment=moment)["psnr"]["rate"] < prior
        assert at(known, "matched", moment=moment)["psnr"]["rate"] > 30
        assert at(drawn, "told", moment=moment)["psnr"]["rate"] > 30
        assert at(drawn, "relative", moment=moment)["psnr"]["rate"] < prior
        assert at(drawn, "relative", "in the unknown order", moment)["psnr"]["rate"] > 30
    laid = found["layout"]
    assert laid["neighbours"]["rate"] > 2 * laid["chance_neighbours"]
    assert laid["pictures"] == DEPTH.pictures


def test_what_was_found_does_not_depend_on_the_truth_but_the_score_does(course: Course) -> None:
    sights = course.sights(course.played(2))
    track = followed(sights, course.symmetry, Coins.from_seed(1), 2)
    again = followed(sights, course.symmetry, Coins.from_seed(1), 2)
    wrong = Lied(course.ground, course.pipeline, course.drive, course.remembered)
    assert wrong.truth(sights[1].frame).of["input.0"].tolist() != course.truth(sights[1].frame).of["input.0"].tolist()
    for one, two in zip(track.guesses, again.guesses, strict=True):
        assert shares(one.rule, two.rule) == dict.fromkeys(course.symmetry.groups, 1.0)
    assert min(group["relative"] for group in scored(track, course)) == 1.0
    assert max(group["relative"] for group in scored(track, wrong)) < 0.3


class Lied(Course):
    """A scorer with other rules."""

    def truth(self, frame: bytes) -> Rule:
        rule = super().truth(frame)
        return Rule({group: np.roll(order, len(frame) and frame[4] + 1) for group, order in rule.of.items()})


def test_the_attack_has_no_way_to_the_truth() -> None:
    assert set(inspect.signature(followed).parameters) == {"sights", "symmetry", "coins", "most", "known"}
    assert set(inspect.signature(sight).parameters) == {"view", "pipeline"}
    known = {getattr(value, "__module__", "") or "" for value in vars(onlooker).values()}
    ways = ("croupier.epochs", "croupier.place", "croupier.mpc", "croupier.audit.course", "croupier.federate")
    assert not [name for name in known if name.startswith(ways)]


def test_a_sight_is_what_the_server_handed_out_and_got(course: Course) -> None:
    first, second = course.sights(course.played(2))
    assert set(first.handed) == set(first.uploads)
    # The clients drew the first model under the first round's rule.
    assert next(iter(first.handed.values())).frame == first.frame != second.frame
    name = next(iter(second.uploads))
    plain = course.symmetry.invert(second.uploads[name], course.truth(second.frame))
    start = course.symmetry.invert(second.handed[name].vector, course.truth(second.handed[name].frame))
    # One is the other after two epochs.
    assert float((plain - start).norm() / start.norm()) < 0.5
    assert float((second.uploads[name] - start).norm() / start.norm()) > 0.8


def test_models_of_unknown_frames_are_passed_over(course: Course) -> None:
    _, second, third = course.sights(course.played(3))
    lost = replace(third, handed={name: replace(model, frame=b"x" * 40) for name, model in third.handed.items()})
    track = followed([second, lost], course.symmetry, Coins.from_seed(0), 1)
    assert [guess.round for guess in track.guesses] == [1]
    assert lost.frame not in track.known


def test_a_reader_without_rules_reads_as_it_lies(course: Course) -> None:
    made = course.ground.made
    steps = course.steps(Coins.from_seed(3))
    (done,) = course.played(1, fit=steps)
    (seen,) = course.sights([done])
    name = next(iter(seen.uploads))
    given = (made.module, course.symmetry, seen.handed[name].vector)
    rest = (0.1, made.dataset.shape, made.dataset.classes)
    still = Reader(*given, None, None, *rest).records([seen.uploads[name]], Coins.from_seed(0))
    same = Reader(*given, unmoved(course.symmetry), unmoved(course.symmetry), *rest)
    assert torch.equal(still, same.records([seen.uploads[name]], Coins.from_seed(0)))
    x = steps.drawn[made.task.shards[name]]
    moved = course.symmetry.permute_inputs(x, course.truth(seen.frame))
    assert like(still, moved, None)["psnr"] > 40


def test_an_agreement_is_driven_once() -> None:
    sat: list[int] = []

    def drive(sitting: Any) -> Any:
        sat.append(len(sitting.bench))
        return Local()(sitting)

    course = Course(Ground(SETTING, 0), pipeline(), Once(drive))
    course.played(1)
    replace(course, pipeline=pipeline(first="open")).played(1)
    assert sum(1 for size in sat if not size) == 1
    assert sum(1 for size in sat if size) == 2


def test_a_tampered_upload_is_left_out_put_apart_or_averaged_in(found: dict[str, Any]) -> None:
    by_lie = {(one["rule"], one["lie"]): one for one in found["tampered"]}
    assert len(by_lie) == 2 * len(LIES)
    for rule in ("clusters", "mean of all"):
        assert by_lie[rule, "frame"]["left_out"] == 2
        assert noticed(by_lie[rule, "frame"]) == "left out in 2 of 2"
        assert by_lie[rule, "hidden units"]["left_out"] == by_lie[rule, "few units"]["left_out"] == 0
    assert by_lie["mean of all", "everything"]["alone"] is None
    assert by_lie["clusters", "hidden units"]["alone"] == 2


def test_a_lie_about_hidden_units_answers_alike_and_one_about_everything_does_not(course: Course) -> None:
    task, symmetry = course.ground.made.task, course.symmetry
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


def test_a_lie_about_the_frame_names_another(course: Course) -> None:
    (done,) = course.played(1)
    name, told = next(iter(course.sights([done])[0].uploads)), course.sights([done])[0].frame
    body = {"vector": torch.zeros(1), "frame": torch.frombuffer(bytearray(told), dtype=torch.uint8)}
    (letter,) = lying("frame", course.symmetry, Coins.from_seed(0))((Letter("server", "up", body),), None)  # type: ignore[arg-type]
    other = frame_of(letter.body["frame"])  # type: ignore[call-overload]
    assert other is not None
    assert other.pack() != told
    assert 0 <= received(course, done, name) <= 1


def test_plain_uploads_are_said_to_be_plain() -> None:
    assert orders(CLEAR) == [CLEAR]
    found = exposed(study(SETTING, CLEAR, [0, 1], Local(), lambda _: None, DEPTH))
    assert not found["hidden"]
    assert found["says"][0] == PLAIN
    assert found["verdict"].startswith(PLAIN)
    assert at(found["orders"][0], "order")["psnr"]["rate"] > 30
    page = "".join(sections(found))
    assert "What do single steps give away?" in page
    assert "How much of each permutation" not in page
    assert found["tampered"] == []


def test_findings_are_plain_values_and_the_sections_hold_the_tables(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    page = "".join(sections(found))
    for word in ("layers.0.weight.0", "Recovered, absolute", "PSNR, dB", "laid out", "Noticed", "neighbours kept"):
        assert word in page
    assert page.count("<img ") == sum(len(strip["pictures"]) for strip in found["pictures"]) == 11
    assert any("nothing that depends on the rule survives" in said for said in found["says"])


class Pool:
    """Hands jobs over as another process would get them, without one."""

    def __init__(self, hands: int, context: object, enter: Callable[..., None], given: tuple[Any, ...]) -> None:
        assert hands == 2

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *given: object) -> None: ...

    def submit(self, work: Callable[[Any], Any], job: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(job))))))
        return done


def test_an_inversion_that_fails_in_plain_order_is_said_to_have_failed(found: dict[str, Any]) -> None:
    assert FAILED not in found["says"]
    poor = copy.deepcopy(found["orders"])
    at(poor[0], "told")["psnr"]["rate"] = 3.0
    assert sentences(poor, found["layout"])[-1] == FAILED


def test_seeds_can_run_abreast(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Depth(rounds=1, uploads=1, pictures=10)
    heard: list[str] = []
    one = study(SETTING, CLEAR, [0, 1], Local(), heard.append, short)
    monkeypatch.setattr("croupier.audit.abreast.ProcessPoolExecutor", Pool)
    two = study(SETTING, CLEAR, [0, 1], Local(), heard.append, short, abreast=2)
    assert json.dumps(one) == json.dumps(two)
    assert len(heard) == 4


def test_records_and_inputs_that_are_no_pictures_or_no_one_group() -> None:
    made = Ground(SETTING, 0).made
    assert pictured(made.dataset) == (1, 8, 8)
    assert pictured(replace(made.dataset, name="else")) is None
    assert made.task.symmetry is not None
    assert input_group(made.task.symmetry()) == "input.0"


def test_what_cannot_be_looked_into_is_refused(course: Course) -> None:
    ground = course.ground
    blind = replace(ground.made, task=replace(ground.made.task, symmetry=None))
    other = Ground(SETTING, 0)
    other.__dict__["made"] = blind
    with pytest.raises(SpecError, match="matched"):
        _ = Course(other, course.pipeline, course.drive).symmetry
    odd = Ground(SETTING, 0)
    odd.__dict__["made"] = replace(ground.made, task=replace(ground.made.task, fit=lambda _: []))
    with pytest.raises(SpecError, match="quantities"):
        Course(odd, course.pipeline, course.drive).steps(Coins.from_seed(0))


def test_a_view_of_sums_shows_no_uploads() -> None:
    small: Setting = SETTING
    summed = load("digits-sum").protocol
    course = Course(Ground(small, 0), summed.model_copy(), Local())
    (done,) = course.played(1)
    with pytest.raises(ProtocolError, match="no single updates"):
        sight(done.views["server"], summed)


def test_a_rule_of_every_round_is_matched_as_well() -> None:
    each = SPEC.protocol.model_copy(update={"encode": HiddenUnits(agree="round")})
    assert [(one.encode.kept, one.encode.fetch) for one in orders(each)] == [(False, "anyone")] * 2  # type: ignore[attr-defined]
    course = Course(Ground(SETTING, 0), orders(each)[0], Local())
    track = followed(course.sights(course.played(2)), course.symmetry, Coins.from_seed(1), 2)
    assert min(group["relative"] for group in scored(track, course)) == 1.0
