"""A server that publishes another sum than was computed: every node finds out with its next message, and stops."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.flowers import QUICK, SHORT
from tests.laws.flower import FlowerScene
from tests.laws.pipelines import PIPELINES
from tests.laws.services import Deployment
from tests.laws.toy import CLIENTS, SEED, task

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Letter, SubFlow
from croupier.encode.encoder import Released
from croupier.engine.federation import Federation
from croupier.flower.letters import FIXED_WORD
from croupier.pipeline import Pipeline
from croupier.place.placement import NOTHING, Mechanism, ServerHoldings
from croupier.place.servers import SumServers


class ForgingServers(SumServers):
    """Honest sum servers, and a server that moves one coordinate of what it publishes."""

    def collect(self, mechanism: Mechanism, given: object, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """Publish another sum."""
        flow, answer = super().collect(mechanism, given, coins, own), None  # type: ignore[arg-type]
        while True:
            try:
                ask = flow.send(answer)
            except StopIteration as stop:
                released: Released = stop.value
                return released
            if isinstance(ask, Exchange):
                ask = replace(ask, send=tuple(_forged(letter) for letter in ask.send))
            answer = yield ask


def _forged(letter: Letter) -> Letter:
    if letter.kind != "published" or isinstance(letter.body, bytes):
        return letter
    vector = letter.body["vector"].clone()
    vector[0] ^= 1
    return replace(letter, body={**letter.body, "vector": vector})


def bend(name: str, pipeline: Pipeline) -> Pipeline:
    """The server plays by a placement of its own, which the others know nothing of."""
    if name != "server":
        return pipeline
    forging = pipeline.model_copy(update={"place": ForgingServers()})
    forging.__dict__["digest"] = pipeline.digest
    return forging


def test_a_forged_sum_raises_the_alarm_at_every_node() -> None:
    made = Deployment(
        PIPELINES["sum servers"], task(), Federation(rounds=2), Coins.from_seed(SEED), QUICK, bend=bend
    )  # fmt: skip
    scene = FlowerScene(made)
    result, grid = scene.run(1)
    alarmed = {name for name, event, facts in scene.told if event == "alarm" and "tag does not fit" in facts["why"]}
    assert alarmed == set(CLIENTS)
    # The server learns that they failed, and not of what.
    assert [reply.error.reason for reply in grid.replies if reply.has_error()] == [FIXED_WORD] * len(CLIENTS)
    assert result.evaluate_metrics_clientapp == {}


def test_a_node_that_raised_the_alarm_takes_no_further_part() -> None:
    made = Deployment(
        PIPELINES["sum servers"], task(), Federation(rounds=2, carry=True), Coins.from_seed(SEED), SHORT, bend=bend
    )  # fmt: skip
    scene = FlowerScene(made, lost_is_fine=True)
    scene.run(2)
    assert len(scene.updates) == len(CLIENTS), "nobody trained again"
    assert torch.equal(scene.models[1], scene.models[2])
