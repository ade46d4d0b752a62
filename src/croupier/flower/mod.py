"""The mod of a ClientApp: what a node learned goes to the hosts, and nothing of it into the reply.

It belongs first in an app's list of mods. A round of training must come with a signed notice, so that an unprotected
strategy gets nothing. Evaluation passes where it answers with a few single numbers: anything else could hold an update.
Queries pass only where the node's operator says so. Whatever is raised stays on the node. An app names the mod as
`croupier.flower.shield`; the part of a client is played by `flower.node`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from torch import Tensor

from croupier.core.update import Update
from croupier.errors import CroupierError, IntegrityError, OwnError, ProtocolError, SpecError
from croupier.flower.arrays import check_arrays, from_vector, to_vector, with_metrics
from croupier.flower.background import Workbench
from croupier.flower.layouts import check_weight, metric_slots
from croupier.flower.letters import Told, introduced, refusal, taken
from croupier.flower.node import Fits, Handed, NodeClient, check_trust
from croupier.flower.station import QUERIES, Find, NodeFacts, Station, find_station, queries_pass
from croupier.service.alone import alone
from croupier.service.log import Log

CallNext = Callable[[Message, Context], Message]
# An evaluation says how good a model is: a few numbers, with short names. More of either could hold an update.
MOST_NUMBERS, LONGEST_NAME = 64, 64


@dataclass(frozen=True)
class ShieldMod:
    """The mod: Flower calls it with every message; `find` says where the node's keys lie."""

    find: Find = find_station

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Answer one message."""
        log = Log(f"node {context.node_id}")
        try:
            return self._answer(message, context, call_next)
        except IntegrityError as error:
            log("alarm", why=str(error))
        except CroupierError as error:
            log("refused", why=str(error))
        except Exception:
            # The app's own failure: its text may hold records, so it is for this machine's eyes only.
            traceback.print_exc()
            log("failed", why="the app raised an exception; see above")
        return refusal(message)

    def _answer(self, message: Message, context: Context, call_next: CallNext) -> Message:
        told, kind = Told.read(message.content), message.metadata.message_type.partition(".")[0]
        # At every message, so that an operator hears of a mistake before a query comes.
        queries = queries_pass(context.node_config)
        rehearsal = told.rehearsal if told else ""
        station = self.find(NodeFacts(context.node_config, context.run_config, rehearsal))
        if told and told.hello:
            keys = station.member.keyring
            return introduced(message, station.member.name, keys.identity, told)
        with alone(station.folder):
            if kind == "train":
                return _train(station, told, message, context, call_next)
            _check_trust(station)
            if kind != "evaluate" and not queries:
                raise ProtocolError(
                    f"a message {message.metadata.message_type!r:.40}: its answer would pass unprotected; the node's "
                    f"operator may let queries pass (--node-config {QUERIES}=true)"
                )
            reply = call_next(message, context)
            if kind == "evaluate":
                _check_evaluation(reply)
            # After the app's own function: what it starts (processes that load data) should not meet open connections.
            _as_client(station, NodeClient.run)
        return reply


shield = ShieldMod()


def _as_client(
    station: Station, job: Callable[[NodeClient], Coroutine[Any, Any, None]], fit: Fits | None = None
) -> None:  # fmt: skip
    """Be the node's client for one job over the network; the app's training is done in this thread."""
    bench = Workbench()

    async def play() -> None:
        client = NodeClient(station, None if fit is None else bench.here(fit))
        try:
            await job(client)
        finally:
            await client.close()

    bench.run(play())


def _check_trust(station: Station) -> None:
    """Raises: IntegrityError when this node raised an alarm before."""
    store = station.store()
    try:
        check_trust(store, station.member.name)
    finally:
        store.close()


def _train(station: Station, told: Told | None, message: Message, context: Context, call_next: CallNext) -> Message:
    """One round of training, or only a look at what came of the last one."""
    if told is None:
        raise ProtocolError(
            "a training message without a notice: the server's strategy is not protected; wrap it with "
            "croupier.flower.protect"
        )
    if not told.notice:
        _as_client(station, NodeClient.run)
        return taken(message)
    fit = AppFit(station, told, message, context, call_next)
    handed = Handed(told.notice, fit.start, told.tensors())
    _as_client(station, lambda client: client.train(handed), fit)
    return taken(message)


class AppFit:
    """The app's own training function, as the work that a client's flow asks for."""

    def __init__(
        self, station: Station, told: Told, message: Message, context: Context, call_next: CallNext
    ) -> None:  # fmt: skip
        self.layout, self.tell = station.member.roster.layout, station.options.tell
        self.told, self.message, self.context, self.call_next = told, message, context, call_next
        check_weight(told.weight, self.layout)
        held = message.content.array_records
        if len(held) != 1:
            raise ProtocolError(f"a training message with {len(held)} models; protected strategies send one")
        ((self.key, self.arrays),) = held.items()
        self.start = to_vector(self.arrays, self.layout)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        """An update for each job, or what is wrong with what the app gave."""
        return [self._one(start) for start, *_ in jobs]

    def _one(self, start: Tensor) -> Update | CroupierError:
        if not torch.equal(start, self.start):
            # The protocol hands the app another vector than the server sent: the same model in its own coordinates.
            self.message.content[self.key], _ = from_vector(start, self.layout, self.arrays)
        try:
            return self._read(self.call_next(self.message, self.context))
        except CroupierError as error:
            return error
        except Exception:
            # Its text may hold records: it is for this machine's eyes only.
            traceback.print_exc()
            return OwnError("the app's training raised an exception; see above")

    def _read(self, reply: Message) -> Update:
        if reply.has_error():
            raise OwnError("the app answered with an error of its own")
        arrays, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise OwnError(
                f"the app's training gave {len(arrays)} ArrayRecords and {len(metrics)} MetricRecords; give one of each"
            )
        try:
            check_arrays(arrays[0], self.layout)
        except SpecError as error:
            raise OwnError(f"the app's training: {error}") from None
        numbers = {name: float(value) for name, value in metrics[0].items() if isinstance(value, int | float)}
        weight = numbers.get(self.told.weight)
        if weight is None or not weight > 0:
            raise OwnError(f"metric {self.told.weight!r} = {weight}: the app must say how many examples it trained on")
        vector, beyond = with_metrics(to_vector(arrays[0], self.layout), self.layout, numbers)
        self._tell(metrics[0], beyond)
        return Update(vector, self.layout, {"weight": torch.tensor([weight], dtype=torch.float64)})

    def _tell(self, metrics: MetricRecord, beyond: list[str]) -> None:
        """What becomes of the app's metrics is told here, where they are known, and nowhere else."""
        carried = {slot.name for slot in metric_slots(self.layout).values()} | {self.told.weight}
        if left := sorted(set(metrics) - carried):
            self.tell("metrics not sent", names=", ".join(left), why="the roster carries no such metric")
        if beyond:
            self.tell("metrics clamped", names=", ".join(beyond), why="beyond the bound that the roster has for them")


def _check_evaluation(reply: Message) -> None:
    """Raises: ProtocolError for what could hold a model: evaluation answers with a few single numbers."""
    content: RecordDict = reply.content if not reply.has_error() else RecordDict()
    if reply.has_error() or content.array_records or content.config_records:
        raise ProtocolError("the app's evaluation gave more than metrics; only single numbers leave a node unprotected")
    records = content.metric_records
    for record in records.values():
        if listed := [name for name, value in record.items() if isinstance(value, list)]:
            raise ProtocolError(f"metric {listed[0]!r:.40} of the app's evaluation is a list; give single numbers")
    # A record without numbers still has a name.
    if (count := max(len(records), sum(map(len, records.values())))) > MOST_NUMBERS:
        raise ProtocolError(f"the app's evaluation gave {count} numbers; give at most {MOST_NUMBERS}")
    for name in (*records, *(name for record in records.values() for name in record)):
        if len(name) > LONGEST_NAME:
            raise ProtocolError(
                f"metric {name!r:.40} of the app's evaluation has a name of {len(name)} characters; give at most "
                f"{LONGEST_NAME}"
            )
