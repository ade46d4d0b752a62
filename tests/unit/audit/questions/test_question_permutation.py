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
from tests.scenes import answer, ask

from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks import permutation as topic
from croupier.audit.attacks.permutation import follow
from croupier.audit.bench import Bench
from croupier.audit.blind import Blind, Panel
from croupier.audit.permuted_run import PermutedRun, server_round
from croupier.audit.question import SERVER, Adversary, Arm, QuestionRun
from croupier.audit.questions.permutation import TOPIC, Permutation, order_of, recovered, scored, with_control
from croupier.audit.setting import Depth, setting_of
from croupier.audit.verdict import cell
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.encode.floats import Floats
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Rule
from croupier.engine.local import Local
from croupier.errors import ProtocolError, SpecError
from croupier.learn.axes.matching import shares
from croupier.pipeline import Pipeline
from croupier.spec import Spec, load

SMALL = ["task.split.clients=10", "federation.cohort=6", "task.fit.epochs=2", "run.workers=1"]
SPEC = load("tazza", SMALL)
DEPTH = Depth(rounds=3, uploads=2)
SETTING = replace(setting_of(SPEC), depth=DEPTH)
CLEAR = SPEC.protocol.model_copy(update={"encode": Floats(weights="uniform")})
SHORT = Depth(rounds=2, uploads=1)
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


def trials(
    spec: Spec, seed: int = 0, depth: Depth = SHORT, own: bool = True, who: Any = (SERVER,)
) -> dict[str, QuestionRun]:
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
def runs() -> list[QuestionRun]:
    """Two runs of the preset's own protocol."""
    return [trials(SPEC, seed, DEPTH)["server"] for seed in (0, 1)]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {**Permutation().facts(runs())["numbers"], **Permutation().facts(runs())}


@pytest.fixture(scope="module")
def run() -> PermutedRun:
    return PermutedRun(Ground(SETTING, 0), pipeline(), Local())


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
    order = order_of(PermutedRun(ground, pipeline(first="open"), Local()), SHORT, Still())
    assert all(group["absolute"] <= 0.1 for group in order()["groups"])


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
def asked() -> tuple[tuple[Any, ...], PermutedRun]:
    """Everything that attacks were asked on one variant, and the run with its rules."""
    panel, run = Still(), PermutedRun(Ground(SETTING, 0), pipeline(), Local())
    order_of(run, SHORT, panel)()
    return tuple(panel.heard), run


def test_blind() -> None:
    """A fresh process answers the same, to the last bit."""
    heard, _ = asked()
    with Blind() as process:
        for known, one in heard:
            assert canon.dump(ask(process, TOPIC, known, one)) == canon.dump(answer(TOPIC, known, one))


def test_attacks_are_given_no_rule_no_secret_and_no_coins_of_others() -> None:
    heard, run = asked()
    frames = {one["frame"] for _, each in heard for one in each.get("rounds", ())}
    rules = [run.truth(frame) for frame in frames]
    marks = [bytes(canon.tensor_bytes(order)) for rule in rules for order in map(torch.from_numpy, rule.of.values())]
    marks += [Coins.from_seed(0).export(), Coins.from_seed(0).child("run").export()]
    assert heard
    for known, one in heard:
        body = canon.dump({"known": dict(known), "asked": dict(one)})
        assert not [mark for mark in marks if mark in body]


def test_matching_recovers_every_group_where_the_first_model_is_known(found: dict[str, Any]) -> None:
    order = by(found, "open", False)
    assert [group["size"] for group in order["groups"]] == [64, 64, 32]
    assert all(group["absolute"]["low"] >= 0.99 for group in order["groups"])
    assert all(group["least"] >= 0.99 for group in order["groups"])


def test_matching_is_relative_where_the_clients_draw_it(found: dict[str, Any]) -> None:
    order = by(found, "clients", False)
    assert order["own"]
    assert all(group["relative"]["rate"] >= 0.99 for group in order["groups"])
    # Two runs of at most 64 places: a random order has at most a few right.
    assert all(group["absolute"]["rate"] <= 5 / group["size"] for group in order["groups"])
    assert all(group["chance"] == 1 / group["size"] for group in order["groups"])


def test_what_was_found_does_not_depend_on_the_truth_but_the_score_does(run: PermutedRun) -> None:
    seen = run.seen(run.played(2))
    guesses, known = follow(seen, run.symmetry, Coins.from_seed(1), 2)
    again, _ = follow(seen, run.symmetry, Coins.from_seed(1), 2)
    wrong = Lied(run.ground, run.pipeline, run.drive, run.remembered)
    assert wrong.truth(seen[1].frame).of["input.0"].tolist() != run.truth(seen[1].frame).of["input.0"].tolist()
    for one, two in zip(guesses, again, strict=True):
        assert shares(one.rule, two.rule) == dict.fromkeys(run.symmetry.groups, 1.0)
    assert min(group["relative"] for group in scored(guesses, next(iter(known)), run)) == 1.0
    assert max(group["relative"] for group in scored(guesses, next(iter(known)), wrong)) < 0.3


class Lied(PermutedRun):
    """A scorer with other rules."""

    def truth(self, frame: bytes) -> Rule:
        rule = super().truth(frame)
        return Rule({group: np.roll(order, len(frame) and frame[4] + 1) for group, order in rule.of.items()})


def test_the_attack_has_no_way_to_the_truth() -> None:
    assert set(inspect.signature(follow).parameters) == {"rounds", "symmetry", "coins", "most", "earlier"}
    assert set(inspect.signature(server_round).parameters) == {"view", "pipeline"}
    known = {getattr(value, "__module__", "") or "" for value in vars(topic).values()}
    ways = (
        "croupier.agree.epochs",
        "croupier.agree",
        "croupier.place",
        "croupier.mpc",
        "croupier.audit.permuted_run",
        "croupier.engine.loop",
    )
    assert not [name for name in known if name.startswith(ways)]


def test_a_round_of_the_server_is_what_it_handed_out_and_got(run: PermutedRun) -> None:
    done = run.played(2)
    first, second = run.seen(done)
    assert [one.client for one in first.uploads] == list(done[0].present)
    # The clients drew the first model under the first round's rule.
    assert first.uploads[0].model_frame == first.frame != second.frame
    sent = second.uploads[0]
    plain = run.symmetry.invert(sent.vector, run.truth(second.frame))
    start = run.symmetry.invert(sent.model, run.truth(sent.model_frame))
    # One is the other after two epochs.
    assert float((plain - start).norm() / start.norm()) < 0.5
    assert float((sent.vector - start).norm() / start.norm()) > 0.8


def test_models_of_unknown_frames_are_passed_over(run: PermutedRun) -> None:
    _, second, third = run.seen(run.played(3))
    lost = replace(third, uploads=tuple(replace(one, model_frame=b"x" * 40) for one in third.uploads))
    guesses, known = follow([second, lost], run.symmetry, Coins.from_seed(0), 1)
    assert [guess.frame for guess in guesses] == [second.frame]
    assert lost.frame not in known


def test_what_is_shown_are_plain_values_and_holds_the_tables(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    page = json.dumps(found["tables"])
    for word in ("layers.0.weight.0", "Plain order, %", "Between rounds, %"):
        assert word in page
    assert all(len(row) == len(table["heads"]) for table in found["tables"] for row in table["rows"])
    assert any("nothing that depends on the rule survives" in said for said in found["sentences"])
    assert found["sentences"][0].startswith("Obfuscation, not encryption")


def test_what_cannot_be_looked_into_is_refused(run: PermutedRun) -> None:
    ground = run.ground
    blind = replace(ground.made, task=replace(ground.made.task, symmetry=None))
    other = Ground(SETTING, 0)
    other.__dict__["made"] = blind
    with pytest.raises(SpecError, match="matched"):
        _ = PermutedRun(other, run.pipeline, run.drive).symmetry


def test_a_view_of_sums_shows_no_uploads() -> None:
    summed = load("digits-sum").protocol
    run = PermutedRun(Ground(SETTING, 0), summed.model_copy(), Local())
    (done,) = run.played(1)
    with pytest.raises(ProtocolError, match="no single updates"):
        server_round(done.views["server"], summed)


def test_a_rule_of_every_round_is_matched_as_well() -> None:
    each = SPEC.protocol.model_copy(update={"encode": HiddenUnits(agree="round")})
    assert [(one.encode.kept, one.encode.fetch) for one in with_control(each)] == [(False, "anyone")] * 2  # type: ignore[attr-defined]
    run = PermutedRun(Ground(SETTING, 0), with_control(each)[0], Local())
    guesses, known = follow(run.seen(run.played(2)), run.symmetry, Coins.from_seed(1), 2)
    assert min(group["relative"] for group in scored(guesses, next(iter(known)), run)) == 1.0


def test_a_rule_that_needs_the_last_model_is_tried_in_kept_orders_alone() -> None:
    kept = load("tazza", ["protocol.aggregate=multi-krum", "protocol.aggregate.f=1", "protocol.encode.kept=true",
                          "protocol.encode.form=delta"]).protocol  # fmt: skip
    assert not kept.aggregate.anew
    whole = kept.model_copy(update={"encode": HiddenUnits(kept=True)})
    for one in (kept, whole):
        assert [(each.encode.kept, each.encode.first) for each in with_control(one)] == [(True, "clients")]  # type: ignore[attr-defined]


def test_differences_are_read_as_well_as_weights() -> None:
    sets = ["protocol.aggregate=mean", "protocol.encode.kept=true", "protocol.encode.form=delta"]
    found = [trials(load("tazza", [*SMALL, *sets]), seed)["server"] for seed in (0, 1)]
    # One rule for the epoch: the frames say themselves that all rounds are in one order.
    assert all(one.scores["between"].value == 1 and one.scores["plain"].value < 0.1 for one in found)


def test_uploads_to_a_mean_are_matched_as_well() -> None:
    few = ["task.split.clients=6", "federation.cohort=3", "task.fit.epochs=1", "task.model.hidden=[16]"]
    found = trials(load("tazza", [*few, "protocol.aggregate=mean"]), 3)["server"].facts["orders"]
    known = next(one for one in found if one["first"] == "open")
    assert all(group["absolute"] == 1 for group in known["groups"])


def test_what_withstood_is_no_proof(found: dict[str, Any]) -> None:
    poor = copy.deepcopy(by(found, "open", False))
    assert "nothing that depends on the rule survives" in recovered(poor)
    poor["groups"][1]["absolute"] = {"rate": 0.5, "low": 0.4, "high": 0.6}
    assert "no proof that no attack can" in recovered(poor)
