"""The mod and the strategy: nothing of an update passes the grid, and whoever tries to get at it is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi, Result, Strategy
from tests.flowers import LENGTH, QUICK, SHORT, deployed, numbers, numbers_app

import croupier.flower
from croupier.errors import CroupierWarning, ProtocolError, SpecError
from croupier.flower.arrays import layout_of
from croupier.flower.letters import FIXED_WORD, Told
from croupier.flower.mod import LONGEST_NAME, MOST_NUMBERS, AppFit, _check_evaluation
from croupier.flower.rehearse import RehearsalPlan
from croupier.service.roster import Timetable
from croupier_lab.bench.flower.grid import HereGrid, packed
from croupier_lab.bench.flower.traces import Haystack, TracedUpdate

NODES = 3
METRICS = {"train_loss": 16.0}


class Scene:
    """What a protected run of the app of numbers left behind."""

    def __init__(self, result: Result, grid: HereGrid, said: str) -> None:
        self.result, self.grid, self.said = result, grid, said


Play = Callable[..., Scene]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Play:
    """Run the app of numbers, protected, on key files; nodes may be dropped, configured and disturbed."""

    def run(
        strategy: Strategy | None = None, count: int = 2, *, config: dict[str, Any] | None = None,
        drops: Callable[[int, Message], bool] = lambda node, message: False,
        train: Callable[[int, Any], None] = lambda node, context: None, app: ClientApp | None = None,
        times: Timetable = QUICK,
    ) -> Scene:  # fmt: skip
        with deployed(numbers(), NODES, RehearsalPlan(metrics=METRICS, times=times)) as (made, configs):
            monkeypatch.setenv("CROUPIER_KEY", str(made.key("server")))
            grid = HereGrid(app or numbers_app([croupier.flower.shield], train), configs, config, drops)
            protected = croupier.flower.protect(strategy or FedAvg())
            result = protected.start(grid, numbers(), count)
        return Scene(result, grid, capfd.readouterr().err)

    return run


def unprotected(strategy: Strategy, count: int = 2) -> Result:
    """The same app with Flower's own way to aggregate."""
    grid = HereGrid(numbers_app([]), {node + 1: {"partition-id": node} for node in range(NODES)})
    return strategy.start(grid, numbers(), count)


# What the preset makes of one example's value, and in how many bits three clients' residues travel.
UNIT, BITS = 1e8 / 1e4, 30


def sought(part: int) -> TracedUpdate:
    """What a node of the app made of the first model, in every form in which it is held before it is shared."""
    start, examples = numbers()["w"].numpy(), 10.0 * (part + 1)
    return TracedUpdate(learned(start, part), start, examples, units=(UNIT, UNIT * examples), bits=(BITS,))


def learned(model: np.ndarray[Any, Any], part: int) -> np.ndarray[Any, Any]:
    """What a node of the app makes of a model."""
    ramp = np.linspace(0.01 * (part + 1), -0.02 * (part + 1), LENGTH, dtype=np.float32)
    return model * np.float32(0.9) + ramp


def test_no_update_is_in_anything_that_the_grid_relayed(play: Play) -> None:
    scene = play(count=1)
    seen = b"\n".join(scene.grid.relayed)
    start = numbers()["w"].numpy()
    assert start.tobytes() in seen, "the model that is handed out passes"
    hay = Haystack(seen)
    assert [sought(part).traces(hay) for part in range(NODES)] == [{}] * NODES
    assert all(not reply.content.array_records for reply in scene.grid.replies)


def test_the_search_finds_an_update_that_is_not_protected() -> None:
    grid = HereGrid(numbers_app([]), {1: {"partition-id": 0}, 2: {"partition-id": 1}})
    FedAvg().start(grid, numbers(), 1)
    hay = Haystack(b"\n".join(grid.relayed))
    assert all(sought(part).traces(hay)["update <f4"] > 0.9 * LENGTH for part in range(2))
    assert sought(2).traces(hay) == {}, "nobody trained so"


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, FedYogi])
def test_a_strategy_keeps_its_steps(play: Play, kind: type[FedAvg]) -> None:
    more: dict[str, Any] = {"server_learning_rate": 0.5, "server_momentum": 0.9} if kind is FedAvgM else {}
    protected, plain = play(kind(**more)).result, unprotected(kind(**more))
    # A mean is off by less than a unit: 10^-4 for one example of the least that any of them has.
    room = 0.02 if kind in (FedAdam, FedYogi) else 1e-5
    assert np.abs(protected.arrays["w"].numpy() - plain.arrays["w"].numpy()).max() < room
    assert protected.arrays["seen"].numpy() == 7
    assert protected.train_metrics_clientapp[1]["train_loss"] == pytest.approx(7 / 6, abs=1e-4)
    assert protected.evaluate_metrics_clientapp[2]["loss"] == pytest.approx(1.5)


def test_a_node_that_is_lost_leaves_the_rest(play: Play) -> None:
    def lost(node: int, message: Message) -> bool:
        return node == 2 and "arrays" in message.content and message.metadata.message_type == "train"

    scene = play(count=1, drops=lost, times=SHORT)
    start = numbers()["w"].numpy()
    rest = (learned(start, 0) * 10 + learned(start, 2) * 30) / 40
    assert np.abs(scene.result.arrays["w"].numpy() - rest).max() < 1e-5
    assert '"event": "missing"' in scene.said


def test_a_run_that_speaks_of_protection_is_refused(play: Play) -> None:
    with pytest.raises(Exception, match="needs"):
        play(count=1, config={"croupier": "off"})


def test_a_strategy_that_is_not_protected_gets_nothing(play: Play) -> None:
    with deployed(numbers(), NODES) as (_, configs):
        grid = HereGrid(numbers_app([croupier.flower.shield]), configs)
        result = FedAvg(fraction_evaluate=0.0).start(grid, numbers(), 1)
    assert result.arrays is None or not len(result.arrays)
    assert {reply.error.reason for reply in grid.replies} == {FIXED_WORD}


def test_what_an_app_raises_stays_on_its_node(play: Play) -> None:
    def fails(node: int, context: Any) -> None:
        if node == 1:
            raise ValueError("patient 4711 has no weight")

    scene = play(count=1, train=fails, times=SHORT)
    assert b"4711" not in b"\n".join(scene.grid.relayed)
    assert "4711" in scene.said
    assert {reply.error.reason for reply in scene.grid.replies if reply.has_error()} == {FIXED_WORD}


def test_a_server_does_not_choose_which_number_is_the_weight(play: Play) -> None:
    with pytest.raises(SpecError, match="weighted_by_key = 'positives'"):
        play(FedAvg(weighted_by_key="positives"), count=1)
    # The node's own check: this server does not keep to ours.
    message = Message(RecordDict({"arrays": numbers()}), dst_node_id=1, message_type="train")
    member = SimpleNamespace(roster=SimpleNamespace(layout=layout_of(numbers(), METRICS)))
    station: Any = SimpleNamespace(member=member, options=SimpleNamespace(tell=print))
    context: Any = None
    for key in ("positives", "seen", ""):
        with pytest.raises(SpecError, match="the roster names no such metric"):
            AppFit(station, Told(notice=b"signed", weight=key), message, context, lambda one, _: one)
    assert AppFit(station, Told(notice=b"signed", weight="num-examples"), message, context, lambda one, _: one).key


def metrics_reply(**records: MetricRecord) -> Message:
    """What an app's evaluation answers."""
    HereGrid(ClientApp(), {})
    return Message(RecordDict(dict(records)), dst_node_id=1, message_type="evaluate")


def test_an_evaluation_is_a_few_numbers_with_short_names() -> None:
    few = {f"w{number}": 0.5 for number in range(MOST_NUMBERS)}
    _check_evaluation(metrics_reply(metrics=MetricRecord({**few})))
    _check_evaluation(metrics_reply(metrics=MetricRecord({"n" * LONGEST_NAME: 1})))
    halves = MetricRecord({f"w{number}": 0.5 for number in range(MOST_NUMBERS // 2 + 1)})
    empty = {f"w{number}": MetricRecord({}) for number in range(MOST_NUMBERS + 1)}
    for many in ({"metrics": MetricRecord({**few, "more": 1})}, {"one": halves, "two": halves}, empty):
        with pytest.raises(ProtocolError, match="numbers; give at most 64"):
            _check_evaluation(metrics_reply(**many))
    long = "n" * (LONGEST_NAME + 1)
    for named in ({"metrics": MetricRecord({long: 1})}, {long: MetricRecord({"loss": 1})}):
        with pytest.raises(ProtocolError, match="a name of 65 characters"):
            _check_evaluation(metrics_reply(**named))


@pytest.mark.parametrize("form", ["arrays", "list", "config", "many"])
def test_an_evaluation_that_could_hold_a_model_is_refused(play: Play, form: str) -> None:
    app = numbers_app([croupier.flower.shield])
    secret = learned(numbers()["w"].numpy(), 0)
    records: dict[str, Any] = {
        "arrays": ArrayRecord({"w": Array(secret)}),
        "list": MetricRecord({"all": [float(one) for one in secret]}),
        "config": ConfigRecord({"all": secret.tobytes()}),
        "many": MetricRecord({f"w{at}": float(one) for at, one in enumerate(secret)}),
    }

    # The app's own evaluation is replaced.
    app._registered_funcs.pop("evaluate.default")

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({form: records[form]}), reply_to=message)

    scene = play(count=1, app=app)
    assert sum(reply.has_error() for reply in scene.grid.replies) == NODES
    assert secret.tobytes() not in b"\n".join(scene.grid.relayed)
    assert repr(float(secret[3])).encode() not in b"\n".join(scene.grid.relayed)


def test_too_few_nodes_lose_the_round_and_keep_the_model(play: Play) -> None:
    def lost(node: int, message: Message) -> bool:
        return node > 1 and "arrays" in message.content and message.metadata.message_type == "train"

    with pytest.warns(CroupierWarning, match="round 1 was lost"):
        scene = play(count=1, drops=lost, times=SHORT)
    assert scene.result.arrays is None or not len(scene.result.arrays)
    assert packed(scene.grid.replies[0])
