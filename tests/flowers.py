"""Flower without a SuperLink: a grid that answers each message by calling the app, and keeps all that passes it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from croupier.flower.rehearse import RehearsalPlan, Rehearsed, rehearse
from croupier.flower.station import KEY, client_name
from croupier.service.roster import Timetable

QUICK = Timetable(phase=2.0, round=20.0, hold=2.0)
UNREACHABLE = 3


class HereGrid(Grid):
    """So many nodes in this process. `relayed` holds everything that a SuperLink would have seen, as bytes."""

    def __init__(
        self, app: ClientApp, configs: Mapping[int, Mapping[str, Any]], run_config: Mapping[str, Any] | None = None,
        drops: Callable[[int, Message], bool] = lambda node, message: False,
    ) -> None:  # fmt: skip
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self.app, self.drops = app, drops
        self.contexts = {
            node: Context(1, node, dict(config), RecordDict(), dict(run_config or {}))
            for node, config in configs.items()
        }
        self.relayed: list[bytes] = []
        self.replies: list[Message] = []

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        """There is one run."""
        raise NotImplementedError

    def create_message(self, *args: Any, **named: Any) -> Message:
        """The old way to make messages."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Only whole exchanges are played."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Only whole exchanges are played."""
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Every node answers in turn."""
        return [self._answered(number, copy.deepcopy(message)) for number, message in enumerate(messages)]

    def _answered(self, number: int, message: Message) -> Message:
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"{node}-{number}"
        self.relayed.append(packed(message))
        if self.drops(node, message):
            reply = Message(Error(code=UNREACHABLE, reason="unreachable"), reply_to=message)
        else:
            try:
                reply = self.app(message, self.contexts[node])
            except Exception as error:
                reply = Message(Error(code=2, reason=repr(error)), reply_to=message)
        self.relayed.append(packed(reply))
        self.replies.append(reply)
        return reply


def packed(message: Message) -> bytes:
    """A message as the bytes that it would travel as, and what it says of an error."""
    if message.has_error():
        return f"{message.error.code} {message.error.reason}".encode()
    content = message.content
    parts = [array.data for record in content.array_records.values() for array in record.values()]
    parts += [repr(dict(record)).encode() for record in content.metric_records.values()]
    for record in content.config_records.values():
        parts += [value if isinstance(value, bytes) else repr(value).encode() for value in record.values()]
    return b"\0".join(parts)


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
