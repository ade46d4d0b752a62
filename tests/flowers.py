"""An app of numbers, and a federation with key files for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from croupier.flower.rehearse import RehearsalPlan, Rehearsed, rehearse
from croupier.flower.station import KEY, client_name
from croupier.service.roster import Timetable

# Long enough for a busy machine; and for tests in which somebody is missed, short.
QUICK = Timetable(phase=60.0, round=120.0, hold=2.0)
SHORT = Timetable(phase=4.0, round=60.0, hold=2.0)


@contextmanager
def deployed(
    arrays: ArrayRecord, clients: int, plan: RehearsalPlan | None = None
) -> Iterator[tuple[Rehearsed, dict[int, dict[str, Any]]]]:
    """A federation with key files in a folder and hosts that run; and what the nodes' operators set, by node."""
    made = rehearse(plan or RehearsalPlan(times=QUICK), clients, arrays)
    try:
        configs = {
            number + 1: {"partition-id": number, "num-partitions": clients, KEY: str(made.key(client_name(number)))}
            for number in range(clients)
        }
        yield made, configs
    finally:
        made.close()


def numbers_app(mods: Sequence[Any], train: Callable[[int, Any], None] = lambda node, context: None) -> ClientApp:
    """An app whose node p adds a ramp of its own to the model, from 10 (p + 1) examples."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        train(part, context)
        arrays = message.content.array_records["arrays"]
        ramp = np.linspace(0.01 * (part + 1), -0.02 * (part + 1), LENGTH, dtype=np.float32)
        moved = ArrayRecord({"w": Array(arrays["w"].numpy() * np.float32(0.9) + ramp), "seen": arrays["seen"]})
        metrics = MetricRecord({"num-examples": 10 * (part + 1), "train_loss": 0.5 * (part + 1)})
        return Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 2, "loss": 1.5})}), reply_to=message)

    return app


LENGTH = 200


def numbers() -> ArrayRecord:
    """The model of that app: floats, and a counter."""
    floats = np.linspace(-0.5, 0.5, LENGTH, dtype=np.float32)
    return ArrayRecord({"w": Array(floats), "seen": Array(np.array(7, dtype=np.int64))})
