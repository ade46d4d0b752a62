"""A grid of Flower's in this process: it answers each message by calling the app, and can keep all that passes it.

Without SuperLink and Ray one sees what a protected round costs by itself, and what a SuperLink would see of it.
`bench.flower.rounds` (`croupier bench flower`) times rounds on it, and tests of `croupier.flower` play on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# Flower's code for a node that did not answer.
UNREACHABLE = 3


class HereGrid(Grid):
    """A grid with so many nodes in this process. `relayed` holds what every message contained, as bytes.

    `drops` says which messages never arrive at a node, and `keeps` whether messages are kept at all.
    """

    def __init__(
        self, app: ClientApp, configs: Mapping[int, Mapping[str, Any]], run_config: Mapping[str, Any] | None = None,
        drops: Callable[[int, Message], bool] = lambda node, message: False, keeps: bool = True,
    ) -> None:  # fmt: skip
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1
        self.app, self.drops, self.keeps = app, drops, keeps
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
        """Every message is answered in turn, by its node."""
        return [self._answered(number, copy.deepcopy(message)) for number, message in enumerate(messages)]

    def _answered(self, number: int, message: Message) -> Message:
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"{node}-{number}"
        if self.keeps:
            self.relayed.append(packed(message))
        if self.drops(node, message):
            reply = Message(Error(code=UNREACHABLE, reason="unreachable"), reply_to=message)
        else:
            try:
                reply = self.app(message, self.contexts[node])
            except Exception as error:
                reply = Message(Error(code=2, reason=repr(error)), reply_to=message)
        if self.keeps:
            self.relayed.append(packed(reply))
            self.replies.append(reply)
        return reply


def packed(message: Message) -> bytes:
    """A message's content as bytes (of numbers and text, as Python prints them), or what it says of an error."""
    if message.has_error():
        return f"{message.error.code} {message.error.reason}".encode()
    content = message.content
    parts = [array.data for record in content.array_records.values() for array in record.values()]
    parts += [repr(dict(record)).encode() for record in content.metric_records.values()]
    for record in content.config_records.values():
        parts += [value if isinstance(value, bytes) else repr(value).encode() for value in record.values()]
    return b"\0".join(parts)
