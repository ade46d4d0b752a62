"""Can hidden coordinates be put back in order? On the preset's own network and agreement, in small."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from croupier.aggregate.clusters import Clusters
from croupier.audit import onlooker
from croupier.audit.attacks import permutation as topic
from croupier.audit.bench import Bench
from croupier.audit.blind import Blind, Panel, answer
from croupier.audit.course import Course, Once
from croupier.audit.exposure import FAILED, at, exposed, noticed, sentences
from croupier.audit.integrity import Ground
from croupier.audit.lies import ALL, LIES, Lie, lying, received
from croupier.audit.likeness import like, pictured
from croupier.audit.match import shares
from croupier.audit.onlooker import Reader, followed, rule_plain, sight, unmoved
from croupier.audit.question import SERVER, Adversary, Arm, Trial
from croupier.audit.questions.permutation import Permutation
from croupier.audit.secrecy import TOPIC, Order, input_group, orders, scored
from croupier.audit.setting import Depth
from croupier.audit.verdict import cell
from croupier.auditing import setting_of
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.core.update import Update
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits, frame_of
from croupier.encode.symmetry import Rule
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.runtime.local import Local
from croupier.spec import Spec, load

SMALL = ["task.split.clients=10", "federation.cohort=6", "task.fit.epochs=2", "run.workers=1"]
SPEC = load("tazza", SMALL)
DEPTH = Depth(rounds=3, uploads=2, pictures=200)
SETTING = replace(setting_of(SPEC), depth=DEPTH)
CLEAR = SPEC.protocol.model_copy(update={"encode": Floats(weights="uniform")})
SHORT = Depth(rounds=2, uploads=1, pictures=20)
TOLD = Adversary(("server", "client"), forbidden=True)


class Still(Panel):
    """A panel without processes: what is asked and answered still passes through canonical bytes, and is kept."""

    def __init__(self) -> None:
        super().__init__(1)
        self.heard: list[tuple[Any, Any]] = []

    def ask(self, topic: str, known: Any, asked: Any) -> Future[dict[str, Any]]:
        """The answer, at once."""
        self.heard.append((known, asked))
        told = canon.load(canon.dump({"known": dict(known), "asked": dict(asked)}))
        done: Future[dict[str, Any]] = Future()
        done.set_result(canon.load(canon.dump(answer(topic, told["known"], told["asked"]))))
        return done


def pipeline(**given: Any) -> Pipeline:
    return SPEC.protocol.model_copy(update={"encode": HiddenUnits(**given)})


def trials(spec: Spec, seed: int = 0, depth: Depth = SHORT, own: bool = True, who: Any = (SERVER,)) -> dict[str, Trial]:
    """One run of the question."""
    bench = Bench(replace(setting_of(spec), depth=depth), seed, Still(), Local())
    arm = Arm("mine", "mine", spec.protocol, own=own)
    assert Permutation().unfit(bench, arm) == ""
    return dict(Permutation().play(bench, arm, who)())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the fresh process: sums over several threads could differ in last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def runs() -> list[Trial]:
    """Two runs of the preset's own protocol."""
    return [trials(SPEC, seed, DEPTH)["server"] for seed in (0, 1)]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {**Permutation().facts(runs())["numbers"], **Permutation().facts(runs())}


@pytest.fixture(scope="module")
def course() -> Course:
    return Course(Ground(SETTING, 0), pipeline(), Once(Local()))


def by(found: dict[str, Any], first: str, kept: bool) -> dict[str, Any]:
    (order,) = [one for one in found["orders"] if (one["first"], one["kept"]) == (first, kept)]
    return dict(order)


def test_the_order_between_rounds_is_recovered_and_plain_order_is_not() -> None:
    for trial in runs():
        assert list(trial.scores) == ["plain", "between"]
        assert trial.scores["between"].value == 1
        assert trial.scores["plain"].value < 0.1
        assert trial.scores["plain"].prior == pytest.approx(3 / 160)
        # The control: the same rule, with the first model known.
        assert trial.controls["plain"].value == 1
    made = cell(Permutation(), runs() * 2, [])
    assert (made["attack"], made["status"]) == ("between", "leak")
    assert "the permutation is recovered: of 100 permuted places, 98 more" in made["words"]
    assert "itself stays unknown" in made["words"]
    assert made["attacks"]["plain"]["scored"]


def test_where_the_first_model_is_open_plain_order_decides() -> None:
    found = trials(load("tazza", [*SMALL, "protocol.encode.first=open"]), own=False)["server"]
    assert list(found.scores) == ["between", "plain"]
    assert found.scores["plain"].value == 1
    assert found.facts == {}
    made = cell(Permutation(), [found] * 4, [])
    assert made["words"].startswith("the permutation is recovered")
    assert "unknown" not in made["words"]


def test_a_server_that_a_client_helps_is_told_the_rule() -> None:
    found = trials(SPEC, own=False, who=(SERVER, TOLD))
    assert list(found[TOLD.key].scores)[-1] == "told"
    assert found[TOLD.key].scores["told"].value == 1
    assert "told" not in found["server"].scores


def test_uploads_that_are_drowned_in_noise_are_not_matched() -> None:
    """The negative control: what comes back has nothing to do with the model that was handed out."""
    ground = Ground(SETTING, 0)
    fit = ground.made.task.fit

    def drowned(jobs: Any) -> list[Any]:
        drawn = torch.Generator().manual_seed(5)
        return [
            replace(one, vector=100 * torch.randn(one.vector.shape, generator=drawn))
            for one in fit(jobs)
            if isinstance(one, Update)
        ]

    ground.__dict__["made"] = replace(ground.made, task=replace(ground.made.task, fit=drowned))
    order = Order(Course(ground, pipeline(first="open"), Local()), SHORT, Still(), whole=False)
    assert all(group["absolute"] <= 0.1 for group in order.play().plain()["groups"])


def test_who_has_nothing_to_match_is_told_why() -> None:
    question = Permutation()
    bench, arm = Bench(SETTING, 0, Still(), Local()), Arm("tazza", "tazza", SPEC.protocol)
    assert question.unseen(bench, arm, SERVER) == question.unseen(bench, arm, TOLD) == ""
    assert "clients know the rule" in question.unseen(bench, arm, Adversary(("client",)))
    assert "only the server" in question.unseen(bench, arm, Adversary(("relay",)))
    assert question.unfit(bench, Arm("clear", "clear", CLEAR)).startswith("nothing is permuted")
    bench.kept["ground", SETTING] = blind = Ground(SETTING, 0)
    blind.__dict__["made"] = replace(blind.made, task=replace(blind.made.task, symmetry=None))
    assert "does not show its network" in question.unfit(bench, arm)


@cache
def asked() -> tuple[tuple[Any, ...], Course]:
    """Everything that attacks were asked on one order of things, and the run with its rules."""
    panel = Still()
    order = Order(Course(Ground(SETTING, 0), pipeline(), Once(Local())), SHORT, panel)
    order.play().plain()
    return tuple(panel.heard), order.course


def test_blind() -> None:
    """A fresh process answers the same, to the last bit, of each kind of attack."""
    heard, _ = asked()
    with Blind() as process:
        for does in ("match", "read", "lay out"):
            known, one = next((known, one) for known, one in heard if one["does"] == does)
            assert canon.dump(process.ask(TOPIC, known, one)) == canon.dump(answer(TOPIC, known, one))


def test_attacks_are_given_no_rule_no_secret_and_no_coins_of_others() -> None:
    heard, course = asked()
    frames = {one["frame"] for _, each in heard for one in each.get("sights", ())}
    rules = [course.truth(frame) for frame in frames]
    marks = [bytes(canon.tensor_bytes(order)) for rule in rules for order in rule_plain(rule).values()]
    marks += [Coins.from_seed(0).export(), Coins.from_seed(0).child("run").export()]
    # The readings that a client's rule is told to are the last of every moment, and the only ones.
    told = [one["does"] == "read" and _is_told(one, rules) for _, one in heard]
    assert sum(told) == 2
    for (known, one), given in zip(heard, told, strict=True):
        body = canon.dump({"known": dict(known), "asked": dict(one)})
        assert bool([mark for mark in marks if mark in body]) is given


def _is_told(one: Any, rules: list[Rule]) -> bool:
    given = [step["of_upload"] for step in one["steps"] if step["of_upload"] is not None]
    return bool(given) and all(
        any(canon.dump(rule_plain(rule)) == canon.dump(each) for rule in rules) for each in given
    )


def test_a_topic_does_one_of_three_things() -> None:
    heard, _ = asked()
    assert {one["does"] for _, one in heard} == {"match", "read", "lay out"}
    assert topic.study(heard[0][0]).search is None


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


def test_what_is_shown_are_plain_values_and_holds_the_tables(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    page = json.dumps(found["tables"])
    for word in ("layers.0.weight.0", "Plain order, %", "PSNR, dB", "laid out", "Noticed", "neighbours kept"):
        assert word in page
    assert all(len(row) == len(table["heads"]) for table in found["tables"] for row in table["rows"])
    assert sum(len(strip["pictures"]) for strip in found["pictures"]) == 11
    assert any("nothing that depends on the rule survives" in said for said in found["sentences"])
    assert found["sentences"][0].startswith("Obfuscation, not encryption")


def test_an_inversion_that_fails_in_plain_order_is_said_to_have_failed(found: dict[str, Any]) -> None:
    assert FAILED not in found["sentences"]
    poor = copy.deepcopy(found["orders"])
    at(poor[0], "told")["psnr"]["rate"] = 3.0
    assert sentences(poor, found["layout"])[-1] == FAILED


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
    summed = load("digits-sum").protocol
    course = Course(Ground(SETTING, 0), summed.model_copy(), Local())
    (done,) = course.played(1)
    with pytest.raises(ProtocolError, match="no single updates"):
        sight(done.views["server"], summed)


def test_a_rule_of_every_round_is_matched_as_well() -> None:
    each = SPEC.protocol.model_copy(update={"encode": HiddenUnits(agree="round")})
    assert [(one.encode.kept, one.encode.fetch) for one in orders(each)] == [(False, "anyone")] * 2  # type: ignore[attr-defined]
    course = Course(Ground(SETTING, 0), orders(each)[0], Local())
    track = followed(course.sights(course.played(2)), course.symmetry, Coins.from_seed(1), 2)
    assert min(group["relative"] for group in scored(track, course)) == 1.0


def test_a_mean_is_tampered_with_once_and_matched_all_the_same() -> None:
    few = ["task.split.clients=6", "federation.cohort=3", "task.fit.epochs=1", "task.model.hidden=[16]"]
    found = trials(load("tazza", [*few, "protocol.aggregate=mean"]), 3)["server"].facts["account"]["orders"]
    known = next(one for one in found if (one["first"], one["kept"]) == ("open", False))
    assert all(group["absolute"] == 1 for group in known["groups"])
    lines = found[0]["tampered"]
    assert [(line["rule"], line["lie"]) for line in lines] == [(ALL, lie) for lie in LIES]
    assert {line["alone"] for line in lines} == {None}


def test_a_rule_that_needs_the_last_model_is_tried_in_kept_orders_alone() -> None:
    kept = load("tazza", ["protocol.aggregate=multi-krum", "protocol.aggregate.f=1", "protocol.encode.kept=true",
                          "protocol.encode.form=delta"]).protocol  # fmt: skip
    assert not kept.aggregate.anew
    whole = kept.model_copy(update={"encode": HiddenUnits(kept=True)})
    for one in (kept, whole):
        assert [(each.encode.kept, each.encode.first) for each in orders(one)] == [(True, "clients")]  # type: ignore[attr-defined]


def test_differences_are_read_as_well_as_weights() -> None:
    sets = ["protocol.aggregate=mean", "protocol.encode.kept=true", "protocol.encode.form=delta"]
    found = [trials(load("tazza", [*SMALL, *sets]), seed)["server"] for seed in (0, 1)]
    # One rule for the epoch: the frames say themselves that all rounds are in one order.
    assert all(one.scores["between"].value == 1 and one.scores["plain"].value < 0.1 for one in found)
    told = exposed([one.facts["account"] for one in found])
    (own,) = told["numbers"]["orders"]
    assert at(own, "told")["psnr"]["rate"] > 40
    assert at(own, "relative", "in the unknown order")["psnr"]["rate"] > 40
    assert FAILED not in told["sentences"]
